"""Some minutes of one session give the same words at the same places all the way; soak.py runs a whole day by hand."""

import asyncio
from pathlib import Path

from tests.soak import HOUR_MS, soak


def test_the_same_audio_gives_the_same_words_at_any_time(data: Path) -> None:
    report = asyncio.run(soak(data / "digits-clean.wav", hours=180_000 / HOUR_MS))
    assert report.odd == []
    assert [seen[0] for seen in report.expected] == ["three one four", "one five nine two", "six five"]
    assert report.finals == 3 * 21
    assert report.done is not None
    assert report.done.heard_ms == 21 * report.period_ms
    assert report.done.segments == report.finals

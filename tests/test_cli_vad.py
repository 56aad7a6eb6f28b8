"""`liveasr vad`: where there is speech."""

import json
from pathlib import Path

import pytest
import soundfile

from liveasr.types import SAMPLE_RATE_HZ
from tests.command import Run
from tests.sounds import silence


def test_vad_prints_segments_as_json(run: Run, noisy: Path) -> None:
    result = run("vad", noisy)
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == [
        {"start_ms": 250, "end_ms": 2110, "forced_cut": False},
        {"start_ms": 2850, "end_ms": 4550, "forced_cut": False},
        {"start_ms": 5240, "end_ms": 7190, "forced_cut": False},
    ]


def test_vad_prints_segments_as_text(run: Run, noisy: Path) -> None:
    result = run("vad", "--format", "txt", noisy)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0] == "00:00.250 --> 00:02.110"
    assert len(result.out.splitlines()) == 3


def test_vad_marks_forced_cuts(run: Run, noisy: Path) -> None:
    text = run("vad", "--format", "txt", "--max-segment-ms", 1000, noisy).out.splitlines()
    spans = json.loads(run("vad", "--max-segment-ms", 1000, noisy).out)
    assert [line.endswith("  cut") for line in text] == [span["forced_cut"] for span in spans]
    assert any(span["forced_cut"] for span in spans)


def test_vad_of_silence_is_an_empty_list(run: Run, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", silence(5), SAMPLE_RATE_HZ)
    assert json.loads(run("vad", tmp_path / "x.wav").out) == []


@pytest.mark.parametrize("name", ["missing.wav", "text.wav"])
def test_vad_of_no_recording_is_one_line(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound", encoding="utf-8")
    result = run("vad", tmp_path / name)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.startswith(f"liveasr: {tmp_path / name}: ")

"""Hours of audio through one session of the service, as fast as it goes, with the built-in model.

    python tests/soak.py --hours 24

The same recording again and again, so that every repetition has to give the same words at the same places. Prints, for
every hour of audio, what the process holds. In `make test` the same runs for some minutes of audio (test_soak.py).
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from liveasr import store
from liveasr.engines.registry import open_engine
from liveasr.stream.connection import Connection
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import detector_maker
from liveasr.stream.messages import (
    Audio,
    Done,
    ServerMessage,
    Start,
    Stop,
    Transcript,
    decode_server,
    encode,
    encode_audio,
)
from liveasr.stream.pcm import encode_pcm
from liveasr.stream.service import OfferedModel, Service, ServiceConfig
from liveasr.types import SAMPLE_RATE_HZ

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.helpers import resident_bytes

_HOP_SAMPLES = 160
_FRAME_BYTES = 2 * SAMPLE_RATE_HZ // 10
HOUR_MS = 3_600_000


@dataclass(slots=True)
class Report:
    """What came of it."""

    period_ms: int
    """Length of one repetition."""
    finals: int = 0
    expected: list[tuple[Any, ...]] = field(default_factory=list)
    """The finals of the second repetition, which has the first one before it as all later ones have theirs."""
    odd: list[str] = field(default_factory=list)
    """Finals that are not where or what they have to be."""
    resident_mb: list[float] = field(default_factory=list)
    """After every hour."""
    done: Done | None = None


class RepeatingChannel:
    """A client that says one recording again and again, without a pause, and looks at what comes back."""

    def __init__(self, samples_s16le: bytes, repetitions: int, report: Report) -> None:
        self._frames = self._all_frames(samples_s16le, repetitions)
        self._report = report
        self._repetition: list[tuple[Any, ...]] = []
        self.closed = 0

    @staticmethod
    def _all_frames(payload: bytes, repetitions: int) -> Iterator[str | bytes]:
        yield encode(Start(partials=False))
        number = 0
        for _ in range(repetitions):
            for start in range(0, len(payload), _FRAME_BYTES):
                number += 1
                yield encode_audio(Audio(number, payload[start : start + _FRAME_BYTES]))
        yield encode(Stop())

    async def receive(self) -> str | bytes | None:
        await asyncio.sleep(0)
        frame = next(self._frames, None)
        if frame is None:
            await asyncio.Event().wait()
        return frame

    async def send(self, frame: str) -> None:
        message = decode_server(frame)
        assert message is not None
        self._look(message)

    async def close(self, code: int, _reason: str) -> None:
        self.closed = code

    def _look(self, message: ServerMessage) -> None:
        report = self._report
        if isinstance(message, Done):
            report.done = message
        if not (isinstance(message, Transcript) and message.final):
            return
        report.finals += 1
        repetition, start_ms = divmod(message.start_ms, report.period_ms)
        shift_ms = repetition * report.period_ms
        words = [(word.text, word.start_ms - shift_ms, word.end_ms - shift_ms) for word in message.words]
        seen = (message.text, start_ms, message.end_ms - shift_ms, *words)
        if repetition == 1:
            report.expected.append(seen)
        elif repetition > 1 and seen != report.expected[(report.finals - 1) % len(report.expected)]:
            report.odd.append(f"{message.start_ms}: {seen}")
        while len(report.resident_mb) < message.end_ms // HOUR_MS:
            report.resident_mb.append(round(resident_bytes() / 1e6, 1))
            sys.stderr.write(f"{len(report.resident_mb)} h: {report.resident_mb[-1]} MB\n")


async def soak(recording: Path, hours: float) -> Report:
    """Run that many hours of audio through a session."""
    with AudioFile(recording) as audio:
        samples = np.concatenate(list(audio.blocks()))
    samples = np.pad(samples, (0, -samples.size % _HOP_SAMPLES))  # every repetition on the same grid of frames
    period_ms = samples.size * 1000 // SAMPLE_RATE_HZ
    report = Report(period_ms)
    engine = open_engine(store.find("digits"), threads=1)
    service = Service([OfferedModel("digits", [engine])], detector_maker("fsmn"), ServiceConfig(session_s=1e9))
    channel = RepeatingChannel(encode_pcm(samples, "s16le"), round(hours * HOUR_MS / period_ms), report)
    try:
        await Connection(channel, service).run()
    finally:
        await service.close()
    assert channel.closed == 1000, channel.closed
    return report


def main() -> None:
    """Run it by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    arguments = parser.parse_args()
    begun = time.monotonic()
    report = asyncio.run(soak(Path(__file__).parent / "data" / "digits-clean.wav", arguments.hours))
    seconds = time.monotonic() - begun
    print(json.dumps({**msgspec.to_builtins(report), "seconds": round(seconds), "odd": report.odd[:10]}, indent=1))  # noqa: T201
    sys.exit(bool(report.odd))


if __name__ == "__main__":
    main()

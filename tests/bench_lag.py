"""How late the event loop runs while lanes decode for many sessions. Not a test: run it on an idle machine.

    python tests/bench_lag.py MODEL.gguf RECORDING [--sessions 4] [--lanes 2] [--seconds 30]

Every session plays the recording at the speed of speech, shifted against the others. Prints percentiles of how late a
5 ms sleep ends, and what the queue did.
"""

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from liveasr.clients.bench_live import LiveFigures, measure
from liveasr.clients.playback import paced
from liveasr.clients.stability import percentile
from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import detectors
from liveasr.stream.live import LiveStream, run_loop
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import DecodePool
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Transcript
from liveasr.vad.config import VadConfig


def _shifted(samples: Float32Array, seconds: int, index: int) -> Iterator[Float32Array]:
    """The recording over and over, from another place for each session."""
    yield np.resize(np.roll(samples, index * SAMPLE_RATE_HZ * 7 // 3), seconds * SAMPLE_RATE_HZ)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Lag of the event loop under load.")
    parser.add_argument("model", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=30)
    args = parser.parse_args()
    with AudioFile(args.recording) as audio:
        samples = np.concatenate(list(audio.blocks()))
    figures = LiveFigures()

    async def work() -> None:
        engine = open_engine(args.model, threads=1)
        pool = DecodePool([engine, *(engine.lane() for _ in range(args.lanes - 1))])
        new_detector = detectors("fsmn", VadConfig())

        def play(index: int) -> asyncio.Task[list[Transcript]]:
            stream = LiveStream(Session(new_detector(), engine.front_end, LiveConfig()), pool, DecodeOptions())
            source = paced(_shifted(samples, args.seconds, index), realtime=True)
            return asyncio.create_task(measure(stream, source, figures))

        await asyncio.gather(*(play(index) for index in range(args.sessions)))
        print(f"decoded {pool.decoded}, partials overtaken {pool.overtaken}")  # noqa: T201
        await pool.close()

    run_loop(work())
    lags = figures.delays["loop_lag"]
    shares = ", ".join(f"p{share * 100:g} {percentile(lags, share):.1f}" for share in (0.5, 0.95, 0.99, 1.0))
    print(f"{args.sessions} sessions, {args.lanes} lanes: loop lag in ms: {shares} ({len(lags)} wakes)")  # noqa: T201
    finals = figures.delays["final_after_segment"]
    print(f"final after segment: p50 {percentile(finals, 0.5):.0f}, p95 {percentile(finals, 0.95):.0f} ms")  # noqa: T201


if __name__ == "__main__":
    main()

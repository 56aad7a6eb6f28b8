"""Times the front end and the VAD on one core, in pieces of several sizes. Not a test: run it on an idle machine.

    OPENBLAS_NUM_THREADS=1 python tests/bench_frontend.py [RECORDING]

Without a recording, a minute of noise is used: the arithmetic does not depend on what is said. Prints the best of
several runs as seconds of audio per second.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

import numpy as np

from liveasr import store
from liveasr.gguf_file import GgufFile
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import FsmnDetector
from liveasr.stream.fbank import OnlineFbank
from liveasr.types import SAMPLE_RATE_HZ, Float32Array
from liveasr.vad import weights
from liveasr.vad.config import VadConfig

_PIECES_MS = (20, 60, 200, 1000)
_RUNS = 5


def _load(path: Path | None) -> Float32Array:
    if path is None:
        noise = np.random.default_rng(0).standard_normal(60 * SAMPLE_RATE_HZ) * 0.1
        return noise.astype(np.float32)
    with AudioFile(path) as audio:
        return np.concatenate(list(audio.blocks()))


def _best(run: Callable[[], None], audio_s: float) -> float:
    """Seconds of audio per second, best of several runs."""
    best = float("inf")
    for _ in range(_RUNS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return audio_s / best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Speed of the front end and the VAD on one core.")
    parser.add_argument("recording", nargs="?", type=Path)
    samples = _load(parser.parse_args().recording)
    audio_s = samples.size / SAMPLE_RATE_HZ
    with GgufFile(store.built_in(store.VAD_MODEL)) as file:
        vad_weights = weights.load(file)
    print(f"{audio_s:.1f} s of audio, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")  # noqa: T201
    print("piece      fbank    fbank + VAD   (times real time)")  # noqa: T201
    for piece_ms in _PIECES_MS:
        size = piece_ms * SAMPLE_RATE_HZ // 1000
        pieces = [samples[start : start + size] for start in range(0, samples.size, size)]

        def fbank(pieces: list[Float32Array] = pieces) -> None:
            online = OnlineFbank()
            for piece in pieces:
                online.accept(piece)

        def both(pieces: list[Float32Array] = pieces) -> None:
            online, detector = OnlineFbank(), FsmnDetector(vad_weights, VadConfig())
            for piece in pieces:
                detector.accept(piece, online.accept(piece))

        print(f"{piece_ms:5} ms {_best(fbank, audio_s):8.0f} {_best(both, audio_s):14.0f}")  # noqa: T201


if __name__ == "__main__":
    main()

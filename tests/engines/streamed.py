"""What the tests of the streaming Paraformer share: the runs of the reference, and the frames that it was given."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from liveasr.engines.chunks import Chunks
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array

STAGE_SAMPLES = 45_000  # as in tests/golden/paraformer_streaming.py
STEMS = ("digits-clean", "digits-noisy")
WAYS = tuple(Chunks(*sizes, *backs) for sizes in ((0, 10, 5), (5, 10, 5), (0, 8, 4)) for backs in ((0, 0), (4, 1)))
_WINDOW_SAMPLES, _HOP_SAMPLES = 400, 160


def name_of(chunks: Chunks) -> str:
    """As in the names of the golden arrays: 0-10-5/4-1."""
    sizes = f"{chunks.past}-{chunks.now}-{chunks.ahead}"
    return f"{sizes}/{chunks.encoder_look_back}-{chunks.decoder_look_back}"


def frames(golden: Path, stem: str, samples: int = STAGE_SAMPLES) -> Float32Array:
    """(T, 560) stacked frames, before CMVN, of the first samples of a recording."""
    count = max(0, (samples - _WINDOW_SAMPLES) // _HOP_SAMPLES + 1)
    return stack(np.load(golden / "frontend.npz")[f"{stem}/fbank"][:count], 7, 6)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The reference's run over the beginning of a recording, one entry a chunk in each list."""

    encoder_out: list[Float32Array]
    """(W, D) each."""
    alphas: list[Float32Array]
    """(W,) each: of all rows of the window."""
    integrator: list[float]
    """What is left of the weight when the chunk has fired."""
    acoustic_embeds: list[Float32Array]
    """(N, D) each."""
    logits: list[Float32Array]
    """(N, V) each."""


def run_of(golden: Path, stem: str, chunks: Chunks) -> Run:
    """The stages of one run of the tiny model."""
    return run_in(np.load(golden / "paraformer-streaming-tiny.npz"), stem, chunks)


def run_in(arrays: Any, stem: str, chunks: Chunks) -> Run:
    """The stages of one run in a file of any model."""
    prefix = f"{stem}/{name_of(chunks)}"

    def parts(name: str, sizes: str) -> list[Any]:
        return np.split(arrays[f"{prefix}/{name}"], np.cumsum(arrays[f"{prefix}/{sizes}"])[:-1])

    return Run(
        encoder_out=parts("encoder_out", "window"),
        alphas=parts("alphas", "window"),
        integrator=arrays[f"{prefix}/integrator"].tolist(),
        acoustic_embeds=parts("acoustic_embeds", "fired"),
        logits=parts("logits", "fired"),
    )


@dataclass(frozen=True, slots=True)
class Tail:
    """How the reference ends a recording of so many samples: ids in each chunk."""

    samples: int
    ids: list[list[int]]


def tails_of(golden: Path, chunks: Chunks) -> Iterator[Tail]:
    """Runs over the beginning of the first recording that end at every place in a chunk."""
    arrays = np.load(golden / "paraformer-streaming-tiny.npz")
    prefix = f"{STEMS[0]}/{name_of(chunks)}/tails"
    ids = iter(arrays[f"{prefix}/ids"].tolist())
    for samples, counts in zip(arrays[f"{prefix}/samples"].tolist(), arrays[f"{prefix}/fired"].tolist(), strict=True):
        yield Tail(samples, [[next(ids) for _ in range(count)] for count in counts if count >= 0])

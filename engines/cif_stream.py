"""Continuous integrate-and-fire (CIF) over a stream: which rows of the encoder's output make up which token, and when.

Every row has a weight between 0 and 1. They are added up; when the sum reaches 1, a token fires: its
embedding is the weighted sum of the rows since the last one, and the weight of the row that fires is shared between
both tokens. Sums are in float32, row by row, as in the reference, so that what fires is the same. Source:
`funasr/models/paraformer/cif_predictor.py`, `CifPredictorV2.forward_chunk`.

A token lasts from the first row that brings a noticeable weight to the point within a row at which it fires: the
fires lie on the 60 ms grid of the rows, and the share of the row's weight that the token still needs tells where
between its ends.
"""

from dataclasses import dataclass, field

import numpy as np

from liveasr.types import Float32Array

_FULL = np.float32(1)
_NOTICEABLE = np.float32(0.05)
"""Weight below which a row is silence, and no part of the token that some later row begins."""


@dataclass(frozen=True, slots=True)
class Fire:
    """When a token was spoken, in rows from the first of the segment; before it are negative ones."""

    start: float
    end: float


@dataclass(slots=True, eq=False)
class CifState:
    """What one stream carries from chunk to chunk."""

    row: int
    """Number of the next row."""
    mixed: Float32Array
    """(D,) weighted sum of the rows since the last fire."""
    weight: np.float32 = field(default_factory=lambda: np.float32(0))
    """Of those rows, below 1."""
    start: float | None = None
    """Where the open token began; None while only silence was heard."""


def integrate(hidden: Float32Array, alphas: Float32Array, state: CifState) -> tuple[Float32Array, list[Fire]]:
    """Take the next rows of a stream.

    Args:
        hidden: (n, D) rows of the encoder's output.
        alphas: (n,) weights between 0 and 1.
        state: of the stream; it moves on.

    Returns:
        (N, D) embeddings of the tokens that fired, and when each was spoken.
    """
    embeddings, fires = [], []
    for row, alpha in zip(hidden, alphas, strict=True):
        if state.start is None and alpha >= _NOTICEABLE:
            state.start = float(state.row)
        if alpha + state.weight < _FULL:
            state.weight += alpha
            state.mixed = state.mixed + alpha * row
        else:
            missing = _FULL - state.weight
            embeddings.append(state.mixed + missing * row)
            end = state.row + min(1.0, float(missing / alpha))  # the sum may have been rounded up to 1
            fires.append(Fire(float(state.row) if state.start is None else state.start, end))
            state.weight = state.weight + alpha - _FULL
            state.mixed = state.weight * row
            state.start = end if state.weight >= _NOTICEABLE else None
        state.row += 1
    return np.array(embeddings, np.float32).reshape(-1, hidden.shape[1]), fires


def integrate_tail(state: CifState, tail: float) -> tuple[Float32Array, list[Fire]]:
    """The end of a segment: a row of zeros with the weight `tail`, so that a token that is almost complete fires.

    Args:
        state: of the stream; it moves on.
        tail: `tail_threshold` of the model, 0.45 in all that were released.
    """
    return integrate(np.zeros((1, len(state.mixed)), np.float32), np.array([tail], np.float32), state)

"""A picture of what the voice activity detector heard: waveform, speech score, segments."""

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from liveasr.errors import MissingExtraError, OutputError
from liveasr.types import SAMPLE_RATE_HZ, Float32Array

_COLUMN_SAMPLES = 160  # one column of the envelope, and one score, every 10 ms
_COLUMN_S = _COLUMN_SAMPLES / SAMPLE_RATE_HZ
_ROW_S = 30.0
_MAX_ROWS = 24  # longer recordings get longer rows
_ROW_POINTS = 3_000  # more than this is more than a row has pixels
_WIDTH_INCHES, _ROW_INCHES = 14.0, 1.6


@dataclass(frozen=True, slots=True)
class Span:
    """Where a segment lies."""

    start_ms: int
    end_ms: int
    forced_cut: bool


class Envelope:
    """Lowest and highest sample of every 10 ms, gathered as a recording is read."""

    def __init__(self) -> None:
        self._rest = np.empty(0, np.float32)
        self._columns: list[Float32Array] = []

    def accept(self, samples: Float32Array) -> None:
        """Take the next samples."""
        pending = np.concatenate((self._rest, samples))
        count = pending.size // _COLUMN_SAMPLES
        columns = pending[: count * _COLUMN_SAMPLES].reshape(count, _COLUMN_SAMPLES)
        self._columns.append(np.stack((columns.min(axis=1), columns.max(axis=1)), axis=1))
        self._rest = pending[count * _COLUMN_SAMPLES :]

    def columns(self) -> Float32Array:
        """Lowest and highest sample of each whole 10 ms, (n, 2)."""
        return np.concatenate([np.empty((0, 2), np.float32), *self._columns])


def draw(path: Path, title: str, envelope: Float32Array, silence: Float32Array, segments: Sequence[Span]) -> None:
    """Write the picture.

    Args:
        path: a file whose ending names the format: .png, .svg, .pdf.
        title: above the picture.
        envelope: (n, 2) lowest and highest sample of every 10 ms.
        silence: (n,) silence score of every 10 ms.
        segments: what was found.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written.
    """
    try:
        figure_module = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingExtraError("plot", "matplotlib", "draws the picture") from error
    length_s = max(len(envelope) * _COLUMN_S, _COLUMN_S)
    rows = min(_MAX_ROWS, int(-(-length_s // _ROW_S)))
    row_s = _ROW_S if rows < _MAX_ROWS else length_s / rows
    figure = figure_module.Figure(figsize=(_WIDTH_INCHES, 0.8 + _ROW_INCHES * rows), layout="constrained")
    figure.suptitle(title, parse_math=False)
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    for row, axis in enumerate(axes):
        start_s = row * row_s
        end_s = length_s if rows == 1 else start_s + row_s  # a short recording fills its row
        _draw_row(axis, start_s, end_s, envelope, silence)
        _draw_segments(axis, start_s, start_s + row_s, segments)
    axes[-1].set_xlabel("seconds; grey: waveform; orange: speech score; blue: segments, a red edge is a forced cut")
    part = path.with_name(path.name + ".part")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a title may have characters that the font has not
            figure.savefig(part, dpi=100, format=path.suffix[1:] or "png")
        part.replace(path)
    except (OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        raise OutputError(path, f"cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _draw_row(axis: Any, start_s: float, end_s: float, envelope: Float32Array, silence: Float32Array) -> None:
    first, last = round(start_s / _COLUMN_S), round(end_s / _COLUMN_S)
    step = max(1, (last - first) // _ROW_POINTS)
    low = np.minimum.reduceat(envelope[first:last, 0], range(0, len(envelope[first:last]), step))
    high = np.maximum.reduceat(envelope[first:last, 1], range(0, len(envelope[first:last]), step))
    axis.fill_between(start_s + _COLUMN_S * step * np.arange(len(low)), low, high, color="0.55", linewidth=0)
    scores = 1.0 - silence[first:last:step]
    axis.plot(start_s + _COLUMN_S * step * np.arange(len(scores)), scores, color="tab:orange", linewidth=0.8)
    axis.set_xlim(start_s, end_s)
    axis.set_ylim(-1.05, 1.05)
    axis.set_yticks([-1, 0, 1])


def _draw_segments(axis: Any, start_s: float, end_s: float, segments: Sequence[Span]) -> None:
    for segment in segments:
        begin, end = segment.start_ms / 1000, segment.end_ms / 1000
        if begin < end_s and end > start_s:
            axis.axvspan(max(begin, start_s), min(end, end_s), color="tab:blue", alpha=0.25, linewidth=0)
            if segment.forced_cut and end <= end_s:
                axis.axvline(end, color="tab:red", linewidth=1.2)

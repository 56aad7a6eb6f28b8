"""Invariant 1 of the design: however audio is cut into pieces, what comes out is the same.

`assert_same_for_any_split` runs one function over many ways to cut the same samples, or the same frames.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[Any]
"""(n,) samples or (n, dims) frames, cut along the first axis."""
Result = TypeVar("Result")

PIECES = (16, 160, 320, 960, 3200, 16_000)
"""Samples: 1, 10, 20, 60, 200 and 1000 ms."""


def pieces(rows: Rows, size: int) -> Iterator[Rows]:
    """Pieces of one size, the last perhaps shorter."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def random_pieces(rows: Rows, seed: int, longest: int = 4000) -> Iterator[Rows]:
    """Pieces of random sizes, the first and many others of them empty."""
    random = np.random.default_rng(seed)
    yield rows[:0]
    at = 0
    while at < len(rows):
        size = int(random.integers(longest)) if random.random() < 0.8 else 0
        yield rows[at : at + size]
        at += size


def cut_at(rows: Rows, places: Sequence[int]) -> list[Rows]:
    """Pieces between the given places, which hypothesis finds."""
    ends = [0, *sorted(min(place, len(rows)) for place in places), len(rows)]
    return [rows[start:end] for start, end in pairwise(ends)]


def ways(rows: Rows, sizes: Sequence[int]) -> Iterator[tuple[str, Iterator[Rows]]]:
    """(name, pieces) of every way to cut: each size, then random sizes."""
    for size in sizes:
        yield f"pieces of {size}", pieces(rows, size)
    yield "random pieces", random_pieces(rows, seed=len(rows), longest=max(2, min(4000, len(rows) // 3)))


def assert_same_for_any_split(
    rows: Rows, run: Callable[[Iterator[Rows]], Result], sizes: Sequence[int] = PIECES
) -> Result:
    """Run over the whole in one piece, then over every way to cut it; the results must be equal.

    Args:
        rows: what is cut.
        run: feeds pieces to a fresh object and returns all that came out, comparable with ==.
        sizes: of the pieces.

    Returns:
        The result for the whole.
    """
    whole = run(iter([rows]))
    for name, cut in ways(rows, sizes):
        assert run(cut) == whole, name
    return whole

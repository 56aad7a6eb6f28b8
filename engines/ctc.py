"""Greedy CTC: the best id of every step, collapsed."""

from dataclasses import dataclass

import numpy as np

from liveasr.types import Int32Array


@dataclass(frozen=True, slots=True)
class CtcToken:
    """One emitted id and the steps it was the best of, [start, end)."""

    id: int
    start_step: int
    end_step: int


def collapse(best: Int32Array, blank: int) -> list[CtcToken]:
    """Runs of equal ids, without the blanks.

    This is also the alignment that FunASR's `output_timestamp` finds for its own greedy ids: every step takes its
    best id, so no other path through the same tokens scores higher.

    Args:
        best: (T,) best id of each step.
        blank: the id that stands for nothing.
    """
    if best.size == 0:
        return []
    starts = np.flatnonzero(np.concatenate(([True], best[1:] != best[:-1])))
    ends = np.append(starts[1:], best.size)
    runs = zip(best[starts].tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [CtcToken(token, start, end) for token, start, end in runs if token != blank]

"""What the readers of checkpoints have in common: a tensor that stays in its file until it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liveasr.types import Float32Array


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that stays in the file until it is read."""

    shape: tuple[int, ...]
    read: Callable[[], Float32Array]
    """All values, C-contiguous; ModelFileError if its part of the file is damaged."""


def widened_bfloat16(words: NDArray[Any]) -> Float32Array:
    """bfloat16 values, given as uint16: each is the upper half of a float32."""
    wide = words.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)

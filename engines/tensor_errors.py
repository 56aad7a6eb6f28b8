"""How far the tensors of one file are from those of another, which was made from it."""

import math
from dataclasses import dataclass

import gguf
import numpy as np

from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import TensorInfo


@dataclass(frozen=True, slots=True)
class TensorClass:
    """The tensors of one type whose names differ in numbers alone; or, without a name, all that are as they were."""

    name: str
    kind: str
    tensors: int
    bytes_before: int
    bytes_after: int
    error: float
    """Root mean square of the differences, over that of the values."""


@dataclass(slots=True)
class _Sum:
    tensors: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    squared_differences: float = 0.0
    squares: float = 0.0

    @property
    def error(self) -> float:
        return math.sqrt(self.squared_differences / self.squares) if self.squares else 0.0


def tensor_classes(source: GgufFile, result: GgufFile) -> tuple[TensorClass, ...]:
    """What became of every tensor of an f32 or f16 file; those of the same type together, and last."""
    sums: dict[tuple[str, str], _Sum] = {}
    for info in result.tensors.values():
        before = source.tensors[info.name]
        is_same = info.type_id == before.type_id
        total = sums.setdefault(("", "") if is_same else (_class_of(info.name), info.type_name), _Sum())
        total.tensors += 1
        total.bytes_before += before.size_bytes
        total.bytes_after += info.size_bytes
        if not is_same:
            _add_difference(total, source, result, info)
    ranked = sorted(sums.items(), key=lambda item: (item[0] == ("", ""), -item[1].bytes_before))
    return tuple(
        TensorClass(name, kind, each.tensors, each.bytes_before, each.bytes_after, each.error)
        for (name, kind), each in ranked
    )


def _add_difference(total: _Sum, source: GgufFile, result: GgufFile, info: TensorInfo) -> None:
    old = source.array(info.name).ravel()
    new = gguf.quants.dequantize(result.raw(info.name), gguf.GGMLQuantizationType(info.type_id)).ravel()
    difference = new - old
    total.squared_differences += float(np.dot(difference, difference))
    total.squares += float(np.dot(old, old))


def _class_of(name: str) -> str:
    """A tensor's name without numbers and its last part: the same in all blocks."""
    return ".".join(part for part in name.removesuffix(".weight").split(".") if not part.isdigit())

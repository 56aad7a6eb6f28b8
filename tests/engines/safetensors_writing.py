"""Weights as safetensors, written by the package of that name."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import TensorSpec, serialize

from liveasr.engines.checkpoint import read_state
from liveasr.types import Float32Array

INDEX = "model.safetensors.index.json"


def bfloat16_words(values: Float32Array) -> NDArray[np.uint16]:
    """Values that are exact in bfloat16, as it stores them."""
    words = values.view(np.uint32)
    assert not (words & 0xFFFF).any()
    return (words >> 16).astype(np.uint16)


def save(path: Path, tensors: Mapping[str, NDArray[Any]]) -> Path:
    """Write arrays in their own types; those of uint16 are taken for bfloat16."""
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    specs = {
        name: TensorSpec(
            dtype="bfloat16" if array.dtype == np.uint16 else array.dtype.name,
            shape=list(array.shape),
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }
    path.write_bytes(serialize(specs, metadata={"format": "pt"}))
    return path


def save_shards(folder: Path, tensors: Mapping[str, NDArray[Any]], count: int = 3) -> None:
    """Write arrays to several files and the list of them, as transformers does."""
    places: dict[str, str] = {}
    for number in range(count):
        shard = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = dict(list(tensors.items())[number::count])
        save(folder / shard, part)
        places |= dict.fromkeys(part, shard)
    index = {"metadata": {"total_size": 1}, "weight_map": {name: places[name] for name in tensors}}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def into_safetensors(checkpoint: Path, *, shards: bool = False, bfloat16: Sequence[str] = ()) -> None:
    """Put the weights of a checkpoint's model.pt into safetensors, those of some prefixes as bfloat16."""
    state = read_state(checkpoint / "model.pt")
    (checkpoint / "model.pt").unlink()
    tensors = {
        name: bfloat16_words(values) if name.startswith(tuple(bfloat16)) else values for name, values in state.items()
    }
    if shards:
        save_shards(checkpoint, tensors)
    else:
        save(checkpoint / "model.safetensors", tensors)

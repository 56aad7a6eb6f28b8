"""Reading `model.pt` without PyTorch, and without running anything that is in it.

A checkpoint is a zip archive: `NAME/data.pkl` describes the tensors, `NAME/data/KEY` holds each storage as raw bytes.
A pickle is a program; this reader runs it with an unpickler that knows four names and refuses every other, so that a
hostile file can name no function. Storages are read from the archive only as far as a tensor needs them.
"""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from liveasr.errors import ModelFileError
from liveasr.types import Float32Array

MAX_PICKLE_BYTES = 64 << 20
"""A state dict of 1,000 tensors takes about 200 kB."""


@dataclass(frozen=True, slots=True)
class _StorageKind:
    """One of torch's storage classes."""

    name: str
    item_bytes: int


_STORAGES = {
    "FloatStorage": _StorageKind("float32", 4),
    "HalfStorage": _StorageKind("float16", 2),
    "BFloat16Storage": _StorageKind("bfloat16", 2),
    "DoubleStorage": _StorageKind("float64", 8),
    "LongStorage": _StorageKind("int64", 8),
}


@dataclass(frozen=True, slots=True)
class _Storage:
    kind: _StorageKind
    key: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A view of a storage: what `torch._utils._rebuild_tensor_v2` is called with."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state(path: Path) -> dict[str, Float32Array]:
    """All floating-point tensors of a checkpoint, by name, as float32 (bfloat16 and float16 are widened exactly).

    A state dict wrapped as {"state_dict": ...} is unwrapped.

    Raises:
        ModelFileError: the file is missing, is no checkpoint, or asks for code to be run.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(path, archive)
    except OSError as error:
        raise ModelFileError(path, f"cannot be read: {error.strerror}") from error
    except zipfile.BadZipFile as error:
        raise ModelFileError(
            path, "is not a PyTorch checkpoint (a zip archive, as torch.save writes since 1.6)"
        ) from error


def _read_archive(path: Path, archive: zipfile.ZipFile) -> dict[str, Float32Array]:
    pickles = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
    if len(pickles) != 1 or pickles[0].file_size > MAX_PICKLE_BYTES:
        raise ModelFileError(path, "is not a PyTorch checkpoint: it has no usable data.pkl")
    root = pickles[0].filename.removesuffix("data.pkl")
    try:
        state = _Unpickler(archive.read(pickles[0])).load()
    except ModelFileError:
        raise
    except Exception as error:  # a broken pickle raises almost anything
        raise ModelFileError(path, f"its data.pkl cannot be read: {error}") from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping):
        raise ModelFileError(path, "holds no state dict")
    tensors = {name: value for name, value in state.items() if isinstance(name, str) and isinstance(value, _Tensor)}
    return {
        name: _array(path, archive, root, tensor)
        for name, tensor in tensors.items()
        if "int" not in tensor.storage.kind.name
    }


def _array(path: Path, archive: zipfile.ZipFile, root: str, tensor: _Tensor) -> Float32Array:
    """The values of one tensor, C-contiguous."""
    kind = tensor.storage.kind
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    if math.prod(tensor.shape) == 0:
        return np.zeros(tensor.shape, np.float32)
    try:
        info = archive.getinfo(f"{root}data/{tensor.storage.key}")
    except KeyError as error:
        raise ModelFileError(path, f"storage {tensor.storage.key} is missing") from error
    if min(tensor.offset, *tensor.strides, *tensor.shape) < 0 or (last + 1) * kind.item_bytes > info.file_size:
        raise ModelFileError(path, f"a tensor reaches outside storage {tensor.storage.key}")
    if math.prod(tensor.shape) > info.file_size // kind.item_bytes:
        raise ModelFileError(path, f"a tensor is larger than storage {tensor.storage.key}")
    raw = archive.read(info)
    if kind.name == "bfloat16":  # the upper half of a float32
        values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(raw, np.dtype(kind.name).newbyteorder("<"))
    step = values.itemsize
    view = np.lib.stride_tricks.as_strided(
        values[tensor.offset :], tensor.shape, [stride * step for stride in tensor.strides]
    )
    return np.ascontiguousarray(view, np.float32)


def _rebuild_tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_rest: Any) -> _Tensor:
    """Stands in for torch._utils._rebuild_tensor_v2."""
    if not isinstance(storage, _Storage) or len(shape) != len(strides):
        raise pickle.UnpicklingError("a tensor without a storage")
    return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


_ALLOWED: dict[tuple[str, str], Callable[..., Any] | _StorageKind] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    **{("torch", name): kind for name, kind in _STORAGES.items()},
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that can name nothing but OrderedDict, tensors and storages."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for module.name."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a state dict has no use for") from None

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage, named ("storage", kind, key, device, size)."""
        tag, kind, key, *_ = pid
        if tag != "storage" or not isinstance(kind, _StorageKind) or not isinstance(key, str):
            raise pickle.UnpicklingError("an unknown persistent id")
        return _Storage(kind, key)

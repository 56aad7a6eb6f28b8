"""Reading `model.pt` without PyTorch, and without running anything that is in it.

A checkpoint is a zip archive: `NAME/data.pkl` describes the tensors, `NAME/data/KEY` holds each storage as raw bytes.
A pickle is a program; this reader runs it with an unpickler that knows a few names and refuses every other, so that a
hostile file can name no function, and what stands behind these names has nothing that a pickle could change. Storages
are read from the archive when a tensor is asked for, and only as far as it needs them: a released checkpoint may take
more room than memory has.
"""

import contextlib
import functools
import io
import math
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from liveasr.engines.stored_tensor import StoredTensor, widened_bfloat16
from liveasr.errors import ModelFileError
from liveasr.types import Float32Array

MAX_PICKLE_BYTES = 4 << 20
"""A state dict of 1,000 tensors takes about 200 kB, and one byte of a hostile pickle can make 64 bytes of objects."""
MAX_DIMS = 8
MAX_VALUES = 1 << 40
"""Of one tensor, empty dimensions apart."""


# These are tuples, since a pickle can overwrite the fields of a frozen dataclass: BUILD calls its __setstate__.
class _StorageKind(NamedTuple):
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


class _Storage(NamedTuple):
    kind: _StorageKind
    key: str


class _Tensor(NamedTuple):
    """A view of a storage: what `torch._utils._rebuild_tensor_v2` is called with."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state(path: Path) -> dict[str, Float32Array]:
    """All floating-point tensors of a checkpoint, by name, as float32 (bfloat16 and float16 are widened exactly).

    Raises:
        ModelFileError: the file is missing, is no checkpoint, or asks for code to be run.
    """
    with open_state(path) as state:
        return {name: tensor.read() for name, tensor in state.items()}


@contextlib.contextmanager
def open_state(path: Path) -> Iterator[dict[str, StoredTensor]]:
    """The same tensors, to be read one by one while the file is open.

    A state dict wrapped as {"state_dict": ...} is unwrapped.

    Raises:
        ModelFileError: the file is missing, is no checkpoint, or asks for code to be run.
    """
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise ModelFileError(path, f"cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:  # as zipfile raises them
        raise ModelFileError(
            path, "is not a PyTorch checkpoint (a zip archive, as torch.save writes since 1.6)"
        ) from error
    with archive:
        yield _stored_tensors(path, archive)


def _stored_tensors(path: Path, archive: zipfile.ZipFile) -> dict[str, StoredTensor]:
    pickles = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
    if len(pickles) != 1 or pickles[0].file_size > MAX_PICKLE_BYTES:
        raise ModelFileError(path, "is not a PyTorch checkpoint: it has no usable data.pkl")
    state = _load_pickle(path, _read_entry(path, archive, pickles[0], MAX_PICKLE_BYTES))
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping):
        raise ModelFileError(path, "holds no state dict")
    tensors = {
        name: value
        for name, value in state.items()
        if isinstance(name, str) and isinstance(value, _Tensor) and "int" not in value.storage.kind.name
    }
    values = sum(math.prod(tensor.shape) for tensor in tensors.values())
    if values > path.stat().st_size:  # each takes at least two bytes, and tied tensors share them
        raise ModelFileError(path, "has tensors that are larger than the file")
    root = pickles[0].filename.removesuffix("data.pkl")
    return {
        name: StoredTensor(tensor.shape, functools.partial(_array, path, archive, root, tensor))
        for name, tensor in tensors.items()
    }


def _load_pickle(path: Path, data: bytes) -> Any:
    try:
        for opcode, argument, _position in pickletools.genops(data):
            if opcode.name in ("PUT", "LONG_BINPUT") and isinstance(argument, int) and argument > len(data):
                raise pickle.UnpicklingError("it numbers more objects than it has")  # pickle would make room for them
        return _Unpickler(data).load()
    except Exception as error:  # a broken pickle raises almost anything
        raise ModelFileError(path, f"its data.pkl cannot be read: {error}") from error


def _read_entry(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, size_bytes: int) -> bytes:
    """At most `size_bytes` from the start of an entry."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise ModelFileError(path, "is not a PyTorch checkpoint: it is compressed")
    try:
        with archive.open(info) as entry:
            return entry.read(size_bytes)
    except Exception as error:  # a broken archive raises almost anything
        raise ModelFileError(path, f"is damaged: {error}") from error


def _array(path: Path, archive: zipfile.ZipFile, root: str, tensor: _Tensor) -> Float32Array:
    """The values of one tensor, C-contiguous."""
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, np.float32)
    kind, key = tensor.storage
    count = 1 + tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    try:
        info = archive.getinfo(f"{root}data/{key}")
    except KeyError as error:
        raise ModelFileError(path, f"storage {key!r} is missing") from error
    raw = _read_entry(path, archive, info, count * kind.item_bytes)
    if len(raw) < count * kind.item_bytes:  # the entry's own idea of its size may be wrong
        raise ModelFileError(path, f"a tensor reaches outside storage {key!r}")
    if kind.name == "bfloat16":
        values = widened_bfloat16(np.frombuffer(raw, "<u2", count))
    else:
        values = np.frombuffer(raw, np.dtype(kind.name).newbyteorder("<"), count)
    steps = [stride * values.itemsize if n > 1 else 0 for n, stride in zip(tensor.shape, tensor.strides, strict=True)]
    view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, steps)
    own = values.flags.writeable and not tensor.offset  # a part would keep its whole storage alive
    with np.errstate(over="ignore"):  # a float64 that is too large becomes no number, which is told as such
        return np.array(view, np.float32, order="C", copy=None if own else True)


class _Table(dict[str, Any]):
    """Stands in for OrderedDict."""

    def __setstate__(self, _state: object) -> None:
        """Leave out the attributes (`_metadata`) that come with a state dict."""


class _TensorMaker:
    """Stands in for torch._utils._rebuild_tensor_v2; without attributes, so that a pickle can set none."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_rest: Any) -> _Tensor:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor without a storage")
        tensor = _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))
        dims = len(tensor.shape)
        if (
            dims > MAX_DIMS
            or dims != len(tensor.strides)
            or min((tensor.offset, *tensor.shape, *tensor.strides)) < 0
            or math.prod(n or 1 for n in tensor.shape) > MAX_VALUES
        ):
            raise pickle.UnpicklingError("a tensor that is no view of a storage")
        return tensor


_ALLOWED: dict[tuple[str, str], Callable[..., Any] | _StorageKind] = {
    ("collections", "OrderedDict"): _Table,
    ("torch._utils", "_rebuild_tensor_v2"): _TensorMaker(),
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
            wanted = f"{module}.{name}"
            raise pickle.UnpicklingError(f"it asks for {wanted!r}, which a state dict has no use for") from None

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage, named ("storage", kind, key, device, size)."""
        tag, kind, key, *_ = pid
        if tag != "storage" or not isinstance(kind, _StorageKind) or not isinstance(key, str):
            raise pickle.UnpicklingError("an unknown persistent id")
        return _Storage(kind, key)

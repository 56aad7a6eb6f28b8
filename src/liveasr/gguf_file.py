"""Reader of GGUF files that trusts nothing in them.

Every count, length, type, shape and offset is checked against the size of the file before it is used, so that no number
from a corrupt or hostile file reaches C code, and none makes Python allocate more than the file could hold.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from liveasr.errors import ModelFileError
from liveasr.types import Float32Array

MetadataValue: TypeAlias = int | float | bool | str | list[str] | NDArray[Any]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_NAME_BYTES = 63  # GGML_MAX_NAME less its final zero
MAX_KEY_BYTES = 65_535  # from the format's description
MAX_STRINGS = 1_000_000  # of one array; the largest vocabularies of speech models have some 150,000
MAX_ENTRIES = 100_000  # keys, and tensors; full-size models have about 1,000 tensors
DEFAULT_ALIGNMENT = 32
_MIN_KEY_BYTES = 8 + 4 + 1  # empty name, type, one byte of value
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8  # empty name, dims, one dim, type, offset
_STRING, _ARRAY, _BOOL = 8, 9, 7
_HEAD_BYTES = 4 + 4 + 8 + 8  # magic, version, tensors, keys
_FIRST_KEY = struct.pack("<Q20sI", 20, b"general.architecture", _STRING)
_PEEK_BYTES = _HEAD_BYTES + len(_FIRST_KEY) + 8 + MAX_NAME_BYTES
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "|b1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A ggml type: how many values make a block, and how many bytes that block takes."""

    name: str
    block_values: int
    block_bytes: int


TENSOR_TYPES = {
    0: TensorType("f32", 1, 4),
    1: TensorType("f16", 1, 2),
    2: TensorType("q4_0", 32, 18),
    3: TensorType("q4_1", 32, 20),
    6: TensorType("q5_0", 32, 22),
    7: TensorType("q5_1", 32, 24),
    8: TensorType("q8_0", 32, 34),
    10: TensorType("q2_K", 256, 84),
    11: TensorType("q3_K", 256, 110),
    12: TensorType("q4_K", 256, 144),
    13: TensorType("q5_K", 256, 176),
    14: TensorType("q6_K", 256, 210),
    24: TensorType("i8", 1, 1),
    30: TensorType("bf16", 1, 2),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies in the file."""

    name: str
    shape: tuple[int, ...]
    """As numpy counts: slowest dimension first (ggml's ne reversed)."""
    type_id: int
    """ggml's number of the type, a key of TENSOR_TYPES."""
    offset: int
    """Bytes from the start of the file."""
    size_bytes: int

    @property
    def type_name(self) -> str:
        """The type in words: "f32", "q8_0", ..."""
        return TENSOR_TYPES[self.type_id].name


def peek_architecture(path: Path) -> str | None:
    """general.architecture, where it is the first key, as almost every writer has it; else None.

    Reading a whole file takes half a second where it holds the vocabulary of a large language model, for nothing if it
    is not what is looked for. What this tells is to be trusted no further than that.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK_BYTES)
    except OSError:
        return None
    start = _HEAD_BYTES + len(_FIRST_KEY) + 8
    if not head.startswith(MAGIC) or head[_HEAD_BYTES : start - 8] != _FIRST_KEY or len(head) < start:
        return None
    (size_bytes,) = struct.unpack_from("<Q", head, start - 8)
    name = head[start : start + size_bytes]
    return name.decode("utf-8", "replace") if len(name) == size_bytes else None


class _Cursor:
    """Reads numbers and strings in order; any step past the end is a ModelFileError."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0

    def fail(self, reason: str) -> ModelFileError:
        return ModelFileError(self.path, f"not a usable GGUF file: {reason}")

    def take(self, size_bytes: int, what: str) -> int:
        """Position of the next `size_bytes` bytes, which it steps over."""
        start, end = self.at, self.at + size_bytes
        if end > len(self.data):
            raise self.fail(f"it ends inside {what}; the download may be incomplete")
        self.at = end
        return start

    def number(self, layout: str, what: str) -> int:
        value: int = struct.unpack_from(layout, self.data, self.take(struct.calcsize(layout), what))[0]
        return value

    def count(self, what: str, min_bytes_each: int, most: int) -> int:
        """A count of items that follow, each at least so many bytes long."""
        value = self.number("<Q", what)
        if value > most or value * min_bytes_each > len(self.data) - self.at:
            raise self.fail(f"{value} {what} cannot be in a file of {len(self.data)} bytes")
        return value

    def string(self, what: str, max_bytes: int | None = None) -> str:
        size_bytes = self.number("<Q", what)
        if max_bytes is not None and size_bytes > max_bytes:
            raise self.fail(f"{what} is {size_bytes} bytes long, more than {max_bytes}")
        start = self.take(size_bytes, what)
        try:
            return self.data[start : start + size_bytes].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8") from error

    def name(self, what: str, max_bytes: int) -> str:
        """A string that may stand in a message of one line."""
        text = self.string(what, max_bytes)
        if not text.isprintable():
            raise self.fail(f"{what} has control characters")
        return text


class GgufFile:
    """A GGUF file, mapped into memory and validated as a whole.

    The mapping stays open until `close()`; arrays from `array()` and addresses from `address()` die with it.

    Raises:
        ModelFileError: the file cannot be read, or breaks the format; the message says where.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # what mmap says of an empty file
            raise ModelFileError(self.path, "not a usable GGUF file: it is empty") from error
        except OSError as error:
            raise ModelFileError(self.path, f"cannot be read: {error.strerror}") from error
        self.metadata: dict[str, MetadataValue] = {}
        self.metadata_types: dict[str, int] = {}
        """GGUF's number of the type of each value; of a list, that of what is in it."""
        self.tensors: dict[str, TensorInfo] = {}
        try:
            self._parse(_Cursor(self.path, self._map))
        except ModelFileError:
            self._map.close()
            raise

    @property
    def architecture(self) -> str:
        """general.architecture, fit for a message of one line."""
        name = self.text("general.architecture")
        if len(name) > MAX_NAME_BYTES or not name.isprintable():
            raise ModelFileError(self.path, "general.architecture is not a name")
        return name

    @property
    def weight_type(self) -> str:
        """The type of most of the bytes of its weights: "f32", "q8_0", ... A packed file is none of them."""
        bytes_of: dict[str, int] = {}
        for info in self.tensors.values():
            if info.type_name == "i8":
                continue
            bytes_of[info.type_name] = bytes_of.get(info.type_name, 0) + info.size_bytes
        return max(bytes_of, key=lambda name: bytes_of[name], default="f32")

    def integer(self, key: str, *, least: int = 1) -> int:
        """A whole number of at least `least` under key; ModelFileError if there is none."""
        value = self.metadata.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelFileError(self.path, f"the metadata has no whole number {key}")
        if value < least:
            raise ModelFileError(self.path, f"{key} is {value}; at least {least} was expected")
        return value

    def number(self, key: str) -> float:
        """A number under key, whole or not, but finite; ModelFileError if there is none."""
        value = self.metadata.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelFileError(self.path, f"the metadata has no number {key}")
        return float(value)

    def text(self, key: str) -> str:
        """The string under key; ModelFileError if there is none."""
        value = self.metadata.get(key)
        if not isinstance(value, str):
            raise ModelFileError(self.path, f"the metadata has no text {key}")
        return value

    def strings(self, key: str) -> list[str]:
        """The list of strings under key; ModelFileError if there is none."""
        value = self.metadata.get(key)
        if not isinstance(value, list):
            raise ModelFileError(self.path, f"the metadata has no list of texts {key}")
        return value

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> TensorInfo:
        """The tensor of that name; ModelFileError if it is missing, or its shape is not the one given."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError(self.path, f"tensor {name} is missing")
        if shape is not None and info.shape != shape:
            raise ModelFileError(self.path, f"tensor {name} has the shape {info.shape}; {shape} was expected")
        return info

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> Float32Array:
        """A copy of an f32 or f16 tensor as float32."""
        info = self.tensor(name, shape)
        if info.type_name not in ("f32", "f16"):
            raise ModelFileError(self.path, f"tensor {name} is {info.type_name}; f32 or f16 was expected")
        kind = np.dtype("<f4" if info.type_name == "f32" else "<f2")
        # No name for the view, here and below: it would outlive Ctrl-C in the traceback, and a map with views cannot be
        # closed.
        return (
            np.frombuffer(self._map, kind, info.size_bytes // kind.itemsize, info.offset)
            .reshape(info.shape)
            .astype(np.float32)
        )

    def raw(self, name: str) -> NDArray[np.uint8]:
        """A copy of the bytes of a tensor of any type, (all of its dimensions but the last, bytes of a row)."""
        info = self.tensor(name)
        return np.frombuffer(self._map, np.uint8, info.size_bytes, info.offset).reshape(*info.shape[:-1], -1).copy()

    def release(self, name: str) -> None:
        """Let the system take back the memory that a tensor was read into; it is read again when it is asked for."""
        info = self.tensor(name)
        start = -(-info.offset // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        end = (info.offset + info.size_bytes) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        if start < end:
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def address(self) -> int:
        """Where the mapping begins in memory. It is read-only, and valid until `close()`."""
        return int(np.frombuffer(self._map, np.uint8, 1).ctypes.data)

    def __len__(self) -> int:
        """Size of the file in bytes."""
        return len(self._map)

    def close(self) -> None:
        """Unmap the file. Closing twice is fine."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _parse(self, cursor: _Cursor) -> None:
        if bytes(self._map[: len(MAGIC)]) != MAGIC:
            raise cursor.fail("it does not begin with GGUF")
        cursor.at = len(MAGIC)
        version = cursor.number("<I", "the version")
        if version not in VERSIONS:
            raise cursor.fail(f"version {version} (this program reads 2 and 3, little-endian)")
        tensor_count = cursor.count("tensors", _MIN_TENSOR_BYTES, MAX_ENTRIES)
        key_count = cursor.count("metadata keys", _MIN_KEY_BYTES, MAX_ENTRIES)
        for _ in range(key_count):
            key = cursor.name("a metadata key", MAX_KEY_BYTES)
            if key in self.metadata:
                raise cursor.fail(f"the metadata key {key} appears twice")
            self.metadata[key] = self._value(cursor, key, cursor.number("<I", f"the type of {key}"))
        alignment = self._alignment(cursor)
        headers = [self._tensor_header(cursor) for _ in range(tensor_count)]
        self._place(cursor, headers, data_start=-(-cursor.at // alignment) * alignment, alignment=alignment)

    def _value(self, cursor: _Cursor, key: str, kind: int) -> MetadataValue:
        self.metadata_types[key] = kind
        if kind == _STRING:
            return cursor.string(key)
        if kind == _ARRAY:
            self.metadata_types[key] = cursor.number("<I", f"the type of {key}")
            return self._array_value(cursor, key, self.metadata_types[key])
        scalar = self._scalar(cursor, key, kind, 1)[0]
        if kind == _BOOL:
            return bool(scalar)
        value: int | float = scalar.item()
        return value

    def _array_value(self, cursor: _Cursor, key: str, kind: int) -> MetadataValue:
        if kind == _STRING:
            return [cursor.string(key) for _ in range(cursor.count(f"texts in {key}", 8, MAX_STRINGS))]
        if kind == _ARRAY:
            raise cursor.fail(f"{key} is a list of lists, which no speech model has")
        return self._scalar(cursor, key, kind, None)

    def _scalar(self, cursor: _Cursor, key: str, kind: int, count: int | None) -> NDArray[Any]:
        """`count` numbers of one kind, or as many as the file says."""
        layout = _SCALARS.get(kind)
        if layout is None:
            raise cursor.fail(f"{key} has the unknown type {kind}")
        width = np.dtype(layout).itemsize
        if count is None:
            count = cursor.count(f"values in {key}", width, len(self._map))
        start = cursor.take(count * width, key)
        # Through uint8, since a mapped byte other than 0 and 1 is no valid numpy bool.
        values = np.frombuffer(self._map[start : start + count * width], "<u1" if kind == _BOOL else layout)
        return values != 0 if kind == _BOOL else values

    def _alignment(self, cursor: _Cursor) -> int:
        if "general.alignment" not in self.metadata:
            return DEFAULT_ALIGNMENT
        alignment = self.integer("general.alignment")
        if alignment % DEFAULT_ALIGNMENT or alignment > mmap.PAGESIZE:
            raise cursor.fail(f"general.alignment {alignment} is no multiple of 32 up to {mmap.PAGESIZE}")
        return alignment

    def _tensor_header(self, cursor: _Cursor) -> TensorInfo:
        """One entry of the tensor table, its offset still counted from the start of the data."""
        name = cursor.name("the name of a tensor", MAX_NAME_BYTES)
        dims = cursor.number("<I", f"the shape of {name}")
        if not 1 <= dims <= MAX_DIMS:
            raise cursor.fail(f"tensor {name} has {dims} dimensions")
        ne = struct.unpack_from(f"<{dims}Q", cursor.data, cursor.take(8 * dims, f"the shape of {name}"))
        type_id = cursor.number("<I", f"the type of {name}")
        offset = cursor.number("<Q", f"the offset of {name}")
        kind = TENSOR_TYPES.get(type_id)
        if kind is None:
            raise cursor.fail(f"tensor {name} has the unknown type {type_id}")
        values = 1
        for n in ne:
            values *= n  # Python's integers do not overflow
        if values == 0 or ne[0] % kind.block_values:
            raise cursor.fail(f"tensor {name} of type {kind.name} cannot have rows of {ne[0]} values")
        size_bytes = values // kind.block_values * kind.block_bytes
        return TensorInfo(name, tuple(reversed(ne)), type_id, offset, size_bytes)

    def _place(self, cursor: _Cursor, headers: list[TensorInfo], data_start: int, alignment: int) -> None:
        """Check that the tensors lie inside the file and apart from each other, and make their offsets absolute."""
        end_of_last = 0
        for info in sorted(headers, key=lambda header: header.offset):
            if info.name in self.tensors:
                raise cursor.fail(f"tensor {info.name} appears twice")
            if info.offset % alignment:
                raise cursor.fail(f"the offset of tensor {info.name} is not a multiple of {alignment}")
            if info.offset < end_of_last:
                raise cursor.fail(f"tensor {info.name} overlaps the one before it")
            end_of_last = info.offset + info.size_bytes
            if data_start + end_of_last > len(self._map):
                raise cursor.fail(f"it ends inside tensor {info.name}; the download may be incomplete")
            self.tensors[info.name] = TensorInfo(
                info.name, info.shape, info.type_id, data_start + info.offset, info.size_bytes
            )

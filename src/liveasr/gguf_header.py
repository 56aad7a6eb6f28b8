"""What stands in front of the values in a GGUF file: read, and nothing in it trusted.

Every count, length, type, shape and offset is checked against the size of the file before it is used, so that no number
from a corrupt or hostile file reaches C code, and none makes Python allocate more than the file could hold.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from liveasr.errors import ModelFileError

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


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself."""

    metadata: dict[str, MetadataValue]
    metadata_types: dict[str, int]
    """GGUF's number of the type of each value; of a list, that of what is in it."""
    tensors: dict[str, TensorInfo]
    """By their names, as they lie in the file."""


def read_header(path: Path, data: mmap.mmap) -> Header:
    """Read a file's header, and see that its tensors lie inside the file and apart from each other.

    Args:
        path: of the file, for messages.
        data: the whole file.

    Raises:
        ModelFileError: the file breaks the format; the message says where.
    """
    cursor = _Cursor(path, data)
    if cursor.data[: len(MAGIC)] != MAGIC:
        raise cursor.fail("it does not begin with GGUF")
    cursor.at = len(MAGIC)
    version = cursor.number("<I", "the version")
    if version not in VERSIONS:
        raise cursor.fail(f"version {version} (this program reads 2 and 3, little-endian)")
    tensor_count = cursor.count("tensors", _MIN_TENSOR_BYTES, MAX_ENTRIES)
    key_count = cursor.count("metadata keys", _MIN_KEY_BYTES, MAX_ENTRIES)
    metadata: dict[str, MetadataValue] = {}
    metadata_types: dict[str, int] = {}
    for _ in range(key_count):
        key = cursor.name("a metadata key", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.fail(f"the metadata key {key} appears twice")
        metadata_types[key], metadata[key] = _value(cursor, key)
    alignment = _alignment(cursor, metadata)
    tensors = [_tensor(cursor) for _ in range(tensor_count)]
    return Header(metadata, metadata_types, _placed(cursor, tensors, alignment))


def whole_number(path: Path, metadata: Mapping[str, MetadataValue], key: str, *, least: int = 1) -> int:
    """A whole number of at least `least` under key; ModelFileError if there is none."""
    value = metadata.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelFileError(path, f"the metadata has no whole number {key}")
    if value < least:
        raise ModelFileError(path, f"{key} is {value}; at least {least} was expected")
    return value


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


def _value(cursor: _Cursor, key: str) -> tuple[int, MetadataValue]:
    """GGUF's number of the type, of a list that of what is in it; and the value."""
    kind = cursor.number("<I", f"the type of {key}")
    if kind == _ARRAY:
        kind = cursor.number("<I", f"the type of {key}")
        return kind, _list(cursor, key, kind)
    if kind == _STRING:
        return kind, cursor.string(key)
    number = _numbers(cursor, key, kind, 1)[0]
    value: int | float = bool(number) if kind == _BOOL else number.item()
    return kind, value


def _list(cursor: _Cursor, key: str, kind: int) -> MetadataValue:
    if kind == _STRING:
        return [cursor.string(key) for _ in range(cursor.count(f"texts in {key}", 8, MAX_STRINGS))]
    if kind == _ARRAY:
        raise cursor.fail(f"{key} is a list of lists, which no speech model has")
    return _numbers(cursor, key, kind, None)


def _numbers(cursor: _Cursor, key: str, kind: int, count: int | None) -> NDArray[Any]:
    """`count` numbers of one kind, or as many as the file says."""
    layout = _SCALARS.get(kind)
    if layout is None:
        raise cursor.fail(f"{key} has the unknown type {kind}")
    width = np.dtype(layout).itemsize
    if count is None:
        count = cursor.count(f"values in {key}", width, len(cursor.data))
    start = cursor.take(count * width, key)
    # Through uint8, since a mapped byte other than 0 and 1 is no valid numpy bool.
    values = np.frombuffer(cursor.data[start : start + count * width], "<u1" if kind == _BOOL else layout)
    return values != 0 if kind == _BOOL else values


def _alignment(cursor: _Cursor, metadata: Mapping[str, MetadataValue]) -> int:
    if "general.alignment" not in metadata:
        return DEFAULT_ALIGNMENT
    alignment = whole_number(cursor.path, metadata, "general.alignment")
    if alignment % DEFAULT_ALIGNMENT or alignment > mmap.PAGESIZE:
        raise cursor.fail(f"general.alignment {alignment} is no multiple of 32 up to {mmap.PAGESIZE}")
    return alignment


def _tensor(cursor: _Cursor) -> TensorInfo:
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


def _placed(cursor: _Cursor, tensors: list[TensorInfo], alignment: int) -> dict[str, TensorInfo]:
    """See that tensors lie inside the file and apart from each other; the same by name, with absolute offsets.

    Args:
        cursor: at the end of the tensor table.
        tensors: as `_tensor` gives them.
        alignment: of each, in bytes.
    """
    data_start = -(-cursor.at // alignment) * alignment
    placed: dict[str, TensorInfo] = {}
    end_of_last = 0
    for info in sorted(tensors, key=lambda each: each.offset):
        if info.name in placed:
            raise cursor.fail(f"tensor {info.name} appears twice")
        if info.offset % alignment:
            raise cursor.fail(f"the offset of tensor {info.name} is not a multiple of {alignment}")
        if info.offset < end_of_last:
            raise cursor.fail(f"tensor {info.name} overlaps the one before it")
        end_of_last = info.offset + info.size_bytes
        if data_start + end_of_last > len(cursor.data):
            raise cursor.fail(f"it ends inside tensor {info.name}; the download may be incomplete")
        placed[info.name] = replace(info, offset=data_start + info.offset)
    return placed

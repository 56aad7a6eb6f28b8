"""Reading `.safetensors` files, which hold tensors and nothing that could be run.

Eight bytes tell how long the header is; the header is JSON and tells type, shape and place of every tensor; their
values follow, one tensor behind the other (https://github.com/huggingface/safetensors). The package of that name makes
numpy arrays, and numpy has no bfloat16, in which language models are released; so this is a reader of our own. It
trusts nothing: all that the header says is checked against the size of the file before any of it is used. Values are
read when a tensor is asked for, since a checkpoint may take more room than memory has.
"""

import contextlib
import functools
import json
import math
import os
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from liveasr.engines.stored_tensor import StoredTensor, widened_bfloat16
from liveasr.errors import ModelFileError
from liveasr.types import Float32Array

_LENGTH_BYTES = 8
MAX_HEADER_BYTES = 4 << 20
"""A header of 1,000 tensors takes about 120 kB, and one byte of a hostile one can make 64 bytes of objects."""
MAX_DIMS = 8
MAX_NAME_CHARACTERS = 256
_MAX_COUNT = 1 << 48
"""Of values and of bytes: more are in no file, and would make a long message."""
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Types of weights, and how numpy calls them, which has no BF16."""
_OTHERS = {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
"""Types that are no weights, as counters of the training have them: they are passed over."""
_ITEM_BYTES = {kind: np.dtype(layout).itemsize for kind, layout in _FLOATS.items()} | _OTHERS


class _Entry(NamedTuple):
    """One tensor of the header."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    """In bytes, from the end of the header, as the next."""
    end: int


class SafetensorsFile(NamedTuple):
    """A file that is open."""

    tensors: dict[str, StoredTensor]
    """Those that are weights, by name and in the order of the header."""
    names: frozenset[str]
    """All of them."""


@contextlib.contextmanager
def open_safetensors(path: Path) -> Iterator[SafetensorsFile]:
    """The tensors of a file, to be read one by one as float32 while it is open.

    Raises:
        ModelFileError: the file cannot be read, or breaks the format; the message says where.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise ModelFileError(path, f"cannot be read: {error.strerror}") from error
    with file:
        data_start, entries = _read_header(path, file)
        yield SafetensorsFile(
            {
                name: StoredTensor(entry.shape, functools.partial(_values, path, file, data_start, entry))
                for name, entry in entries.items()
                if entry.kind in _FLOATS
            },
            frozenset(entries),
        )


def read_json(path: Path, data: bytes) -> Any:
    """JSON in which no name stands twice: which of two was meant, each reader would decide for itself.

    Raises:
        ModelFileError: it is malformed.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, value in pairs:
            if name in table:
                raise ValueError(f"{reprlib.repr(name)} stands in it twice")
            table[name] = value
        return table

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(path, f"its list of tensors cannot be read: {error}") from error


def _read_header(path: Path, file: BinaryIO) -> tuple[int, dict[str, _Entry]]:
    """Where the values begin, and all entries, which fill the rest of the file without a hole."""
    size_bytes = os.fstat(file.fileno()).st_size
    header_bytes = int.from_bytes(_read(path, file, _LENGTH_BYTES), "little")
    if size_bytes < _LENGTH_BYTES or not 0 < header_bytes <= MAX_HEADER_BYTES:
        raise ModelFileError(path, "is not a safetensors file: it does not begin with the length of a header")
    data_start = _LENGTH_BYTES + header_bytes
    if data_start > size_bytes:
        raise ModelFileError(path, "ends inside its header; the download may be incomplete")
    table = read_json(path, _read(path, file, header_bytes))
    if not isinstance(table, dict):
        raise ModelFileError(path, "is not a safetensors file: its header is no table")
    entries = {name: _entry(path, name, value) for name, value in table.items() if name != "__metadata__"}
    _check_places(path, entries, size_bytes - data_start)
    return data_start, entries


def _read(path: Path, file: BinaryIO, size_bytes: int) -> bytes:
    try:
        return file.read(size_bytes)
    except OSError as error:
        raise ModelFileError(path, f"cannot be read: {error.strerror}") from error


def _entry(path: Path, name: str, value: Any) -> _Entry:
    if not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
        raise ModelFileError(path, f"has a tensor whose name is no name: {reprlib.repr(name)}")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(path, f"tensor {name!r} has no dtype, shape and data_offsets, or more than these")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in _ITEM_BYTES:
        raise ModelFileError(path, f"tensor {name!r} is {reprlib.repr(kind)}; weights are one of {', '.join(_FLOATS)}")
    if not _are_counts(shape) or len(shape) > MAX_DIMS:
        raise ModelFileError(path, f"tensor {name!r} has no shape of at most {MAX_DIMS} dimensions")
    if not _are_counts(offsets) or len(offsets) != len(("begin", "end")):
        raise ModelFileError(path, f"tensor {name!r} has no place: data_offsets are two whole numbers")
    return _Entry(kind, tuple(shape), *offsets)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= _MAX_COUNT for value in values)


def _check_places(path: Path, entries: Mapping[str, _Entry], data_bytes: int) -> None:
    """Every tensor takes as many bytes as its shape needs, and begins where the one before it ends."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        wanted = math.prod(entry.shape) * _ITEM_BYTES[entry.kind]
        if entry.end - entry.begin != wanted:
            reason = f"tensor {name!r} of shape {entry.shape} in {entry.kind} takes {wanted} bytes"
            raise ModelFileError(path, f"{reason}, not those from {entry.begin} to {entry.end}")
        if entry.begin != at:
            fault = "overlaps the one before it" if entry.begin < at else "has a hole before it"
            raise ModelFileError(path, f"tensor {name!r} {fault}: it begins at {entry.begin}, not at {at}")
        at = entry.end
    if at != data_bytes:
        hint = "; the download may be incomplete" if at > data_bytes else ""
        raise ModelFileError(path, f"its tensors take {at} bytes, and it has {data_bytes}{hint}")


def _values(path: Path, file: BinaryIO, data_start: int, entry: _Entry) -> Float32Array:
    count = math.prod(entry.shape)
    try:
        file.seek(data_start + entry.begin)
        stored = np.fromfile(file, _FLOATS[entry.kind], count)
    except OSError as error:
        raise ModelFileError(path, f"cannot be read: {error.strerror}") from error
    if stored.size != count:
        raise ModelFileError(path, "has become shorter while it was read")
    with np.errstate(over="ignore"):  # a float64 that is too large becomes no number, which is told as such
        values = widened_bfloat16(stored) if entry.kind == "BF16" else stored.astype(np.float32, copy=False)
    return values.reshape(entry.shape)

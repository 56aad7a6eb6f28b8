"""What the tests of models share: files that are wrong in one way, nearness of frames, what the process holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import MetadataValue
from liveasr.types import Float32Array

Metadata: TypeAlias = Mapping[str, MetadataValue | None]
Tensors: TypeAlias = Mapping[str, NDArray[Any] | None]
_FILE_HANDLES = Path("/proc/self/fd")
_MEMORY_PAGES = Path("/proc/self/statm")
_MEMORY_MAPS = Path("/proc/self/maps")
_PAGE_BYTES = 4096


def write_gguf(
    path: Path, architecture: str, metadata: Mapping[str, MetadataValue], tensors: Mapping[str, NDArray[Any]]
) -> Path:
    """Write a file with the gguf package: whole numbers as uint32, tensors f32 or f16 as their arrays are.

    The package leaves empty texts out, so an architecture "" is none.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)
            case _:
                writer.add_array(key, value.tolist())
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def edited(
    source: Path,
    target: Path,
    *,
    architecture: str | None = None,
    metadata: Metadata | None = None,
    tensors: Tensors | None = None,
) -> Path:
    """Write a file of f32 tensors again with some entries replaced, added, or (None) left out."""
    with GgufFile(source) as file:
        values = {key: value for key, value in file.metadata.items() if not key.startswith("general.")}
        arrays: dict[str, NDArray[Any]] = {name: file.array(name) for name in file.tensors}
        kind = architecture or file.architecture
    for key, value in (metadata or {}).items():
        values.pop(key, None)
        if value is not None:
            values[key] = value
    for name, array in (tensors or {}).items():
        arrays.pop(name, None)
        if array is not None:
            arrays[name] = array
    return write_gguf(target, kind, values, arrays)


def lowest_cosine(ours: Float32Array, theirs: Float32Array) -> float:
    """Of the angles between the rows of two (T, D) arrays, the widest."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    return float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def open_files() -> int:
    """How many files this process has open."""
    if not _FILE_HANDLES.exists():
        pytest.skip("this system does not tell which files are open")
    return len(list(_FILE_HANDLES.iterdir()))


def resident_bytes() -> int:
    """How much memory of this process is in use."""
    if not _MEMORY_PAGES.exists():
        pytest.skip("this system does not tell how much memory is in use")
    return int(_MEMORY_PAGES.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def mappings_of(path: Path) -> int:
    """How many times a file is mapped into memory."""
    if not _MEMORY_MAPS.exists():
        pytest.skip("this system does not tell what is mapped")
    return sum(line.endswith(f" {path}") for line in _MEMORY_MAPS.read_text(encoding="utf-8").splitlines())

"""Parts of GGUF files, byte by byte, for files that no writer would write."""

import struct
from pathlib import Path

import pytest

from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import DEFAULT_ALIGNMENT

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_F32, TYPE_F16, TYPE_Q8_0, TYPE_Q4_K = 0, 1, 8, 12


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(
    name: str | bytes = "t", ne: tuple[int, ...] = (8,), kind: int = TYPE_F32, offset: int = 0, dims: int | None = None
) -> bytes:
    shape = struct.pack(f"<I{len(ne)}Q", len(ne) if dims is None else dims, *ne)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def image(
    pairs: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data_bytes: int = 0,
    *,
    version: bytes = struct.pack("<I", 3),
    tensor_count: int | None = None,
    pair_count: int | None = None,
    alignment: int = DEFAULT_ALIGNMENT,
) -> bytes:
    """A whole file: with the defaults, a valid one."""
    head = b"GGUF" + version
    head += struct.pack("<Q", len(tensors) if tensor_count is None else tensor_count)
    head += struct.pack("<Q", len(pairs) if pair_count is None else pair_count)
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + bytes(data_bytes)


def refusal(path: Path, content: bytes) -> str:
    """The message about a file with that content: one line that begins with the file's name."""
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        GgufFile(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message

"""A GGUF file, mapped into memory: what it says, and the values of its tensors."""

import math
import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from liveasr.errors import ModelFileError
from liveasr.gguf_header import MAX_NAME_BYTES, TensorInfo, read_header, whole_number
from liveasr.types import Float32Array


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
        try:
            header = read_header(self.path, self._map)
        except ModelFileError:
            self._map.close()
            raise
        self.metadata = header.metadata
        self.metadata_types = header.metadata_types
        """GGUF's number of the type of each value; of a list, that of what is in it."""
        self.tensors = header.tensors

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
        return whole_number(self.path, self.metadata, key, least=least)

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

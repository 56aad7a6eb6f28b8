"""Writing GGUF files: tensor by tensor, so that only one is in memory; they appear only when all are complete."""

import contextlib
import errno
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gguf
import numpy as np
from numpy.typing import NDArray

from liveasr.engines.k_quants import quantize_rows
from liveasr.errors import ModelFileError, OutputError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array

WeightType: TypeAlias = Literal["f32", "f16", "q8_0"]
"""Those that a checkpoint is converted to."""
TensorKind: TypeAlias = Literal["f32", "f16", "q8_0", "q6_K", "q5_K", "q4_K"]
"""Those that a tensor can be written in."""
_GGML_TYPES: Mapping[TensorKind, gguf.GGMLQuantizationType] = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q6_K": gguf.GGMLQuantizationType.Q6_K,
    "q5_K": gguf.GGMLQuantizationType.Q5_K,
    "q4_K": gguf.GGMLQuantizationType.Q4_K,
}
_NOT_COPIED = (
    "general.architecture",  # the writer's own
    "general.alignment",  # the output has the usual one
)
_K_TYPES = ("q6_K", "q5_K", "q4_K")
"""Which the gguf package reads, and only ggml itself makes."""


_LARGEST: Mapping[TensorKind, float] = {"f32": math.inf, "f16": 65_504.0}
_LARGEST_IN_BLOCKS = 127 * 65_504.0
"""Of q8_0, whose scale is an f16; those of the others reach further."""


def require_numbers(path: Path, name: str, values: Float32Array, kind: TensorKind) -> Float32Array:
    """The values of a tensor, if a type holds them.

    Args:
        path: of the file that they are from, as the next, for messages.
        name: of the tensor.
        values: all of them.
        kind: what they are to be written in.

    Raises:
        ModelFileError: one is no number, or too large.
    """
    if not np.isfinite(values).all():
        raise ModelFileError(path, f"tensor {name} has values that are no numbers")
    if np.abs(values).max() > _LARGEST.get(kind, _LARGEST_IN_BLOCKS):
        raise ModelFileError(path, f"tensor {name} has values that are too large for {kind}; only f32 holds them")
    return values


def block_values(kind: TensorKind) -> int:
    """How many values share a scale: the rows of a tensor of that type have a multiple of them."""
    return int(gguf.GGML_QUANT_SIZES[_GGML_TYPES[kind]][0])


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """One tensor to write."""

    name: str
    shape: tuple[int, ...]
    kind: TensorKind
    read: Callable[[], Float32Array]
    """Its values, of that shape; called once, when it is written."""

    @property
    def ggml_type(self) -> gguf.GGMLQuantizationType:
        """What it is written in."""
        return _GGML_TYPES[self.kind]

    def stored(self) -> NDArray[Any]:
        """Its values as they are written."""
        if self.kind in _K_TYPES:
            return quantize_rows(self.read(), int(self.ggml_type))
        stored: NDArray[Any] = gguf.quants.quantize(self.read(), self.ggml_type)
        return stored


@dataclass(frozen=True, slots=True)
class CopiedTensor:
    """One tensor that is written as it is stored already."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    """ggml's number of the type."""
    read: Callable[[], NDArray[np.uint8]]
    """Its bytes; called once, when it is written."""

    @property
    def ggml_type(self) -> gguf.GGMLQuantizationType:
        """What it is written in."""
        return gguf.GGMLQuantizationType(self.type_id)

    def stored(self) -> NDArray[np.uint8]:
        """Its bytes."""
        return self.read()


@dataclass(frozen=True, slots=True)
class OutputFile:
    """What goes into one file: a writer that has the metadata, and the tensors in their order."""

    writer: gguf.GGUFWriter
    tensors: list[OutputTensor | CopiedTensor]
    check: Callable[[GgufFile], object] = lambda _file: None
    """Sees the complete file before it has its name, and raises if it shall have none."""


def copy_metadata(file: GgufFile, writer: gguf.GGUFWriter, *, but: tuple[str, ...] = ()) -> None:
    """All metadata of a file, in the types that it has; only empty lists, which say nothing, cannot be written.

    Args:
        file: has it.
        writer: takes it.
        but: keys that stay behind, besides those that are a writer's own.
    """
    for key, value in file.metadata.items():
        kind = gguf.GGUFValueType(file.metadata_types[key])
        if key in _NOT_COPIED or key in but:
            continue
        if isinstance(value, list | np.ndarray):
            if len(value):
                writer.add_key_value(key, list(value), gguf.GGUFValueType.ARRAY, sub_type=kind)
        else:
            writer.add_key_value(key, value, kind)


def write_files(files: Mapping[Path, OutputFile]) -> None:
    """Write all files or none; those that are there are replaced. A link stays, what it points at is replaced.

    Each is written under another name in its folder, and gets its own when all are complete: the last of the mapping
    last, which is the one that others are found by. Of several the old ones step aside before, the last first, so that
    whoever is killed in between leaves no pair that is half old and half new; if one cannot get its name, all are again
    what they were.

    Raises:
        OutputError: one of them cannot be written.
        ModelFileError: a tensor cannot be read, or a file's own check says so.
    """
    with contextlib.ExitStack() as stack:
        partials = {}
        for output, file in files.items():
            place = Path(os.path.realpath(output)) if output.is_symlink() else output
            partials[place] = stack.enter_context(_written(file, place))
        if len(partials) > 1:
            for place in reversed(partials):
                stack.enter_context(_stepped_aside(place, partials[place]))
        for place, partial in partials.items():
            with _failure_of(place):
                partial.replace(place)


@contextlib.contextmanager
def _written(file: OutputFile, output: Path) -> Iterator[Path]:
    """The complete file, under another name in the output's folder; removed at the end if it still has that one."""
    with _failure_of(output):
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f"{output.name}.", suffix=".part")
        os.close(handle)
    partial = Path(name)
    try:
        with _failure_of(output):
            _write(file, partial)
        with GgufFile(partial) as complete:
            file.check(complete)
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _write(file: OutputFile, path: Path) -> None:
    writer = file.writer
    try:
        for tensor in file.tensors:
            values, block_bytes = gguf.GGML_QUANT_SIZES[tensor.ggml_type]
            size_bytes = math.prod(tensor.shape) // values * block_bytes
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), size_bytes, tensor.ggml_type)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in file.tensors:
            writer.write_tensor_data(tensor.stored())
        writer.close()
    finally:
        with contextlib.suppress(OSError):  # of a full disk, which has been told already
            writer.close()
    with path.open("rb") as written:
        os.fsync(written.fileno())  # a name outlives a loss of power sooner than what it names
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


@contextlib.contextmanager
def _stepped_aside(output: Path, partial: Path) -> Iterator[None]:
    """What is there makes room for an output, and is put back if something fails inside."""
    with _failure_of(output):
        old = Path(tempfile.mkdtemp(dir=output.parent, prefix=f"{output.name}.", suffix=".old")) / output.name
        try:
            if output.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if os.path.lexists(output):
                output.replace(old)
            yield
        except BaseException:
            if os.path.lexists(old):
                old.replace(output)
            elif not partial.exists():
                output.unlink()
            raise
        else:
            old.unlink(missing_ok=True)
        finally:
            with contextlib.suppress(OSError):  # what could not be put back stays there
                old.parent.rmdir()


@contextlib.contextmanager
def _failure_of(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # numpy counts what it could not write, and does not say why.
        reason = error.strerror or "not all of it could be written; is the disk full?"
        raise OutputError(output, f"cannot be written: {reason}") from error

"""From a model file to a smaller one: its matrices in fewer bits, everything else as it is.

What becomes of a tensor is what its family's layout says (layouts.py), so that a file quantised to f16 or q8_0 is the
one that `convert` writes. Blocks of a K type are made by ggml.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import gguf

from liveasr import store
from liveasr.engines import nano_files, qwen3_layout
from liveasr.engines.file_keys import QUANTIZED_KEY, program
from liveasr.engines.gguf_output import (
    OutputFile,
    OutputTensor,
    TensorKind,
    block_values,
    copy_metadata,
    require_numbers,
    write_files,
)
from liveasr.engines.layouts import LAYOUTS, Layout
from liveasr.engines.tensor_errors import TensorClass, tensor_classes
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import TensorInfo
from liveasr.types import Float32Array

QuantizedType: TypeAlias = Literal["f16", "q8_0", "q6_K", "q5_K", "q4_K", "q4_K_mix"]
"""q4_K_mix has the tensors that suffer most in q6_K (`Layout.sensitive`)."""
_EXACT_TYPES = ("f32", "f16")
_ENDINGS = ("-f32", "-f16")
_WHOLE: Mapping[QuantizedType, TensorKind] = {
    "f16": "f16",
    "q8_0": "q8_0",
    "q6_K": "q6_K",
    "q5_K": "q5_K",
    "q4_K": "q4_K",
    "q4_K_mix": "q4_K",
}
_OF_SENSITIVE: Mapping[QuantizedType, TensorKind] = {**_WHOLE, "q4_K_mix": "q6_K"}
_FILE_TYPES: Mapping[QuantizedType, gguf.LlamaFileType] = {
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q6_K": gguf.LlamaFileType.MOSTLY_Q6_K,
    "q5_K": gguf.LlamaFileType.MOSTLY_Q5_K_S,
    "q4_K": gguf.LlamaFileType.MOSTLY_Q4_K_S,
    "q4_K_mix": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}
_NOT_COPIED = ("general.file_type", "general.quantization_version", QUANTIZED_KEY)


@dataclass(frozen=True, slots=True)
class Fallback:
    """Tensors whose rows do not divide into the blocks of the wanted type."""

    row_values: int
    kind: str
    tensors: int


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """What was written."""

    output: Path
    bytes_before: int
    """Of the file."""
    bytes_after: int
    classes: tuple[TensorClass, ...]
    fallbacks: tuple[Fallback, ...]


def default_output(source: Path, wanted: QuantizedType) -> Path:
    """Beside the source, SOURCE-TYPE.gguf; of a model that is built in, in the current folder.

    The language model of an encoder x.gguf, x-llm.gguf, becomes x-TYPE-llm.gguf, where x-TYPE.gguf finds it.
    """
    ending = store.LANGUAGE_MODEL_ENDING if source.stem.endswith(store.LANGUAGE_MODEL_ENDING) else ""
    stem = source.stem.removesuffix(ending)
    for old in _ENDINGS:
        stem = stem.removesuffix(old)
    is_built_in = source.parent == store.built_in(store.VAD_MODEL).parent
    return (Path() if is_built_in else source.parent) / f"{stem}-{wanted}{ending}.gguf"


def quantize(source: Path, output: Path, wanted: QuantizedType) -> QuantizeReport:
    """Write a model again, smaller. The output appears only when it is complete.

    Raises:
        ModelFileError: the source is no model of a known family, is quantised already, would not get smaller, or has
            values that are no numbers.
        OutputError: the output cannot be written.
        UsageError: the output is the source.
    """
    with GgufFile(source) as file:
        if output.exists() and output.samefile(source):
            raise UsageError(f"{output}: is the file to quantize; write it to another with -o")
        layout = _layout(file)
        kinds = {info.name: _kind(info, layout, wanted) for info in file.tensors.values()}
        _check(file, layout, kinds, wanted)
        written = OutputFile(gguf.GGUFWriter(None, file.architecture), [])
        _copy_metadata(file, written.writer, wanted)
        written.tensors.extend(
            OutputTensor(
                info.name, info.shape, kinds[info.name], functools.partial(_values, file, info.name, kinds[info.name])
            )
            for info in sorted(file.tensors.values(), key=lambda info: info.offset)
        )
        write_files({output: written})
        with GgufFile(output) as result:
            return QuantizeReport(
                output, len(file), len(result), tensor_classes(file, result), _fallbacks(result, layout, wanted)
            )


def _layout(file: GgufFile) -> Layout:
    for layout in LAYOUTS.values():
        own = (layout.architecture, qwen3_layout.ARCHITECTURE) if layout.has_language_model else (layout.architecture,)
        if file.architecture in own:
            return layout
    known = ", ".join(layout.architecture for layout in LAYOUTS.values() if layout.matrices_shrink)
    raise ModelFileError(
        file.path, f"is a {file.architecture} model; what can be quantized is {known}, {qwen3_layout.ARCHITECTURE}"
    )


def _kind(info: TensorInfo, layout: Layout, wanted: QuantizedType) -> TensorKind:
    """What a tensor becomes. Nothing grows: what a layout has in f32 and the source in f16 stays f16."""
    kind = layout.stored_type(info.name, info.shape, _wanted_kind(info, layout, wanted))
    return "f16" if kind == "f32" and info.type_name == "f16" else kind


def _wanted_kind(info: TensorInfo, layout: Layout, wanted: QuantizedType) -> TensorKind:
    return (_OF_SENSITIVE if info.name.endswith(layout.sensitive) else _WHOLE)[wanted]


def _fallbacks(result: GgufFile, layout: Layout, wanted: QuantizedType) -> tuple[Fallback, ...]:
    found: dict[tuple[int, str], int] = {}
    for info in result.tensors.values():
        row_values = info.shape[-1]
        shrinks = layout.stored_type(info.name, info.shape, "f16") == "f16"
        if shrinks and row_values % block_values(_wanted_kind(info, layout, wanted)):
            found[row_values, info.type_name] = found.get((row_values, info.type_name), 0) + 1
    return tuple(Fallback(*row, count) for row, count in found.items())


def _check(file: GgufFile, layout: Layout, kinds: Mapping[str, TensorKind], wanted: QuantizedType) -> None:
    if nano_files.PACKED in file.tensors:
        raise ModelFileError(file.path, "has its language model in it; quantize the two files, then pack them")
    for info in file.tensors.values():
        if info.type_name not in _EXACT_TYPES:
            raise ModelFileError(
                file.path,
                f"has {info.type_name} tensors: rounded again they would lose twice, and at full length nothing comes "
                "back; quantize the f32 or f16 file that it was made from",
            )
    if not layout.matrices_shrink:
        raise ModelFileError(file.path, f"is a {file.architecture} model, which is small, and all of it stays f32")
    if all(kinds[info.name] == info.type_name for info in file.tensors.values()):
        raise ModelFileError(file.path, f"would not change: no tensor of it gets smaller as {wanted}")


def _copy_metadata(file: GgufFile, writer: gguf.GGUFWriter, wanted: QuantizedType) -> None:
    """All of it as it is, and what was done here."""
    copy_metadata(file, writer, but=_NOT_COPIED)
    writer.add_string(QUANTIZED_KEY, f"{wanted} from {file.weight_type} by {program()}")
    writer.add_file_type(_FILE_TYPES[wanted])
    if wanted != "f16":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _values(file: GgufFile, name: str, kind: TensorKind) -> Float32Array:
    return require_numbers(file.path, name, file.array(name), kind)

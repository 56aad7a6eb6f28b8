"""Both files of Fun-ASR-Nano in one: the encoder's, with the language model's in it as a tensor.

The result is a GGUF file with everything that the encoder's has, and one tensor more, `language_model.gguf` of type I8
and one dimension: the language model's file, byte by byte. It is the last, so it begins at a multiple of the alignment,
and the tensors in it lie where llama.cpp can map them: both libraries compute on the file's own pages, without a copy.
"""

import functools
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from liveasr import store
from liveasr.engines import funasr_nano, nano_files
from liveasr.engines.gguf_output import CopiedTensor, OutputFile, copy_metadata, write_files
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile

_I8 = gguf.GGMLQuantizationType.I8


def pack(encoder: Path, language_model: Path | None, output: Path) -> None:
    """Write one file that has both. It appears only when it is complete.

    Args:
        encoder: a file of architecture `funasr-sensevoice-encoder`.
        language_model: of architecture `qwen3`; by default the one that lies beside the encoder.
        output: the file to write.

    Raises:
        ModelFileError: one is no such file, the encoder has a language model in it already, there is none beside it, or
            the two do not belong together.
        OutputError: the output cannot be written.
        UsageError: the output is one of the two.
    """
    with GgufFile(encoder) as file:
        if file.architecture != store.NANO_ARCHITECTURE:
            raise ModelFileError(encoder, f"is a {file.architecture} model; only Fun-ASR-Nano has parts to pack")
        if nano_files.PACKED in file.tensors:
            raise ModelFileError(encoder, "has its language model in it already")
        _, adaptor = funasr_nano.check(file)
        other = language_model or nano_files.language_model_beside(file)
        _check_language_model(other, adaptor.output_size, encoder)
        for path in (encoder, other):
            if output.exists() and output.samefile(path):
                raise UsageError(f"{output}: is one of the files to pack; write to another with -o")
        written = OutputFile(gguf.GGUFWriter(None, file.architecture), [])
        copy_metadata(file, written.writer)
        for info in sorted(file.tensors.values(), key=lambda info: info.offset):
            read = functools.partial(file.raw, info.name)
            written.tensors.append(CopiedTensor(info.name, info.shape, info.type_id, read))
        size = other.stat().st_size
        written.tensors.append(CopiedTensor(nano_files.PACKED, (size,), _I8, functools.partial(_mapped, other)))
        write_files({output: written})


def _check_language_model(path: Path, width: int, encoder: Path) -> None:
    with GgufFile(path) as file:
        if file.architecture != store.LANGUAGE_MODEL_ARCHITECTURE:
            raise ModelFileError(
                path, f"is a {file.architecture} model; that of Fun-ASR-Nano is {store.LANGUAGE_MODEL_ARCHITECTURE}"
            )
        if (own := nano_files.embedding_width(file)) != width:
            raise ModelFileError(path, f"reads embeddings of {own} values; those of {encoder.name} have {width}")


def _mapped(path: Path) -> NDArray[np.uint8]:
    return np.memmap(path, np.uint8, "r")

"""Fun-ASR-Nano comes in two files, an encoder and a language model: finding the second by the first.

`liveasr models pack` puts the second into the first (pack.py); then there is nothing to find. Otherwise, where an
encoder is `x.gguf`, a language model of its own is `x-llm.gguf` beside it. The published files have names that say
nothing of each other; then any language model in the folder will do whose embeddings are as wide as what the encoder's
adaptor makes.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from liveasr import store
from liveasr.errors import ModelError, ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import peek_architecture

PACKED = "language_model.gguf"
"""The tensor that is a whole language model file, byte by byte."""
_WIDTH_OF_ADAPTOR = "funasr.adp.llm_dim"
_WIDTH_OF_EMBEDDINGS = "qwen3.embedding_length"
_PREFERRED_TYPES = ("q8_0", "f16", "bf16", "f32")
"""A token costs a walk over all weights, so of what is as exact the smallest first."""


@dataclass(frozen=True, slots=True)
class LanguageModelFile:
    """A GGUF file, which may lie in another."""

    path: Path
    offset_bytes: int = 0
    """Where it begins; only one of its own begins at 0."""


def language_model_of(encoder: GgufFile) -> LanguageModelFile:
    """The language model that writes what an encoder hears: packed into its file, or beside it.

    Raises:
        ModelFileError: there is none, or what is packed is none.
    """
    packed = encoder.tensors.get(PACKED)
    if packed is None:
        return LanguageModelFile(language_model_beside(encoder))
    if packed.type_name != "i8" or len(packed.shape) != 1:
        raise ModelFileError(encoder.path, f"tensor {PACKED} is not the bytes of a language model; pack it again")
    return LanguageModelFile(encoder.path, packed.offset)


def language_model_beside(encoder: GgufFile) -> Path:
    """The file of the language model that belongs to an encoder without one in it.

    Raises:
        ModelFileError: there is none in the encoder's folder, or the encoder does not say how wide it has to be.
    """
    folder = encoder.path.parent
    own = store.language_model_path(encoder.path)
    if own.is_file():
        architecture = peek_architecture(own)
        if architecture not in (store.LANGUAGE_MODEL_ARCHITECTURE, None):  # None: unclear, so llama.cpp will tell
            raise ModelFileError(
                own, f"is a {architecture} model; that of Fun-ASR-Nano is {store.LANGUAGE_MODEL_ARCHITECTURE}"
            )
        return own
    width = encoder.integer(_WIDTH_OF_ADAPTOR)
    others = [path for path in store.model_files(folder) if path != encoder.path]
    taken = {store.language_model_path(path) for path in others}
    fitting = [(rank, path) for path in others if path not in taken and (rank := _rank(path, width)) is not None]
    if not fitting:
        raise ModelFileError(
            encoder.path,
            f"its language model is not in {folder}, neither {own.name} nor another "
            f"{store.LANGUAGE_MODEL_ARCHITECTURE} model of width {width}; "
            f"get the published one with: {store.nano_download_command(folder)}",
        )
    return min(fitting)[1]


def embedding_width(language_model: GgufFile) -> int:
    """Of what a language model reads."""
    return language_model.integer(_WIDTH_OF_EMBEDDINGS)


def encoders_beside(language_model: GgufFile) -> list[Path]:
    """The encoders in a language model's folder for which `language_model_beside` finds it."""
    others = store.model_files(language_model.path.parent)
    return [path for path in others if path != language_model.path and _finds(path, language_model.path)]


def is_complete(file: GgufFile) -> bool:
    """Whether all is here that a model needs beside its file; of others than Fun-ASR-Nano that is nothing."""
    if file.architecture != store.NANO_ARCHITECTURE:
        return True
    try:
        language_model_of(file)
    except ModelFileError:
        return False
    return can_run()


def can_run() -> bool:
    """Whether llama.cpp is installed, which runs the language model."""
    return find_spec("llama_cpp") is not None


def _finds(path: Path, language_model: Path) -> bool:
    """Whether a file is an encoder that takes this language model."""
    if peek_architecture(path) not in (None, store.NANO_ARCHITECTURE):
        return False
    try:
        with GgufFile(path) as file:
            return file.architecture == store.NANO_ARCHITECTURE and language_model_beside(file) == language_model
    except ModelError:  # broken, or without a language model
        return False


def _rank(path: Path, width: int) -> tuple[int, int] | None:
    """Of a language model that fits, what to compare it by, the least being the best; None of any other file."""
    if peek_architecture(path) not in (None, store.LANGUAGE_MODEL_ARCHITECTURE):
        return None
    try:
        with GgufFile(path) as file:
            if file.architecture != store.LANGUAGE_MODEL_ARCHITECTURE or embedding_width(file) != width:
                return None
            kind = file.weight_type
            preference = _PREFERRED_TYPES.index(kind) if kind in _PREFERRED_TYPES else len(_PREFERRED_TYPES)
            return preference, -len(file)
    except ModelError:  # half a download is no reason to refuse a whole model beside it
        return None

"""What a model file is, from the file alone: no library is loaded for it, and no weights but the normalisation's read.

Whether it can be run is what the engines' own checks say.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from liveasr import store
from liveasr.engines import (
    cmvn,
    funasr_nano,
    nano_files,
    paraformer,
    qwen3_layout,
    registry,
    sensevoice,
    streaming_model,
)
from liveasr.engines._library import missing_extra
from liveasr.engines.base import RECOGNISER_FRONT_END, FrontEnd
from liveasr.engines.layouts import LAYOUTS
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Language

CmvnPolicy: TypeAlias = cmvn.CmvnState | Literal["not used"]
_VAD = LAYOUTS["FsmnVADStreaming"].architecture


@dataclass(frozen=True, slots=True)
class _Family:
    """What the files of an architecture have in common, and under which keys they tell the rest."""

    words: str
    layers: Mapping[str, str]
    """What they are called, and the key of their number."""
    width: str | None
    heads: str | None
    languages: tuple[Language, ...]
    """Of the released models."""
    vocabulary: str | None = None
    front_end: FrontEnd | None = None
    has_cmvn: bool = False


_FAMILIES = {
    sensevoice.ARCHITECTURE: _Family(
        "SenseVoiceSmall: encoder and CTC, which write a whole segment at once",
        {"encoder blocks": "sv.num_blocks", "second-tier blocks": "sv.tp_blocks"},
        "sv.output_size",
        "sv.attention_heads",
        sensevoice.SenseVoice.languages,
        "sv.vocab_size",
        sensevoice.SenseVoice.front_end,
        has_cmvn=True,
    ),
    paraformer.ARCHITECTURE: _Family(
        "Paraformer: encoder, predictor and decoder, which write a whole segment at once",
        {"encoder blocks": "pf.enc.num_blocks", "decoder blocks": "pf.dec.att_layer_num"},
        "pf.enc.output_size",
        "pf.enc.attention_heads",
        ("zh", "en"),
        "pf.vocab_size",
        paraformer.Paraformer.front_end,
        has_cmvn=True,
    ),
    streaming_model.ARCHITECTURE: _Family(
        "Paraformer, streaming: writes while the segment goes on",
        {"encoder blocks": "pfs.enc.num_blocks", "decoder blocks": "pfs.dec.att_layer_num"},
        "pfs.enc.output_size",
        "pfs.enc.attention_heads",
        ("zh", "en"),
        "pfs.vocab_size",
        RECOGNISER_FRONT_END,
        has_cmvn=True,
    ),
    funasr_nano.ARCHITECTURE: _Family(
        "Fun-ASR-Nano, the encoder and adaptor of it; a language model writes what they hear",
        {
            "encoder blocks": "funasr.enc.num_blocks",
            "second-tier blocks": "funasr.enc.tp_blocks",
            "adaptor blocks": "funasr.adp.n_layer",
        },
        "funasr.enc.output_size",
        "funasr.enc.attention_heads",
        funasr_nano.FunAsrNano.languages,
        front_end=funasr_nano.FunAsrNano.front_end,
    ),
    qwen3_layout.ARCHITECTURE: _Family(
        "a Qwen3 language model, as one is part of Fun-ASR-Nano",
        {"blocks": "qwen3.block_count"},
        "qwen3.embedding_length",
        "qwen3.attention.head_count",
        funasr_nano.FunAsrNano.languages,
        "tokenizer.ggml.tokens",
    ),
    _VAD: _Family(
        "FSMN-VAD: tells where there is speech",
        {"FSMN layers": "vad.fsmn_layers"},
        "vad.linear_dim",
        None,
        (),
        front_end=FrontEnd(80, 5, 1),
        has_cmvn=True,
    ),
}
_NO_PARAMETERS = ("cmvn.", nano_files.PACKED)
_UNKNOWN = _Family("nothing that liveasr knows", {}, None, None, ())


@dataclass(frozen=True, slots=True)
class TypeShare:
    """The tensors of one type."""

    type: str
    tensors: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything about one file. What is None the file does not tell, or the model does not have."""

    path: str
    architecture: str
    words: str
    """The architecture, for a person."""
    layers: Mapping[str, int]
    width: int | None
    heads: int | None
    vocabulary: int | None
    parameters: int
    size_bytes: int
    types: tuple[TypeShare, ...]
    """The largest first."""
    front_end: FrontEnd | None
    cmvn: CmvnPolicy
    languages: tuple[Language, ...]
    """Of the model as it was released; none: it does not depend on the language, or is not known."""
    is_demonstration: bool
    """Whether it is built in, and knows ten words."""
    metadata: Mapping[str, str | int | float | bool]
    """general.* of the file, without that prefix."""
    companion: str | None
    """Of Fun-ASR-Nano the file of the other part, where it was found; the file itself, if it has both."""
    packed_bytes: int
    """How many of it are the other part; 0 if that has a file of its own."""
    reason: str | None
    """Why it does not run, and what to do; None if it runs."""


def inspect(file: GgufFile) -> Inspection:
    """What a file holds.

    Raises:
        ModelFileError: it names no architecture.
    """
    architecture = file.architecture
    family = _FAMILIES.get(architecture, _UNKNOWN)
    companion = _companion(file)
    try:
        policy, reason = _policy(file, family), _reason(file, companion)
    except ModelFileError as error:  # its normalisation is of a type that no engine reads
        policy, reason = "unusable", f"{error.reason}; {_way_out(file)}"
    is_demonstration = store.is_demonstration(file.path)
    return Inspection(
        path=str(file.path),
        architecture=architecture,
        words=family.words,
        layers={name: n for name, key in family.layers.items() if (n := _count(file, key))},
        width=_count(file, family.width),
        heads=_count(file, family.heads),
        vocabulary=_count(file, family.vocabulary),
        parameters=sum(math.prod(t.shape) for t in file.tensors.values() if not t.name.startswith(_NO_PARAMETERS)),
        size_bytes=len(file),
        types=_types(file),
        front_end=family.front_end,
        cmvn=policy,
        languages=("en",) if is_demonstration else tuple(each for each in family.languages if each != "auto"),
        is_demonstration=is_demonstration,
        metadata=_general(file),
        companion=None if companion is None else str(companion),
        packed_bytes=file.tensors[nano_files.PACKED].size_bytes if companion == file.path else 0,
        reason=reason,
    )


def _count(file: GgufFile, key: str | None) -> int | None:
    """A number of the metadata, or how many texts are in a list of it."""
    value = file.metadata.get(key or "")
    if isinstance(value, list):
        return len(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _types(file: GgufFile) -> tuple[TypeShare, ...]:
    shares: dict[str, TypeShare] = {}
    for info in file.tensors.values():
        if info.name == nano_files.PACKED:
            continue
        old = shares.get(info.type_name, TypeShare(info.type_name, 0, 0))
        shares[info.type_name] = TypeShare(old.type, old.tensors + 1, old.bytes + info.size_bytes)
    return tuple(sorted(shares.values(), key=lambda share: -share.bytes))


def _policy(file: GgufFile, family: _Family) -> CmvnPolicy:
    if family.front_end is None or not family.has_cmvn:
        return "not used"
    return cmvn.state_of(file, family.front_end.dims)


def _general(file: GgufFile) -> dict[str, str | int | float | bool]:
    return {
        key.removeprefix("general."): value
        for key, value in file.metadata.items()
        if key.startswith("general.")
        and isinstance(value, str | int | float)
        and key != "general.architecture"
        and (isinstance(value, str) or math.isfinite(value))
    }


def _companion(file: GgufFile) -> Path | None:
    """The file of the other part of a Fun-ASR-Nano."""
    if file.architecture == qwen3_layout.ARCHITECTURE:
        return next(iter(nano_files.encoders_beside(file)), None)
    if file.architecture != funasr_nano.ARCHITECTURE:
        return None
    try:
        return nano_files.language_model_of(file).path
    except ModelFileError:
        return None


def _reason(file: GgufFile, companion: Path | None) -> str | None:
    """Why a file does not run, and what to do."""
    if file.architecture == _VAD:
        is_built_in = file.path.samefile(store.built_in(store.VAD_MODEL))
        return (
            None if is_built_in else "speech is found by the FSMN-VAD that is built in; there is no way to name another"
        )
    if file.architecture == qwen3_layout.ARCHITECTURE and companion is None:
        command = store.nano_download_command(file.path.parent)
        return f"is a part of Fun-ASR-Nano, and no encoder that fits lies beside it; get both with: {command}"
    if file.architecture != qwen3_layout.ARCHITECTURE:
        try:
            registry.check(file)
        except ModelFileError as error:
            return f"{error.reason}; {_way_out(file)}"
    if file.architecture == funasr_nano.ARCHITECTURE and companion is None:
        try:
            nano_files.language_model_of(file)
        except ModelFileError as error:
            return error.reason if error.path == file.path else str(error)
    return str(missing_extra()) if companion is not None and find_spec("llama_cpp") is None else None


def _way_out(file: GgufFile) -> str:
    if file.architecture in registry.ARCHITECTURES:
        return "download it again, or convert the checkpoint with: liveasr models convert"
    if any(key.startswith("stt.") for key in file.metadata):
        return f"it is made for transcribe.cpp, FunAudioLLM's files are for this program: {store.download_command()}"
    return f"get one that it runs with: {store.download_command()}"

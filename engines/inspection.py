"""What a model file is, from the file alone: no library is loaded for it, and no weights but the normalisation's read.

Only where it does not tell its licence or its languages the registry is asked, and then it is told who says so.
Whether it can be run is what the engines' own checks say.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from liveasr import provenance, store
from liveasr.engines import cmvn, funasr_nano, nano_files, qwen3_layout, registry
from liveasr.engines._library import missing_extra
from liveasr.engines.base import FrontEnd
from liveasr.engines.families import FAMILIES, UNKNOWN, VAD_ARCHITECTURE, Family
from liveasr.engines.file_keys import CONVERTER_KEY, QUANTIZED_KEY
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.model_registry import RegisteredModel
from liveasr.provenance import Provenance

CmvnPolicy: TypeAlias = cmvn.CmvnState | Literal["not used"]
Origin: TypeAlias = Literal["file", "registry", "family"]
"""Who says something: the file, the registry of an installed one, or every released model of the family."""
_NO_PARAMETERS = ("cmvn.", nano_files.PACKED)


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
    provenance: Provenance
    """As the file tells it."""
    licence: str | None
    licence_origin: Origin | None
    languages: tuple[str, ...]
    """None: it does not depend on the language, or is not known."""
    languages_origin: Origin | None
    converter: str | None
    """The program that made the file of a checkpoint."""
    quantized: str | None
    """How it was made of a larger file."""
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
        RegistryError: the user's registry is malformed.
    """
    architecture = file.architecture
    family = FAMILIES.get(architecture, UNKNOWN)
    companion = _companion(file)
    try:
        policy, reason = _policy(file, family), _reason(file, companion)
    except ModelFileError as error:  # its normalisation is of a type that no engine reads
        policy, reason = "unusable", f"{error.reason}; {_way_out(file)}"
    said = provenance.read(file)
    registered = None if said.licence_words and said.languages else store.model_of(file.path)
    licence, licence_origin = _licence(said, registered)
    languages, languages_origin = _languages(said, registered, family)
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
        provenance=said,
        licence=licence,
        licence_origin=licence_origin,
        languages=languages,
        languages_origin=languages_origin,
        converter=_text(file, CONVERTER_KEY),
        quantized=_text(file, QUANTIZED_KEY),
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


def _text(file: GgufFile, key: str) -> str | None:
    value = file.metadata.get(key)
    return value if isinstance(value, str) else None


def _licence(said: Provenance, registered: RegisteredModel | None) -> tuple[str | None, Origin | None]:
    if said.licence_words:
        return said.licence_words, "file"
    return (registered.licence, "registry") if registered and registered.licence else (None, None)


def _languages(
    said: Provenance, registered: RegisteredModel | None, family: Family
) -> tuple[tuple[str, ...], Origin | None]:
    if said.languages:
        return said.languages, "file"
    if registered and registered.languages:
        return registered.languages, "registry"
    languages = tuple(each for each in family.languages if each != "auto")
    return languages, "family" if languages else None


def _types(file: GgufFile) -> tuple[TypeShare, ...]:
    shares: dict[str, TypeShare] = {}
    for info in file.tensors.values():
        if info.name == nano_files.PACKED:
            continue
        old = shares.get(info.type_name, TypeShare(info.type_name, 0, 0))
        shares[info.type_name] = TypeShare(old.type, old.tensors + 1, old.bytes + info.size_bytes)
    return tuple(sorted(shares.values(), key=lambda share: -share.bytes))


def _policy(file: GgufFile, family: Family) -> CmvnPolicy:
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
    if file.architecture == VAD_ARCHITECTURE:
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

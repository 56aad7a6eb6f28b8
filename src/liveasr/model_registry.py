"""What the registry says of models: their variants, where the files lie, licence and languages. No I/O.

The form is described at the top of registry.toml.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from liveasr.errors import RegistryError

SOURCE_KINDS = ("folder", "url", "huggingface", "modelscope")
"""Where a file may lie, what is tried first first."""
_MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KEY_AT_THE_END = re.compile(r"^(?P<reason>.*) - at `\$(?P<key>.*)`$", re.DOTALL)
_EXPECTED = {
    "name": "the name of a file, as mine-f16.gguf, without a folder",
    "url": "the URL of a file, as https://example.org/mine-f16.gguf",
    "huggingface": "OWNER/REPO or OWNER/REPO/PATH",
    "modelscope": "OWNER/REPO or OWNER/REPO/PATH",
    "sha256": "a number of 64 hexadecimal digits",
    "checkpoints": "OWNER/REPO",
}
"""What the patterns below ask for, in words."""


@dataclass(frozen=True, slots=True)
class RegisteredFile:
    """One file of a variant."""

    name: str
    """What it is called where it is installed."""
    sources: Mapping[str, str]
    """Places it can be fetched from by their kind, in the order of SOURCE_KINDS."""
    size_bytes: int | None = None
    sha256: str | None = None
    """In small hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A model that has a name. One that is neither built in nor published has no variants, and an `instead`."""

    name: str
    languages: tuple[str, ...]
    licence: str | None
    """None where only its model card says it."""
    variants: Mapping[str, tuple[RegisteredFile, ...]]
    """The default first."""
    built_in: bool = False
    instead: str | None = None
    """How to get it, where it cannot be fetched."""
    checkpoints: tuple[str, ...] = ()
    """Repositories, OWNER/NAME, of the checkpoint that it is made of."""


class _FileTable(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[\w][\w.+-]*\.gguf$")]
    folder: str | None = None
    url: Annotated[str, msgspec.Meta(pattern="^https?://[^/]+/")] | None = None
    huggingface: Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+(/.+)?$")] | None = None
    modelscope: Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+(/.+)?$")] | None = None
    size_bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")] | None = None


class _ModelTable(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    languages: list[str]
    licence: str | None = None
    variants: dict[str, list[Any]] = {}
    default: str | None = None
    built_in: bool = False
    instead: str | None = None
    checkpoints: list[Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$")]] = []


_Table = TypeVar("_Table", _FileTable, _ModelTable)


def parse(text: str, origin: Path) -> dict[str, RegisteredModel]:
    """The models of a registry by their names.

    Args:
        text: the registry, in TOML.
        origin: its file, for messages.

    Raises:
        RegistryError: it is malformed; the message names the file, the key, and what is wrong there.
    """
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers too long and lists too deep
        raise RegistryError(origin, f"is not TOML: {error}") from error
    return {name: _model(name, table, origin) for name, table in tables.items()}


def _model(name: str, table: Any, origin: Path) -> RegisteredModel:
    if not _MODEL_NAME.fullmatch(name):
        raise RegistryError(origin, f"{name!r}: a model's name has small letters, digits and . _ - only")
    model = _converted(table, _ModelTable, name, origin)
    if [bool(model.variants), model.built_in, model.instead is not None].count(True) != 1:
        raise RegistryError(origin, f"{name}: needs one of variants, built-in = true and instead")
    variants = {each: _files(f"{name}.variants.{each}", files, origin) for each, files in model.variants.items()}
    if variants:
        default = next(iter(variants)) if model.default is None and len(variants) == 1 else model.default
        if default not in variants:
            known = ", ".join(variants)
            found = "and there is none" if model.default is None else f"not {model.default!r}"
            raise RegistryError(origin, f"{name}.default: one of {known} was expected, {found}")
        variants = {default: variants[default], **variants}
    return RegisteredModel(
        name,
        tuple(model.languages),
        model.licence,
        variants,
        model.built_in,
        model.instead,
        tuple(model.checkpoints),
    )


def _files(key: str, tables: list[Any], origin: Path) -> tuple[RegisteredFile, ...]:
    if not tables:
        raise RegistryError(origin, f"{key}: has no files")
    return tuple(_file(f"{key}[{number}]", table, origin) for number, table in enumerate(tables))


def _file(key: str, table: Any, origin: Path) -> RegisteredFile:
    file = _converted(table, _FileTable, key, origin)
    sources = {kind: place for kind in SOURCE_KINDS if (place := getattr(file, kind)) is not None}
    if not sources:
        raise RegistryError(origin, f"{key}: needs one of {', '.join(SOURCE_KINDS)}")
    return RegisteredFile(file.name, sources, file.size_bytes, file.sha256 and file.sha256.lower())


def _converted(table: Any, kind: type[_Table], key: str, origin: Path) -> _Table:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        match = _KEY_AT_THE_END.match(str(error))
        reason, below = (match["reason"], match["key"]) if match else (str(error), "")
        if "matching regex" in reason:
            reason = f"{_EXPECTED[below.lstrip('.').partition('[')[0]]} was expected"
        raise RegistryError(origin, f"{key}{below}: {reason}") from error

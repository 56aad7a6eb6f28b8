"""What is installed, built in, or can be had: `liveasr models list` and `liveasr models rm`."""

import contextlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import click
from rich.cells import cell_len

from liveasr import provenance, store
from liveasr.errors import ModelError, ModelNotFoundError, OutputError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.model_registry import RegisteredModel
from liveasr.visible import visible

State: TypeAlias = Literal["built-in", "installed", "begun", "available", "to convert", "damaged"]
_UNTOLD_LICENCE = "as its model card says"
_SIZES = 2
"""The column of numbers."""
_HEADER = ("STATE", "MODEL", "SIZE", "LANGUAGES", "LICENCE")


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One variant of a model."""

    name: str
    variant: str | None
    """Of the registry; what is called NAME:VARIANT."""
    default: bool
    """Whether its bare name means this variant."""
    state: State
    files: tuple[str, ...]
    """Paths of those that are there."""
    size_bytes: int | None
    """Of all its files; None where that is not known before they are fetched."""
    languages: tuple[str, ...]
    licence: str | None
    instead: str | None
    weights: str | None = None
    """The type of most of a file that is no variant of the registry: "f16", ..."""


def listed() -> list[ListedModel]:
    """All models that are here or that the registry knows.

    Raises:
        RegistryError: the user's registry is malformed.
    """
    registry = store.registry()
    rows = [row for model in registry.values() for row in _registered(model)]
    known = {path for row in rows for path in row.files}
    rows += [_from_file(path) for path in store.installed() if str(path) not in known]
    return rows


def list_models(as_json: bool) -> int:
    """`liveasr models list`."""
    rows = listed()
    if as_json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        return 0
    table = [_HEADER, *(tuple(map(visible, _cells(row))) for row in rows)]
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(_HEADER))]
    for row in table:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = (blank + cell if column == _SIZES else cell + blank
                 for column, (cell, blank) in enumerate(zip(row, blanks, strict=True)))  # fmt: skip
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    return 0


def remove(name: str, yes: bool) -> int:
    """`liveasr models rm`."""
    paths = _to_remove(name)
    size_bytes = sum(path.stat().st_size for path in paths)
    for path in paths:
        sys.stdout.write(f"{path}\n")
    sys.stdout.flush()
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("nothing was removed: nobody is here to be asked; add --yes")
        if not click.confirm(f"Remove {size_bytes / 1e6:.1f} MB?", err=True):
            return 1
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(path, f"cannot be removed: {error.strerror}") from error
    sys.stdout.write(f"removed, {size_bytes / 1e6:.1f} MB\n")
    return 0


def _registered(model: RegisteredModel) -> Iterator[ListedModel]:
    if model.built_in:
        yield _row(model, None, "built-in", [store.built_in(model.name)])
        return
    if model.instead is not None:
        path = store.converted_path(model)
        if path.is_file():
            yield _from_file(path, model)
        else:
            yield _row(model, None, "to convert", [path])
    for variant, files in model.variants.items():
        paths = [store.installed_path(file) for file in files]
        state: State = "available"
        if store.is_installed(files):
            state = "installed"
        elif any(store.partial_path(path).exists() for path in paths):
            state = "begun"
        sizes = [file.size_bytes for file in files]
        size_bytes = None if None in sizes else sum(filter(None, sizes))
        yield _row(model, variant, state, paths, size_bytes)


def _row(
    model: RegisteredModel, variant: str | None, state: State, paths: list[Path], size_bytes: int | None = None
) -> ListedModel:
    here = [path for path in paths if path.is_file()]
    if len(here) == len(paths):
        size_bytes = sum(path.stat().st_size for path in here)
    default = variant is not None and variant == next(iter(model.variants))
    files = tuple(map(str, here))
    licence = model.licence or _UNTOLD_LICENCE
    return ListedModel(model.name, variant, default, state, files, size_bytes, model.languages, licence, model.instead)


def _from_file(path: Path, model: RegisteredModel | None = None) -> ListedModel:
    """A file that was converted, quantised or put here; what it says of itself stands above what the registry says."""
    row = ListedModel(path.stem, None, False, "damaged", (str(path),), None, (), None, None)
    if model is not None:
        row = replace(_row(model, None, "installed", [path]), state="damaged")
    with contextlib.suppress(ModelError, OSError), GgufFile(path) as file:
        said = provenance.read(file)
        row = replace(
            row,
            state="installed",
            weights=file.weight_type,
            size_bytes=path.stat().st_size,
            languages=said.languages or row.languages,
            licence=said.licence_words or row.licence,
        )
    return row


def _cells(row: ListedModel) -> tuple[str, ...]:
    name = row.name if row.variant is None else f"{row.name}:{row.variant}"
    size = "-" if row.size_bytes is None else f"{row.size_bytes / 1e6:.1f} MB"
    mark = " (default)" if row.default else f" ({row.weights})" if row.weights else ""
    return row.state, name + mark, size, " ".join(row.languages) or "-", row.licence or "-"


def _to_remove(text: str) -> list[Path]:
    """The files of a model, without those that another installed variant needs, and what was begun of them."""
    name = text.partition(":")[0]
    registry = store.registry()
    folder = store.models_folder()
    if name in registry:
        model, variant = store.registered(text)
        if model.built_in:
            raise UsageError(f"{name} is built in: it is part of the program, and stays")
        going = [variant] if variant else list(model.variants)
        names = [file.name for each in going for file in model.variants[each]]
        needed = _needed_by_others(registry, name, going, set(names))
        names = [each for each in names if each not in needed]
        if not variant:
            names.append(f"{name}.gguf")
    elif Path(text).name != text:
        raise UsageError(f"{text}: rm takes the name of an installed model, as `liveasr models list` shows it")
    else:
        names = [f"{text}.gguf"]
    names += [each.replace(".gguf", f"{store.LANGUAGE_MODEL_ENDING}.gguf") for each in names]
    paths = list(dict.fromkeys(_with_part(folder / each for each in names)))
    if not paths:
        raise ModelNotFoundError(f"no model named {text} in {folder}; `liveasr models list` shows what is there")
    return paths


def _needed_by_others(
    registry: Mapping[str, RegisteredModel], name: str, going: Collection[str], names: Collection[str]
) -> set[str]:
    """Files of the variants that are installed, and stay when some of one model go with all of `names`.

    A model that is nothing but another name for what goes is no reason for it to stay.
    """
    needed: set[str] = set()
    for model in registry.values():
        for variant, files in model.variants.items():
            own = {file.name for file in files}
            stays = variant not in going if model.name == name else not own.issubset(names)
            if stays and store.is_installed(files):
                needed |= own
    return needed


def _with_part(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        with_part = (path, store.partial_path(path), store.partial_identity_path(path))
        yield from (each for each in with_part if each.is_file())

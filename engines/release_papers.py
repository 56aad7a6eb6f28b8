"""What a checkpoint folder tells of itself beside its weights and settings: whose it is, and under which licence.

Looked at are the README.md of a release, its `configuration.json`, and where the folder is one of Hugging Face's cache,
its path. A registered model whose repository is found there tells what is missing. Nothing is guessed: whoever trains a
model of a known architecture has made another model, which needs not have the licence of that one.
"""

import json
import logging
import re
from pathlib import Path
from typing import Any

import yaml

from liveasr import store
from liveasr.engines.checkpoint_folder import fault_of
from liveasr.provenance import (
    HUGGING_FACE,
    MAX_CHARACTERS,
    MODELSCOPE,
    UNKNOWN,
    Provenance,
    language_codes,
    of_repository,
    repository_name,
)

_log = logging.getLogger("liveasr")
_README = "README.md"
_CONFIGURATION = "configuration.json"
_MAX_BYTES = 1 << 20
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_CACHED = re.compile(r"models--(\w[\w.-]*)--(\w[\w.-]*)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HUB_KEYS = {"hf": HUGGING_FACE, "ms": MODELSCOPE}
"""In `model_name_in_hub` of a `configuration.json`."""


def provenance_of(folder: Path, told: Provenance) -> Provenance:
    """What is known of the checkpoint in a folder.

    Args:
        folder: the checkpoint's.
        told: what the caller knows, which stands above what is found.

    Raises:
        RegistryError: the user's registry is malformed.
    """
    known = told.or_else(_of_cache(folder)).or_else(_of_card(folder / _README))
    known = known.or_else(_of_configuration(folder / _CONFIGURATION))
    name = repository_name(known.repository)
    for model in store.registry().values():
        if name in model.checkpoints:
            return known.or_else(Provenance(licence=model.licence, languages=model.languages))
    return known


def _of_cache(folder: Path) -> Provenance:
    """Of a path .../models--OWNER--NAME/snapshots/REVISION."""
    path = folder.resolve()
    match = _CACHED.fullmatch(path.parent.parent.name)
    if match is None or path.parent.name != "snapshots" or not _COMMIT.fullmatch(path.name):
        return UNKNOWN
    return of_repository(HUGGING_FACE, f"{match[1]}/{match[2]}", path.name)


def _of_card(path: Path) -> Provenance:
    """Of the YAML in front of a README.md, as both hubs have it."""
    match = _FRONT_MATTER.match(_text(path))
    if match is None:
        return UNKNOWN
    try:
        card = yaml.load(match[1], yaml.BaseLoader)  # noqa: S506 - which makes nothing but texts, lists and tables
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        _pass_over(path, error)
        return UNKNOWN
    if not isinstance(card, dict):
        return UNKNOWN
    return Provenance(
        licence=_line(card.get("license")),
        licence_name=_line(card.get("license_name")),
        licence_link=_line(card.get("license_link")),
        languages=language_codes(card.get("language")),
    )


def _of_configuration(path: Path) -> Provenance:
    """Of the names that a `configuration.json` gives the model on the hubs."""
    text = _text(path)
    if not text:
        return UNKNOWN
    try:
        configuration = json.loads(text)
    except (ValueError, RecursionError) as error:
        _pass_over(path, error)
        return UNKNOWN
    names = configuration.get("model_name_in_hub") if isinstance(configuration, dict) else None
    for key, hub in _HUB_KEYS.items():
        name = names.get(key) if isinstance(names, dict) else None
        if isinstance(name, str) and _REPOSITORY.fullmatch(name):
            return of_repository(hub, name)
    return UNKNOWN


def _text(path: Path) -> str:
    """What is in a file; nothing where there is none, or it is too large to be what it is called."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        return data.decode("utf-8").replace("\r\n", "\n") if len(data) <= _MAX_BYTES else ""
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        _pass_over(path, error)
        return ""


def _pass_over(path: Path, error: Exception) -> None:
    """Of what is no part of the model, a fault is no reason not to convert it."""
    _log.warning("%s: cannot be read and is passed over: %s", path, fault_of(error))


def _line(value: Any) -> str | None:
    """A text of one line that is not too long; None of anything else."""
    text = value.strip() if isinstance(value, str) else ""
    return text if text.isprintable() and 0 < len(text) <= MAX_CHARACTERS else None

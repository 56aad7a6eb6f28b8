"""Where a file of the registry is fetched from: a folder, a web server, Hugging Face, ModelScope."""

import logging
import os
from pathlib import Path
from urllib.parse import quote

from liveasr.clients.remote import RemoteFile, host_of
from liveasr.errors import FetchError, UsageError
from liveasr.model_registry import RegisteredFile

_log = logging.getLogger("liveasr")
_HUBS = ("huggingface", "modelscope")
_ENDING = ".gguf"
_YES = ("1", "ON", "YES", "TRUE")
"""What huggingface_hub takes for a yes."""
_ENDPOINT_VARIABLE = "HF_ENDPOINT"


def locate(file: RegisteredFile, wanted: str | None) -> RemoteFile | Path:
    """A file on a server, or one of this computer.

    Args:
        file: of the registry.
        wanted: "huggingface" or "modelscope"; the URL of the file, or of the folder that it lies in; a local folder. By
            default the first of the registry's that has it and can be asked.

    Raises:
        FetchError: it is not there, or the server cannot be asked.
        UsageError: the registry does not know the wanted source of this file.
    """
    if wanted is None:
        return _first(file)
    if wanted in _HUBS:
        if wanted not in file.sources:
            known = ", ".join(file.sources)
            raise UsageError(f"--from {wanted}: the registry does not say where {file.name} lies there, only {known}")
        kind, place = wanted, file.sources[wanted]
    elif wanted.startswith(("https://", "http://")):
        folder, mark, query = wanted.partition("?")
        kind = "url"
        place = wanted if is_of_one_file(wanted) else f"{folder.rstrip('/')}/{quote(file.name)}{mark}{query}"
    else:
        kind, place = "folder", wanted
    return _at(kind, place, file.name)


def _first(file: RegisteredFile) -> RemoteFile | Path:
    """Where a file is, among all places that the registry names; if nowhere, what the first of them said is raised."""
    failures: list[FetchError] = []
    for kind, place in file.sources.items():
        try:
            found = _at(kind, place, file.name)
        except FetchError as error:
            failures.append(error)
            if os.environ.get("HF_HUB_OFFLINE", "0").upper() in _YES:  # then nobody else is to be asked either
                break
        else:
            for failure in failures:
                _log.warning("%s; taking the next source", failure.reason)
            return found
    raise failures[0]


def is_of_one_file(wanted: str) -> bool:
    """Whether a place is that of a file, not of the folder that it lies in."""
    return wanted.partition("?")[0].endswith(_ENDING)


def _at(kind: str, place: str, name: str) -> RemoteFile | Path:
    match kind:
        case "folder":
            try:
                path = Path(place).expanduser() / name
            except RuntimeError as error:
                raise FetchError(f"{place}: no such folder; it begins with the name of no user") from error
            if not path.is_file():
                raise FetchError(f"{path}: no such file")
            return path
        case "url":
            return RemoteFile(place)
    owner, repository, *inner = place.split("/")
    there = f"{owner}/{repository}", "/".join(inner) or name
    if kind == "modelscope":
        from liveasr.clients import modelscope  # noqa: PLC0415 - by itself, see below

        return modelscope.locate(*there)
    if endpoint := os.environ.get(_ENDPOINT_VARIABLE):
        host_of(endpoint, named_by=_ENDPOINT_VARIABLE)  # with one that is none its library cannot even be imported
    from liveasr.clients import hugging_face  # noqa: PLC0415 - a third of a second, for nothing elsewhere

    return hugging_face.locate(*there)

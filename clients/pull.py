"""Files of the registry into the folder of models: fetched once, checked before they get their names."""

import contextlib
import dataclasses
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from liveasr import store
from liveasr.clients.fetch import NEVER, Fetch, Report
from liveasr.clients.remote import RemoteFile
from liveasr.clients.sources import locate
from liveasr.errors import FetchError, ModelFileError, OutputError
from liveasr.gguf_file import GgufFile
from liveasr.model_registry import RegisteredFile

_log = logging.getLogger("liveasr")
_LOCK_S = 0.5
"""How often whoever waits for another process looks whether it is to stop."""


def pull(
    files: Sequence[RegisteredFile],
    wanted: str | None,
    begin: Callable[[str], Report],
    stop: threading.Event = NEVER,
) -> list[Path]:
    """Install all files of a variant; those that are there already, and whole, stay.

    Args:
        files: of the registry.
        wanted: where from, as `sources.locate` takes it.
        begin: called with the name of each file that is fetched; what it returns is told of every piece.
        stop: set by another thread, it ends the fetch; what came is kept, to be gone on with.

    Returns:
        Where they lie.

    Raises:
        FetchError: one cannot be had, what came is not what was expected, or the fetch was stopped.
        OutputError: the folder cannot be written, or the disk is full.
        UsageError: the registry does not know the wanted source.
    """
    return [_pull(file, wanted, begin, stop) for file in files]


def _pull(file: RegisteredFile, wanted: str | None, begin: Callable[[str], Report], stop: threading.Event) -> Path:
    path = store.installed_path(file)
    if path.is_file() and not _fault_of_installed(path, file):
        return path
    with _alone(path, stop):
        if path.is_dir():
            raise OutputError(path, "is a folder where the model's file belongs; move it away")
        if path.is_file():  # perhaps since a moment ago, by another process
            fault = _fault_of_installed(path, file)
            if not fault:
                return path
            _log.warning("%s is there, but %s; fetching it anew", path, fault)
        source = locate(file, wanted)
        size_bytes, sha256 = file.size_bytes, file.sha256
        if isinstance(source, RemoteFile):  # the registry knows better, if it does
            size_bytes, sha256 = size_bytes or source.size_bytes, sha256 or source.sha256
            source = dataclasses.replace(source, size_bytes=size_bytes, sha256=sha256)
        size = "" if size_bytes is None else f", {size_bytes / 1e6:.1f} MB"
        _log.warning(
            "fetching %s from %s%s", file.name, source.host if isinstance(source, RemoteFile) else source, size
        )
        _fetch(path, source, begin(file.name), stop)
        _check(path, size_bytes, sha256)
        _name(path)
    return path


@contextlib.contextmanager
def _alone(path: Path, stop: threading.Event) -> Iterator[None]:
    """What no two processes do at once for one file.

    Raises:
        FetchError: it was stopped while it waited for the other.
    """
    try:
        locks = (
            path.parent / ".locks"
        )  # they stay: a lock that is removed may be held by one process and made by another
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / path.name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _log.warning("another process is fetching %s; waiting for it", path.name)
            _wait_for(lock, stop)
    except OSError as error:
        raise OutputError(path.parent, f"cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def _wait_for(lock: FileLock, stop: threading.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=_LOCK_S)
            return
    raise FetchError("the fetch was stopped")


def _fetch(path: Path, source: RemoteFile | Path, report: Report, stop: threading.Event) -> None:
    fetch = Fetch(store.partial_path(path), store.partial_identity_path(path), report, stop)
    if isinstance(source, Path):
        try:
            fetch.copy(source)
        except BaseException:
            _throw_away(path)
            raise
        return
    try:
        fetch.download(source)
    except FetchError as error:
        raise FetchError(error.reason, f"{error.way_out}{_kept(path)}") from error
    except KeyboardInterrupt:
        if kept := _kept(path):
            _log.warning("%s%s", path.name, kept)
        raise


def _kept(path: Path) -> str:
    """What to say of the part that came, if it can be gone on with."""
    size_bytes = store.begun_bytes(path)
    return f"; {size_bytes / 1e6:.1f} MB came and are kept, the same command goes on from there" if size_bytes else ""


def _fault_of_installed(path: Path, file: RegisteredFile) -> str:
    """Why an installed file is not what the registry says it is; empty if it is."""
    try:
        return _fault(path, file.size_bytes, file.sha256)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _check(path: Path, size_bytes: int | None, sha256: str | None) -> None:
    """See that what came is what was expected, or throw it away."""
    if fault := _fault(store.partial_path(path), size_bytes, sha256):
        _throw_away(path)
        raise FetchError(
            f"{path.name}: what came {fault}; it was thrown away",
            "try again, or liveasr models pull --from names another source",
        )


def _fault(path: Path, size_bytes: int | None, sha256: str | None) -> str:
    """What is wrong with a file, in words that follow upon its name; empty if nothing is."""
    size = path.stat().st_size
    if size_bytes is not None and size != size_bytes:
        return f"has {size} bytes, not {size_bytes}"
    if sha256 is not None:
        with path.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != sha256:
            return f"has the SHA-256 {found}, not {sha256}"
    try:
        GgufFile(path).close()
    except ModelFileError as error:
        return f"is {error.reason}" if error.reason.startswith("not ") else error.reason
    return ""


def _name(path: Path) -> None:
    """Give the complete file its name, with its bytes on the disk before."""
    part = store.partial_path(path)
    try:
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        store.partial_identity_path(path).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(path, f"cannot be written: {error.strerror}") from error


def _throw_away(path: Path) -> None:
    for each in (store.partial_path(path), store.partial_identity_path(path)):
        with contextlib.suppress(OSError):
            each.unlink(missing_ok=True)

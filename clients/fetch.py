"""Bytes from a server or a folder into a file that grows; what broke off is gone on with, not begun anew.

What was begun may be gone on with only if it is the same file still: its SHA-256 where that is known, else what the
server sent to tell its versions apart, lies beside it. Where there is neither, it is begun anew.
"""

import errno
import re
import shutil
import threading
from collections.abc import Callable
from http import HTTPStatus
from io import FileIO
from pathlib import Path
from typing import TypeAlias

import httpx

from liveasr.clients.backoff import Backoff
from liveasr.clients.remote import STALL_S, RemoteFile, failure, new_client, refusal
from liveasr.errors import FetchError, OutputError

Report: TypeAlias = Callable[[int, int | None], None]
"""Takes how many bytes have come, and how many there are, if that is known."""
PATIENCE_S = 20.0
"""How long after the last new byte a broken connection is tried again."""
NEVER = threading.Event()
"""What is given where nobody stops a fetch but by ending the process."""
_COPIED_BYTES = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (?P<start>\d+)-\d+/(?P<total>\d+|\*)")


class _BrokenOffError(Exception):
    """Trying again may help; `told` is what to say if it does not."""

    def __init__(self, told: FetchError) -> None:
        super().__init__(str(told))
        self.told = told


class Fetch:
    """One file on its way.

    Args:
        part: the file that grows.
        identity: of what `part` is the beginning.
        report: is told of every piece.
        stop: set by another thread, it ends the fetch before the next piece.
    """

    def __init__(self, part: Path, identity: Path, report: Report, stop: threading.Event = NEVER) -> None:
        self._part = part
        self._identity = identity
        self._report = report
        self._stop = stop

    def copy(self, source: Path) -> None:
        """Take all of a file of this computer.

        Raises:
            FetchError: it cannot be read, or was stopped.
            OutputError: the disk is full, or may not be written.
        """
        try:
            with source.open("rb") as file:
                total = source.stat().st_size
                self._require_space(total)
                with self._opened(0, "") as out:
                    while piece := file.read(_COPIED_BYTES):
                        self._take(out, piece, total)
        except OSError as error:
            raise FetchError(f"{source}: cannot be read: {error.strerror}") from error

    def download(self, remote: RemoteFile, *, patience_s: float = PATIENCE_S, stall_s: float = STALL_S) -> None:
        """Take a file from its server, from where the part ends.

        Raises:
            FetchError: it cannot be had, or not now, or was stopped; what came is kept.
            OutputError: the disk is full, or may not be written; what came is kept.
        """
        backoff = Backoff(patience_s)
        furthest = self._size()
        with new_client(stall_s) as client:
            while True:
                try:
                    return self._get(client, remote)
                except _BrokenOffError as error:
                    told = error.told
                if (size := self._size()) > furthest:
                    furthest = size
                    backoff.begin()
                pause_s = backoff.next()
                if pause_s is None:
                    raise told
                if self._stop.wait(pause_s):
                    raise _stopped()

    def _get(self, client: httpx.Client, remote: RemoteFile) -> None:
        begun_of = self._begun_of()
        start = self._size() if begun_of and begun_of == (remote.sha256 or begun_of) else 0
        if remote.sha256 and start and start == remote.size_bytes:
            return  # all came, and then we were stopped
        try:
            if not self._ask(client, remote, start):
                self._ask(client, remote, 0)
        except httpx.TransportError as error:
            raise _BrokenOffError(failure(remote.url, error)) from error
        except (httpx.RequestError, httpx.InvalidURL, ValueError) as error:  # the last of what no host can be called
            raise failure(remote.url, error) from error

    def _ask(self, client: httpx.Client, remote: RemoteFile, start: int) -> bool:
        """Ask for what comes from `start` on; False if there is no going on from there."""
        headers = {**remote.headers, "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with client.stream("GET", remote.url, headers=headers) as response:
            if start and not self._goes_on(response, remote, start):
                return False
            self._receive(response, remote, start)
        return True

    def _goes_on(self, response: httpx.Response, remote: RemoteFile, start: int) -> bool:
        """Whether an answer to a request for the rest can be used, as the rest or as the whole."""
        if response.status_code == HTTPStatus.PARTIAL_CONTENT:
            found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            same = (remote.sha256 or _version(response)) == self._begun_of()
            return found is not None and int(found["start"]) == start and same
        return response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE

    def _receive(self, response: httpx.Response, remote: RemoteFile, start: int) -> None:
        status = response.status_code
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _BrokenOffError(refusal(remote.url, status))
        if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise refusal(remote.url, status)
        start = start if status == HTTPStatus.PARTIAL_CONTENT else 0
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else remote.size_bytes
        if total is not None:
            if remote.size_bytes is not None and total != remote.size_bytes:
                raise FetchError(
                    f"{remote.host} would send {total} bytes where {remote.size_bytes} were expected",
                    "is it another file, or a page to log in? liveasr models pull --from names another source",
                )
            self._require_space(total - start)
        with self._opened(start, remote.sha256 or _version(response)) as out:
            for piece in response.iter_raw():
                self._take(out, piece, total)
            if total is not None and out.tell() != total:
                raise _BrokenOffError(FetchError(f"{remote.host} sent {out.tell()} of {total} bytes", "try again"))

    def _size(self) -> int:
        return self._part.stat().st_size if self._part.is_file() else 0

    def _begun_of(self) -> str:
        return self._identity.read_text(encoding="utf-8", errors="replace") if self._identity.is_file() else ""

    def _opened(self, start: int, identity: str) -> FileIO:
        """The part, to be gone on with; or emptied, and then it is the beginning of something else.

        Without a buffer: what is left in one when the disk is full would be tried again, and fail, when it is closed.
        """
        try:
            if start:
                return self._part.open("ab", buffering=0)
            out = self._part.open("wb", buffering=0)
            self._identity.write_text(identity, encoding="utf-8")
        except OSError as error:
            raise OutputError(self._part, f"cannot be written: {error.strerror}") from error
        return out

    def _take(self, out: FileIO, piece: bytes, total: int | None) -> None:
        if self._stop.is_set():
            raise _stopped()
        try:
            rest = memoryview(piece)
            while rest:
                rest = rest[out.write(rest) :]
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._full() from error
            raise OutputError(self._part, f"cannot be written: {error.strerror}") from error
        self._report(out.tell(), total)

    def _require_space(self, needed_bytes: int) -> None:
        free_bytes = shutil.disk_usage(self._part.parent).free
        if free_bytes < needed_bytes:
            raise self._full(f"{needed_bytes / 1e6:.1f} MB are needed, {free_bytes / 1e6:.1f} MB are free")

    def _full(self, numbers: str = "") -> OutputError:
        reason = f"the disk is full{numbers and f': {numbers}'}; make room, or let LIVEASR_MODELS name another folder"
        return OutputError(self._part.parent, reason)


def _stopped() -> FetchError:
    return FetchError("the fetch was stopped")


def _version(response: httpx.Response) -> str:
    """What tells the versions of a file apart; empty where the server does not."""
    return str(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")

"""A web server that serves one file, whole or in one of the ways in which servers and networks go wrong."""

import hashlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789" * 4
"""Of every repository, where this is Hugging Face."""
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass
class Served:
    """What the server does, and what it was asked. Tests change it while it runs."""

    content: bytes
    etag: str | None = '"one"'
    status: int | None = None
    """Answered instead of the file."""
    statuses: list[int | None] = field(default_factory=list)
    """The same, one a request, as long as there are any; None answers with the file."""
    redirect_to: str | None = None
    """Where everybody is sent."""
    ranges: bool = True
    """Whether a request for the rest gets the rest."""
    break_at: list[int] = field(default_factory=list)
    """Positions in the file at which the connection ends, one a request, as long as there are any."""
    stall_at: list[int] = field(default_factory=list)
    """The same, for connections on which nothing more is sent."""
    length: int | None = 0
    """Added to the length that is told; None for no length at all."""
    pace_s: float = 0.0
    """Between one piece and the next."""
    gate: threading.Event | None = None
    """What is waited for before anything of the file is sent."""
    headers: dict[str, str] = field(default_factory=dict)
    """More, of every answer."""
    json: dict[str, Any] = field(default_factory=dict)
    """What is answered instead of the file, as JSON text, by the beginning of the path."""
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path, and the position from which the rest was wanted."""
    seen: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_args: Any) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        served = self.server.served
        wanted = _RANGE.match(self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        served.asked.append((self.command, self.path, start))
        served.seen.append({name.lower(): value for name, value in self.headers.items()})
        for path, text in served.json.items():
            if self.path.startswith(path):
                return self._send(200, text.encode(), {"Content-Type": "application/json"}, with_body=with_body)
        if served.redirect_to is not None:
            return self._send(302, b"", {**served.headers, "Location": served.redirect_to}, with_body=with_body)
        if status := served.statuses.pop(0) if served.statuses else served.status:
            return self._send(status, b"<html>no</html>", {}, with_body=with_body)
        size = len(served.content)
        headers = dict(served.headers)
        if served.etag is not None:
            headers["ETag"] = served.etag
        if not (wanted and served.ranges and with_body):
            return self._send_file(200, 0, headers, with_body=with_body)
        if start >= size:
            return self._send(416, b"", {"Content-Range": f"bytes */{size}"}, with_body=with_body)
        headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        return self._send_file(206, start, headers, with_body=with_body)

    def _send_file(self, status: int, start: int, headers: dict[str, str], *, with_body: bool) -> None:
        served = self.server.served
        end = len(served.content)
        stalls = False
        if with_body and served.break_at:
            end = served.break_at.pop(0)
        elif with_body and served.stall_at:
            end, stalls = served.stall_at.pop(0), True
        length = None if served.length is None else len(served.content) - start + served.length
        self._send(status, served.content[start:end], headers, with_body=with_body, length=length)
        if stalls:
            served.over.wait(30)
        if length is None or length != end - start:
            self.close_connection = True

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool, length: int | None = -1
    ) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length == -1 else length))
        else:
            self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if not with_body:
            return
        pace_s, gate = self.server.served.pace_s, self.server.served.gate
        if gate is not None:
            gate.wait(30)
        try:
            for at in range(0, len(body), 65_536):
                self.wfile.write(body[at : at + 65_536])
                self.wfile.flush()
                time.sleep(pace_s)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, served: Served) -> None:
        self.served = served
        super().__init__(("127.0.0.1", 0), _Handler)


@contextmanager
def serving(content: bytes) -> Iterator[Served]:
    """A server on a free port of this computer until the end of a `with` block."""
    served = Served(content)
    with _Server(served) as server:
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield served
        finally:
            served.over.set()
            server.shutdown()
            thread.join()


def refused() -> str:
    """An address where nobody listens."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{nobody.getsockname()[1]}"


def as_hugging_face(served: Served) -> None:
    """Tell of the file what Hugging Face tells."""
    digest = hashlib.sha256(served.content).hexdigest()
    served.headers = {
        "X-Repo-Commit": COMMIT,
        "X-Linked-Etag": f'"{digest}"',
        "X-Linked-Size": str(len(served.content)),
    }

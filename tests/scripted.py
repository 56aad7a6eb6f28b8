"""A server that says what a test tells it to, in place of the real one, inside the browser."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

from tests.browser import PATIENCE_MS

_NUMBER_BYTES = 4


@dataclass
class ScriptedSession:
    """One connection of the page."""

    _socket: WebSocketRoute
    start: dict[str, Any] | None = None
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    """Audio as it came: its number and its samples."""
    stopped: bool = False

    def say(self, type_: str, **fields: object) -> None:
        self._send({"type": type_, **fields})

    def transcript(self, segment_id: int, revision: int, committed: str, tentative: str = "", **fields: object) -> None:
        defaults: dict[str, object] = {"start_ms": 0, "end_ms": 1000, "final": False, "text": None, "words": []}
        words = {"committed": committed, "tentative": tentative, "language": None}
        numbers = {"segment_id": segment_id, "revision": revision}
        self._send({"type": "transcript", **numbers, **defaults, **words, **fields})

    def final(self, segment_id: int, text: str, **fields: object) -> None:
        self.transcript(segment_id, 1_000, text, "", final=True, text=text, **fields)

    def done(self, reason: str = "stop", code: int = 1000) -> None:
        number = self.frames[-1][0] if self.frames else 0
        self.say("done", reason=reason, number=number, heard_ms=0, speech_ms=0, segments=0)
        self._socket.close(code=code)

    def fail(self, code: str, message: str, closes_with: int) -> None:
        self.say("error", code=code, message=message, fatal=True)
        self._socket.close(code=closes_with, reason=message)

    def close(self, code: int) -> None:
        self._socket.close(code=code)

    def _send(self, message: dict[str, object]) -> None:
        self._socket.send(json.dumps(message))

    def take(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            self.frames.append((struct.unpack_from("<I", frame)[0], frame[_NUMBER_BYTES:]))
            return
        message = json.loads(frame)
        if message["type"] == "start":
            self.start = message
            limits = {"message_bytes": 1 << 20, "idle_s": 60}
            self.say("ready", version=1, session="s", model=message["model"], limits=limits, models=[])
        self.stopped = self.stopped or message["type"] == "stop"


class ScriptedServer:
    """Answers the WebSockets of a page; its models and its files are those of the real server.

    Args:
        page: which has not been opened yet.
        down: whether connections are refused at first.
    """

    def __init__(self, page: Page, *, down: bool = False) -> None:
        self.sessions: list[ScriptedSession] = []
        self.down = down
        self.refused = 0
        page.route_web_socket("**/v1/stream", self._open)

    def _open(self, socket: WebSocketRoute) -> None:
        if self.down:
            self.refused += 1
            socket.close(code=1013)
            return
        session = ScriptedSession(socket)
        self.sessions.append(session)
        socket.on_message(session.take)


def wait_until(page: Page, condition: Callable[[], bool]) -> None:
    """Let the page go on until something is so."""
    for _ in range(PATIENCE_MS // 20):
        if condition():
            return
        page.wait_for_timeout(20)
    raise AssertionError("waited in vain")

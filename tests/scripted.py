"""A server that says what a test tells it to, in place of the real one, inside the browser.

Of its own accord it does what every server does: it numbers its messages, and keeps sessions whose connection breaks.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

from tests.browser import PATIENCE_MS

_NUMBER_BYTES = 4


@dataclass
class ScriptedSession:
    """A session of the page, over one connection after another."""

    id: str
    start: dict[str, Any]
    _socket: WebSocketRoute | None
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    """Audio as it came: its number and its samples."""
    stopped: bool = False
    deaf: bool = False
    """Whether all that comes is lost, as when a network goes away without a word."""
    pings: int = 0
    faults: list[str] = field(default_factory=list)
    """What no server would take."""
    settled: int = 0
    """Samples, as far as a page knows that has heard everything."""
    resumed_from: list[int] = field(default_factory=list)
    """What the page had heard, by its own account, each time it came back."""
    _over: int | None = None
    _said: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bytes:
        """All samples."""
        return b"".join(samples for _, samples in self.frames)

    @property
    def unsettled(self) -> int:
        """Frames that are not settled as a whole."""
        ends = accumulate(len(sound) // 2 for _, sound in self.frames)
        return sum(end > self.settled for end in ends)

    @property
    def connected(self) -> bool:
        return self._socket is not None

    @property
    def rate_hz(self) -> int:
        rate_hz: int = self.start["audio"]["rate_hz"]
        return rate_hz

    def say(self, type_: str, **fields: object) -> None:
        """Say a message; a page that is not there hears it when it comes back."""
        self._said.append(json.dumps({"type": type_, "seq": len(self._said) + 1, **fields}))
        if self._socket is not None:
            self._socket.send(self._said[-1])

    def transcript(self, segment_id: int, revision: int, committed: str, tentative: str = "", **fields: object) -> None:
        defaults: dict[str, object] = {"start_ms": 0, "end_ms": 1000, "final": False, "text": None, "words": []}
        words = {"committed": committed, "tentative": tentative, "language": None}
        numbers = {"segment_id": segment_id, "revision": revision}
        self.say("transcript", **{**numbers, **defaults, **words, **fields})

    def final(self, segment_id: int, text: str, end_ms: int = 1000, **fields: object) -> None:
        self.transcript(segment_id, 1_000, text, "", final=True, text=text, end_ms=end_ms, **fields)
        self.settled = max(self.settled, end_ms * self.rate_hz // 1000)

    def ack(self, settled_ms: int) -> None:
        """Of all that came, settled until there."""
        self.settled = max(self.settled, settled_ms * self.rate_hz // 1000)
        number = len(self.frames) - self.unsettled
        self.say("ack", number=number, settled_ms=settled_ms, heard_ms=len(self.sound) * 500 // self.rate_hz)

    def done(self, reason: str = "stop", code: int = 1000) -> None:
        self.settled = len(self.sound) // 2
        heard_ms = self.settled * 1000 // self.rate_hz
        self.say("done", reason=reason, number=len(self.frames), heard_ms=heard_ms, speech_ms=0, segments=0)
        self._over = code
        self.close(code)

    def shut_down(self, segment_id: int, text: str, **fields: object) -> None:
        """End well, as a server that was told to stop within a segment, of which the page makes no use."""
        settled = self.settled
        self.say("error", code="shutdown", message="the server is stopping", fatal=False)
        self.final(segment_id, text, end_ms=len(self.sound) * 500 // self.rate_hz, **fields)
        self.ack(len(self.sound) * 500 // self.rate_hz)
        self.done("shutdown", 1001)
        self.settled = settled

    def fail(self, code: str, message: str, closes_with: int) -> None:
        self.say("error", code=code, message=message, fatal=True)
        self.close(closes_with)

    def close(self, code: int) -> None:
        """Break the connection; what comes of the page from here on is lost."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close(code=code)

    def lose(self, frames: int) -> list[tuple[int, bytes]]:
        """Break the connection, on which the last frames, which are returned, have not come."""
        self.close(1012)
        cut = max(0, len(self.frames) - frames)
        lost, self.frames = self.frames[cut:], self.frames[:cut]
        return lost

    def resume(self, socket: WebSocketRoute, seq: int) -> None:
        """The page is back."""
        self.close(4411)
        self._socket, self.deaf = socket, False
        if seq > len(self._said):
            self.faults.append(f"resumed from message {seq} of {len(self._said)}")
        self.resumed_from.append(seq)
        answer = {"session": self.id, "number": len(self.frames), "flushes": 0, "stopping": self.stopped}
        socket.send(json.dumps({"type": "resumed", "seq": 0, **answer}))
        for frame in self._said[max(0, seq - 3) :]:  # more than was asked for: each is to be taken once
            socket.send(frame)
        if self._over is not None:
            self.close(self._over)

    def take(self, socket: WebSocketRoute, frame: str | bytes) -> None:
        """Take what came over a connection, if it is the present one."""
        if socket is not self._socket or self.deaf:
            return
        if isinstance(frame, bytes):
            number = struct.unpack_from("<I", frame)[0]
            if number != len(self.frames) + 1:
                self.faults.append(f"frame {number} where {len(self.frames) + 1} was expected")
            if self.stopped:
                self.faults.append(f"frame {number} after stop")
            self.frames.append((number, frame[_NUMBER_BYTES:]))
            return
        kind = json.loads(frame)["type"]
        self.stopped = self.stopped or kind == "stop"
        if kind == "ping":
            self.pings += 1
            self.say("pong", id=0)


class ScriptedServer:
    """Answers the WebSockets of a page; its models and its files are those of the real server.

    Args:
        page: which has not been opened yet.
        idle_s: how long clients may be silent.
    """

    def __init__(self, page: Page, *, idle_s: float = 60.0) -> None:
        self.sessions: list[ScriptedSession] = []
        self.down = False
        """Whether connections are refused."""
        self.full = ""
        """The code of an error that connections are refused with."""
        self.mute = False
        """Whether connections are closed once the page has said what it wants."""
        self.refused = 0
        self._forgotten = 0
        self._idle_s = idle_s
        page.route_web_socket("**/v1/stream", self._open)

    def forget(self) -> None:
        """Be a server that was started anew: break all connections, know none of the sessions."""
        for session in self.sessions:
            session.close(1012)
        self._forgotten = len(self.sessions)

    def _open(self, socket: WebSocketRoute) -> None:
        if self.down:
            self.refused += 1
            socket.close(code=1013)
            return
        session: ScriptedSession | None = None

        def take(frame: str | bytes) -> None:
            nonlocal session
            if session is not None:
                session.take(socket, frame)
            elif isinstance(frame, str):
                session = self._begin(socket, json.loads(frame))

        socket.on_message(take)

    def _begin(self, socket: WebSocketRoute, message: dict[str, Any]) -> ScriptedSession | None:
        """The session that a first message asks for."""
        if self.full or self.mute:
            self.refused += 1
            if self.full:
                _refuse(socket, self.full, 1013 if self.full == "overloaded" else 4503)
            else:
                socket.close(code=1012)
            return None
        if message["type"] == "resume":
            for session in self.sessions[self._forgotten :]:
                if session.id == message["session"]:
                    session.resume(socket, message["seq"])
                    return session
            _refuse(socket, "gone", 4410)
            return None
        session = ScriptedSession(f"session {len(self.sessions)}", message, socket)
        self.sessions.append(session)
        limits = {"message_bytes": 1 << 20, "idle_s": self._idle_s, "resume_s": 30, "session_s": 86_400}
        session.say("ready", version=1, session=session.id, model=message["model"], limits=limits, models=[])
        return session


def _refuse(socket: WebSocketRoute, code: str, closes_with: int) -> None:
    error = {"type": "error", "seq": 0, "code": code, "message": f"said the script: {code}", "fatal": True}
    socket.send(json.dumps(error))
    socket.close(code=closes_with)


def wait_until(page: Page, condition: Callable[[], bool]) -> None:
    """Let the page go on until something is so."""
    for _ in range(PATIENCE_MS // 20):
        if condition():
            return
        page.wait_for_timeout(20)
    raise AssertionError("waited in vain")

"""The conversation over the wire, both sides, as state machines without I/O: frames in, messages out, and back.

    state       a client may send            a server may send              next
    new         start, resume, ping          pong, error                    open, with start
    open        audio, flush, stop, ping     pong, error, ready; then all   stopping, with stop
    stopping    ping                         the same                       closed, with done
    closed      -                            -

`ready` comes once; a client need not wait for it. A fatal error closes from anywhere, and so does a `done` that a
shutting server sends while the session is open. Audio is numbered from 1, without gaps, and so is what the server says.
Whoever owns the socket calls

    ServerProtocol   receive(frame) for what came in, send(message) for the frame to send
    ClientProtocol   start, audio, flush, stop, ping for the frame to send, receive(frame) for what came in

An object serves one session, over one connection after another: when the client of a new connection says resume, the
new connection's object has done its work, and the session's own goes on there. `resumed` tells the client how much of
what it sent has come, and the server repeats what the client has not heard; so nothing is lost, and nothing said twice.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from liveasr.errors import UsageError, WireError
from liveasr.stream.messages import (
    LAST_NUMBER,
    MAX_MESSAGE_BYTES,
    Audio,
    AudioFormat,
    ClientMessage,
    Done,
    Error,
    Flush,
    Ping,
    Pong,
    Ready,
    Resume,
    Resumed,
    ServerMessage,
    Start,
    Stop,
    Transcript,
    decode_audio,
    decode_client,
    decode_seq,
    decode_server,
    encode,
    encode_audio,
)

State: TypeAlias = Literal["new", "open", "stopping", "closed"]
_CLIENT_MAY_SEND: dict[State, tuple[type, ...]] = {
    "new": (Start, Resume, Ping),
    "open": (Audio, Flush, Stop, Ping),
    "stopping": (Ping,),
    "closed": (),
}
_BEFORE_READY = (Ready, Pong, Error)
MAX_REPEATED = 1_000
"""Messages of the server that can be repeated: more than it says in the time that a dead connection goes unnoticed."""


def _name(message: ClientMessage | Audio | ServerMessage) -> str:
    tag = message.__struct_config__.tag
    return "audio" if tag is None else str(tag)


class ServerProtocol:
    """The server's side of one session."""

    def __init__(self) -> None:
        self.state: State = "new"
        self.last_number = 0
        """Of the audio received; 0 before the first."""
        self._ready = False
        self._broken = False  # by the client: nothing that it sends is taken any more
        self._audio = AudioFormat()
        self._flushes = 0
        self._seq = 0  # of the last message sent
        self._sent: deque[str] = deque(maxlen=MAX_REPEATED)  # the last frames

    def receive(self, frame: str | bytes) -> ClientMessage | Audio:
        """What a frame of the client says.

        Raises:
            WireError: it breaks the protocol. If the error is fatal, send it and close; else send it and go on. Once
                the conversation is over, every frame raises: then there is nothing left to send.
        """
        if self._broken or self.state == "closed":
            raise WireError("wrong_order", "a message after the end of the conversation")
        try:
            return self._receive(frame)
        except WireError as error:
            self._broken = error.fatal
            raise

    def _receive(self, frame: str | bytes) -> ClientMessage | Audio:
        message = decode_client(frame) if isinstance(frame, str) else decode_audio(frame)
        if not isinstance(message, _CLIENT_MAY_SEND[self.state]):
            raise WireError("wrong_order", _order_broken(message, self.state))
        if isinstance(message, Audio):
            self._check_audio(message)
            self.last_number = message.number
        elif isinstance(message, Start):
            self._audio = message.audio
            self.state = "open"
        elif isinstance(message, Stop):
            self.state = "stopping"
        elif isinstance(message, Flush):
            self._flushes += 1
        return message

    def resume(self, session: str, seq: int) -> list[str]:
        """The frames for a client that has come back: `resumed`, and what it has not heard.

        Args:
            session: the id.
            seq: of the last message that the client heard.

        Raises:
            WireError: what it has not heard is forgotten already, or was never said.
        """
        unheard = self._seq - seq
        if not 0 <= unheard <= len(self._sent):
            raise WireError("gone", f"message {seq} of this session is none that can be gone on from; start anew")
        stopping = self.state in ("stopping", "closed")
        resumed = Resumed(session=session, number=self.last_number, flushes=self._flushes, stopping=stopping)
        return [encode(resumed), *list(self._sent)[len(self._sent) - unheard :]]

    def send(self, message: ServerMessage) -> str:
        """The frame of a message to the client.

        Raises:
            UsageError: it is not the time for this message.
        """
        if self.state == "closed":
            raise UsageError(f"{_name(message)} after the end of the conversation")
        if isinstance(message, Ready) and (self._ready or self.state == "new"):
            raise UsageError("ready answers start, once")
        if isinstance(message, Resumed):
            raise UsageError("resumed answers resume")
        if not self._ready and not isinstance(message, _BEFORE_READY):
            raise UsageError(f"{_name(message)} before ready")
        if isinstance(message, Ready):
            self._ready = True
        elif isinstance(message, Done) or (isinstance(message, Error) and message.fatal):
            self.state = "closed"
        if not self._ready:
            return encode(message)
        self._seq += 1
        frame = encode(msgspec.structs.replace(message, seq=self._seq))
        self._sent.append(frame)
        return frame

    def _check_audio(self, audio: Audio) -> None:
        expected = self.last_number + 1
        if audio.number != expected:
            raise WireError("misnumbered", f"audio {audio.number} came where {expected} was expected")
        if len(audio.payload) % self._audio.frame_bytes:
            raise WireError(
                "bad_message",
                f"audio {audio.number} has {len(audio.payload)} bytes of samples, not a multiple of "
                f"{self._audio.frame_bytes} ({self._audio.channels} channels of {self._audio.encoding})",
            )


def _order_broken(message: ClientMessage | Audio, state: State) -> str:
    if state == "new":
        return f"{_name(message)} before start"
    if isinstance(message, Start | Resume):
        return f"{_name(message)} within a session; a connection carries one"
    return f"{_name(message)} after stop"


@dataclass(slots=True)
class _Heard:
    """What the server said of a segment last."""

    revision: int
    committed: str


class ClientProtocol:
    """The client's side of one session."""

    def __init__(self) -> None:
        self.state: State = "new"
        self.last_number = 0
        """Of the audio sent; 0 before the first."""
        self.max_message_bytes = MAX_MESSAGE_BYTES
        """The server's own limit once it is ready."""
        self.session: str | None = None
        """Its id, once it is ready."""
        self._audio = AudioFormat()
        self._ready = False
        self._resuming = False
        self._seq = 0  # of the last message that came
        self._open: dict[int, _Heard] = {}  # segments with transcripts, but without a final
        self._next_final = 0

    def start(self, message: Start) -> str:
        """The frame that begins the session."""
        self._must_be("start", "new")
        self.state = "open"
        self._audio = message.audio
        return encode(message)

    def resume(self) -> str:
        """The first frame on a new connection, after the last one broke; go on once `Resumed` has come.

        Raises:
            UsageError: the session was not ready yet, so that there is nothing to resume.
        """
        if self.session is None or self.state == "closed":
            raise UsageError("there is no session to resume")
        self._resuming = True
        return encode(Resume(session=self.session, seq=self._seq))

    def audio(self, payload: bytes) -> bytes:
        """The frame of the next samples, in the format that `start` named.

        Raises:
            UsageError: it is not the time for audio, half a sample was given, or more than 4 billion frames.
        """
        self._must_be("audio", "open")
        if len(payload) % self._audio.frame_bytes:
            raise UsageError(f"{len(payload)} bytes of samples are not a multiple of {self._audio.frame_bytes}")
        if self.last_number == LAST_NUMBER:
            raise UsageError("a session holds no more audio frames; start another")
        self.last_number += 1
        return encode_audio(Audio(self.last_number, payload))

    def flush(self) -> str:
        """The frame that finishes the open segment."""
        self._must_be("flush", "open")
        return encode(Flush())

    def stop(self) -> str:
        """The frame that ends the audio."""
        self._must_be("stop", "open")
        self.state = "stopping"
        return encode(Stop())

    def ping(self, number: int) -> str:
        """The frame of a ping."""
        self._must_be("ping", "new", "open", "stopping")
        return encode(Ping(id=number))

    def receive(self, frame: str | bytes) -> ServerMessage | None:
        """What a frame of the server says; None if this version does not know its type, and it is to be ignored.

        Raises:
            WireError: the server broke the protocol; close. Nothing that it sends is taken any more.
        """
        try:
            return self._receive(frame)
        except WireError:
            self.state = "closed"
            raise

    def _receive(self, frame: str | bytes) -> ServerMessage | None:
        if self.state == "closed":
            raise WireError("wrong_order", "the server sent a message after the end of the conversation")
        if isinstance(frame, bytes):
            raise WireError("bad_message", "the server sent a binary frame")
        message = decode_server(frame)
        if message is None:
            self._count(decode_seq(frame))
            return None
        self._check_order(message)
        if isinstance(message, Ready):
            self._ready = True
            self.session = message.session
            self.max_message_bytes = message.limits.message_bytes
        elif isinstance(message, Resumed):
            self._resuming = False
            self.last_number = message.number
            self.state = "stopping" if message.stopping else "open"
        elif isinstance(message, Transcript):
            self._check_transcript(message)
        elif isinstance(message, Done):
            self.state = "closed"
        elif isinstance(message, Error) and message.fatal:
            # A connection that was refused says nothing of the session that it should have gone on with.
            self.state = self.state if self._resuming and message.code != "gone" else "closed"
        return message

    def _check_order(self, message: ServerMessage) -> None:
        """Every message in its turn."""
        if isinstance(message, Ready) and (self._ready or self.state == "new"):
            raise WireError("wrong_order", "the server said ready, but not in answer to a start")
        if isinstance(message, Resumed) and not self._resuming:
            raise WireError("wrong_order", "the server said resumed, but nobody asked")
        if isinstance(message, Resumed) and message.number > self.last_number:
            raise WireError("misnumbered", f"the server has audio {message.number}; {self.last_number} were sent")
        if self._resuming and not isinstance(message, Resumed | Pong | Error):
            raise WireError("wrong_order", f"the server sent {_name(message)} before resumed")
        if not self._ready and not isinstance(message, _BEFORE_READY):
            raise WireError("wrong_order", f"the server sent {_name(message)} before ready")
        self._count(message.seq)

    def _count(self, seq: int) -> None:
        """Every message once, also those that are ignored."""
        if seq:
            if seq != self._seq + 1:
                raise WireError("misnumbered", f"message {seq} came where {self._seq + 1} was expected")
            self._seq = seq

    def _check_transcript(self, transcript: Transcript) -> None:
        """Revisions rise, committed text grows, finals come once and in order, and with a text."""
        where = f"transcript of segment {transcript.segment_id}, revision {transcript.revision}"
        if transcript.segment_id < self._next_final:
            raise WireError("wrong_order", f"{where}: after the segment's final")
        heard = self._open.get(transcript.segment_id)
        if heard and (transcript.revision <= heard.revision or not transcript.committed.startswith(heard.committed)):
            raise WireError("wrong_order", f"{where}: it takes back what revision {heard.revision} said")
        if not transcript.final:
            self._open[transcript.segment_id] = _Heard(transcript.revision, transcript.committed)
            return
        if transcript.segment_id != self._next_final:
            raise WireError("wrong_order", f"{where}: the final of segment {self._next_final} is missing")
        if transcript.text is None:
            raise WireError("bad_message", f"{where}: a final without a text")
        self._open.pop(transcript.segment_id, None)
        self._next_final += 1

    def _must_be(self, what: str, *states: State) -> None:
        if self.state not in states:
            raise UsageError(f"{what}: the conversation is {self.state}, not {' or '.join(states)}")

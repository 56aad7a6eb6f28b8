"""The messages of the wire, version 1, and their codec: text and bytes in, plain data out, and back. No I/O.

Text frames are JSON objects whose `type` says which message they are; audio comes in binary frames, each with its
number in front. docs/protocol.md tells the same for people who write clients.

What a client sends is taken strictly: a field that does not exist is an error, since a setting spelt wrong must not be
lost in silence. What a server sends is read leniently: fields may be added to it within a version.
"""

import struct
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from liveasr.engines import hotwords
from liveasr.engines.base import MAX_SEGMENT_MS
from liveasr.errors import UsageError, WireError
from liveasr.types import Language
from liveasr.vad.config import MAX_PADDING_MS, MIN_SEGMENT_MS, SPEECH_TO_SILENCE_MS, VadConfig

VERSION: Literal[1] = 1
SUBPROTOCOL = "liveasr.v1"
TOKEN_SUBPROTOCOL = "liveasr.token."  # noqa: S105 - what stands in front of a token, not a token
"""A browser, which cannot set headers, offers this, followed by its token, beside SUBPROTOCOL."""
MAX_MESSAGE_BYTES = 1 << 20

_NUMBER = struct.Struct("<I")
LAST_NUMBER = 2**32 - 1
_MAX_ID = 2**53 - 1  # what JavaScript counts exactly
_MAX_REASON_CHARS = 200  # a reason may quote what came in, which may be as long as a message

ErrorCode: TypeAlias = Literal[
    "bad_message",
    "unknown_type",
    "wrong_order",
    "misnumbered",
    "unsupported",
    "overloaded",
    "too_many_sessions",
    "session_limit",
    "slow_reader",
    "idle",
    "gone",
    "replaced",
    "engine_failed",
    "shutdown",
    "internal",
]
CLOSE_CODES: dict[str, int] = {
    "bad_message": 4400,
    "unsupported": 4404,
    "idle": 4408,
    "wrong_order": 4409,
    "gone": 4410,
    "replaced": 4411,
    "session_limit": 4413,
    "misnumbered": 4416,
    "slow_reader": 4429,
    "engine_failed": 4500,
    "too_many_sessions": 4503,
    "internal": 1011,
    "shutdown": 1001,
    "overloaded": 1013,
}
"""How a connection is closed after a fatal error; private codes are 4000 and the HTTP status that comes nearest."""
NORMAL_CLOSE = 1000


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of what a client sends."""


class _ClientMessage(_Strict, frozen=True, kw_only=True, tag_field="type"):
    """What a client sends."""


class _ServerMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What a server sends."""

    seq: int = 0
    """1, 2, 3, ... in a session, over all its connections; 0 for what belongs to a connection alone."""


Encoding: TypeAlias = Literal["s16le", "f32le"]
SAMPLE_BYTES: dict[Encoding, int] = {"s16le": 2, "f32le": 4}


class AudioFormat(_Strict, frozen=True, kw_only=True):
    """How the samples of audio frames are to be read; channels are interleaved."""

    encoding: Encoding = "s16le"
    rate_hz: Literal[8000, 16000, 24000, 44100, 48000] = 16000
    channels: Annotated[int, Meta(ge=1, le=8)] = 1

    @property
    def frame_bytes(self) -> int:
        """Of one sample of every channel."""
        return SAMPLE_BYTES[self.encoding] * self.channels


_VAD = VadConfig()


class VadSettings(_Strict, frozen=True, kw_only=True):
    """As VadConfig, within what a server grants, except that the longest segment may be left to the model."""

    end_silence_ms: Annotated[int, Meta(ge=SPEECH_TO_SILENCE_MS, le=10_000)] | None = _VAD.end_silence_ms
    max_segment_ms: Annotated[int, Meta(ge=MIN_SEGMENT_MS, le=60_000)] | None = None
    """None: the model's own."""
    speech_threshold: Annotated[float, Meta(gt=-1, lt=1)] | None = _VAD.speech_threshold
    min_speech_ms: Annotated[int, Meta(ge=0, le=10_000)] = _VAD.min_speech_ms
    pad_before_ms: Annotated[int, Meta(ge=0, le=MAX_PADDING_MS)] = _VAD.pad_before_ms
    pad_after_ms: Annotated[int, Meta(ge=0, le=MAX_PADDING_MS)] = _VAD.pad_after_ms

    @property
    def longest_segment_ms(self) -> int:
        """What a client has to reckon with before it knows the model."""
        return MAX_SEGMENT_MS if self.max_segment_ms is None else self.max_segment_ms

    def config(self, model_max_segment_ms: int) -> VadConfig:
        """For a detector.

        Args:
            model_max_segment_ms: the model's own longest segment.
        """
        chosen_ms = model_max_segment_ms if self.max_segment_ms is None else self.max_segment_ms
        return VadConfig(**{**msgspec.structs.asdict(self), "max_segment_ms": chosen_ms})


class Start(_ClientMessage, frozen=True, kw_only=True, tag="start"):
    """Begin a session. The first message of a connection."""

    version: Literal[1] = VERSION
    audio: AudioFormat = AudioFormat()
    model: Annotated[str, Meta(max_length=200)] | None = None
    """None: the server's first."""
    language: Language = "auto"
    itn: bool = False
    hotwords: tuple[str, ...] = ()
    """What `hotwords.check` takes."""
    partials: bool = True
    vad: VadSettings = VadSettings()


class Resume(_ClientMessage, frozen=True, kw_only=True, tag="resume"):
    """Go on with a session whose connection broke, in the place of `Start`."""

    session: Annotated[str, Meta(max_length=100)]
    seq: Annotated[int, Meta(ge=0, le=_MAX_ID)]
    """Of the last message that came."""


class Flush(_ClientMessage, frozen=True, kw_only=True, tag="flush"):
    """Finish the open segment now; `Flushed` follows its final."""


class Stop(_ClientMessage, frozen=True, kw_only=True, tag="stop"):
    """No more audio comes: finish everything, then say `Done` and close."""


class Ping(_ClientMessage, frozen=True, kw_only=True, tag="ping"):
    """Answered by `Pong` with the same id."""

    id: Annotated[int, Meta(ge=0, le=_MAX_ID)] = 0


class Audio(msgspec.Struct, frozen=True):
    """A binary frame."""

    number: int
    """1, 2, 3, ... in a session."""
    payload: bytes
    """Samples, as the session's AudioFormat says."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a server offers."""

    name: str
    languages: tuple[str, ...]
    hotwords: bool
    """Whether it takes any."""
    max_segment_ms: int = MAX_SEGMENT_MS
    """Longer segments are cut, unless a client says otherwise."""
    demonstration: bool = False
    """It knows ten words only."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server holds its clients to."""

    message_bytes: int
    """A longer message closes the connection with 1009."""
    idle_s: float
    """So long without any message, and the session ends."""
    resume_s: float
    """So long a session waits for its client after a connection broke."""
    session_s: float
    """The longest session."""


class Ready(_ServerMessage, frozen=True, kw_only=True, tag="ready"):
    """The session is open."""

    version: int = VERSION
    session: str
    model: str
    limits: Limits
    models: tuple[ModelInfo, ...]


class Resumed(_ServerMessage, frozen=True, kw_only=True, tag="resumed"):
    """The session goes on; what was said meanwhile follows."""

    session: str
    number: int
    """Of the last audio that came; the client goes on with the next."""
    flushes: int
    """How many came."""
    stopping: bool
    """Whether stop came."""


class Ack(_ServerMessage, frozen=True, kw_only=True, tag="ack"):
    """How far the server has come. Audio up to `number` is settled: its text is final, or it holds none."""

    number: int
    settled_ms: int
    """All before it has been said in finals; a new session that begins here says nothing twice."""
    heard_ms: int
    """How much audio was taken."""


class SpeechStarted(_ServerMessage, frozen=True, kw_only=True, tag="speech_start"):
    """A segment begins."""

    segment_id: int
    start_ms: int
    heard_ms: int
    """How much audio had to be heard before that could be said."""


class SpeechEnded(_ServerMessage, frozen=True, kw_only=True, tag="speech_end"):
    """A segment has ended; its final follows."""

    segment_id: int
    end_ms: int
    heard_ms: int
    """As in SpeechStarted."""
    forced_cut: bool


class WireWord(msgspec.Struct, frozen=True, kw_only=True):
    """One word, or one character where a script writes no spaces."""

    text: str
    start_ms: int
    end_ms: int


class Transcript(_ServerMessage, frozen=True, kw_only=True, tag="transcript"):
    """What is known of a segment."""

    segment_id: int
    revision: int
    final: bool
    committed: str
    """Append-only within the segment."""
    tentative: str
    """May still change; put it behind `committed` as it is. Empty in a final."""
    start_ms: int
    end_ms: int
    text: str | None = None
    """Of a final: the segment decoded as a whole. It may correct words that stand in `committed`."""
    words: tuple[WireWord, ...] = ()
    """Of a final."""
    forced_cut: bool = False
    language: str | None = None
    emotion: str | None = None
    event: str | None = None


class Flushed(_ServerMessage, frozen=True, kw_only=True, tag="flushed"):
    """Every segment that a flush ended has its final."""


class Lag(_ServerMessage, frozen=True, kw_only=True, tag="lag"):
    """How far the finals are behind the audio received."""

    lag_ms: int


class Overload(_ServerMessage, frozen=True, kw_only=True, tag="overload"):
    """The server cannot keep up; it will, later, if the client sends less."""

    lag_ms: int


class Pong(_ServerMessage, frozen=True, kw_only=True, tag="pong"):
    """The answer to a ping."""

    id: int


class Error(_ServerMessage, frozen=True, kw_only=True, tag="error"):
    """Something went wrong; if fatal, the connection is closed next."""

    code: str
    message: str
    fatal: bool


class Done(_ServerMessage, frozen=True, kw_only=True, tag="done"):
    """The end of a session, after its last final."""

    reason: str
    """"stop" as the client asked, or "shutdown" of the server."""
    number: int
    """Of the last audio taken; 0 if none came."""
    heard_ms: int
    speech_ms: int
    segments: int


ClientMessage: TypeAlias = Start | Resume | Flush | Stop | Ping
ServerMessage: TypeAlias = (
    Ready | Resumed | Ack | SpeechStarted | SpeechEnded | Transcript | Flushed | Lag | Overload | Pong | Error | Done
)
_CLIENT_TYPES: tuple[type[ClientMessage], ...] = (Start, Resume, Flush, Stop, Ping)
_SERVER_TYPES: tuple[type[ServerMessage], ...] = (
    Ready, Resumed, Ack, SpeechStarted, SpeechEnded, Transcript, Flushed, Lag, Overload, Pong, Error, Done,
)  # fmt: skip


class _Head(msgspec.Struct):
    type: str


class _Numbered(msgspec.Struct):
    seq: int = 0


def _decoders(types: tuple[type[Any], ...]) -> dict[str, msgspec.json.Decoder[Any]]:
    return {str(each.__struct_config__.tag): msgspec.json.Decoder(each) for each in types}


_HEAD_DECODER = msgspec.json.Decoder(_Head)
_NUMBERED_DECODER = msgspec.json.Decoder(_Numbered)
_CLIENT_DECODERS = _decoders(_CLIENT_TYPES)
_SERVER_DECODERS = _decoders(_SERVER_TYPES)


def encode(message: ClientMessage | ServerMessage) -> str:
    """The text frame of a message.

    Raises:
        UsageError: it holds text that is not Unicode, as an argument of the command line may be.
    """
    try:
        return msgspec.json.encode(message).decode()
    except UnicodeEncodeError as error:
        raise UsageError(f"a message holds text that is not Unicode: {ascii(error.object)[:40]}") from error


def encode_audio(audio: Audio) -> bytes:
    """The binary frame of audio."""
    return _NUMBER.pack(audio.number) + audio.payload


def decode_client(text: str) -> ClientMessage:
    """A text frame from a client.

    Raises:
        WireError: it is no message of this version; of a type nobody knows, the error is not fatal.
    """
    message: ClientMessage = _decode(text, _CLIENT_DECODERS)
    if isinstance(message, Start):
        try:
            hotwords.check(message.hotwords)
        except UsageError as error:
            raise WireError("bad_message", f"start: {error} - at `$.hotwords`") from error
    return message


def decode_server(text: str) -> ServerMessage | None:
    """A text frame from a server; None for a type that this version does not know, which is to be ignored.

    Raises:
        WireError: it is no message of this version.
    """
    try:
        message: ServerMessage = _decode(text, _SERVER_DECODERS)
    except WireError as error:
        if error.code == "unknown_type":
            return None
        raise
    return message


def decode_seq(text: str) -> int:
    """The number of a text frame from a server, whatever its type.

    Raises:
        WireError: it is no number.
    """
    try:
        return _NUMBERED_DECODER.decode(text).seq
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise WireError("bad_message", f"a message of a server has a number: {_reason(error)}") from error


def decode_audio(frame: bytes) -> Audio:
    """A binary frame.

    Raises:
        WireError: it is too short for a number.
    """
    if len(frame) < _NUMBER.size:
        raise WireError("bad_message", f"an audio frame begins with its number, 4 bytes; this one has {len(frame)}")
    return Audio(_NUMBER.unpack_from(frame)[0], frame[_NUMBER.size :])


def _decode(text: str, decoders: dict[str, msgspec.json.Decoder[Any]]) -> Any:
    try:
        kind = _HEAD_DECODER.decode(text).type
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise WireError("bad_message", f"a text frame is a JSON object with a type: {_reason(error)}") from error
    decoder = decoders.get(kind)
    if decoder is None:
        raise WireError(
            "unknown_type", f"there is no message of type {kind[:40]!r}; known: {', '.join(decoders)}", fatal=False
        )
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise WireError("bad_message", f"{kind}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """One line for a person: msgspec quotes the names of unknown fields as they are."""
    return "".join(each if each.isprintable() else " " for each in str(error)[:_MAX_REASON_CHARS])

"""Conversations as a client might have them, and all that can go wrong with their frames; and bytes below WebSocket."""

import base64
import random
import re
import struct
from collections.abc import Callable
from typing import TypeAlias, get_args

from liveasr.stream.messages import (
    Audio,
    AudioFormat,
    Encoding,
    Flush,
    Ping,
    Resume,
    ServerMessage,
    Start,
    Stop,
    VadSettings,
    encode,
    encode_audio,
)
from liveasr.types import Language
from tests.wire import SERVER_MESSAGES

SESSION = "@session@"
"""Stands in frames for the id of the session that the client had last."""
SEQ = 987_654_321
"""Stands for the number of the last message that it got."""
Frame: TypeAlias = str | bytes
Frames: TypeAlias = list[Frame | None]
"""None: the connection breaks, and the rest goes over another one."""
_HUGE = ["-1", "0", "65536", "4294967296", "9007199254740992", "9" * 30, "9" * 5000, "1e308", "1e999", "-0.0", "1.5"]
_VALUES = [
    "null",
    "true",
    '"dance"',
    '""',
    '"x"',
    "[]",
    "{}",
    "[[[]]]",
    '{"a":1}',
    "[" * 2000,
    '"\\ud800"',
    "NaN",
    '"\u202e"',
]


def conversation(chance: random.Random) -> Frames:
    """One that follows the rules."""
    format_ = AudioFormat(
        encoding=chance.choice(get_args(Encoding)),
        rate_hz=chance.choice([8000, 16000, 16000, 24000, 44100, 48000]),
        channels=chance.choice([1, 1, 1, 2, 8]),
    )
    vad = VadSettings(
        end_silence_ms=chance.choice([None, 150, 800]),
        max_segment_ms=chance.choice([1000, 20_000]),
        pad_before_ms=chance.choice([0, 0, 100]),
    )
    start = Start(
        audio=format_,
        model=None if chance.random() < 0.97 else "parrot",
        language="auto" if chance.random() < 0.9 else chance.choice(get_args(Language)),
        itn=chance.random() < 0.5,
        hotwords=() if chance.random() < 0.97 else ("x", "字"),
        partials=chance.random() < 0.5,
        vad=vad,
    )
    frames: Frames = [encode(Ping(id=number)) for number in range(chance.choice([0, 0, 0, 2]))]
    frames.append(encode(start) if chance.random() < 0.9 else encode(Resume(session=SESSION, seq=chance.randint(0, 9))))
    number = 0
    for _ in range(chance.randint(0, 12)):
        kind = chance.random()
        if kind < 0.65:
            number += 1
            samples = chance.choice([0, 1, 80, 320, 1600, 5000])
            payload = chance.randbytes(samples * format_.frame_bytes)
            frames.append(encode_audio(Audio(number, payload)))
        elif kind < 0.75:
            frames.append(encode(Flush()))
        elif kind < 0.85:
            frames.append(encode(Ping(id=chance.getrandbits(53))))
        else:
            frames += [
                None,
                encode(Resume(session=SESSION, seq=SEQ if chance.random() < 0.8 else chance.randint(0, 5))),
            ]
    if chance.random() < 0.6:
        frames.append(encode(Stop()))
    return frames


def answers(chance: random.Random) -> list[ServerMessage]:
    """What a server might say, but for its order."""
    return [*SERVER_MESSAGES[:1], *chance.choices(SERVER_MESSAGES, k=chance.randint(0, 12))]


# What can go wrong with one frame.


def _cut(frame: Frame, chance: random.Random) -> Frame:
    return frame[: chance.randint(0, len(frame))]


def _flip(frame: Frame, chance: random.Random) -> Frame:
    data = bytearray(frame if isinstance(frame, bytes) else frame.encode(errors="replace"))
    for _ in range(chance.randint(1, 4)):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data) if isinstance(frame, bytes) else data.decode(errors="replace")


def _number(frame: Frame, chance: random.Random) -> Frame:
    """Another number, mostly a huge one: in JSON, or in front of audio."""
    if isinstance(frame, bytes):
        return struct.pack("<I", chance.choice([0, 1, 2, 3, 2**31, 2**32 - 1])) + frame[4:]
    return _replace(r"-?\d+", frame, chance.choice(_HUGE), chance)


def _type(frame: Frame, chance: random.Random) -> Frame:
    """A value of another type, or another kind of message."""
    if isinstance(frame, bytes):
        return frame + chance.randbytes(chance.randint(1, 3))
    return _replace(r'"[^"]*"(?!:)|\d+|true|false|null|\[\]', frame, chance.choice(_VALUES), chance)


def _name(frame: Frame, chance: random.Random) -> Frame:
    if isinstance(frame, bytes):
        return frame
    return _replace(r'"[^"]*"(?=:)', frame, chance.choice(['"type"', '"x"', '""', '"seq"', '"id"']), chance)


def _other_kind(frame: Frame, _chance: random.Random) -> Frame:
    """Binary as text, text as binary."""
    return frame.decode("latin-1") if isinstance(frame, bytes) else frame.encode(errors="replace")


def _garbage(_frame: Frame, chance: random.Random) -> Frame:
    data = chance.randbytes(chance.randint(0, 60))
    return data if chance.random() < 0.5 else data.decode("latin-1")


def _empty(frame: Frame, _chance: random.Random) -> Frame:
    return frame[:0]


def _huge(frame: Frame, chance: random.Random) -> Frame:
    size = chance.choice([1 << 12, 1 << 16, 1 << 16, (1 << 20) - 64]) if chance.random() < 0.2 else 1 << 10
    return frame + bytes(size) if isinstance(frame, bytes) else frame.replace("{", '{"' + "x" * size + '":0,', 1)


def _replace(pattern: str, text: str, new: str, chance: random.Random) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text + new
    match = chance.choice(found)
    return text[: match.start()] + new + text[match.end() :]


_OF_A_FRAME: list[Callable[[Frame, random.Random], Frame]] = [
    _cut, _flip, _number, _number, _type, _type, _name, _other_kind, _garbage, _empty, _huge,
]  # fmt: skip


def mutated(frames: Frames, chance: random.Random) -> Frames:  # noqa: C901 - a table of what goes wrong
    """The same with some things wrong, or none."""
    frames = list(frames)
    for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 2, 6])):
        if not frames:
            break
        # Rather late than early: what is wrong is mostly the end.
        index, other = max(chance.choices(range(len(frames)), k=2)), chance.randrange(len(frames))
        frame = frames[index]
        match chance.randrange(12):
            case 0:
                del frames[index]
            case 1:
                frames[index:index] = [frame] * chance.choice([1, 1, 1, 30])
            case 2:
                frames[index], frames[other] = frames[other], frame
            case 3:
                frames = frames[: index + 1]
            case 4:
                chance.shuffle(frames)
            case 5:
                second = frames[other]
                if frame is not None and second is not None:
                    frames[index] = _spliced(frame, second, chance)
            case _:
                if frame is not None:
                    frames[index] = chance.choice(_OF_A_FRAME)(frame, chance)
    return frames


def _spliced(frame: Frame, other: Frame, chance: random.Random) -> Frame:
    if isinstance(frame, bytes):
        return frame[: chance.randint(0, len(frame))] + (other if isinstance(other, bytes) else other.encode())
    text = other if isinstance(other, str) else other.decode("latin-1")
    return frame[: chance.randint(0, len(frame))] + text[chance.randint(0, len(text)) :]


# Below WebSocket.

_HEADERS = [
    "Origin: http://127.0.0.1",
    "Origin: null",
    "Origin: http://[::",
    "Host: [",
    "Authorization: Bearer \xff\xfe",
    "Authorization: Bearer",
    "Cookie: liveasr_token=\xff; =; ;;",
    "Sec-WebSocket-Protocol: liveasr.v1, liveasr.token.\xff, ,",
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=99",
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    f"X: {'x' * 5000}",
]
_PATHS = [
    "/", "/ready", "/metrics", "/v1/models", "/v1/stream?token=%ff%00", "/web/%2e%2e/x", "/%00", "*", "//",
    "/?" + "a&" * 500,
]  # fmt: skip


def handshake_of(key: str) -> bytes:
    """The request that opens a WebSocket."""
    return "\r\n".join(_handshake_lines(key)).encode()


def _handshake_lines(key: str) -> list[str]:
    return [
        "GET /v1/stream HTTP/1.1",
        "Host: 127.0.0.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        "",
        "",
    ]


def handshake(chance: random.Random) -> bytes:
    """The same, sometimes with a line that is wrong."""
    lines = _handshake_lines(base64.b64encode(chance.randbytes(16)).decode())
    if chance.random() < 0.3:
        lines[1:1] = chance.choices(_HEADERS, k=chance.randint(1, 3))
    if chance.random() < 0.1:
        lines[0] = f"{chance.choice(['GET', 'GET', 'POST', 'HEAD', 'OPTIONS', 'X'])} {chance.choice(_PATHS)} HTTP/1.1"
    if chance.random() < 0.2:
        index = chance.randrange(len(lines))
        changed = _OF_A_FRAME[chance.randrange(len(_OF_A_FRAME))](lines[index], chance)
        lines[index] = changed if isinstance(changed, str) else changed.decode("latin-1")
    return "\r\n".join(lines).encode("latin-1", errors="replace")


def raw_frame(
    opcode: int, payload: bytes, chance: random.Random, *, first_bits: int = 0x80, mask: bool = True
) -> bytes:
    """A frame of RFC 6455, section 5.2."""
    masked = 0x80 if mask else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first_bits | opcode, masked | len(payload))
    elif len(payload) < 1 << 16:
        head = struct.pack("!BBH", first_bits | opcode, masked | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first_bits | opcode, masked | 127, len(payload))
    if not mask:
        return head + payload
    key = chance.randbytes(4)
    return head + key + bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))


def raw_bytes(chance: random.Random) -> bytes:  # noqa: C901 - a table of what goes wrong
    """What a peer sends after the handshake: frames, or what only begins like some."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randint(0, 300))
    data = b""
    for frame in [each for each in mutated(conversation(chance), chance) if each is not None][:6]:
        payload = (frame if isinstance(frame, bytes) else frame.encode(errors="replace"))[:3000]
        opcode = 2 if isinstance(frame, bytes) else 1
        match chance.randrange(16):
            case 0:
                data += raw_frame(chance.randrange(16), payload, chance, first_bits=chance.randrange(16) << 4)
            case 1:
                data += raw_frame(opcode, payload, chance, mask=False)
            case 2:  # ping, pong or close that is too long, or in pieces
                data += raw_frame(chance.choice([8, 9, 10]), payload, chance, first_bits=chance.choice([0, 0x80]))
            case 3:  # in pieces
                cut = chance.randint(0, len(payload))
                data += raw_frame(opcode, payload[:cut], chance, first_bits=0)
                data += raw_frame(9, b"between", chance)
                data += raw_frame(0, payload[cut:], chance)
            case 4:  # the end of something that never began
                data += raw_frame(0, payload, chance)
            case 5:
                data += raw_frame(8, struct.pack("!H", chance.choice([0, 999, 1000, 1005, 1006, 4000, 65535])), chance)
            case 6:  # no UTF-8
                data += raw_frame(1, payload + b"\xff\xfe", chance)
            case 7:  # more is promised than comes
                data += struct.pack("!BBQ", 0x80 | opcode, 0xFF, chance.choice([2**63, 2**32, 2**20, 2**63 - 1]))
            case _:
                data += raw_frame(opcode, payload, chance)
    if chance.random() < 0.2:
        damaged = _flip(data, chance)
        data = damaged if isinstance(damaged, bytes) else data
    return data if chance.random() < 0.8 else data[: chance.randint(0, len(data))]

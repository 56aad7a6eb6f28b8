"""The server below the level of messages: frames that are none, or too many, from clients that mean no good."""

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fuzz_frames import handshake_of, raw_frame
from tests.servers import ServerProcess

CHANCE = random.Random(1)  # noqa: S311 - for masks


@contextmanager
def opened(server: ServerProcess) -> Iterator[socket.socket]:
    """A WebSocket, as a socket."""
    host, port = urlsplit(server.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(handshake_of("dGhlIHNhbXBsZSBub25jZQ=="))
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += raw.recv(1)
        assert answer.startswith(b"HTTP/1.1 101 ")
        yield raw


def close_code(raw: socket.socket) -> int:
    """Of the close frame that comes next."""
    head = raw.recv(2)
    assert head[0] == 0x88
    return int(struct.unpack("!H", raw.recv(2))[0])


def resident_mib(server: ServerProcess) -> float:
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("this system does not tell how much memory is in use")
    return int(status.read_text(encoding="ascii").split("VmRSS:")[1].split()[0]) / 1024


def frame(opcode: int, payload: bytes, first_bits: int = 0x80, *, mask: bool = True) -> bytes:
    return raw_frame(opcode, payload, CHANCE, first_bits=first_bits, mask=mask)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process
        assert httpx.get(f"{process.url}/health").status_code == 200
        code, _out, err = process.stop()
    assert code == 0, err
    assert "Traceback" not in err, err


NO_TEXT = frame(1, b"\xff\xfe")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (NO_TEXT, 1007),
        (NO_TEXT + NO_TEXT, 1007),
        (NO_TEXT + frame(8, b"\x03\xe8"), 1000),
        (frame(1, b"\xf0\x9f", 0) + frame(0, b"\x98"), 1007),
        (frame(1, b"{}", mask=False), 1002),
        (frame(3, b""), 1002),
        (frame(1, b"{}", 0xC0), 1002),
        (frame(0, b"the end of nothing"), 1002),
        (frame(1, b"{", 0) + frame(1, b"}"), 1002),
        (frame(9, bytes(126)), 1002),
        (frame(9, b"in pieces", 0), 1002),
        (frame(8, b"\x03"), 1002),
        (frame(8, struct.pack("!H", 1005)), 1002),
        (frame(8, b""), 1005),
        (struct.pack("!BBQ", 0x82, 0xFF, 1 << 62) + b"mask", 1009),
        (frame(2, bytes(600_000), 0) + frame(0, bytes(600_000)), 1009),
        (frame(2, b"", 0) + frame(0, b"", 0) * 5_000, 1009),
        (frame(2, b"\1\0\0\0", 0) + frame(0, b"a", 0) * 5_000 + frame(0, b"b"), 1009),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else f"{len(value)} bytes",
)
def test_frames_that_are_none_are_refused_with_the_code_of_the_standard(
    server: ServerProcess, data: bytes, code: int
) -> None:
    with opened(server) as raw:
        with suppress(ConnectionError):
            raw.sendall(data)
        if code == 1005:  # a close without a code is answered by one
            assert raw.recv(2) == b"\x88\x00"
        else:
            assert close_code(raw) == code


def test_a_message_in_pieces_with_a_ping_between_them_is_whole(server: ServerProcess) -> None:
    with opened(server) as raw:
        raw.sendall(frame(1, b'{"type":"pi', 0) + frame(9, b"?") + frame(0, b'ng","id":', 0) + frame(0, b"7}"))
        answer = b""
        while b"}" not in answer:
            answer += raw.recv(100)
        assert answer.startswith(b"\x8a\x01?")
        assert answer.endswith(b'{"type":"pong","seq":0,"id":7}')


def test_pings_of_who_does_not_read_do_not_heap_up(server: ServerProcess) -> None:
    before = resident_mib(server)
    with opened(server) as raw:
        pings = frame(9, bytes(125)) * 4_000
        for _ in range(300):  # 150 MiB
            raw.sendall(pings)
        assert resident_mib(server) < before + 30


REQUEST = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
GARBAGE = b"\x00\x01\xff\r\n\r\n"
BROKEN_BODY = (
    b"POST /v1/pull/digits HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n\r\n"
)


@pytest.mark.parametrize("pause_s", [0.0, 0.002, 0.1])
@pytest.mark.parametrize(
    "pieces",
    [
        [GARBAGE],
        [GARBAGE, GARBAGE],
        [REQUEST % b"/health" + GARBAGE],
        [REQUEST % b"/none" + GARBAGE],
        [REQUEST % b"/health", GARBAGE],
        [REQUEST % b"/v1/stream" + GARBAGE, GARBAGE],
        [REQUEST % b"/health" + REQUEST % b"/none" + GARBAGE, REQUEST % b"/health"],
        [BROKEN_BODY],
        [BROKEN_BODY, GARBAGE],
        [b"HEAD /health HTTP/1.0\r\n\r\n" + GARBAGE],
    ],
)
def test_requests_that_are_none_behind_others_end_the_connection_and_nothing_else(
    server: ServerProcess, pieces: list[bytes], pause_s: float
) -> None:
    host, port = urlsplit(server.url).netloc.split(":")
    for _ in range(10):
        with socket.create_connection((host, int(port)), timeout=30) as raw, suppress(ConnectionError):
            for piece in pieces:
                raw.sendall(piece)
                time.sleep(pause_s)
            answer = b""
            while more := raw.recv(1 << 16):
                answer += more
            assert answer.startswith(b"HTTP/1.1 ")
            assert len(answer) < 4_000


@pytest.mark.parametrize("data", [GARBAGE, frame(8, b"\x03\xe8")], ids=["garbage", "a close"])
@pytest.mark.parametrize("path", [b"/v1/stream", b"/elsewhere"])
def test_what_comes_before_a_handshake_is_answered_leaves_no_traceback(path: bytes, data: bytes) -> None:
    handshake = handshake_of("dGhlIHNhbXBsZSBub25jZQ==").replace(b"/v1/stream", path)
    with ServerProcess() as server:
        host, port = urlsplit(server.url).netloc.split(":")
        for index in range(100):
            with socket.create_connection((host, int(port)), timeout=30) as raw, suppress(ConnectionError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                raw.sendall(REQUEST % b"/metrics" + handshake)  # which has to wait for the answer to the request
                time.sleep(index % 10 / 10_000)  # some time in the 1 ms before that
                raw.sendall(data)
                raw.recv(1 << 16)
        assert httpx.get(f"{server.url}/health").status_code == 200
        code, _out, err = server.stop()
    assert code == 0, err
    assert "Traceback" not in err, err


def test_a_handshake_that_is_under_way_when_the_server_stops_is_no_fault() -> None:
    with ServerProcess() as server:
        host, port = urlsplit(server.url).netloc.split(":")
        for _ in range(20):
            with socket.create_connection((host, int(port))) as raw:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                raw.sendall(handshake_of("dGhlIHNhbXBsZSBub25jZQ==") + NO_TEXT)
        code, _out, err = server.stop()
        assert code == 0, err
        assert "Traceback" not in err, err

"""The server as its users have it, a process of its own on a free port, and a plain client to talk to it."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from liveasr.clients.ws import connect as connect_client
from liveasr.stream.decode import AudioFile
from liveasr.stream.messages import (
    Audio,
    ServerMessage,
    Start,
    Stop,
    Transcript,
    decode_server,
    encode,
    encode_audio,
)
from liveasr.types import SAMPLE_RATE_HZ, LiveTranscript

_PLAYED_SAMPLES = 1600  # at a time
_ADDRESS = re.compile(r"the page is at (\S+) ")


class ServerProcess:
    """`liveasr serve` until the end of a `with` block.

    Args:
        arguments: besides --port and --model.
        port: to listen on; 0 takes any free one.
        token: what clients must know.
    """

    def __init__(self, *arguments: str, port: int = 0, token: str | None = None) -> None:
        model = () if "--model" in arguments else ("--model", "digits")
        environment = {name: value for name, value in os.environ.items() if name != "LIVEASR_TOKEN"}
        if token is not None:
            environment["LIVEASR_TOKEN"] = token
        self.process = subprocess.Popen(
            [sys.executable, "-m", "liveasr", "serve", "--port", str(port), *model, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = _ADDRESS.search(line)
        if found is None:
            self.process.kill()
            raise AssertionError(f"the server did not start: {line}{self.process.communicate()[1]}")
        self.url = found[1]
        """As in http://127.0.0.1:41234."""

    @property
    def ws_url(self) -> str:
        """Of a session."""
        return "ws" + self.url.removeprefix("http") + "/v1/stream"

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait; the exit code and what was printed since the address."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class DeafClient:
    """A client that sends and never reads, not even in a thread; to be used in a `with` block."""

    def __init__(self, url: str) -> None:
        host, port = urlsplit(url).netloc.split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._protocol = ClientProtocol(parse_uri(url))
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        self._protocol.receive_data(self._socket.recv(65536))
        self._protocol.events_received()

    def send(self, *frames: str | bytes) -> None:
        """Send frames at once."""
        for frame in frames:
            if isinstance(frame, str):
                self._protocol.send_text(frame.encode())
            else:
                self._protocol.send_binary(frame)
        self._flush()

    def _flush(self) -> None:
        self._socket.sendall(b"".join(self._protocol.data_to_send()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def dial(url: str, **options: Any) -> ClientConnection:
    """An open connection; a machine that others use too may take its time with the handshake."""
    connection: ClientConnection = connect(url, **{"open_timeout": 60, **options})
    return connection


def frames(payload: bytes, size: int) -> Iterator[bytes]:
    """Audio frames of a payload, the last one shorter."""
    for index, start in enumerate(range(0, len(payload), size)):
        yield encode_audio(Audio(index + 1, payload[start : start + size]))


def talk(url: str, start: Start, payload: bytes, frame_bytes: int, **options: Any) -> list[ServerMessage]:
    """A whole session; everything that the server said."""
    with dial(url, **options) as socket_:
        socket_.send(encode(start))

        def send() -> None:
            with contextlib.suppress(ConnectionClosed):
                for frame in frames(payload, frame_bytes):
                    socket_.send(frame)
                socket_.send(encode(Stop()))

        sender = threading.Thread(target=send)
        sender.start()
        found = list(heard(socket_))
        sender.join()
        return found


def heard(socket_: ClientConnection) -> Iterator[ServerMessage]:
    """What the server says until it closes."""
    for frame in socket_:
        assert isinstance(frame, str)
        message = decode_server(frame)
        assert message is not None
        yield message


def finals(messages: list[ServerMessage]) -> list[Transcript]:
    """The finals among messages."""
    return [message for message in messages if isinstance(message, Transcript) and message.final]


async def captions(
    url: str, recording: Path, start: Start | None = None, *, at_speed: float = 10
) -> list[LiveTranscript]:
    """All transcripts of a recording that is played to a server, so many times as fast as it was spoken."""
    found: list[LiveTranscript] = []
    async with connect_client(url, start or Start()) as stream:

        async def listen() -> None:
            found.extend([each async for each in stream.outputs() if isinstance(each, LiveTranscript)])

        listening = asyncio.create_task(listen())
        with AudioFile(recording) as sound:
            for block in sound.blocks():
                for at in range(0, block.size, _PLAYED_SAMPLES):
                    await stream.feed(block[at : at + _PLAYED_SAMPLES])
                    await asyncio.sleep(_PLAYED_SAMPLES / SAMPLE_RATE_HZ / at_speed)
        await stream.finish()
        await listening
    return found

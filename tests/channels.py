"""Connections without sockets, to a service with a stand-in for an engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from liveasr.stream.connection import Connection
from liveasr.stream.detect import Detector, WindowDetector
from liveasr.stream.messages import Audio, Ready, Resume, ServerMessage, decode_server, encode, encode_audio
from liveasr.stream.service import OfferedModel, Service, ServiceConfig
from liveasr.vad.config import VadConfig
from tests.fakes import FakeEngine


class MemoryChannel:
    """Frames in and out, without a socket."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.sent: list[ServerMessage] = []
        """Without their numbers."""
        self.seqs: list[int] = []
        self.closed: tuple[int, str] | None = None
        self.readable = asyncio.Event()
        self.readable.set()
        self.changed = asyncio.Event()

    async def receive(self) -> str | bytes | None:
        return await self.incoming.get()

    async def send(self, frame: str) -> None:
        await self.readable.wait()
        message = decode_server(frame)
        assert message is not None
        self.seqs.append(message.seq)
        self.sent.append(msgspec.structs.replace(message, seq=0))
        self.changed.set()

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    def say(self, *frames: str | bytes | None) -> None:
        for frame in frames:
            self.incoming.put_nowait(frame)

    async def until(self, kind: type[ServerMessage]) -> None:
        """Wait until a message of that kind was sent."""
        while not any(isinstance(message, kind) for message in self.sent):
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def serving(
    engine: FakeEngine, new_detector: Callable[[VadConfig], Detector] = WindowDetector, **settings: Any
) -> AsyncIterator[Service]:
    """A service for one test, which must leave nothing behind."""
    service = Service([OfferedModel("fake", [engine])], new_detector, ServiceConfig(**settings))
    try:
        yield service
    finally:
        await service.close()
    assert service.sessions == 0
    assert engine.closed


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test, which must leave no task behind."""

    async def bounded() -> None:
        await asyncio.wait_for(work(), 60)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody."""
    while not condition():  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.001)


def audio(count: int, first: int = 1, payload: bytes = bytes(3200)) -> list[bytes]:
    """Audio frames, of 100 ms unless told."""
    return [encode_audio(Audio(number, payload)) for number in range(first, first + count)]


def connect(service: Service, channel: MemoryChannel) -> asyncio.Task[None]:
    """A connection, served."""
    return asyncio.create_task(Connection(channel, service).run())


def resume(channel: MemoryChannel, seq: int | None = None) -> str:
    """The frame that goes on with the session of a channel."""
    session = next(message.session for message in channel.sent if isinstance(message, Ready))
    return encode(Resume(session=session, seq=max(channel.seqs) if seq is None else seq))


def only(channel: MemoryChannel, kind: type[ServerMessage]) -> list[ServerMessage]:
    """The messages of a kind that were sent."""
    return [message for message in channel.sent if isinstance(message, kind)]

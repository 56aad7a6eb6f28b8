"""Connections without sockets, to a service with a stand-in for an engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from liveasr.stream.detect import Detector, WindowDetector
from liveasr.stream.messages import ServerMessage, decode_server
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

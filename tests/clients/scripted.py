"""A server that does what a test says, for what a real one never does."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from liveasr.stream.messages import (
    Audio,
    ClientMessage,
    Done,
    Flush,
    Flushed,
    Limits,
    ModelInfo,
    Ready,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Stop,
    Transcript,
)
from liveasr.stream.protocol import ServerProtocol

DIGITS = ModelInfo(name="digits", languages=("auto", "en"), hotwords=False)
TOLD: tuple[ServerMessage, ...] = (
    SpeechStarted(segment_id=0, start_ms=250, heard_ms=450),
    Transcript(segment_id=0, revision=1, final=False, committed="one", tentative=" t", start_ms=250, end_ms=700),
    SpeechEnded(segment_id=0, end_ms=900, heard_ms=1700, forced_cut=False),
    Transcript(segment_id=0, revision=2, final=True, committed="one", tentative="", start_ms=250, end_ms=900, text="1"),
)
"""A segment, as a server tells it."""


class Client:
    """The client, as the server sees it."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.protocol = ServerProtocol()

    async def next(self) -> ClientMessage | Audio:
        """What it says next."""
        return self.protocol.receive(await self.connection.recv())

    async def until(self, kind: type[ClientMessage]) -> list[ClientMessage | Audio]:
        """All it says until a message of that kind, which comes last."""
        said = [await self.next()]
        while not isinstance(said[-1], kind):
            said.append(await self.next())
        return said

    async def tell(self, *messages: ServerMessage) -> None:
        for message in messages:
            await self.connection.send(self.protocol.send(message))

    async def welcome(self, message_bytes: int = 1 << 20, idle_s: float = 60.0) -> Start:
        """Answer its start."""
        start = await self.next()
        assert isinstance(start, Start)
        limits = Limits(message_bytes=message_bytes, idle_s=idle_s, resume_s=30.0, session_s=86_400.0)
        await self.tell(Ready(session="s", model="digits", limits=limits, models=(DIGITS,)))
        return start

    async def done(self) -> None:
        """End a session in which nothing was said."""
        number = self.protocol.last_number
        await self.tell(Done(reason="stop", number=number, heard_ms=0, speech_ms=0, segments=0))

    async def gone(self) -> None:
        """Wait until it leaves, whatever it says before."""
        with contextlib.suppress(ConnectionClosed):
            await self.until(Stop)
            await self.connection.recv()


async def received(client: Client, **limits: Any) -> list[ClientMessage | Audio]:
    """Serve a new session to its end, when it says stop; everything it says."""
    await client.welcome(**limits)
    said = [await client.next()]
    while said[-1] != Stop():
        if said[-1] == Flush():
            await client.tell(Flushed())
        said.append(await client.next())
    await client.done()
    return said


Script: TypeAlias = Callable[[Client], Awaitable[Any]]


@contextlib.asynccontextmanager
async def scripted(script: Script, **settings: Any) -> AsyncIterator[str]:
    """A server that treats every client so; its address."""

    async def handler(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await script(Client(connection))

    protocols = [Subprotocol("liveasr.v1")]
    async with serve(handler, "127.0.0.1", 0, subprotocols=protocols, close_timeout=1, **settings) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"{'https' if 'ssl' in settings else 'http'}://127.0.0.1:{port}"


def answering(status: int, body: str = "", **headers: str) -> dict[str, Any]:
    """The setting of a server that answers every request so."""

    def answer(connection: ServerConnection, _request: Request) -> Response:
        response = connection.respond(HTTPStatus(status), body)
        for name, value in headers.items():
            response.headers[name] = value
        return response

    return {"process_request": answer}

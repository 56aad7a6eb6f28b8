"""A connection to a server and the state of the conversation over it; what ends it is told in one line."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from liveasr.errors import LinkError, LiveasrError, WireError
from liveasr.stream.messages import CLOSE_CODES, Error, Ready, Resumed, ServerMessage
from liveasr.stream.protocol import ClientProtocol

_Answer = TypeVar("_Answer", Ready, Resumed)
_CLOSE_S = 2.0
_PASSING_ERRORS = frozenset(
    ("gone", "idle", "internal", "overloaded", "session_limit", "shutdown", "slow_reader", "too_many_sessions")
)
# Of RFC 6455 and its registry: going away, internal error, service restart, try again later, bad gateway.
_PASSING_CLOSES = frozenset((1001, 1011, 1012, 1013, 1014, *(CLOSE_CODES[code] for code in _PASSING_ERRORS)))


def is_passing(error: LiveasrError) -> bool:
    """Whether trying again, with the same session or a new one, may help."""
    return isinstance(error, LinkError) or (isinstance(error, WireError) and error.code in _PASSING_ERRORS)


class Link:
    """An open connection.

    Args:
        connection: what carries it.
        name: of the server, for people.
        protocol: of the session, which may have gone over other connections before.
    """

    def __init__(self, connection: ClientConnection, name: str, protocol: ClientProtocol) -> None:
        self.name = name
        self.protocol = protocol
        self._connection = connection

    async def send(self, make: Callable[..., str | bytes], *arguments: Any) -> None:
        """Make a frame and send it, in the order of the calls. What cannot be sent is lost; `receive` tells why."""
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(make(*arguments))
        await asyncio.sleep(0)  # a socket that takes everything at once leaves the reader no turn

    async def receive(self, within_s: float, silence: str) -> ServerMessage | None:
        """The next message; None for one that this version does not know.

        Args:
            within_s: how long to wait.
            silence: what to say if nothing comes.

        Raises:
            LinkError: nothing comes any more over this connection, but another one may do.
            LiveasrError: nothing comes any more; a WireError if the server said why, or broke the protocol.
        """
        try:
            async with asyncio.timeout(within_s):
                frame = await self._connection.recv()
        except TimeoutError as error:
            raise LinkError(f"{self.name}: {silence}") from error
        except ConnectionClosed as error:
            kind = LinkError if _is_passing(error) else LiveasrError
            raise kind(f"{self.name}: {_lost(error)}") from error
        with self.blamed():
            message = self.protocol.receive(frame)
        if isinstance(message, Error) and message.fatal:
            raise WireError(message.code, f"{self.name}: {message.message}")
        return message

    async def answer(self, kind: type[_Answer], within_s: float) -> _Answer:
        """What the server says to a first message.

        Raises:
            LiveasrError: as `receive`.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        while True:
            message = await self.receive(
                deadline_s - loop.time(), "it does not begin a session; is it a liveasr server?"
            )
            if isinstance(message, kind):
                return message

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Tell whose fault an error of the protocol is."""
        try:
            yield
        except WireError as error:
            raise WireError(error.code, f"{self.name}: does not speak liveasr's protocol: {error}") from error

    async def drop(self) -> None:
        """Cut the connection; whoever waits for it goes on. Also when it is cut already."""
        self._connection.transport.abort()
        await self._connection.wait_closed()

    async def close(self) -> None:
        """Take leave of the server, and close. Closing twice is fine."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.close()
        except TimeoutError:
            pass  # it takes nothing any more, not even that
        finally:
            await self.drop()


def _is_passing(closed: ConnectionClosed) -> bool:
    """Whether the same may go well over another connection."""
    if closed.rcvd is None:
        return closed.sent is None  # else the server broke the WebSocket protocol
    return closed.rcvd.code in _PASSING_CLOSES


def _lost(closed: ConnectionClosed) -> str:
    """Why a connection ended without a word of the protocol."""
    if closed.rcvd is not None:
        return f"the server closed the connection: {closed.rcvd}"
    if closed.sent is not None:
        return f"the server sent what is no WebSocket message: {closed.sent}"
    return "the connection was lost; is the server still running?"

"""A connection to a server and the state of the conversation over it; what ends it is told in one line."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from liveasr.errors import LiveasrError, WireError
from liveasr.stream.messages import Error, ServerMessage
from liveasr.stream.protocol import ClientProtocol

_CLOSE_S = 2.0


class Link:
    """An open connection.

    Args:
        connection: what carries it.
        name: of the server, for people.
    """

    def __init__(self, connection: ClientConnection, name: str) -> None:
        self.name = name
        self.protocol = ClientProtocol()
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
            LiveasrError: nothing comes any more; a WireError if the server said why, or broke the protocol.
        """
        try:
            async with asyncio.timeout(within_s):
                message = self.protocol.receive(await self._connection.recv())
        except TimeoutError as error:
            raise LiveasrError(f"{self.name}: {silence}") from error
        except ConnectionClosed as error:
            raise LiveasrError(f"{self.name}: {_lost(error)}") from error
        except WireError as error:
            raise WireError(error.code, f"{self.name}: does not speak liveasr's protocol: {error}") from error
        if isinstance(message, Error) and message.fatal:
            raise WireError(message.code, f"{self.name}: {message.message}")
        return message

    def abort(self) -> None:
        """Cut the connection; whoever waits for it goes on."""
        self._connection.transport.abort()

    async def close(self) -> None:
        """Take leave of the server, and close. Closing twice is fine."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.close()
        except TimeoutError:
            pass  # it takes nothing any more, not even that
        finally:
            self.abort()
        await self._connection.wait_closed()


def _lost(closed: ConnectionClosed) -> str:
    """Why a connection ended without a word of the protocol."""
    if closed.rcvd is not None:
        return f"the server closed the connection: {closed.rcvd}"
    if closed.sent is not None:
        return f"the server sent what is no WebSocket message: {closed.sent}"
    return "the connection was lost; is the server still running?"

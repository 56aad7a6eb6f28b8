"""One client's connection: frames from a channel into a conversation, messages of the conversation to the channel.

The reader waits only for the client, or, when too much audio waits, for room; the writer waits for the client alone.
When the channel breaks, the conversation is left to wait for the client to come back on another one.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from liveasr.errors import WireError
from liveasr.stream.conversation import Conversation, raise_in
from liveasr.stream.journal import note
from liveasr.stream.messages import (
    CLOSE_CODES,
    Audio,
    ClientMessage,
    Error,
    Flush,
    Ping,
    Pong,
    Resume,
    Start,
    encode,
)
from liveasr.stream.protocol import ServerProtocol
from liveasr.stream.service import Service

_LAST_WORDS_S = 10.0
_CLOSE_S = 2.0
_READ_REST_S = 0.5
_FRAMES_A_TURN = 8  # of 100 ms, for one that is behind
_MAX_REASON_BYTES = 123  # RFC 6455, 5.5: a control frame holds 125 bytes, two of them the code


class Goodbye(ConnectionError):  # noqa: N818 - no error
    """The client closed the connection, and means it."""


class Channel(Protocol):
    """Where frames come from and go to."""

    async def receive(self) -> str | bytes | None:
        """The next frame of the client; None once it is gone.

        Raises:
            Goodbye: it left.
        """
        ...

    async def send(self, frame: str) -> None:
        """Send a frame; waits while the client does not read.

        Raises:
            ConnectionError: the client is gone.
        """
        ...

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        ...


class _Over(Exception):  # noqa: N818 - an end, not an error
    """The connection is to be closed."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """A connection. Call `run` once.

    Args:
        channel: an open one.
        service: what is served.
        peer: where the client is, for the log.
    """

    def __init__(self, channel: Channel, service: Service, peer: str = "") -> None:
        self._channel = channel
        self._service = service
        self._peer = peer
        self._protocol = ServerProtocol()
        self._group = asyncio.TaskGroup()
        self._away: _Over | None = None  # turned away: how
        self._frames_in_turn = 0

    async def run(self) -> None:
        """Serve the client until either side closes."""
        try:
            self._service.enter(self)
            await self._serve()
        except ConnectionError:
            return
        except _Over as over:
            await self._close(over)
        except WireError as error:  # before there was a session
            frame = encode(Error(code=error.code, message=str(error), fatal=True))
            self._service.refused(error.code)
            note("connection refused", code=error.code, peer=self._peer)
            await self._close(_Over(CLOSE_CODES[error.code], str(error)), frame)
        finally:
            self._service.leave(self)

    def turn_away(self, error: WireError) -> None:
        """Close, for the sake of another connection or of the server's end; the session is left as it is."""
        if self._away is None:
            self._away = _Over(CLOSE_CODES[error.code], str(error))
            raise_in(self._group, self._away)

    async def _serve(self) -> None:
        try:
            async with self._group as group:
                conversation, repeated = await self._begin_in_time()
                group.create_task(self._read(conversation))
                group.create_task(self._write_while_heard(conversation, repeated))
                group.create_task(_limit_last_words(conversation))
        except ExceptionGroup as several:
            error = _decisive(several.exceptions)
            if isinstance(error, Goodbye):
                self._service.abandon(self)
            raise error from None

    async def _begin_in_time(self) -> tuple[Conversation, list[str]]:
        patience = self._service.limits.idle_s
        try:
            async with asyncio.timeout(patience):
                return await self._begin()
        except TimeoutError:  # pings keep a session, but no place for one
            raise WireError("idle", f"no start came within {patience:g} s") from None

    async def _begin(self) -> tuple[Conversation, list[str]]:
        """The conversation that the client starts or resumes, and the frames to repeat."""
        while True:
            message = await self._receive()
            if isinstance(message, Ping):
                await self._channel.send(encode(Pong(id=message.id)))
            elif isinstance(message, Start):
                conversation = self._service.start(message, self._protocol, self)
                note("session started", session=conversation.session_id, model=conversation.model, peer=self._peer)
                return conversation, []
            elif isinstance(message, Resume):
                conversation = self._service.resume(message.session, self)
                note("session resumed", session=message.session, peer=self._peer)
                self._protocol = conversation.protocol
                try:
                    return conversation, self._protocol.resume(message.session, message.seq)
                except WireError:
                    self._service.forget(conversation)
                    raise

    async def _read(self, conversation: Conversation) -> None:
        try:
            while True:
                message = await self._receive()
                if isinstance(message, Ping):
                    conversation.tell(Pong(id=message.id))
                elif isinstance(message, Audio):
                    conversation.take(message)
                else:
                    conversation.inbox.mark("flush" if isinstance(message, Flush) else "end")
                await conversation.inbox.room()
        except WireError as error:
            # Not if the session is another connection's by now, nor if this crossed the session's last message.
            if self._away is None and conversation.close is None:
                conversation.fail(error)

    async def _receive(self) -> ClientMessage | Audio:
        """The next message that is one; a harmless error is told and passed over."""
        while True:
            frame = await self._next_frame()
            try:
                return self._protocol.receive(frame)
            except WireError as error:
                if error.fatal:
                    raise
                await self._channel.send(encode(Error(code=error.code, message=str(error), fatal=False)))

    async def _next_frame(self) -> str | bytes:
        # A client that has said stop may listen in silence.
        patience = None if self._protocol.state in ("stopping", "closed") else self._service.limits.idle_s
        try:
            async with asyncio.timeout(patience):
                # Many may have come at once. Some are taken together, which is less work; then others have a turn.
                self._frames_in_turn += 1
                if self._frames_in_turn == _FRAMES_A_TURN:
                    self._frames_in_turn = 0
                    await asyncio.sleep(0)
                frame = await self._channel.receive()
        except TimeoutError:
            raise WireError("idle", f"nothing was heard from the client for {patience:g} s") from None
        if self._away is not None:  # what still comes has been sent again where the session goes on
            raise self._away
        if frame is None:
            raise ConnectionError("the client is gone")
        return frame

    async def _write_while_heard(self, conversation: Conversation, repeated: list[str]) -> None:
        try:
            await self._write(conversation, repeated)
        except ConnectionError:
            # Whether the client left or the connection broke, the reader finds out, behind all that came before.
            await asyncio.sleep(_READ_REST_S)
            raise

    async def _write(self, conversation: Conversation, repeated: list[str]) -> None:
        for frame in repeated:
            await self._channel.send(frame)
        while conversation.close is None:
            await conversation.outbox.wait()
            # Nothing else runs from here to the frame: what another connection has taken over is not taken from it.
            if self._away is not None:
                return
            await self._channel.send(conversation.next_frame())
        raise _Over(*conversation.close)

    async def _close(self, over: _Over, frame: str | None = None) -> None:
        """Close, after a last frame; not for ever."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                if frame is not None:
                    await self._channel.send(frame)
                reason = over.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
                await self._channel.close(over.code, reason)
        except (TimeoutError, ConnectionError):
            return


async def _limit_last_words(conversation: Conversation) -> None:
    """Once a session has ended, its last messages are read soon, or not at all."""
    await conversation.ended.wait()
    if not conversation.cut_off:
        await asyncio.sleep(_LAST_WORDS_S)
    raise _Over(CLOSE_CODES["slow_reader"], "the client does not read its messages")


def _decisive(errors: Sequence[Exception]) -> Exception:
    """Of what several tasks raised at once, that which decides how the connection ends."""
    for kind in (_Over, WireError, Goodbye, ConnectionError):
        for error in errors:
            if isinstance(error, kind):
                return error
    note("connection failed", error=errors[0])
    return WireError("internal", "the server failed; its log says more")

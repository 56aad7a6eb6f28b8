"""A line to a server that is put up again when it breaks: one stream's sessions, over one connection after another.

A connection that broke is followed by another, over which the session goes on. Where the server does not know the
session any more, or has ended it, a new one begins with the audio that is not settled. What comes of the server is
handed on, whatever it came over; `Began` stands where a new session begins.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from liveasr.clients.backoff import Backoff
from liveasr.clients.dial import Address, dial
from liveasr.clients.link import Link, is_passing
from liveasr.errors import LinkError, LiveasrError, WireError
from liveasr.stream.messages import Ack, Done, Error, Flushed, Ready, Resumed, ServerMessage, Start, Transcript
from liveasr.stream.protocol import ClientProtocol
from liveasr.stream.unsettled import Unsettled
from liveasr.types import SAMPLES_PER_MS

CONNECT_S = 10.0
"""A server that does not answer, or has not said `ready` by then, is given up."""
SILENCE_S = 15.0
"""So long without any message, though it is pinged, and a connection is taken for dead. A busy server is not silent: it
answers pings, and once it is so far behind that it reads no more, it says every second how far that is."""
PING_S = 5.0
_STOPPED = "the server was stopped; what it had heard is complete"
_FRAME_MS = 100
_NUMBER_BYTES = 4  # in front of the samples of a frame
MAX_FRUITLESS = 5
"""So many sessions may end, one after the other, before anything is settled: perhaps it is the audio that ends them."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection was lost; it is being put up again."""

    error: LiveasrError


@dataclass(frozen=True, slots=True)
class Back:
    """There is a connection again."""


@dataclass(frozen=True, slots=True)
class Began:
    """A new session begins there in the stream."""

    begin_ms: int


Heard: TypeAlias = ServerMessage | Lost | Back | Began


class Line:
    """A line, for one stream. Call `open` and `run` once each; `close` at any time.

    Args:
        address: of the server.
        token: that it wants to see.
        start: what to ask for.
        unsettled: what is to be said; call `wake` after adding to it.
        backoff: when to try again.
        hear: takes what comes.
    """

    ready: Ready
    """Of the session that goes on now."""
    frame_bytes: int
    """The most samples that one frame may have, in bytes."""

    def __init__(
        self,
        address: Address,
        token: str | None,
        start: Start,
        unsettled: Unsettled,
        backoff: Backoff,
        hear: Callable[[Heard], None],
    ) -> None:
        self.unsettled = unsettled
        self.name = address.name
        self._address = address
        self._token = token
        self._start = start
        self._backoff = backoff
        self._hear = hear
        self._more = asyncio.Event()  # to say
        self._link: Link | None = None
        self._fruitless = 0  # sessions begun since anything was settled
        self._stopping = False  # the server is
        self._held: list[ServerMessage] = []  # of what it said since

    async def open(self) -> None:
        """Begin the first session. That is tried once.

        Raises:
            LiveasrError: as dial and Link.receive.
        """
        self._link, self.ready = await self._begin()
        self.frame_bytes = _frame_bytes(self.ready, self._start)
        if self.frame_bytes <= 0:
            raise _too_small(self._link, self.ready)
        self._start = msgspec.structs.replace(self._start, model=self.ready.model)  # the same one in every session

    async def run(self) -> Done:
        """Talk until all is said and done.

        Raises:
            LiveasrError: that cannot be, or not within the time that there is.
        """
        assert self._link is not None
        while True:
            try:
                return await self._talk(self._link)
            except LiveasrError as error:
                await self._link.drop()
                try:
                    self._link = await self._again(error)
                except LiveasrError:
                    self._release()
                    raise

    async def close(self) -> None:
        """Take leave; `run` must not be running. Closing twice is fine."""
        if self._link is not None:
            await self._link.close()

    def wake(self) -> None:
        """There is more to say."""
        self._more.set()

    async def _talk(self, link: Link) -> Done:
        """Say what there is, and hear what comes, until the end of the stream or of the connection."""
        helpers = [asyncio.create_task(self._say(link)), asyncio.create_task(self._ping(link))]
        try:
            while True:
                message = await link.receive(SILENCE_S, "nothing is heard of it; is the network up?")
                if isinstance(message, Done):
                    if not self.unsettled.is_complete(message.number, sum(isinstance(m, Flushed) for m in self._held)):
                        raise WireError("shutdown", f"{link.name}: {_STOPPED}")
                    self._release()
                    return message
                if message is not None:
                    with link.blamed():
                        self._take(message)
        finally:
            for helper in helpers:
                helper.cancel()
            for result in await asyncio.gather(*helpers, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result

    async def _say(self, link: Link) -> None:
        while True:
            if link.protocol.state != "open" or (item := self.unsettled.next()) is None:
                self._more.clear()
                await self._more.wait()
            elif isinstance(item, bytes):
                await link.send(link.protocol.audio, item)
            else:
                await link.send(link.protocol.flush if item == "flush" else link.protocol.stop)

    async def _ping(self, link: Link) -> None:
        """Keep the session while no audio comes, and make the server prove that it is there."""
        number = 0
        while True:
            await asyncio.sleep(min(PING_S, max(0.1, self.ready.limits.idle_s / 3)))
            if link.protocol.state != "closed":
                await link.send(link.protocol.ping, number := number + 1)

    def _take(self, message: ServerMessage) -> None:
        """Settle what can be, and hand the message on, unless the server is stopping.

        It ends the open segment then, perhaps within a word. What it says of that is held back: another server hears
        the segment as a whole. Only if there is none it is better than nothing.
        """
        if isinstance(message, Error) and message.code == "shutdown":
            self._stopping = True
        elif self._stopping:
            self._held.append(message)
        else:
            self._settle(message)
            self._hear(message)

    def _release(self) -> None:
        """Hand on what was held back."""
        self._stopping = False
        for message in self._held:
            self._take(message)
        self._held.clear()

    def _settle(self, message: ServerMessage) -> None:
        before_ms = self.unsettled.settled_ms
        if isinstance(message, Ack):
            self.unsettled.settle(message.settled_ms)
        elif isinstance(message, Transcript) and message.final:
            self.unsettled.settle(message.end_ms)
        elif isinstance(message, Flushed):
            self.unsettled.flushed()
        if self.unsettled.settled_ms > before_ms:
            self._fruitless = 0

    async def _again(self, error: LiveasrError) -> Link:
        """Another connection; from `Lost` to `Back` there is none."""
        self._backoff.begin()
        attempts = 0
        while is_passing(error) and self._fruitless <= MAX_FRUITLESS:
            pause_s = self._backoff.next()
            if pause_s is None:
                raise _given_up(error, self._backoff.patience_s) if attempts else error
            if attempts == 0:
                self._hear(Lost(error))
            await asyncio.sleep(pause_s)
            attempts += 1
            try:
                link = await self._resume() or await self._restart()
            except LiveasrError as fault:
                error = fault
            else:
                self._hear(Back())
                return link
        raise error

    async def _resume(self) -> Link | None:
        """The session over another connection; None if there is no such session any more."""
        assert self._link is not None
        protocol = self._link.protocol
        if protocol.state == "closed":
            return None
        link = await self._dial(protocol)
        try:
            await link.send(protocol.resume)
            resumed = await link.answer(Resumed, CONNECT_S)
            with link.blamed():
                self.unsettled.resumed(resumed.number, resumed.flushes, stopping=resumed.stopping)
        except WireError as error:
            await link.drop()
            if error.code == "gone":
                return None
            raise
        except BaseException:
            await link.drop()
            raise
        return link

    async def _restart(self) -> Link:
        """A new session, which begins with what is not settled."""
        link, ready = await self._begin()
        if _frame_bytes(ready, self._start) < self.frame_bytes:
            await link.drop()
            raise _too_small(link, ready)
        self.ready = ready
        self._fruitless += 1
        self._stopping = False
        self._held.clear()
        self._hear(Began(self.unsettled.restart()))
        return link

    async def _begin(self) -> tuple[Link, Ready]:
        link = await self._dial(ClientProtocol())
        try:
            await link.send(link.protocol.start, self._start)
            return link, await link.answer(Ready, CONNECT_S)
        except BaseException:
            await link.drop()
            raise

    async def _dial(self, protocol: ClientProtocol) -> Link:
        return Link(await dial(self._address, self._token, CONNECT_S), self._address.name, protocol)


def _frame_bytes(ready: Ready, start: Start) -> int:
    """Of the samples in a frame of 100 ms, or of fewer where a server takes no messages of that length."""
    width = start.audio.frame_bytes
    return width * min(_FRAME_MS * SAMPLES_PER_MS, (ready.limits.message_bytes - _NUMBER_BYTES) // width)


def _too_small(link: Link, ready: Ready) -> WireError:
    return WireError("bad_message", f"{link.name}: takes messages of {ready.limits.message_bytes} bytes only")


def _given_up(error: LiveasrError, after_s: float) -> LiveasrError:
    words = f"{error} (tried again for {after_s:g} s)"
    return WireError(error.code, words) if isinstance(error, WireError) else LinkError(words)

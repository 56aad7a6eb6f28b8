"""What waits between a connection and its session: audio on the way in, messages on the way out. Both are bounded."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

from liveasr.stream.messages import Ack, Audio, Done, Error, Lag, Overload, ServerMessage, Transcript

MAX_WAITING_BYTES = 2 << 20
"""Of audio: a minute at 16 kHz. Who sends faster than it is taken has to wait, by TCP's own means."""
MAX_WAITING_ITEMS = 10_000
"""Pieces of audio and marks, which take room even where they are empty."""
MAX_WAITING_MESSAGES = 1_000
"""That cannot be left out. A client that lets so many wait does not read at all."""

Mark: TypeAlias = Literal["flush", "end"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive samples."""

    payload: bytes
    number: int | None
    """Of the audio frame that ends with them; None inside one."""


class Inbox:
    """Audio and marks in the order that they came; taken in stretches, however they were cut when they came.

    Args:
        stretch_bytes: the longest stretch.
        max_bytes: how much audio may wait.
    """

    def __init__(self, stretch_bytes: int, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self._stretch_bytes = stretch_bytes
        self._max_bytes = max_bytes
        self._items: deque[Stretch | Mark] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def waiting_bytes(self) -> int:
        """Of audio."""
        return self._bytes

    async def room(self) -> None:
        """Wait until there is room for more: before adding any, or after."""
        while self._bytes >= self._max_bytes or len(self._items) >= MAX_WAITING_ITEMS:
            self._room.clear()
            await self._room.wait()

    def put(self, audio: Audio) -> None:
        """Add audio."""
        self._bytes += len(audio.payload)
        for start in range(0, max(1, len(audio.payload)), self._stretch_bytes):
            piece = audio.payload[start : start + self._stretch_bytes]
            is_last = start + self._stretch_bytes >= len(audio.payload)
            self._items.append(Stretch(piece, audio.number if is_last else None))
        self._filled.set()

    def mark(self, mark: Mark) -> None:
        """Add a mark behind all audio."""
        self._items.append(mark)
        self._filled.set()

    async def take(self) -> Stretch | Mark:
        """The next stretch of audio, or the next mark."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        first = self._items.popleft()
        self._room.set()
        if not isinstance(first, Stretch):
            return first
        payloads, number = [first.payload], first.number
        size = len(first.payload)
        while self._items and isinstance(following := self._items[0], Stretch):
            if size + len(following.payload) > self._stretch_bytes:
                break
            self._items.popleft()
            payloads.append(following.payload)
            size += len(following.payload)
            number = following.number if following.number is not None else number
        self._bytes -= size
        return Stretch(b"".join(payloads), number)


class Outbox:
    """Messages that wait for a client to read them. What a newer message makes useless is left out.

    A newer revision takes the place of one that waits, a final that of all revisions; of acks and lags only the latest
    counts, and of ends. An ack comes after the finals that it tells of, an end after everything.

    Args:
        max_messages: how many may wait.
    """

    def __init__(self, max_messages: int = MAX_WAITING_MESSAGES) -> None:
        self._max_messages = max_messages
        self._waiting: dict[str | int, ServerMessage] = {}  # in order
        self._next_key = 0
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        """Messages waiting."""
        return len(self._waiting)

    def put(self, message: ServerMessage) -> None:
        """Add a message.

        Raises:
            OverflowError: too many wait.
        """
        key = self._key(message)
        if len(self._waiting) >= self._max_messages and key != "end":
            raise OverflowError("the client does not read")
        if isinstance(message, Transcript) and message.final:
            self._waiting.pop(f"segment {message.segment_id}", None)
        if key in ("ack", "end"):
            self._waiting.pop(key, None)  # to come last
        self._waiting[key] = message
        self._filled.set()

    async def wait(self) -> None:
        """Wait for a message."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()

    def take(self) -> ServerMessage:
        """The next message of those that wait."""
        return self._waiting.pop(next(iter(self._waiting)))

    def _key(self, message: ServerMessage) -> str | int:
        """Messages of the same key replace each other."""
        if isinstance(message, Transcript) and not message.final:
            return f"segment {message.segment_id}"
        if isinstance(message, Ack):
            return "ack"
        if isinstance(message, Lag | Overload):
            return "lag"
        if isinstance(message, Done) or (isinstance(message, Error) and message.fatal):
            return "end"
        self._next_key += 1
        return self._next_key

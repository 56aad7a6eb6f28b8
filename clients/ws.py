"""A live stream whose words are found by a server: sound goes over a WebSocket, events and transcripts come back.

    async with connect("http://127.0.0.1:8765", Start(model="digits")) as stream:
        await stream.feed(samples)  # any number of times
        await stream.finish()
        async for output in stream.outputs():
            ...

A RemoteStream is used as a LiveStream (liveasr.stream.live), which does the same in this process. A connection that
breaks is put up again, and nothing is lost or said twice: the stream keeps the audio whose text is not final yet.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

from liveasr.clients.backoff import Backoff
from liveasr.clients.dial import parse_address
from liveasr.clients.line import Back, Began, Heard, Line, Lost
from liveasr.errors import LiveasrError, UsageError
from liveasr.stream import live
from liveasr.stream.continued import Continuation
from liveasr.stream.live import Flushed
from liveasr.stream.messages import (
    AudioFormat,
    Done,
    Error,
    Lag,
    Overload,
    Ready,
    SpeechEnded,
    SpeechStarted,
    Start,
    Transcript,
    VadSettings,
)
from liveasr.stream.messages import Flushed as WireFlushed
from liveasr.stream.pcm import encode_pcm
from liveasr.stream.unsettled import Unsettled
from liveasr.types import SAMPLES_PER_MS, Float32Array

_log = logging.getLogger("liveasr")
KEEP_MS = 30_000
RECONNECT_S = 60.0
_LEAST_MORE_MS = 10_000  # than the longest segment: the detector's delay, and the pause that may end a segment
_LAG_TOLD_MS = 1000  # a server reports no less, but for the one report that it is less again
_END = None


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection was lost, and is being put up again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reconnected:
    """There is a connection again; what was fed meanwhile follows."""


Output: TypeAlias = live.Output | Disconnected | Reconnected


@contextlib.asynccontextmanager
async def connect(
    server: str,
    start: Start | None = None,
    *,
    token: str | None = None,
    reconnect_s: float = RECONNECT_S,
    keep_ms: int = KEEP_MS,
) -> AsyncIterator["RemoteStream"]:
    """A session on a server, for as long as the block runs. Leaving it early drops what is not done.

    Args:
        server: http, https, ws or wss; or only a host, and a port other than 8765.
        start: what to ask for; by default the server's first model, and everything as docs/protocol.md has it.
        token: what the server wants to see, if it wants one.
        reconnect_s: for how long to try again when the connection breaks; 0 for not at all. The first connection is
            tried once.
        keep_ms: how much audio, at most, is kept for the case that the server has to be told it again: `feed` waits
            while so much has no final text yet. It is raised to what the longest segment may need: a segment that did
            not fit would never get its final, and `feed` would wait for ever.

    Raises:
        UsageError: this is no address, no token, or asks for audio in another format than `feed` takes.
        LiveasrError: the server cannot be reached, or refuses; a WireError if it said so in the protocol.
    """
    start = start or Start()
    if start.audio != AudioFormat(encoding=start.audio.encoding):
        raise UsageError("a stream is fed with 16 kHz, mono; leave rate_hz and channels as they are")
    unsettled = Unsettled(start.audio.frame_bytes * SAMPLES_PER_MS, max(keep_ms, _least_keep_ms(start.vad)))
    stream = RemoteStream(unsettled, start.audio)
    line = Line(parse_address(server), token, start, unsettled, Backoff(reconnect_s), stream.hear)
    try:
        await stream.open(line)
        yield stream
    finally:
        await stream.close()


def _least_keep_ms(vad: VadSettings) -> int:
    return vad.longest_segment_ms + vad.pad_before_ms + vad.pad_after_ms + _LEAST_MORE_MS


class RemoteStream:
    """One stream, made by `connect`. Call `feed` and `flush` at will, then `finish` once; several callers take turns.

    Someone iterates over `outputs`, meanwhile or afterwards. What the server says is kept until it is taken there,
    without a bound: a slow reader costs memory, not text.
    """

    def __init__(self, unsettled: Unsettled, format_: AudioFormat) -> None:
        self.summary: Done | None = None
        """What was counted in all sessions, once they are done."""
        self._line: Line
        self._unsettled = unsettled
        self._encoding = format_.encoding
        self._continuation = Continuation()
        self._outputs: asyncio.Queue[Output | LiveasrError | None] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None
        self._held = bytearray()  # encoded, and too short for a frame
        self._heard_samples = 0
        self._lag_ms = 0
        self._finishing = False
        self._turn = asyncio.Lock()  # of those who feed, flush and finish
        self._settled = asyncio.Event()  # something was, or nothing comes any more
        self._over = asyncio.Event()  # nothing comes any more

    @property
    def ready(self) -> Ready:
        """The server's answer: the session's id, its model, the limits, and what other models there are."""
        return self._line.ready

    @property
    def heard_ms(self) -> int:
        """How much audio was fed."""
        return self._heard_samples // SAMPLES_PER_MS

    @property
    def lag_ms(self) -> int:
        """How far the text is behind the audio that the server received, as it says; 0 if less than a second."""
        return self._lag_ms

    async def feed(self, samples: Float32Array) -> None:
        """Take the next samples: (n,) float32 in [-1, 1], 16 kHz, mono. Waits while too much has no final text yet.

        They are sent in frames of 100 ms; less than that is held back until more comes, or `flush` or `finish`. Once
        the stream is over nothing is taken any more; `outputs` has the error.

        Raises:
            UsageError: the stream is finished.
        """
        self._must_be_open("feed")
        async with self._turn:
            if self._over.is_set():
                return
            self._heard_samples += samples.size
            self._held += encode_pcm(samples, self._encoding)
            while len(self._held) >= self._line.frame_bytes:
                await self._room()
                if self._over.is_set():
                    return
                self._say_held(self._line.frame_bytes)
                await asyncio.sleep(0)  # the line has a turn, however much is fed

    async def flush(self) -> None:
        """End the open segment here; `Flushed` follows the finals of all segments so far.

        Raises:
            UsageError: the stream is finished.
        """
        self._must_be_open("flush")
        async with self._turn:
            self._say_held(len(self._held))
            self._unsettled.flush()
            self._line.wake()

    async def finish(self) -> None:
        """End the stream: every segment gets its final, then the outputs end."""
        if not self._finishing:
            self._finishing = True
            async with self._turn:
                self._say_held(len(self._held))
                self._unsettled.stop()
                self._line.wake()
        await self._over.wait()

    def cancel(self) -> None:
        """Drop what is not done; the outputs end."""
        if self._running is not None:
            self._running.cancel()
        self._end(None)

    async def outputs(self) -> AsyncIterator[Output]:
        """Events and transcripts as they come, and, where the connection breaks, that it did.

        Raises:
            LiveasrError: the connection was lost, and could not be put up again; a WireError if the server ended the
                session, or broke the protocol.
        """
        while (item := await self._outputs.get()) is not _END:
            if isinstance(item, LiveasrError):
                raise item
            yield item

    async def open(self, line: Line) -> None:
        """Begin; what `connect` does first."""
        self._line = line
        await line.open()
        self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Leave; what `connect` does last. Closing twice is fine."""
        self.cancel()
        if self._running is not None:
            results = await asyncio.gather(self._running, return_exceptions=True)
            await self._line.close()
            if isinstance(results[0], Exception):
                raise results[0]

    def hear(self, heard: Heard) -> None:
        """Take what comes over the line."""
        match heard:
            case Transcript() | SpeechStarted() | SpeechEnded():
                output = self._continuation.take(heard)
                if output is not None:
                    self._outputs.put_nowait(output)
            case WireFlushed():
                self._outputs.put_nowait(Flushed())
            case Lag() | Overload():
                self._lag_ms = heard.lag_ms if heard.lag_ms >= _LAG_TOLD_MS else 0
            case Error():
                _log.warning("%s: %s", self._line.name, heard.message)
            case Lost():
                self._outputs.put_nowait(Disconnected(str(heard.error)))
            case Back():
                self._outputs.put_nowait(Reconnected())
            case Began():
                self._continuation.begin(heard.begin_ms)
                self._lag_ms = 0
            case _:  # ack, pong, and what later versions say
                pass
        self._settled.set()

    def _must_be_open(self, what: str) -> None:
        if self._finishing:
            raise UsageError(f"{what}: the stream is finished")

    async def _room(self) -> None:
        """Wait until there is room for a frame, or the stream is over."""
        while self._unsettled.is_full and not self._over.is_set():
            self._settled.clear()
            await self._settled.wait()

    def _say_held(self, size: int) -> None:
        """The next so many bytes that are held, in frames."""
        while size > 0:
            payload = bytes(self._held[: min(size, self._line.frame_bytes)])
            del self._held[: len(payload)]
            size -= len(payload)
            self._unsettled.audio(payload)
        self._line.wake()

    async def _run(self) -> None:
        try:
            done = await self._line.run()
            for output in self._continuation.finish():
                self._outputs.put_nowait(output)
            self.summary = self._continuation.summary(done, self._unsettled.frames_given)
            self._lag_ms = 0
        except LiveasrError as error:
            self._end(error)
        finally:
            self._end(None)

    def _end(self, error: LiveasrError | None) -> None:
        if not self._over.is_set():
            self._over.set()
            self._settled.set()
            if error is not None:
                self._outputs.put_nowait(error)
            self._outputs.put_nowait(_END)

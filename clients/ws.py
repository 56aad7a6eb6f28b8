"""A live stream whose words are found by a server: sound goes over a WebSocket, events and transcripts come back.

    async with connect("http://127.0.0.1:8765", Start(model="digits")) as stream:
        await stream.feed(samples)  # any number of times
        await stream.finish()
        async for output in stream.outputs():
            ...

A RemoteStream is used as a LiveStream (liveasr.stream.live), which does the same in this process.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from liveasr.clients.dial import dial, parse_address
from liveasr.clients.link import Link
from liveasr.errors import LiveasrError, UsageError, WireError
from liveasr.stream.live import Flushed, Output
from liveasr.stream.messages import (
    SAMPLE_BYTES,
    AudioFormat,
    Done,
    Encoding,
    Error,
    Lag,
    Overload,
    Ready,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Transcript,
)
from liveasr.stream.messages import Flushed as WireFlushed
from liveasr.stream.pcm import encode_pcm
from liveasr.types import SAMPLES_PER_MS, Float32Array, LiveTranscript, SpeechEnd, SpeechStart, Word
from liveasr.types import Transcript as Final

_log = logging.getLogger("liveasr")
CONNECT_S = 10.0
"""A server that has not said `ready` by then is given up."""
SILENCE_S = 40.0
"""So long without any message, though it is pinged, and a server is taken for lost."""
_PING_S = 10.0
_FRAME_MS = 100
_NUMBER_BYTES = 4  # in front of the samples of a frame
_LAG_TOLD_MS = 1000  # a server reports no less, but for the one report that it is less again
_END = None


@contextlib.asynccontextmanager
async def connect(
    server: str, start: Start | None = None, *, token: str | None = None
) -> AsyncIterator["RemoteStream"]:
    """A session on a server, for as long as the block runs. Leaving it early drops what is not done.

    Args:
        server: http, https, ws or wss; or only a host, and a port other than 8765.
        start: what to ask for; by default the server's first model, and everything as docs/protocol.md has it.
        token: what the server wants to see, if it wants one.

    Raises:
        UsageError: this is no address, no token, or asks for audio in another format than `feed` takes.
        LiveasrError: the server cannot be reached, or refuses; a WireError if it said so in the protocol.
    """
    start = start or Start()
    if start.audio != AudioFormat(encoding=start.audio.encoding):
        raise UsageError("a stream is fed with 16 kHz, mono; leave rate_hz and channels as they are")
    address = parse_address(server)
    stream = RemoteStream(Link(await dial(address, token, CONNECT_S), address.name), start.audio.encoding)
    try:
        await stream.open(start)
        yield stream
    finally:
        await stream.close()


class RemoteStream:
    """One session, made by `connect`. Call `feed` and `flush` at will, then `finish` once.

    Someone iterates over `outputs`, meanwhile or afterwards. What the server says is kept until it is taken there,
    without a bound: a slow reader costs memory, not text.
    """

    ready: Ready
    """The server's answer: the session's id, its model, the limits, and what other models there are."""

    def __init__(self, link: Link, encoding: Encoding) -> None:
        self.summary: Done | None = None
        """What the server counted, once it is done."""
        self._link = link
        self._protocol = link.protocol
        self._encoding = encoding
        self._outputs: asyncio.Queue[Output | LiveasrError | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._held = bytearray()  # encoded, and too short for a frame
        self._frame_bytes = 0
        self._heard_samples = 0
        self._lag_ms = 0
        self._finishing = False
        self._over = asyncio.Event()  # nothing comes any more

    @property
    def heard_ms(self) -> int:
        """How much audio was fed."""
        return self._heard_samples // SAMPLES_PER_MS

    @property
    def lag_ms(self) -> int:
        """How far the text is behind the audio that the server received, as it says; 0 if less than a second."""
        return self._lag_ms

    async def feed(self, samples: Float32Array) -> None:
        """Take the next samples: (n,) float32 in [-1, 1], 16 kHz, mono. Waits while the server is too far behind.

        They are sent in frames of 100 ms; less than that is held back until more comes, or `flush` or `finish`. Once
        the connection is lost nothing is taken any more; `outputs` has the error.

        Raises:
            UsageError: the stream is finished.
        """
        self._must_be_open("feed")
        if self._over.is_set():
            return
        self._heard_samples += samples.size
        self._held += encode_pcm(samples, self._encoding)
        while len(self._held) >= self._frame_bytes and not self._over.is_set():
            await self._send_held(self._frame_bytes)

    async def flush(self) -> None:
        """End the open segment here; `Flushed` follows the finals of all segments so far.

        Raises:
            UsageError: the stream is finished.
        """
        self._must_be_open("flush")
        await self._send_held(len(self._held))
        await self._send(self._protocol.flush)

    async def finish(self) -> None:
        """End the stream: every segment gets its final, then the outputs end."""
        if not self._finishing:
            self._finishing = True
            await self._send_held(len(self._held))
            await self._send(self._protocol.stop)
        await self._over.wait()

    def cancel(self) -> None:
        """Drop what is not done; the outputs end."""
        if not self._over.is_set():
            self._end(None)
            self._link.abort()

    async def outputs(self) -> AsyncIterator[Output]:
        """Events and transcripts as they come.

        Raises:
            LiveasrError: the connection was lost; a WireError if the server ended the session, or broke the protocol.
        """
        while (item := await self._outputs.get()) is not _END:
            if isinstance(item, LiveasrError):
                raise item
            yield item

    async def open(self, start: Start) -> None:
        """Begin the session; what `connect` does first."""
        await self._send(self._protocol.start, start)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_S
        message: ServerMessage | None = None
        while not isinstance(message, Ready):
            within_s = deadline - loop.time()
            message = await self._link.receive(within_s, "it does not begin a session; is it a liveasr server?")
        self.ready = message
        width = SAMPLE_BYTES[self._encoding]
        room = (self._protocol.max_message_bytes - _NUMBER_BYTES) // width
        if room < 1:
            raise WireError(
                "bad_message", f"{self._link.name}: takes messages of {message.limits.message_bytes} bytes only"
            )
        self._frame_bytes = width * min(_FRAME_MS * SAMPLES_PER_MS, room)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._ping())]

    async def close(self) -> None:
        """Leave; what `connect` does last. Closing twice is fine."""
        self._end(None)
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _must_be_open(self, what: str) -> None:
        if self._finishing:
            raise UsageError(f"{what}: the stream is finished")

    async def _send_held(self, size: int) -> None:
        """The next so many bytes that are held, in frames."""
        while size > 0 and self._held:
            payload = bytes(self._held[: min(size, self._frame_bytes)])
            del self._held[: len(payload)]
            size -= len(payload)
            await self._send(self._protocol.audio, payload)

    async def _send(self, make: Callable[..., str | bytes], *arguments: Any) -> None:
        """Make a frame and send it, in the order of the calls; nothing once the stream is over."""
        if not self._over.is_set():
            await self._link.send(make, *arguments)

    async def _ping(self) -> None:
        """Keep the session while no audio comes, and make the server prove that it is there."""
        pause_s = min(_PING_S, max(0.1, self.ready.limits.idle_s / 3))
        number = 0
        while True:
            await asyncio.sleep(pause_s)
            number += 1
            await self._send(self._protocol.ping, number)

    async def _read(self) -> None:
        try:
            while self.summary is None:
                self._take(await self._link.receive(SILENCE_S, "nothing is heard of it; is the network up?"))
        except LiveasrError as error:
            self._end(error)
            self._link.abort()  # whoever waits for the socket goes on
        finally:
            self._end(None)

    def _take(self, message: ServerMessage | None) -> None:
        match message:
            case Transcript():
                self._outputs.put_nowait(_live_transcript(message))
            case SpeechStarted():
                self._outputs.put_nowait(SpeechStart(message.start_ms * SAMPLES_PER_MS, self._heard_samples))
            case SpeechEnded():
                sample = message.end_ms * SAMPLES_PER_MS
                self._outputs.put_nowait(SpeechEnd(sample, self._heard_samples, message.forced_cut))
            case WireFlushed():
                self._outputs.put_nowait(Flushed())
            case Lag() | Overload():
                self._lag_ms = message.lag_ms if message.lag_ms >= _LAG_TOLD_MS else 0
            case Error():
                _log.warning("%s: %s", self._link.name, message.message)
            case Done():
                self.summary = message
                self._lag_ms = 0
                if not self._finishing or message.number != self._protocol.last_number:
                    raise WireError(
                        "shutdown", f"{self._link.name}: the server was stopped; what it had heard is complete"
                    )
            case _:  # ack, pong, and what later versions say
                pass

    def _end(self, error: LiveasrError | None) -> None:
        if not self._over.is_set():
            self._over.set()
            if error is not None:
                self._outputs.put_nowait(error)
            self._outputs.put_nowait(_END)


def _live_transcript(message: Transcript) -> LiveTranscript:
    final = None
    if message.final:
        final = Final(
            segment_id=message.segment_id,
            text=message.text or "",
            words=tuple(Word(word.text, word.start_ms, word.end_ms) for word in message.words),
            start_ms=message.start_ms,
            end_ms=message.end_ms,
            forced_cut=message.forced_cut,
            language=message.language,
            emotion=message.emotion,
            event=message.event,
        )
    return LiveTranscript(
        segment_id=message.segment_id,
        revision=message.revision,
        committed=message.committed,
        tentative=message.tentative,
        start_ms=message.start_ms,
        end_ms=message.end_ms,
        final=final,
    )

"""One client's conversation with the service, from its first message to the last word. No sockets: a channel is given.

    _read     frames -> protocol -> inbox       waits only for the client, or, when too much audio waits, for room
    _pump     inbox -> live stream              waits while the engine is too far behind
    _collect  live stream -> outbox             never waits for the client
    _send     outbox -> channel                 waits for the client alone
    _report   tells how far behind the text is, once a second

They run side by side until one of them ends the conversation by raising `_Over`, or `_Gone` when nobody is left.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from liveasr.errors import LiveasrError, WireError
from liveasr.stream import messages
from liveasr.stream.live import Flushed, LiveStream, Output
from liveasr.stream.mailbox import Inbox, Outbox
from liveasr.stream.messages import (
    CLOSE_CODES,
    NORMAL_CLOSE,
    Ack,
    Audio,
    AudioFormat,
    Done,
    Error,
    Flush,
    Lag,
    Overload,
    Ping,
    Pong,
    Ready,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Transcript,
    WireWord,
)
from liveasr.stream.pcm import PcmDecoder
from liveasr.stream.protocol import ServerProtocol
from liveasr.stream.service import Service
from liveasr.types import SAMPLES_PER_MS, LiveTranscript, SpeechStart

LAG_MS = 1_000
OVERLOAD_MS = 5_000
_REPORT_S = 1.0
_STRETCH_MS = 200  # of audio at a time: 2 ms of work for the event loop
_ACK_MS = 200
_LAST_WORDS_S = 5.0
_MAX_REASON_BYTES = 123  # RFC 6455, 5.5: a control frame holds 125 bytes, two of them the code
_log = logging.getLogger("liveasr")


class Channel(Protocol):
    """Where frames come from and go to."""

    async def receive(self) -> str | bytes | None:
        """The next frame of the client; None once it is gone."""
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
    """The conversation ends, and the client is to be told how."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Gone(Exception):  # noqa: N818
    """The client is gone."""


class Connection:
    """A conversation. Call `run` once; `shut_down` to end it early, with everything said until then.

    Args:
        channel: an open one.
        service: what is served.
    """

    def __init__(self, channel: Channel, service: Service) -> None:
        self._channel = channel
        self._service = service
        self._protocol = ServerProtocol()
        self._outbox = Outbox()
        self._inbox: Inbox | None = None
        self._stream: LiveStream | None = None
        self._format = AudioFormat()
        self._group = asyncio.TaskGroup()
        self._reading: asyncio.Task[None] | None = None
        self._end_reason = "stop"
        self._acked = 0
        self._started = 0  # segments
        self._ended = 0
        self._speech_ms = 0

    @property
    def lag_ms(self) -> int:
        """How far the text is behind the audio received."""
        if self._stream is None or self._inbox is None:
            return 0
        bytes_per_ms = self._format.frame_bytes * self._format.rate_hz / 1000
        return self._stream.lag_ms + int(self._inbox.waiting_bytes / bytes_per_ms)

    async def run(self) -> None:
        """Converse until either side ends it."""
        try:
            self._service.enter(self)
            await self._converse()
        except _Gone:
            return
        except _Over as over:
            await self._say_last_words(over)
        except WireError as error:
            with contextlib.suppress(OverflowError):
                self._outbox.put(Error(code=error.code, message=str(error), fatal=True))
            await self._say_last_words(_Over(CLOSE_CODES[error.code], str(error)))
        finally:
            self._service.leave(self)

    def shut_down(self) -> None:
        """Take no more audio; finish the open segment, say `done`, close."""
        if self._protocol.state == "stopping":
            return
        self._end_reason = "shutdown"
        if self._reading is not None:
            self._reading.cancel()
        if self._inbox is not None:
            self._inbox.mark("end")
        elif self._reading is not None:
            self._group.create_task(_raise(WireError("shutdown", "the server is stopping")))

    async def _converse(self) -> None:
        """Ends by raising why: `_Gone`, `_Over` or WireError."""
        try:
            async with self._group as group:
                self._reading = group.create_task(self._read())
                group.create_task(self._send())
        except ExceptionGroup as several:
            raise _gravest(several.exceptions) from None
        finally:
            if self._stream is not None:
                self._stream.cancel()

    async def _read(self) -> None:
        while True:
            try:
                message = self._protocol.receive(await self._next_frame())
            except WireError as error:
                if error.fatal:
                    raise
                self._tell(Error(code=error.code, message=str(error), fatal=False))
                continue
            if isinstance(message, Ping):
                self._tell(Pong(id=message.id))
            elif isinstance(message, Start):
                self._open(message)
            else:
                assert self._inbox is not None, "the protocol lets nothing else pass before start"
                if isinstance(message, Audio):
                    await self._inbox.put(message)
                else:
                    self._inbox.mark("flush" if isinstance(message, Flush) else "end")

    async def _next_frame(self) -> str | bytes:
        # A client that has said stop may listen in silence.
        patience = None if self._protocol.state == "stopping" else self._service.limits.idle_s
        try:
            async with asyncio.timeout(patience):
                frame = await self._channel.receive()
        except TimeoutError:
            raise WireError("idle", f"nothing was heard from the client for {patience:g} s") from None
        if frame is None:
            raise _Gone
        return frame

    def _open(self, start: Start) -> None:
        session, model, self._stream = self._service.open(start)
        self._format = start.audio
        frames = self._format.rate_hz * _STRETCH_MS // 1000
        self._inbox = Inbox(frames * self._format.frame_bytes)
        self._tell(Ready(session=session, model=model, limits=self._service.limits, models=self._service.models))
        for work in (self._pump(self._stream, self._inbox), self._collect(self._stream), self._report()):
            self._group.create_task(work)

    async def _pump(self, stream: LiveStream, inbox: Inbox) -> None:
        pcm = PcmDecoder(self._format)
        acked_ms = 0
        while True:
            item = await inbox.take()
            if item == "flush":
                await stream.feed(pcm.flush())
                await stream.flush()
            elif item == "end":
                await stream.feed(pcm.flush())
                await stream.finish()
                return
            else:
                await stream.feed(pcm.accept(item.payload))
                self._acked = item.number or self._acked
                if stream.heard_ms - acked_ms >= _ACK_MS:
                    acked_ms = stream.heard_ms
                    self._tell(Ack(number=self._acked, heard_ms=stream.heard_ms))
                await asyncio.sleep(0)  # others have a turn, however much waits here

    async def _collect(self, stream: LiveStream) -> None:
        async for output in stream.outputs():
            self._tell(self._message(output))
        self._tell(
            Done(
                reason=self._end_reason,
                number=self._acked,
                heard_ms=stream.heard_ms,
                speech_ms=self._speech_ms,
                segments=self._ended,
            )
        )

    def _message(self, output: Output) -> ServerMessage:
        if isinstance(output, Flushed):
            return messages.Flushed()
        if isinstance(output, LiveTranscript):
            if output.final is not None:
                self._ended += 1
                self._speech_ms += output.end_ms - output.start_ms
            return to_wire(output)
        if isinstance(output, SpeechStart):
            self._started += 1
            return SpeechStarted(segment_id=self._started - 1, start_ms=output.sample // SAMPLES_PER_MS)
        return SpeechEnded(
            segment_id=self._started - 1, end_ms=output.sample // SAMPLES_PER_MS, forced_cut=output.forced_cut
        )

    async def _report(self) -> None:
        behind = False
        while True:
            await asyncio.sleep(_REPORT_S)
            lag_ms = self.lag_ms
            if lag_ms >= OVERLOAD_MS:
                self._tell(Overload(lag_ms=lag_ms))
            elif lag_ms >= LAG_MS or behind:
                self._tell(Lag(lag_ms=lag_ms))
            behind = lag_ms >= LAG_MS

    def _tell(self, message: ServerMessage) -> None:
        try:
            self._outbox.put(message)
        except OverflowError:
            raise _Over(CLOSE_CODES["slow_reader"], "the client does not read its messages") from None

    async def _send(self) -> None:
        while True:
            message = await self._outbox.take()
            try:
                await self._channel.send(self._protocol.send(message))
            except ConnectionError:
                raise _Gone from None
            if isinstance(message, Done):
                raise _Over(NORMAL_CLOSE if message.reason == "stop" else CLOSE_CODES["shutdown"])

    async def _say_last_words(self, over: _Over) -> None:
        """What still waits for the client, an error last; not to one that does not read."""
        reads = over.code != CLOSE_CODES["slow_reader"]
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                while reads and len(self._outbox) and self._protocol.state != "closed":
                    await self._channel.send(self._protocol.send(await self._outbox.take()))
                reason = over.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
                await self._channel.close(over.code, reason)
        except (TimeoutError, ConnectionError):
            return


async def _raise(error: WireError) -> None:
    raise error


def _gravest(errors: Sequence[Exception]) -> Exception:
    """Of what several tasks raised at once, that which decides how the conversation ends."""
    for kind in (_Gone, _Over, WireError):
        for error in errors:
            if isinstance(error, kind):
                return error
    for error in errors:
        if isinstance(error, LiveasrError):
            return WireError("engine_failed", str(error))
    _log.error("a session failed", exc_info=errors[0])
    return WireError("internal", "the server failed; its log says more")


def to_wire(live: LiveTranscript) -> Transcript:
    """A transcript as the wire tells it."""
    final = live.final
    return Transcript(
        segment_id=live.segment_id,
        revision=live.revision,
        final=final is not None,
        committed=live.committed,
        tentative=live.tentative,
        start_ms=live.start_ms,
        end_ms=live.end_ms,
        text=final.text if final else None,
        words=tuple(WireWord(text=w.text, start_ms=w.start_ms, end_ms=w.end_ms) for w in final.words) if final else (),
        forced_cut=final.forced_cut if final else False,
        language=final.language if final else None,
        emotion=final.emotion if final else None,
        event=final.event if final else None,
    )

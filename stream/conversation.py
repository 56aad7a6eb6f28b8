"""What goes on in one session, whoever is connected to it: audio in, messages out. No sockets, no connection.

    _pump     inbox -> live stream      waits while the engine is too far behind
    _collect  live stream -> outbox     never waits for the client
    _report   tells how far behind the text is, once a second

They run side by side until the stream is done, or until something fails; either way the last message in the outbox says
so. A connection puts audio in and takes messages out; when it breaks, the session waits for the next.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence

from liveasr.errors import LiveasrError, WireError
from liveasr.stream import messages
from liveasr.stream.journal import note
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
    Lag,
    Overload,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Transcript,
    WireWord,
)
from liveasr.stream.metrics import SessionMetrics
from liveasr.stream.pcm import PcmDecoder
from liveasr.stream.protocol import ServerProtocol
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, LiveTranscript, SpeechStart

LAG_MS = 1_000
OVERLOAD_MS = 5_000
_REPORT_S = 1.0
_STRETCH_MS = 200  # of audio at a time: 2 ms of work for the event loop
_ACK_MS = 200
_END_GRAIN_MS = 10  # how exactly the ends of frames are known to acks; frames may be as short as nothing


class Conversation:
    """A session. `run` once; `shut_down` and `fail` end it early, and so does cancelling `run`.

    Args:
        session_id: the key to it.
        model: name of what hears it.
        stream: a fresh one.
        format_: of the audio.
        protocol: that took its start.
        metrics: where it counts.
        session_s: how long it may last.
    """

    def __init__(
        self,
        session_id: str,
        model: str,
        stream: LiveStream,
        format_: AudioFormat,
        protocol: ServerProtocol,
        metrics: SessionMetrics,
        session_s: float,
    ) -> None:
        self.session_id = session_id
        self.model = model
        self.protocol = protocol
        self.outbox = Outbox()
        self.ended = asyncio.Event()
        """The last message is in the outbox."""
        self.cut_off = False
        """The client does not read, so nothing more is said."""
        self.failed = False
        """It ended with an error, so there is nothing to come back to."""
        self.close: tuple[int, str] | None = None
        """How to close, once the last message has been said."""
        self.inbox = Inbox(format_.rate_hz * _STRETCH_MS // 1000 * format_.frame_bytes)
        self._stream = stream
        self._format = format_
        self._metrics = metrics
        self._session_s = session_s
        self._group = asyncio.TaskGroup()
        self._end_reason = "stop"
        self._received_samples = 0  # on the wire
        self._number = 0  # of the audio that went into the stream
        self._settled_number = 0
        self._ends: deque[tuple[int, int]] = deque()  # (number, sample on the wire behind it) of audio not settled
        self._started = 0  # segments
        self._done = 0
        self._speech_ms = 0

    @property
    def lag_ms(self) -> int:
        """How far the text is behind the audio received."""
        bytes_per_ms = self._format.frame_bytes * self._format.rate_hz / 1000
        return self._stream.lag_ms + int(self.inbox.waiting_bytes / bytes_per_ms)

    async def run(self) -> None:
        """Recognise until the end."""
        try:
            async with self._group as group:
                report = group.create_task(self._report())
                await self._collect(group.create_task(self._pump()))
                report.cancel()
        except ExceptionGroup as several:
            self._end_with(_gravest(several.exceptions, self.session_id))
        except asyncio.CancelledError:
            self._end_reason = "gone"  # and did not come back
            self.failed = True
            raise
        finally:
            self._stream.cancel()
            self._metrics.ended(self._end_reason)
            self.ended.set()
            note(
                "session over",
                session=self.session_id,
                reason=self._end_reason,
                heard_ms=self._stream.heard_ms,
                speech_ms=self._speech_ms,
                segments=self._done,
            )

    def shut_down(self) -> None:
        """Take no more audio; finish the open segment, say `done`.

        That segment ends wherever its speaker just was, perhaps within a word. So that is announced: a client that has
        kept the audio can have all of it recognised elsewhere instead.
        """
        if self.protocol.state == "open":
            self._end_reason = "shutdown"
            self.tell(Error(code="shutdown", message="the server is stopping", fatal=False))
            self.inbox.mark("end")

    def fail(self, error: WireError) -> None:
        """End with an error."""
        raise_in(self._group, error)

    def take(self, audio: Audio) -> None:
        """Audio from the client, in order."""
        self.inbox.put(audio)
        self._received_samples += len(audio.payload) // self._format.frame_bytes
        self._metrics.received(self._received_samples * 1000 // self._format.rate_hz)

    def next_frame(self) -> str:
        """The frame of the next message of the outbox, which must not be empty."""
        message = self.outbox.take()
        if isinstance(message, Done):
            self.close = (NORMAL_CLOSE if message.reason == "stop" else CLOSE_CODES[message.reason], "")
        elif isinstance(message, Error) and message.fatal:
            self.close = (CLOSE_CODES[message.code], message.message)
        return self.protocol.send(message)

    def tell(self, message: ServerMessage) -> None:
        """Say something to the client, now or when it comes back."""
        try:
            self.outbox.put(message)
        except OverflowError:
            self.cut_off = True
            self.fail(WireError("slow_reader", "the client does not read its messages"))

    def _end_with(self, error: WireError) -> None:
        self._end_reason = error.code
        self.failed = True
        with contextlib.suppress(OverflowError):
            self.outbox.put(Error(code=error.code, message=str(error), fatal=True))

    async def _pump(self) -> None:
        pcm = PcmDecoder(self._format)
        taken_samples = 0  # on the wire
        acked_ms = 0
        while True:
            item = await self.inbox.take()
            if item == "end":
                await self._stream.feed(pcm.flush())
                await self._stream.finish()
                return
            if item == "flush":
                await self._stream.feed(pcm.flush())
                await self._stream.flush()
                await asyncio.sleep(0)
                continue
            await self._stream.feed(pcm.accept(item.payload))
            taken_samples += len(item.payload) // self._format.frame_bytes
            if item.number is not None:
                self._number = item.number
                self._note_end(taken_samples)
            if self._stream.heard_ms - acked_ms >= _ACK_MS:
                acked_ms = self._stream.heard_ms
                self.tell(self._ack())
            await asyncio.sleep(0)  # others have a turn, however much waits here

    def _note_end(self, sample: int) -> None:
        """Here ends the latest frame; of frames that end close together the last one is enough."""
        grain = self._format.rate_hz * _END_GRAIN_MS // 1000
        if len(self._ends) > 1 and sample - self._ends[-2][1] < grain:
            self._ends.pop()
        self._ends.append((self._number, sample))

    def _ack(self) -> Ack:
        settled_sample = self._stream.settled_sample
        while self._ends and self._ends[0][1] * SAMPLE_RATE_HZ <= settled_sample * self._format.rate_hz:
            self._settled_number = self._ends.popleft()[0]
        return Ack(
            number=self._settled_number,
            settled_ms=settled_sample // SAMPLES_PER_MS,
            heard_ms=self._stream.heard_ms,
        )

    async def _collect(self, pump: asyncio.Task[None]) -> None:
        async for output in self._stream.outputs():
            self._metrics.said(output)
            self.tell(self._message(output))
            if isinstance(output, LiveTranscript) and output.is_final:
                self.tell(self._ack())
            await asyncio.sleep(0)  # the writer has a turn, however much comes at once
        await pump
        self.tell(
            Done(
                reason=self._end_reason,
                number=self._number,
                heard_ms=self._stream.heard_ms,
                speech_ms=self._speech_ms,
                segments=self._done,
            )
        )

    def _message(self, output: Output) -> ServerMessage:
        if isinstance(output, Flushed):
            return messages.Flushed()
        if isinstance(output, LiveTranscript):
            if output.final is not None:
                self._done += 1
                self._speech_ms += output.end_ms - output.start_ms
            return to_wire(output)
        at_ms, heard_ms = output.sample // SAMPLES_PER_MS, output.confirmed_at // SAMPLES_PER_MS
        if isinstance(output, SpeechStart):
            self._started += 1
            return SpeechStarted(segment_id=self._started - 1, start_ms=at_ms, heard_ms=heard_ms)
        return SpeechEnded(segment_id=self._started - 1, end_ms=at_ms, heard_ms=heard_ms, forced_cut=output.forced_cut)

    async def _report(self) -> None:
        began = time.monotonic()
        behind = False
        while True:
            await asyncio.sleep(_REPORT_S)
            lag_ms = self.lag_ms
            if lag_ms >= OVERLOAD_MS:
                self.tell(Overload(lag_ms=lag_ms))
            elif lag_ms >= LAG_MS or behind:
                self.tell(Lag(lag_ms=lag_ms))
            behind = lag_ms >= LAG_MS
            if time.monotonic() - began >= self._session_s:
                raise WireError("session_limit", f"a session lasts {self._session_s:g} s at most; start another")


def raise_in(group: asyncio.TaskGroup, error: Exception) -> None:
    """End a group of tasks with an error, unless it is ending already."""

    async def fail() -> None:
        raise error

    failing = fail()
    try:
        group.create_task(failing)
    except RuntimeError:
        failing.close()


def _gravest(errors: Sequence[Exception], session_id: str) -> WireError:
    """Of what several tasks raised at once, that which decides how the conversation ends."""
    for error in errors:
        if isinstance(error, WireError):
            return error
    for error in errors:
        if isinstance(error, LiveasrError):
            return WireError("engine_failed", str(error))
    note("session failed", error=errors[0], session=session_id)
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

"""A session in motion: the event loop's side of one live stream. Sound in, events and transcripts out, in order.

The policy is all in `session.py`, the threads are in `worker.py`; here they meet.
"""

import asyncio
import importlib
import importlib.util
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from liveasr.engines.base import DecodeOptions
from liveasr.errors import LiveasrError
from liveasr.stream.partials import PartialStream, WindowStream
from liveasr.stream.session import DecodeRequest, Session
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.types import SAMPLES_PER_MS, Float32Array, Hypothesis, LiveTranscript, SpeechEnd, SpeechEvent, SpeechStart


@dataclass(frozen=True, slots=True)
class Flushed:
    """Every segment that ended before a flush has its final."""


Output: TypeAlias = SpeechEvent | LiveTranscript | Flushed
_END = None
_MAX_FLUSHES = 1_000  # that wait for their finals


class LiveStream:
    """One stream. Call `feed` and `flush` at will, then `finish` once, while someone iterates over `outputs`.

    Calls from several tasks take turns, so what they find goes out in the order of the stream.

    Args:
        session: a fresh one.
        pool: where its decodes are done.
        options: for every decode.
        partials: what hears the partials; by default the lanes of the pool, between finals.
        hurried: whether there is no time for partials at the moment.
    """

    def __init__(
        self,
        session: Session,
        pool: DecodePool,
        options: DecodeOptions,
        partials: PartialStream | None = None,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        self._session = session
        self._pool = pool
        self._options = options
        self._key = pool.new_session()
        self._partials = partials or WindowStream(pool, self._key)
        self._hurried = hurried
        self._outputs: asyncio.Queue[Output | LiveasrError | None] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._idle = asyncio.Event()  # no final is waited for
        self._idle.set()
        self._ended = False
        self._over = False  # the engine failed, or the stream was cancelled: nothing is taken any more
        self._heard_samples = 0
        self._ended_at: dict[int, int] = {}  # segments without a final: milliseconds of audio when they ended
        self._segments_ended = 0
        self._finals = 0
        self._flushes: deque[int] = deque()  # how many finals each flush waits for
        self._untold: deque[int] = deque()  # samples where the segments begin whose finals wait in the outputs

    @property
    def heard_ms(self) -> int:
        """How much audio was fed."""
        return self._heard_samples // SAMPLES_PER_MS

    @property
    def lag_ms(self) -> int:
        """How much audio came in since the oldest segment ended that has no final yet; 0 if there is none."""
        return self.heard_ms - min(self._ended_at.values()) if self._ended_at else 0

    @property
    def settled_sample(self) -> int:
        """All audio before it has its final, taken from the outputs, or is no speech."""
        return min([*self._untold, self._session.settled_sample])

    async def feed(self, samples: Float32Array) -> None:
        """Take the next samples: (n,) float32 in [-1, 1], 16 kHz, mono. Waits while the engine is too far behind.

        Cancelled while it waits, it cancels the stream: what it was at is lost, and all that follows is not right.
        Once the engine has failed nothing is taken any more; `outputs` has the error.
        """
        async with self._turn:
            if self._over:
                return
            self._heard_samples += samples.size
            await self._take(self._session.accept(samples, partials=not self._hurried()))

    async def flush(self) -> None:
        """End the open segment here; `Flushed` follows the finals of all segments so far."""
        async with self._turn:
            if len(self._flushes) >= _MAX_FLUSHES:
                await self._idle.wait()  # then all of them are answered
            if self._over:
                return
            await self._take(self._session.flush())
            self._flushes.append(self._segments_ended)
            self._tell_flushed()

    async def finish(self) -> None:
        """End the stream: every segment gets its final, then the outputs end."""
        async with self._turn:
            if not self._over:
                await self._take(self._session.finish())
                await self._idle.wait()
            self._end()

    def cancel(self) -> None:
        """Drop what is not done; the outputs end, and nothing is taken any more."""
        self._over = True
        self._cancel_decodes()
        self._idle.set()
        self._end()

    async def outputs(self) -> AsyncIterator[Output]:
        """Events and transcripts as they come.

        Raises:
            LiveasrError: the engine failed; the stream is over.
        """
        while (item := await self._outputs.get()) is not _END:
            if isinstance(item, LiveasrError):
                raise item
            if isinstance(item, LiveTranscript) and item.is_final:
                self._untold.popleft()
            yield item

    async def _take(self, steps: list[SpeechEvent | DecodeRequest]) -> None:
        for step in steps:
            if isinstance(step, SpeechStart | SpeechEnd):
                self._outputs.put_nowait(step)
                continue
            if self._over:
                return
            if not step.is_final:
                self._partials.submit(step, self._options, self._deliver)
                continue
            self._idle.clear()
            self._segments_ended += 1
            self._ended_at[step.segment_id] = self.heard_ms
            try:
                await self._pool.submit(self._key, step, self._options, self._deliver, self._show)
            except asyncio.CancelledError:
                self.cancel()  # this final would be waited for, and it never comes
                raise

    def _deliver(self, answer: Decoded) -> None:
        if self._over:
            return
        if isinstance(answer.result, LiveasrError):
            self._over = True
            self._cancel_decodes()
            self._outputs.put_nowait(answer.result)
            self._idle.set()
            return
        for transcript in self._session.decoded(answer.request, answer.result, answer.took_ms):
            if transcript.is_final:
                del self._ended_at[transcript.segment_id]
                self._finals += 1
                self._untold.append(transcript.start_ms * SAMPLES_PER_MS)
            self._outputs.put_nowait(transcript)
            self._tell_flushed()
        if not self._session.finals_pending:
            self._idle.set()

    def _show(self, request: DecodeRequest, written: Hypothesis) -> None:
        if not self._over:
            for transcript in self._session.drafted(request, written):
                self._outputs.put_nowait(transcript)

    def _cancel_decodes(self) -> None:
        self._pool.cancel(self._key)
        self._partials.cancel()

    def _tell_flushed(self) -> None:
        while self._flushes and self._finals >= self._flushes[0]:
            self._flushes.popleft()
            self._outputs.put_nowait(Flushed())

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._outputs.put_nowait(_END)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, on uvloop where that exists."""
    if importlib.util.find_spec("uvloop") is None:
        asyncio.run(work)
        return
    uvloop = importlib.import_module("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)

"""Threads that decode, fed by a queue. ggml releases the GIL, so the event loop goes on while they work.

Everything here but the threads' own loop is called from the event loop's thread. Every engine is a lane of its own over
one shared copy of the weights.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from liveasr.engines.base import DecodeOptions, Engine, EngineStream
from liveasr.errors import EngineError, LiveasrError
from liveasr.stream.schedule import DecodeQueue
from liveasr.stream.session import DecodeRequest
from liveasr.types import Hypothesis

MAX_FINALS = 8
"""Of one session waiting; at 20 s a segment this is minutes of speech that the engine is behind."""
MAX_FINALS_OVERALL = 64
_FINAL_WEIGHT = 0.2  # of the latest final in the average
_log = logging.getLogger("liveasr")


@dataclass(frozen=True, slots=True)
class Decoded:
    """The answer to a request."""

    request: DecodeRequest
    result: Hypothesis | LiveasrError
    waited_ms: float
    """In the queue."""
    took_ms: float
    """In the engine."""


Deliver: TypeAlias = Callable[[Decoded], None]


@dataclass(frozen=True, slots=True)
class _Job:
    request: DecodeRequest
    options: DecodeOptions
    deliver: Deliver
    queued_at: float
    head: EngineStream | None = None


class DecodePool:
    """Lanes and the queue in front of them. Make it inside the event loop that its answers are to be delivered in.

    Args:
        engines: one for each lane. The pool closes them.
        observe: sees every answer, in the event loop.
        max_finals: of one session that may wait.
        max_finals_overall: of all sessions that may wait.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        max_finals: int = MAX_FINALS,
        max_finals_overall: int = MAX_FINALS_OVERALL,
        observe: Callable[[Decoded], None] = lambda _answer: None,
    ) -> None:
        self._engines = engines
        self._observe = observe
        self._queue: DecodeQueue[int, _Job] = DecodeQueue(max_finals, max_finals_overall)
        self._changed = threading.Condition()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._next_session = 0
        self._cancelled: set[int] = set()  # sessions whose running decode nobody waits for
        self._running: dict[int, int] = {}  # decodes in lanes, by session
        self._blocked: set[int] = set()  # sessions that wait for room
        self._final_ms = 0.0  # of one final, lately
        self.decoded = 0
        """Decodes done since the beginning."""
        self._threads = [
            threading.Thread(target=self._work, args=(engine,), name=f"liveasr-lane-{index}", daemon=True)
            for index, engine in enumerate(engines)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def overtaken(self) -> int:
        """Partials dropped for newer ones since the beginning."""
        return self._queue.overtaken

    @property
    def waiting(self) -> int:
        """Decodes in the queue."""
        with self._changed:
            return len(self._queue)

    @property
    def expected_wait_s(self) -> float:
        """How long a final of a session that has none waiting would wait: sessions take turns."""
        with self._changed:
            return self._queue.sessions_with_finals * self._final_ms / 1000 / len(self._engines)

    def new_session(self) -> int:
        """A key for a new session."""
        self._next_session += 1
        return self._next_session

    def offer(
        self, session: int, request: DecodeRequest, options: DecodeOptions, deliver: Deliver, head: EngineStream | None
    ) -> None:
        """Queue a partial; `head` goes on with its features, which are the next of a segment."""
        self._add(session, _Job(request, options, deliver, time.monotonic(), head))

    async def submit(self, session: int, request: DecodeRequest, options: DecodeOptions, deliver: Deliver) -> None:
        """Queue a decode; its answer is delivered in the event loop. A final waits here until the queue has room."""
        job = _Job(request, options, deliver, time.monotonic())
        if self._add(session, job):
            return
        self._blocked.add(session)
        try:
            while session in self._blocked and not self._add(session, job):
                self._room.clear()
                await self._room.wait()
        finally:
            self._blocked.discard(session)

    def cancel(self, session: int) -> None:
        """Forget all that waits for a session; what a lane is at work on is not delivered."""
        self._blocked.discard(session)
        with self._changed:
            self._queue.cancel(session)
            if self._running.get(session):
                self._cancelled.add(session)
        self._room.set()

    async def close(self) -> None:
        """Stop the lanes, after the decodes they are at, and close their engines."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._room.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        for engine in self._engines:
            engine.close()

    def _add(self, session: int, job: _Job) -> bool:
        with self._changed:
            if self._closed:
                raise EngineError("the engine was used after close()")
            if not job.request.is_final:
                self._queue.add_partial(session, job)
            elif self._queue.has_room(session):
                self._queue.add_final(session, job)
            else:
                return False
            self._changed.notify()
        return True

    def _work(self, engine: Engine) -> None:
        """The loop of one lane."""
        while True:
            with self._changed:
                while not self._closed and len(self._queue) == 0:
                    self._changed.wait()
                taken = None if self._closed else self._queue.take()
                if taken is None:
                    return
                session, job = taken
                self._running[session] = self._running.get(session, 0) + 1
            try:
                self._loop.call_soon_threadsafe(self._room.set)
                begun = time.monotonic()
                result = _decode(engine, job)
                ended = time.monotonic()
                answer = Decoded(job.request, result, (begun - job.queued_at) * 1000, (ended - begun) * 1000)
                self._loop.call_soon_threadsafe(self._done, session, job, answer)
            except RuntimeError:  # the loop is closed: nobody is left to tell
                return

    def _done(self, session: int, job: _Job, answer: Decoded) -> None:
        """Back in the event loop."""
        self._observe(answer)
        if answer.request.is_final:
            weight = _FINAL_WEIGHT if self._final_ms else 1.0
            self._final_ms += weight * (answer.took_ms - self._final_ms)
        with self._changed:
            self.decoded += 1
            self._running[session] -= 1
            if self._running[session] == 0:
                del self._running[session]
                cancelled = session in self._cancelled
                self._cancelled.discard(session)
            else:
                cancelled = session in self._cancelled
        if not cancelled:
            job.deliver(answer)


def _decode(engine: Engine, job: _Job) -> Hypothesis | LiveasrError:
    try:
        if job.head is not None:
            return job.head.accept(job.request.features)
        return engine.decode(job.request.features, job.options)
    except LiveasrError as error:
        return error
    except Exception as error:  # a lane must outlive whatever an engine does
        _log.exception("an engine failed")
        return EngineError(f"the engine failed: {error}")

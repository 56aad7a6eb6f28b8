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
from functools import partial
from typing import TypeAlias

from liveasr.engines.base import DecodeOptions, Draft, Engine, EngineStream
from liveasr.errors import EngineError, LiveasrError
from liveasr.stream.recognize import decode_segment
from liveasr.stream.schedule import DecodeQueue
from liveasr.stream.second_look import Outcome, Verdict
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
    second_look: Outcome | None = None
    """How a second look came out, if one was needed."""


Deliver: TypeAlias = Callable[[Decoded], None]
Show: TypeAlias = Callable[[DecodeRequest, Hypothesis], None]
"""Sees what an engine that writes has written so far for a request."""


@dataclass(frozen=True, slots=True)
class _Job:
    request: DecodeRequest
    options: DecodeOptions
    deliver: Deliver
    queued_at: float
    head: EngineStream | None = None
    show: Show = lambda _request, _written: None


@dataclass(slots=True, eq=False)
class _Running:
    """A job in a lane. The lane's thread and the event loop share it."""

    job: _Job
    stopped: bool = False
    """Nobody waits for it."""
    draft: Hypothesis | None = None
    """What is written and the event loop has not seen, though it was called."""


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
        self._running: dict[int, list[_Running]] = {}  # what the lanes are at, by session
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
        self,
        session: int,
        request: DecodeRequest,
        options: DecodeOptions,
        deliver: Deliver,
        head: EngineStream | None = None,
    ) -> None:
        """Queue a partial; with a `head`, that goes on with its features, which are the next of a segment."""
        self._add(session, _Job(request, options, deliver, time.monotonic(), head))

    async def submit(
        self,
        session: int,
        request: DecodeRequest,
        options: DecodeOptions,
        deliver: Deliver,
        show: Show = lambda _request, _written: None,
    ) -> None:
        """Queue a decode. A final waits here until the queue has room.

        Args:
            session: whose.
            request: what to decode.
            options: what the session wants.
            deliver: gets the answer, in the event loop.
            show: gets what is written until then, in the event loop; where that is slow, only the latest.
        """
        job = _Job(request, options, deliver, time.monotonic(), show=show)
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
        """Forget all that waits for a session; what a lane is at work on is not delivered.

        An engine that writes stops at its next token, and its lane takes what comes next.
        """
        self._blocked.discard(session)
        with self._changed:
            self._queue.cancel(session)
            for running in self._running.get(session, ()):
                running.stopped = True
        self._room.set()

    async def close(self) -> None:
        """Stop the lanes, after the decodes they are at (or the next token of these), and close their engines."""
        with self._changed:
            self._closed = True
            for decodes in self._running.values():
                for running in decodes:
                    running.stopped = True
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
                running = _Running(job)
                self._running.setdefault(session, []).append(running)
            try:
                self._loop.call_soon_threadsafe(self._room.set)
                begun = time.monotonic()
                verdict = _decode(engine, job, partial(self._drafted, running))
                ended = time.monotonic()
                answer = Decoded(
                    job.request,
                    verdict.hypothesis if isinstance(verdict, Verdict) else verdict,
                    (begun - job.queued_at) * 1000,
                    (ended - begun) * 1000,
                    verdict.second_look if isinstance(verdict, Verdict) else None,
                )
                self._loop.call_soon_threadsafe(self._done, session, running, answer)
            except RuntimeError:  # the loop is closed: nobody is left to tell
                return

    def _drafted(self, running: _Running, written: Hypothesis) -> bool:
        """In the lane: pass on what is written, and say whether to go on."""
        with self._changed:
            if running.stopped:
                return False
            on_its_way = running.draft is not None
            running.draft = written
        if not on_its_way:
            try:
                self._loop.call_soon_threadsafe(self._show, running)
            except RuntimeError:  # the loop is closed
                return False
        return True

    def _show(self, running: _Running) -> None:
        """Back in the event loop, with the latest draft."""
        with self._changed:
            written, running.draft = running.draft, None
        if written is not None and not running.stopped:
            running.job.show(running.job.request, written)

    def _done(self, session: int, running: _Running, answer: Decoded) -> None:
        """Back in the event loop."""
        self._observe(answer)
        with self._changed:
            self.decoded += 1
            self._running[session].remove(running)
            if not self._running[session]:
                del self._running[session]
        if running.stopped:
            return
        if answer.request.is_final:
            weight = _FINAL_WEIGHT if self._final_ms else 1.0
            self._final_ms += weight * (answer.took_ms - self._final_ms)
        running.job.deliver(answer)


def _decode(engine: Engine, job: _Job, draft: Draft) -> Verdict | LiveasrError:
    request = job.request
    try:
        if job.head is not None:
            return Verdict(job.head.accept(request.features))
        if request.segment is None:
            return Verdict(engine.decode(request.features, job.options))
        return decode_segment(engine, request.segment, request.features, job.options, draft, request.heard)
    except LiveasrError as error:
        return error
    except Exception as error:  # a lane must outlive whatever an engine does
        _log.exception("an engine failed")
        return EngineError(f"the engine failed: {error}")

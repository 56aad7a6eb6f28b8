"""Partials from a streaming engine: the first of two passes, beside whatever engine gives the finals.

A streaming engine hears each piece of a segment once, in order, so nothing may be dropped and nothing overtake: of a
session at most one piece is with the engine, and what comes meanwhile waits to be the next piece, as one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from liveasr.engines.base import DecodeOptions, EngineStream, StreamingEngine, possible
from liveasr.stream.session import DecodeRequest
from liveasr.stream.worker import Decoded, DecodePool, Deliver


class PartialLanes:
    """Lanes of a streaming engine. A session stays in one: the state of a segment belongs to its lane's thread.

    Args:
        engines: one for each lane; the one that owns the weights comes last. They are closed in this order.
        observe: sees every answer.
    """

    def __init__(
        self, engines: Sequence[StreamingEngine], observe: Callable[[Decoded], None] = lambda _answer: None
    ) -> None:
        self.front_end = engines[-1].front_end
        self._engines = engines
        self._pools = [DecodePool([engine], observe=observe) for engine in engines]
        self._sessions = [0] * len(engines)

    def open(self) -> "PartialStream":
        """For a new session, in the lane that has the fewest."""
        lane = self._sessions.index(min(self._sessions))
        self._sessions[lane] += 1
        return PartialStream(self, lane, self._engines[lane], self._pools[lane])

    @property
    def waiting(self) -> int:
        """Pieces that no lane is at."""
        return sum(pool.waiting for pool in self._pools)

    def leave(self, lane: int) -> None:
        """A session of this lane is over."""
        self._sessions[lane] -= 1

    async def close(self) -> None:
        """Stop the lanes and close the engines."""
        for pool in self._pools:
            await pool.close()


class PartialStream:
    """The partials of one session. Call `submit` in the order of the stream, and `cancel` once."""

    def __init__(self, lanes: PartialLanes, lane: int, engine: StreamingEngine, pool: DecodePool) -> None:
        self._lanes = lanes
        self._lane = lane
        self._engine = engine
        self._pool = pool
        self._key = pool.new_session()
        self._segment_id = -1
        self._head: EngineStream | None = None  # of that segment
        self._busy = False
        self._next: DecodeRequest | None = None  # what comes after the piece that the engine is at
        self._over = False

    def submit(self, request: DecodeRequest, options: DecodeOptions, deliver: Deliver) -> None:
        """Let the engine hear the next piece of a segment. Its answer is delivered in the event loop."""
        if self._over:
            return
        options = possible(self._engine, options)
        if request.segment_id != self._segment_id:
            self._segment_id = request.segment_id
            self._head = self._engine.stream(options)
            self._next = None
        self._next = request if self._next is None else _joined(self._next, request)
        if not self._busy:
            self._go_on(options, deliver)

    def cancel(self) -> None:
        """Forget everything. Cancelling twice is fine."""
        if not self._over:
            self._over = True
            self._next = None
            self._pool.cancel(self._key)
            self._lanes.leave(self._lane)

    def _go_on(self, options: DecodeOptions, deliver: Deliver) -> None:
        """Hand the engine what waits."""
        if self._next is None:
            return
        request, self._next = self._next, None

        def heard(answer: Decoded) -> None:
            self._busy = False
            deliver(answer)
            self._go_on(options, deliver)

        self._busy = True
        self._pool.offer(self._key, request, options, heard, self._head)


def _joined(first: DecodeRequest, second: DecodeRequest) -> DecodeRequest:
    """Two pieces that follow each other, as one."""
    return replace(second, start_ms=first.start_ms, features=np.concatenate((first.features, second.features)))

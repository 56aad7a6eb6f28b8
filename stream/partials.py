"""Who hears the partials, where that is another than who gives the finals: the first of two passes.

A streaming engine hears each piece of a segment once, in order, so nothing may be dropped and nothing overtake: of a
session at most one piece is with the engine, and what comes meanwhile waits to be the next piece, as one. Any other
engine decodes the end of the segment again and again; there a newer request takes the place of one that waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np

from liveasr.engines.base import DecodeOptions, Engine, EngineStream, StreamingEngine, possible
from liveasr.stream.session import DecodeRequest, PartialInput
from liveasr.stream.worker import Decoded, DecodePool, Deliver


class PartialStream(Protocol):
    """The partials of one session. Call `submit` in the order of the stream, and `cancel` in the end."""

    def submit(self, request: DecodeRequest, options: DecodeOptions, deliver: Deliver) -> None:
        """Let the engine hear. Its answer, if there is one, is delivered in the event loop."""
        ...

    def cancel(self) -> None:
        """Forget everything. Cancelling twice is fine."""
        ...


class Partials(Protocol):
    """What gives partials to any number of sessions."""

    takes: PartialInput

    @property
    def waiting(self) -> int:
        """Requests that no lane is at."""
        ...

    @property
    def overtaken(self) -> int:
        """Requests dropped for newer ones since the beginning."""
        ...

    def open(self) -> PartialStream:
        """For a new session."""
        ...

    async def close(self) -> None:
        """Stop the lanes and close the engines."""
        ...


def partials_by(engines: Sequence[Engine], observe: Callable[[Decoded], None] = lambda _answer: None) -> Partials:
    """Partials from lanes of an engine of any kind but those that write.

    Args:
        engines: one for each lane; the one that owns the weights comes last. They are closed in this order.
        observe: sees every answer.
    """
    if isinstance(engines[-1], StreamingEngine):
        return StreamingPartials(cast("Sequence[StreamingEngine]", engines), observe)
    return WindowPartials(engines, observe)


class WindowPartials:
    """Partials by decoding the end of a segment again and again, in lanes of their own. Arguments as of `partials_by`.

    Every session may use any lane.
    """

    def __init__(self, engines: Sequence[Engine], observe: Callable[[Decoded], None] = lambda _answer: None) -> None:
        self.takes = PartialInput(engines[-1].front_end, streaming=False)
        self._engine = engines[-1]
        self._pool = DecodePool(engines, observe=observe)

    @property
    def waiting(self) -> int:
        """Requests that no lane is at."""
        return self._pool.waiting

    @property
    def overtaken(self) -> int:
        """Requests dropped for newer ones since the beginning."""
        return self._pool.overtaken

    def open(self) -> "WindowStream":
        """For a new session."""
        return WindowStream(self._pool, self._pool.new_session(), self._engine)

    async def close(self) -> None:
        """Stop the lanes and close the engines."""
        await self._pool.close()


class WindowStream:
    """The partials of one session by an engine that decodes windows.

    Args:
        pool: its lanes.
        key: of the session in the pool.
        engine: one of the lanes', where options may be asked for that it does not know.
    """

    def __init__(self, pool: DecodePool, key: int, engine: Engine | None = None) -> None:
        self._pool = pool
        self._key = key
        self._engine = engine

    def submit(self, request: DecodeRequest, options: DecodeOptions, deliver: Deliver) -> None:
        """Decode the end of a segment, if nothing newer comes before its turn."""
        known = options if self._engine is None else possible(self._engine, options)
        self._pool.offer(self._key, request, known, deliver)

    def cancel(self) -> None:
        """Forget everything. Cancelling twice is fine."""
        self._pool.cancel(self._key)


class StreamingPartials:
    """Partials from lanes of a streaming engine. Arguments as of `partials_by`.

    A session stays in one lane: the state of a segment belongs to its lane's thread.
    """

    def __init__(
        self, engines: Sequence[StreamingEngine], observe: Callable[[Decoded], None] = lambda _answer: None
    ) -> None:
        self.takes = PartialInput(engines[-1].front_end, streaming=True)
        self.overtaken = 0
        """Nothing is ever dropped."""
        self._engines = engines
        self._pools = [DecodePool([engine], observe=observe) for engine in engines]
        self._sessions = [0] * len(engines)

    def open(self) -> "PieceStream":
        """For a new session, in the lane that has the fewest."""
        lane = self._sessions.index(min(self._sessions))
        self._sessions[lane] += 1
        return PieceStream(self, lane, self._engines[lane], self._pools[lane])

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


class PieceStream:
    """The partials of one session by a streaming engine."""

    def __init__(self, lanes: StreamingPartials, lane: int, engine: StreamingEngine, pool: DecodePool) -> None:
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

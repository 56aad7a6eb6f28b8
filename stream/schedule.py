"""Which decode comes next: a queue without threads and without a clock.

Finals go before partials. Sessions take turns. A session has at most one partial waiting: a newer one takes its place,
and the overtaken one is dropped and counted. Both the finals of one session and those of all are bounded; who wants to
add beyond that has to wait, so nothing grows.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

SessionKey = TypeVar("SessionKey", bound=Hashable)
Job = TypeVar("Job")


@dataclass(slots=True)
class _Waiting(Generic[Job]):
    finals: deque[Job] = field(default_factory=deque)
    partial: Job | None = None

    @property
    def empty(self) -> bool:
        return not self.finals and self.partial is None


class DecodeQueue(Generic[SessionKey, Job]):
    """Decodes that wait for a lane.

    Args:
        max_finals: of one session.
        max_finals_overall: of all sessions.
    """

    def __init__(self, max_finals: int, max_finals_overall: int) -> None:
        self._max_finals = max_finals
        self._max_finals_overall = max_finals_overall
        self._waiting: dict[SessionKey, _Waiting[Job]] = {}  # in the order of turns
        self.overtaken = 0
        """Partials dropped for newer ones, since the beginning."""

    def __len__(self) -> int:
        """Decodes waiting."""
        return sum(len(each.finals) + (each.partial is not None) for each in self._waiting.values())

    @property
    def sessions_with_finals(self) -> int:
        """Sessions whose turn for a final is to come."""
        return sum(bool(each.finals) for each in self._waiting.values())

    def has_room(self, session: SessionKey) -> bool:
        """Whether a final of the session may be added."""
        overall = sum(len(each.finals) for each in self._waiting.values())
        own = len(self._waiting[session].finals) if session in self._waiting else 0
        return own < self._max_finals and overall < self._max_finals_overall

    def add_final(self, session: SessionKey, job: Job) -> None:
        """Add a final. It makes the session's waiting partial useless, which is dropped.

        Raises:
            OverflowError: there is no room; ask `has_room` first.
        """
        if not self.has_room(session):
            raise OverflowError("the decode queue is full")
        waiting = self._waiting.setdefault(session, _Waiting())
        waiting.finals.append(job)
        self._drop_partial(waiting)

    def add_partial(self, session: SessionKey, job: Job) -> None:
        """Add a partial in place of the one that waits."""
        waiting = self._waiting.setdefault(session, _Waiting())
        self._drop_partial(waiting)
        waiting.partial = job

    def take(self) -> tuple[SessionKey, Job] | None:
        """The next decode, which leaves the queue; None if there is none."""
        session = self._next(each for each, waiting in self._waiting.items() if waiting.finals)
        if session is not None:
            return session, self._take_from(session, final=True)
        session = self._next(each for each, waiting in self._waiting.items() if waiting.partial is not None)
        if session is not None:
            return session, self._take_from(session, final=False)
        return None

    def cancel(self, session: SessionKey) -> list[Job]:
        """Remove all that waits for a session, and return it."""
        waiting = self._waiting.pop(session, None)
        if waiting is None:
            return []
        return [*waiting.finals, *([] if waiting.partial is None else [waiting.partial])]

    @staticmethod
    def _next(candidates: Iterable[SessionKey]) -> SessionKey | None:
        return next(iter(candidates), None)

    def _take_from(self, session: SessionKey, *, final: bool) -> Job:
        """Take one decode; the session goes to the end of the turns."""
        waiting = self._waiting.pop(session)
        if final:
            job = waiting.finals.popleft()
        else:
            assert waiting.partial is not None
            job, waiting.partial = waiting.partial, None
        if not waiting.empty:
            self._waiting[session] = waiting
        return job

    def _drop_partial(self, waiting: _Waiting[Job]) -> None:
        if waiting.partial is not None:
            waiting.partial = None
            self.overtaken += 1

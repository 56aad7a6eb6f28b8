"""What a server serves: models with their lanes, and the sessions that use them. No sockets here."""

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from liveasr.engines.base import DecodeOptions, Engine
from liveasr.errors import UsageError, WireError
from liveasr.stream.conversation import Conversation
from liveasr.stream.detect import Detector
from liveasr.stream.live_recognizer import LiveRecognizer
from liveasr.stream.messages import MAX_MESSAGE_BYTES, Limits, ModelInfo, Ready, Start
from liveasr.stream.metrics import Metrics, SessionMetrics
from liveasr.stream.partials import Partials, partials_by
from liveasr.stream.protocol import ServerProtocol
from liveasr.vad.config import VadConfig

OVERLOAD_S = 5.0
"""No session is taken whose first final would wait that long."""
HURRIED_LOOP_S = 0.1
"""No partial is made while the event loop, which hears the audio, wakes so late on average: finals go before them."""
LATE_LOOP_S = 0.25
"""Nor is a session taken while it wakes so late: it has about as much to hear as it can."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service holds its clients to.

    Raises:
        UsageError: a time is no number of seconds.
    """

    max_sessions: int = 64
    idle_s: float = 60.0
    resume_s: float = 30.0
    session_s: float = 24 * 3600.0

    def __post_init__(self) -> None:
        for name, seconds in (("idle", self.idle_s), ("resume", self.resume_s), ("session", self.session_s)):
            if not (math.isfinite(seconds) and seconds >= 0):
                raise UsageError(f"--{name}-s {seconds}: is no number of seconds")

    @property
    def limits(self) -> Limits:
        """As the wire tells them."""
        return Limits(
            message_bytes=MAX_MESSAGE_BYTES, idle_s=self.idle_s, resume_s=self.resume_s, session_s=self.session_s
        )


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model that clients may choose."""

    name: str
    engines: Sequence[Engine]
    """One a lane. The one that owns the weights comes last: they are closed in this order."""
    demonstration: bool = False
    also: Sequence[str] = ()
    """What clients may call it besides, where no other model has that name."""
    two_pass: bool = True
    """Whether the partials come from the service's other model, if it has one."""

    @property
    def info(self) -> ModelInfo:
        """As the wire tells it."""
        engine = self.engines[-1]
        return ModelInfo(
            name=self.name,
            languages=engine.languages,
            hotwords=engine.takes_hotwords,
            max_segment_ms=engine.max_segment_ms,
            demonstration=self.demonstration,
        )


PartialLanes: TypeAlias = tuple[str, Sequence[Engine]]
"""Name and lanes of a model that gives the partials of others; none that writes."""


class Guest(Protocol):
    """A connection, as far as the service has to know it."""

    def turn_away(self, error: WireError) -> None:
        """Close it."""
        ...


@dataclass(slots=True)
class _Entry:
    """A session that can be talked to, or come back to."""

    conversation: Conversation
    running: asyncio.Task[None]
    guest: Guest | None
    """Who is connected to it."""
    expiry: asyncio.TimerHandle | None = field(default=None)
    """When nobody is."""


class Service:
    """Models and sessions. Make it inside the event loop that serves; `close` frees the models.

    Args:
        models: at least one; the first serves clients that name none. More may join later.
        new_detector: makes a session's voice activity detector.
        config: what clients are held to.
        partials: of the model that gives them for the others, if one does.
    """

    def __init__(
        self,
        models: Sequence[OfferedModel],
        new_detector: Callable[[VadConfig], Detector],
        config: ServiceConfig,
        partials: PartialLanes | None = None,
    ) -> None:
        self.metrics = Metrics()
        self._new_detector = new_detector
        self._offers: dict[str, OfferedModel] = {}
        self._recognizers: dict[str, LiveRecognizer] = {}
        self._partials: Partials | None = None
        self._lanes: list[tuple[str, LiveRecognizer | Partials]] = []
        first, *others = models
        self.join(first, partials)
        for model in others:
            self.join(model)
        self._dropped = Counter[str]()  # partials, by model, as far as the metrics have counted them
        self._config = config
        self._guests: set[Guest] = set()
        self._entries: dict[str, _Entry] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._watching = asyncio.create_task(self.metrics.watch_loop())
        self.limits = config.limits
        self.draining = False
        """Told to stop: no new session is taken."""

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """What clients may choose from; the first serves those that name none."""
        return tuple(offer.info for offer in self._offers.values())

    def join(self, model: OfferedModel, partials: PartialLanes | None = None) -> None:
        """Offer one more model, to sessions that begin from now on.

        Args:
            model: of a name that no other has.
            partials: of the model that gives them from now on, where none has done so yet.
        """
        if partials is not None:
            name, engines = partials
            self._partials = partials_by(engines, partial(self.metrics.decoded, name))
            self._lanes.append((name, self._partials))
        self._offers[model.name] = model
        self._recognizers[model.name] = LiveRecognizer(
            model.engines,
            self._new_detector,
            self._partials if model.two_pass else None,
            partial(self.metrics.decoded, model.name),
            lambda: self.metrics.recent_loop_lag_s >= HURRIED_LOOP_S,
        )
        self._lanes.append((model.name, self._recognizers[model.name]))

    @property
    def sessions(self) -> int:
        """Sessions that are not over, those included whose client may come back."""
        return sum(not entry.conversation.ended.is_set() for entry in self._entries.values())

    @property
    def lag_ms(self) -> int:
        """Of the session that is furthest behind."""
        going = [each.conversation for each in self._entries.values() if not each.conversation.ended.is_set()]
        return max((conversation.lag_ms for conversation in going), default=0)

    @property
    def overloaded(self) -> bool:
        """Whether somebody who came now would have to wait too long for a final, or would make others wait."""
        return self.metrics.recent_loop_lag_s >= LATE_LOOP_S or any(
            each.pool.expected_wait_s >= OVERLOAD_S for each in self._recognizers.values()
        )

    @property
    def full(self) -> bool:
        """Whether there is no room for another session: those are not counted whose client has gone."""
        there = [entry for entry in self._entries.values() if entry.guest is not None]
        return len(there) >= self._config.max_sessions

    def enter(self, guest: Guest) -> None:
        """Count a connection, which begins or resumes a session later.

        Raises:
            WireError: no more are taken.
        """
        if self.draining:
            raise WireError("shutdown", "the server is stopping")
        if len(self._guests) >= 2 * self._config.max_sessions:  # a client may come back before the old one is missed
            raise WireError("too_many_sessions", f"the server has {len(self._guests)} connections; try again later")
        self._guests.add(guest)
        self._empty.clear()

    def leave(self, guest: Guest) -> None:
        """A connection is over. Unless its session failed, that waits for the client for a while."""
        self._guests.discard(guest)
        if not self._guests:
            self._empty.set()
        for entry in self._entries.values():
            if entry.guest is guest:
                entry.guest = None
                conversation = entry.conversation
                if self.draining or conversation.failed:
                    self.forget(conversation)
                else:
                    loop = asyncio.get_running_loop()
                    entry.expiry = loop.call_later(self._config.resume_s, self.forget, conversation)
                return

    def abandon(self, guest: Guest) -> None:
        """A client does not want its session any more."""
        for entry in tuple(self._entries.values()):
            if entry.guest is guest:
                self.forget(entry.conversation)

    def _chosen(self, name: str | None) -> OfferedModel:
        """The model that a client means."""
        offers = self._offers.values()
        if name is None:
            return next(iter(offers))
        offer = self._offers.get(name) or next((each for each in offers if name in each.also), None)
        if offer is None:
            raise WireError("unsupported", f"no model named {name[:60]}; there is: {', '.join(self._offers)}")
        return offer

    def start(self, start: Start, protocol: ServerProtocol, guest: Guest) -> Conversation:
        """A new session as a client wants it.

        Raises:
            WireError: there is no room, or no such model, or it cannot do what is asked.
        """
        self._make_room()
        info = self._chosen(start.model).info
        name = info.name
        if start.language not in info.languages:
            known = ", ".join(info.languages)
            raise WireError("unsupported", f"{name} knows no language {start.language}; it knows {known}")
        if start.hotwords and not info.hotwords:
            takers = ", ".join(each.name for each in self.models if each.hotwords)
            raise WireError(
                "unsupported", f"{name} takes no hot words; {f'these do: {takers}' if takers else 'none does'}"
            )
        recognizer = self._recognizers[name]
        if recognizer.pool.expected_wait_s >= OVERLOAD_S or self.metrics.recent_loop_lag_s >= LATE_LOOP_S:
            raise WireError("overloaded", "the server has more to do than it can; try again later")
        vad = start.vad.config(info.max_segment_ms)
        decoding = DecodeOptions(start.language, start.itn, start.hotwords)
        conversation = Conversation(
            secrets.token_urlsafe(12),
            name,
            recognizer.open(decoding, vad, partials=start.partials),
            start.audio,
            protocol,
            SessionMetrics(self.metrics, name),
            self._config.session_s,
        )
        running = asyncio.create_task(conversation.run())
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        self._entries[conversation.session_id] = _Entry(conversation, running, guest)
        conversation.tell(Ready(session=conversation.session_id, model=name, limits=self.limits, models=self.models))
        return conversation

    def resume(self, session_id: str, guest: Guest) -> Conversation:
        """The session that a client comes back to; whoever is still connected to it is turned away.

        Raises:
            WireError: there is none.
        """
        entry = self._entries.get(session_id)
        if entry is None or entry.conversation.failed:
            raise WireError("gone", "no such session, or not any more; start anew")
        if entry.guest is not None:
            entry.guest.turn_away(WireError("replaced", "another connection goes on with this session"))
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
        entry.guest = guest
        self.metrics.resumed.inc()
        return entry.conversation

    def forget(self, conversation: Conversation) -> None:
        """Drop a session, whatever it is at."""
        entry = self._entries.pop(conversation.session_id, None)
        if entry is None:
            return
        if entry.expiry is not None:
            entry.expiry.cancel()
        entry.running.cancel()

    def refused(self, code: str) -> None:
        """Count a connection that never had a session."""
        self.metrics.refused.labels(code).inc()

    def measured(self) -> bytes:
        """All figures, in Prometheus's text format."""
        self.metrics.sessions.set(self.sessions)
        self.metrics.connections.set(len(self._guests))
        self.metrics.lag_s.set(self.lag_ms / 1000)
        waiting, overtaken = Counter[str](), Counter[str]()
        for name, lanes in self._lanes:
            waiting[name] += lanes.waiting
            overtaken[name] += lanes.overtaken
        for name, count in waiting.items():
            self.metrics.waiting.labels(name).set(count)
            self.metrics.dropped.labels(name).inc(overtaken[name] - self._dropped[name])
        self._dropped = overtaken
        return self.metrics.text()

    async def drain(self, within_s: float) -> None:
        """Take no new session, let the open ones finish; return when all have, or when it takes too long."""
        self.draining = True
        talking = {id(entry.guest): entry.conversation for entry in self._entries.values() if entry.guest is not None}
        for entry in tuple(self._entries.values()):
            if entry.guest is None:
                self.forget(entry.conversation)
        for guest in tuple(self._guests):
            if id(guest) in talking:
                talking[id(guest)].shut_down()
            else:
                guest.turn_away(WireError("shutdown", "the server is stopping"))
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Drop all sessions, free the models."""
        for entry in tuple(self._entries.values()):
            self.forget(entry.conversation)
        self._watching.cancel()
        await asyncio.gather(self._watching, *self._running, return_exceptions=True)
        if self._partials is not None:  # before the engines of the pools, whose weights they may share
            await self._partials.close()
        for recognizer in self._recognizers.values():
            await recognizer.close()

    def _make_room(self) -> None:
        """Where all places are taken, those go first whose client has gone. As many are kept that are over."""
        most = self._config.max_sessions
        left = [entry.conversation for entry in self._entries.values() if entry.guest is None]
        over = [conversation for conversation in left if conversation.ended.is_set()]
        going = [conversation for conversation in left if not conversation.ended.is_set()]
        for conversation in over[: max(0, len(over) - most + 1)]:
            self.forget(conversation)
        if self.sessions >= most:
            if not going:
                raise WireError("too_many_sessions", f"the server has {self.sessions} sessions; try again later")
            self.forget(going[0])

"""What a server serves: models with their lanes, and the sessions that use them. No sockets here."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from liveasr.engines.base import DecodeOptions, Engine
from liveasr.errors import WireError
from liveasr.stream.detect import Detector
from liveasr.stream.live import LiveStream
from liveasr.stream.messages import MAX_MESSAGE_BYTES, Limits, ModelInfo, Start
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import DecodePool
from liveasr.vad.config import VadConfig

MAX_SESSIONS = 64
IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model that clients may choose."""

    name: str
    engines: Sequence[Engine]
    """One a lane. The one that owns the weights comes last: they are closed in this order."""
    demonstration: bool = False

    @property
    def info(self) -> ModelInfo:
        """As the wire tells it."""
        engine = self.engines[-1]
        return ModelInfo(
            name=self.name,
            languages=engine.languages,
            hotwords=engine.takes_hotwords,
            demonstration=self.demonstration,
        )


class Guest(Protocol):
    """A connection, as far as the service has to know it."""

    @property
    def lag_ms(self) -> int:
        """How far its text is behind its audio."""
        ...

    def shut_down(self) -> None:
        """Finish what was said so far and end."""
        ...


class Service:
    """Models and sessions. Make it inside the event loop that serves; `close` frees the models.

    Args:
        models: at least one; the first serves clients that name none.
        new_detector: makes a session's voice activity detector.
        max_sessions: connections at a time.
        idle_s: how long a client may say nothing.
    """

    def __init__(
        self,
        models: Sequence[OfferedModel],
        new_detector: Callable[[VadConfig], Detector],
        max_sessions: int = MAX_SESSIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        self._offers = {model.name: model for model in models}
        self._pools = {model.name: DecodePool(model.engines) for model in models}
        self._new_detector = new_detector
        self._max_sessions = max_sessions
        self._guests: set[Guest] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.limits = Limits(message_bytes=MAX_MESSAGE_BYTES, idle_s=idle_s)
        self.models = tuple(model.info for model in models)
        self.draining = False
        """Told to stop: no new session is taken."""

    @property
    def sessions(self) -> int:
        """Connections that are open."""
        return len(self._guests)

    @property
    def lag_ms(self) -> int:
        """Of the session that is furthest behind."""
        return max((guest.lag_ms for guest in self._guests), default=0)

    def enter(self, guest: Guest) -> None:
        """Count a connection.

        Raises:
            WireError: no more are taken.
        """
        if self.draining:
            raise WireError("shutdown", "the server is stopping")
        if len(self._guests) >= self._max_sessions:
            raise WireError("overloaded", f"the server has {len(self._guests)} sessions already; try again later")
        self._guests.add(guest)
        self._empty.clear()

    def leave(self, guest: Guest) -> None:
        """A connection is over; leaving twice is fine."""
        self._guests.discard(guest)
        if not self._guests:
            self._empty.set()

    def open(self, start: Start) -> tuple[str, str, LiveStream]:
        """A new session as a client wants it: its id, the name of its model, its stream.

        Raises:
            WireError: there is no such model, or it cannot do what is asked.
        """
        name = self.models[0].name if start.model is None else start.model
        offer = self._offers.get(name)
        if offer is None:
            raise WireError("unsupported", f"no model named {name[:60]}; there is: {', '.join(self._offers)}")
        info = offer.info
        if start.language not in info.languages:
            known = ", ".join(info.languages)
            raise WireError("unsupported", f"{name} knows no language {start.language}; it knows {known}")
        if start.hotwords and not info.hotwords:
            raise WireError("unsupported", f"{name} takes no hot words")
        config = VadConfig(**msgspec.structs.asdict(start.vad))
        session = Session(
            self._new_detector(config),
            offer.engines[-1].front_end,
            LiveConfig(partials=start.partials, max_segment_ms=config.max_segment_ms),
        )
        stream = LiveStream(session, self._pools[name], DecodeOptions(start.language, start.itn))
        return secrets.token_urlsafe(12), name, stream

    async def drain(self, within_s: float) -> None:
        """Take no new session, let the open ones finish; return when all have, or when it takes too long."""
        self.draining = True
        for guest in tuple(self._guests):
            guest.shut_down()
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Free the models."""
        for pool in self._pools.values():
            await pool.close()

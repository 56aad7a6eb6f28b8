"""How long to wait before trying again: longer each time, never the same for all clients, and not for ever. No I/O."""

import random
import time
from collections.abc import Callable

FIRST_S = 0.5
LONGEST_S = 8.0


class Backoff:
    """Pauses between attempts, from 0.5 s, doubling to 8 s, each shortened by up to a half.

    Without the chance in it, all clients of a server that was away would come back at the same moment.

    Args:
        patience_s: how long after `begin` the last attempt is made; 0 for none at all.
        clock: in seconds.
        chance: from 0 to 1.
    """

    def __init__(
        self,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.patience_s = patience_s
        self._clock = clock
        self._chance = chance
        self._pause_s = FIRST_S
        self._deadline_s = 0.0

    def begin(self) -> None:
        """The connection was lost now."""
        self._pause_s = FIRST_S
        self._deadline_s = self._clock() + self.patience_s

    def next(self) -> float | None:
        """How long to wait before the next attempt; None if there shall be none."""
        left_s = self._deadline_s - self._clock()
        if left_s <= 0:
            return None
        pause_s = self._pause_s * (1 - self._chance() / 2)
        self._pause_s = min(2 * self._pause_s, LONGEST_S)
        return min(pause_s, left_s)

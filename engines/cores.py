"""How many cores there are to work with, and what each of several computations gets of them."""

import contextlib
import os
import threading
from collections.abc import Iterator


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CoreShare:
    """Divides the cores among the computations that run at the same time.

    Threads of one computation wait for each other at every operation: one that has all cores for itself is quickest
    with all of them, and several get more done with a core each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0

    @contextlib.contextmanager
    def part(self, most: int) -> Iterator[int]:
        """How many threads a computation may have while the block runs, `most` at most, and one at least."""
        with self._lock:
            self._running += 1
            threads = max(1, min(most, max(most, available_cores()) // self._running))
        try:
            yield threads
        finally:
            with self._lock:
                self._running -= 1


CORES = CoreShare()
"""Those of this process, whatever models it runs."""

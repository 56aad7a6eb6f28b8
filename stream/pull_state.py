"""What is known of models that a server can fetch, and of one that is on its way. No I/O.

docs/protocol.md tells the same for people who write clients.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from liveasr.model_registry import RegisteredModel

PullState: TypeAlias = Literal["available", "begun", "installed", "fetching", "opening", "served", "failed"]
_SPEED_OF_S = 5.0
"""How far back the speed is measured: long enough to be steady, short enough to notice that a network has stopped."""
_SPEED_FROM_S = 1.0
"""What is measured over less than that says nothing."""


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the fetch of a file is."""

    file: str
    number: int
    """Of this file, from 1."""
    files: int
    """That the model has."""
    came_bytes: int
    """Of this file, with what an earlier fetch left."""
    total_bytes: int | None
    """None where the source does not tell."""
    bytes_per_s: int | None
    """None before it can be measured."""
    left_s: int | None
    """Until this file is there, at that speed."""


class PullInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the registry that the server can fetch."""

    name: str
    languages: tuple[str, ...]
    licence: str | None
    """None where only its model card says it."""
    size_bytes: int | None
    """Of all its files, where the registry says."""
    state: PullState
    begun_bytes: int = 0
    """That came earlier, and are gone on with."""
    served_as: str | None = None
    """What clients call it, once it can be chosen."""
    progress: PullProgress | None = None
    """While it is fetched, from the first byte on."""
    error: str | None = None
    """Why the last fetch failed."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What is there of a model."""

    installed: bool
    begun_bytes: int


class Pull:
    """A model on its way. Call `begin` for each file that is fetched, `came` for its pieces, `open` once all are there.

    Args:
        model: its name.
        files: names of all its files.
    """

    def __init__(self, model: str, files: Sequence[str]) -> None:
        self.model = model
        self.opening = False
        """Whether all has come."""
        self._files = files
        self._file: str | None = None
        self._total_bytes: int | None = None
        self._came: deque[tuple[float, int]] = deque()
        """Seconds, and bytes of the file that were there then; the oldest is what the speed is measured from."""

    def begin(self, file: str) -> None:
        """Another file is fetched now."""
        self._file = file
        self._total_bytes = None
        self._came.clear()

    def came(self, came_bytes: int, total_bytes: int | None, at_s: float) -> None:
        """So much of the file is there. The first call may count what an earlier fetch left: it tells no speed."""
        self._total_bytes = total_bytes
        self._came.append((at_s, came_bytes))
        while len(self._came) > 1 and self._came[1][0] <= at_s - _SPEED_OF_S:
            self._came.popleft()

    def open(self) -> None:
        """All files have come."""
        self.opening = True

    def progress(self, now_s: float) -> PullProgress | None:
        """How far it is; None before the first file was begun."""
        if self._file is None:
            return None
        came_bytes = self._came[-1][1] if self._came else 0
        speed = self._bytes_per_s(now_s)
        left_s = None
        if speed and self._total_bytes is not None:
            left_s = math.ceil((self._total_bytes - came_bytes) / speed)
        return PullProgress(
            file=self._file,
            number=self._files.index(self._file) + 1,
            files=len(self._files),
            came_bytes=came_bytes,
            total_bytes=self._total_bytes,
            bytes_per_s=None if speed is None else round(speed),
            left_s=left_s,
        )

    def _bytes_per_s(self, now_s: float) -> float | None:
        if not self._came or now_s - self._came[0][0] < _SPEED_FROM_S:
            return None
        recent = [(at_s, came) for at_s, came in self._came if at_s > now_s - _SPEED_OF_S]
        if not recent:
            return 0.0
        (from_s, from_bytes), (_, to_bytes) = self._came[0], self._came[-1]
        return (to_bytes - from_bytes) / (now_s - from_s)


def describe(
    model: RegisteredModel,
    on_disk: OnDisk,
    *,
    served_as: str | None,
    pull: Pull | None,
    error: str | None,
    now_s: float,
) -> PullInfo:
    """A model as the wire tells it.

    Args:
        model: of the registry.
        on_disk: what is there of its files.
        served_as: its name among the models that clients may choose, if it is one of them.
        pull: the one that is going on, of whatever model.
        error: why the last one of this model failed.
        now_s: by the clock of `Pull.came`.
    """
    files = next(iter(model.variants.values()))
    sizes = [file.size_bytes for file in files]
    progress = None
    state: PullState
    if served_as is not None:
        state = "served"
    elif pull is not None and pull.model == model.name:
        state = "opening" if pull.opening else "fetching"
        progress = None if pull.opening else pull.progress(now_s)
    elif error is not None:
        state = "failed"
    elif on_disk.installed:
        state = "installed"
    else:
        state = "begun" if on_disk.begun_bytes else "available"
    return PullInfo(
        name=model.name,
        languages=model.languages,
        licence=model.licence,
        size_bytes=None if None in sizes else sum(filter(None, sizes)),
        state=state,
        begun_bytes=on_disk.begun_bytes,
        served_as=served_as,
        progress=progress,
        error=error if state == "failed" else None,
    )

"""Bars on stderr that tell how far a recording was read or a file was fetched, how fast, and how long it will take."""

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from liveasr.clients.render import timecode

_NAME_COLUMNS = 24
_LEAST_NAME_COLUMNS = 8
_NUMBER_COLUMNS = 32
"""Of all numbers together, with what parts them."""
_LEAST_COLUMNS_WITH_BAR = 64


class _Bar:
    """Shown on a terminal only, and only while something goes on. Lines printed meanwhile appear above it."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self._columns = columns
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            console = Console(stderr=True)
            room = max(_LEAST_NAME_COLUMNS, min(_NAME_COLUMNS, console.width - _NUMBER_COLUMNS))
            name = TextColumn("{task.description}", markup=False, table_column=Column(max_width=room, no_wrap=True))
            bar = [BarColumn(bar_width=None)] if console.width >= _LEAST_COLUMNS_WITH_BAR else []
            self._progress = Progress(
                name,
                *bar,
                *self._columns,
                TimeRemainingColumn(compact=True),
                console=console,
                expand=True,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),  # only where both share the screen
            )
            stderr = sys.stderr
            self._progress.start()
            _redirect_log(stderr, sys.stderr)  # which is now the bar's, and puts lines above it
        return self

    def _begin(self, progress: Progress, name: str, total: int | None, **fields: Any) -> TaskID:
        """Show something new in place of what went on before."""
        if self._task is not None:
            progress.remove_task(self._task)
        self._task = progress.add_task(name, total=total, **fields)
        return self._task

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            above = sys.stderr
            self._progress.stop()
            _redirect_log(above, sys.stderr)


class ProgressBar(_Bar):
    """How far a recording has been read."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.fields[position]}"), TextColumn("{task.fields[speed]}"))

    def begin(self, path: Path, duration_ms: int | None) -> Callable[[int], None]:
        """Show a new recording; the function returned takes the milliseconds heard so far."""
        progress = self._progress
        if progress is None:
            return lambda _ms: None
        task = self._begin(progress, path.name, duration_ms, position="", speed="")
        total = f"/{_clock(duration_ms)}" if duration_ms else ""
        begun = time.monotonic()

        def heard(ms: int) -> None:
            elapsed_ms = (time.monotonic() - begun) * 1000
            speed = f"{ms / elapsed_ms:.0f}x" if elapsed_ms else ""
            progress.update(task, completed=ms, position=f"{_clock(ms)}{total}", speed=speed)

        return heard


class FetchBar(_Bar):
    """How many bytes of a file have come, and how fast."""

    def __init__(self) -> None:
        super().__init__(DownloadColumn(), TransferSpeedColumn())

    def begin(self, name: str) -> Callable[[int, int | None], None]:
        """Show a new file; the function returned takes the bytes there are so far, and how many it will be."""
        progress = self._progress
        if progress is None:
            return lambda _bytes, _total: None
        task = self._begin(progress, name, None)
        fresh = True

        def came(size_bytes: int, total: int | None) -> None:
            nonlocal fresh
            if fresh:  # what an earlier download left has not come now, and is no measure of the speed
                progress.reset(task, completed=size_bytes, total=total)
                fresh = False
            progress.update(task, completed=size_bytes, total=total)

        return came


def _redirect_log(old: TextIO, new: TextIO) -> None:
    """Move what the program says in its log from one stream to another."""
    for handler in logging.getLogger("liveasr").handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)


def _clock(ms: int) -> str:
    """Time without its milliseconds."""
    return timecode(ms).partition(".")[0]

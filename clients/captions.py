"""Captions in a terminal: what was said stands, what is being said moves below it, and a line tells how things are.

The state and its picture are pure; `CaptionScreen` puts them on a terminal, `CaptionLines` into a pipe.
"""

import logging
import math
import sys
from typing import Protocol

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from liveasr.clients.render import text_lines, timecode
from liveasr.types import Float32Array, LiveTranscript, Transcript

_log = logging.getLogger("liveasr")
_METER_COLUMNS = 16
_METER_FLOOR_DB = -60.0
_REFRESH_HZ = 12


class CaptionView(Protocol):
    """Where captions go."""

    def show(self, transcript: LiveTranscript) -> None:
        """A new revision of a segment."""
        ...

    def status(self, heard_ms: int, level_db: float, lag_ms: int, lost: int) -> None:
        """How things are: audio so far, its level now, how far the text is behind, and blocks of sound lost."""
        ...

    def connection(self, lost: str | None) -> None:
        """The connection to a server was lost, for that reason, and is being put up again; None: it is there again."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class CaptionLines:
    """For pipes and files: a line for each segment, once it is final."""

    def show(self, transcript: LiveTranscript) -> None:
        """Print finals."""
        if transcript.final is not None and transcript.final.text:
            for line in text_lines(transcript.final, words=False):
                sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def status(self, heard_ms: int, level_db: float, lag_ms: int, lost: int) -> None:
        """A pipe has no place for it."""

    def connection(self, lost: str | None) -> None:
        """A line on stderr."""
        _log.warning("%s", "connected again" if lost is None else f"{lost}; trying again")

    def close(self) -> None:
        """Nothing is held back."""


class CaptionScreen:
    """For terminals: finals scroll up, the open segment and a status line stay at the bottom."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: dict[int, LiveTranscript] = {}  # segments without a final, in order
        self._figures = (0, _METER_FLOOR_DB, 0, 0)
        self._connected = True
        self._live = Live(console=console, refresh_per_second=_REFRESH_HZ, transient=True, get_renderable=self._picture)
        self._live.start()

    def show(self, transcript: LiveTranscript) -> None:
        """Redraw the open segment, or print a final above it."""
        if transcript.final is None:
            self._open[transcript.segment_id] = transcript
            return
        self._open.pop(transcript.segment_id, None)
        if transcript.final.text:
            self._console.print(final_line(transcript.final))

    def status(self, heard_ms: int, level_db: float, lag_ms: int, lost: int) -> None:
        """Redraw the status line."""
        self._figures = (heard_ms, level_db, lag_ms, lost)

    def connection(self, lost: str | None) -> None:
        """Redraw the status line."""
        self._connected = lost is None

    def close(self) -> None:
        """Leave the finals on the screen, and nothing else."""
        self._live.stop()

    def _picture(self) -> Group:
        status = status_line(*self._figures, connected=self._connected)
        return Group(*(open_line(transcript) for transcript in self._open.values()), status)


def final_line(transcript: Transcript) -> Text:
    """A segment that is done."""
    return Text.assemble((f"{timecode(transcript.start_ms)[:-4]}  ", "cyan"), transcript.text)


def open_line(transcript: LiveTranscript) -> Text:
    """A segment that is being said: committed text as it will stay, tentative text dim."""
    return Text.assemble(
        (f"{timecode(transcript.start_ms)[:-4]}  ", "cyan dim"),
        transcript.committed,
        (transcript.tentative, "dim italic"),
    )


def status_line(heard_ms: int, level_db: float, lag_ms: int, lost: int, *, connected: bool = True) -> Text:
    """Time, level meter, lag or that there is no connection; at most 80 columns."""
    state = f"  {lag_ms / 1000:.1f} s behind" if lag_ms >= 100 else "  up to date"  # noqa: PLR2004
    filled = round(_METER_COLUMNS * (1 - max(min(level_db, 0.0), _METER_FLOOR_DB) / _METER_FLOOR_DB))
    colour = "red" if level_db > -1.0 else "green"
    return Text.assemble(
        (f"{timecode(heard_ms)[:-4]}  ", "dim"),
        ("█" * filled, colour),
        ("░" * (_METER_COLUMNS - filled), "dim"),
        (state, "dim") if connected else ("  reconnecting", "red"),
        (f"  {lost} blocks of sound lost" if lost else "", "red"),
        ("  Ctrl-C ends", "dim"),
        no_wrap=True,
        overflow="crop",
    )


def level_db(samples: Float32Array) -> float:
    """Loudness of samples (n,) in decibels below full scale."""
    if samples.size == 0:
        return _METER_FLOOR_DB
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return max(_METER_FLOOR_DB, 10 * math.log10(power)) if power > 0 else _METER_FLOOR_DB

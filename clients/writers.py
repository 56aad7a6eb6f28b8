"""Transcripts of one or more recordings written out as they come: text lines, or one JSON document.

A writer is used in the order begin, segment ..., end for each recording, then close once. Whatever interrupts a
recording, what was written stays whole: close always completes the document.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from liveasr.clients.render import as_json, text_lines
from liveasr.types import Transcript

Emit = Callable[[str], None]
"""Takes text that is to be written at once, line ends included."""
JSON_VERSION = 1


class Writer(Protocol):
    """One output format."""

    def begin(self, path: Path) -> None:
        """A recording begins."""
        ...

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        ...

    def end(self, duration_ms: int, error: str | None) -> None:
        """The recording ends, at its end or because of an error."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class TextWriter:
    """A line a segment; with several recordings, each under its name."""

    def __init__(self, emit: Emit, *, words: bool, headings: bool) -> None:
        self._emit = emit
        self._words = words
        self._headings = headings

    def begin(self, path: Path) -> None:
        """A recording begins."""
        if self._headings:
            self._emit(f"# {path}\n")

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        for line in text_lines(transcript, words=self._words):
            self._emit(line + "\n")

    def end(self, duration_ms: int, error: str | None) -> None:
        """The recording ends; its error, if any, is told elsewhere."""

    def close(self) -> None:
        """Nothing more comes."""


class JsonWriter:
    """{"version", "model", "recordings": [{"path", "segments": [...], "duration_ms", "error"}]}, a segment a line."""

    def __init__(self, emit: Emit, model: str) -> None:
        self._emit = emit
        self._separator = ""
        self._open = False  # inside a recording
        self._emit(f'{{"version": {JSON_VERSION}, "model": {_dump(model)}, "recordings": [')

    def begin(self, path: Path) -> None:
        """A recording begins."""
        self._emit(f'{self._separator}\n{{"path": {_dump(str(path))}, "segments": [')
        self._separator = ""
        self._open = True

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        self._emit(f"{self._separator}\n{_dump(as_json(transcript))}")
        self._separator = ","

    def end(self, duration_ms: int, error: str | None) -> None:
        """The recording ends, at its end or because of an error."""
        self._emit(f'\n], "duration_ms": {duration_ms}, "error": {_dump(error)}}}')
        self._separator = ","
        self._open = False

    def close(self) -> None:
        """Complete the document."""
        if self._open:
            self.end(0, "interrupted")
        self._emit("\n]}\n")


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

"""The transcript of one recording in each output format, written piece by piece as its segments come.

A writer is made when the recording begins; then `segment` any number of times, then `finish` once, at the recording's
end or at whatever interrupts it: what was written is then a whole document.
"""

import html
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from liveasr.clients.render import as_json, text_lines, timecode
from liveasr.clients.subtitles import cues
from liveasr.types import Transcript

Format: TypeAlias = Literal["txt", "json", "srt", "vtt", "tsv"]
Emit: TypeAlias = Callable[[str], None]
"""Takes text that is to be written at once, line ends included."""
JSON_VERSION = 1
"""Of the schema that docs/json.md describes; it rises when a reader of the old one would break."""


class Writer(Protocol):
    """One output format."""

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        ...

    def finish(self, duration_ms: int, error: str | None) -> None:
        """The recording ends: after so much audio, at its end or because of an error."""
        ...


class TextWriter:
    """A line a segment, and, if wanted, one a word.

    Args:
        emit: where the text goes.
        words: whether to add a line with the times of every word.
        heading: what to write above all, where several recordings share a stream.
    """

    def __init__(self, emit: Emit, *, words: bool, heading: str | None = None) -> None:
        self._emit = emit
        self._words = words
        if heading is not None:
            emit(f"# {heading}\n")

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        for line in text_lines(transcript, words=self._words):
            self._emit(line + "\n")

    def finish(self, duration_ms: int, error: str | None) -> None:
        """Text has no end to write."""


class JsonWriter:
    """One JSON document, a segment a line."""

    def __init__(self, emit: Emit, path: Path, model: str) -> None:
        self._emit = emit
        self._separator = "\n"
        head = {"version": JSON_VERSION, "path": str(path), "model": model}
        emit(_dump(head)[:-1] + ', "segments": [')

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        self._emit(self._separator + _dump(as_json(transcript)))
        self._separator = ",\n"

    def finish(self, duration_ms: int, error: str | None) -> None:
        """Complete the document."""
        self._emit(f'\n], "duration_ms": {duration_ms}, "error": {_dump(error)}}}\n')


class SrtWriter:
    """SubRip: numbered cues, comma before the milliseconds."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._number = 0

    def segment(self, transcript: Transcript) -> None:
        """The cues of the next segment."""
        for cue in cues(transcript):
            self._number += 1
            start, end = (timecode(ms, hours=True).replace(".", ",") for ms in (cue.start_ms, cue.end_ms))
            text = "\n".join(cue.lines)
            self._emit(f"{self._number}\n{start} --> {end}\n{text}\n\n")

    def finish(self, duration_ms: int, error: str | None) -> None:
        """SubRip has no end to write."""


class VttWriter:
    """WebVTT."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        emit("WEBVTT\n\n")

    def segment(self, transcript: Transcript) -> None:
        """The cues of the next segment."""
        for cue in cues(transcript):
            start, end = (timecode(ms, hours=True) for ms in (cue.start_ms, cue.end_ms))
            text = html.escape("\n".join(cue.lines), quote=False)
            self._emit(f"{start} --> {end}\n{text}\n\n")

    def finish(self, duration_ms: int, error: str | None) -> None:
        """WebVTT has no end to write."""


class TsvWriter:
    """start_ms, end_ms, text; a segment a line, tabs between."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        emit("start_ms\tend_ms\ttext\n")

    def segment(self, transcript: Transcript) -> None:
        """The next segment of the recording."""
        text = " ".join(transcript.text.split())
        self._emit(f"{transcript.start_ms}\t{transcript.end_ms}\t{text}\n")

    def finish(self, duration_ms: int, error: str | None) -> None:
        """A table has no end to write."""


def writer_for(format_: Format, emit: Emit, path: Path, model: str, *, words: bool, heading: bool) -> Writer:
    """The writer of a format for one recording.

    Args:
        format_: which.
        emit: where its text goes.
        path: the recording.
        model: name of the model, for formats that tell.
        words: whether text shows the time of every word.
        heading: whether text begins with the name of the recording.
    """
    match format_:
        case "txt":
            return TextWriter(emit, words=words, heading=str(path) if heading else None)
        case "json":
            return JsonWriter(emit, path, model)
        case "srt":
            return SrtWriter(emit)
        case "vtt":
            return VttWriter(emit)
        case "tsv":
            return TsvWriter(emit)


def _dump(value: object) -> str:
    # Bytes of file names that are no UTF-8 stay JSON whatever the output does with what it cannot encode.
    return json.dumps(value, ensure_ascii=_needs_ascii())


def _needs_ascii() -> bool:
    """Whether stdout cannot show every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") not in ("utf8", "utf8sig")

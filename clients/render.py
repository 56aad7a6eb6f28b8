"""Transcripts as text and as JSON; pure functions."""

from collections.abc import Iterator
from typing import Any

from liveasr.types import Transcript


def timecode(ms: int, *, hours: bool = False) -> str:
    """12_345 -> "00:12.345"; hours appear when there are any, or when they are asked for."""
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hour, minutes = divmod(minutes, 60)
    return (f"{hour:02}:" if hour or hours else "") + f"{minutes:02}:{seconds:02}.{ms:03}"


def text_lines(transcript: Transcript, *, words: bool) -> Iterator[str]:
    """One line for the segment, then, if wanted, one for each word."""
    yield f"[{timecode(transcript.start_ms)} --> {timecode(transcript.end_ms)}]  {transcript.text}"
    if words:
        for word in transcript.words:
            yield f"    {timecode(word.start_ms)} - {timecode(word.end_ms)}  {word.text}"


def as_json(transcript: Transcript) -> dict[str, Any]:
    """The segment as JSON objects; docs/json.md describes them."""
    return {
        "start_ms": transcript.start_ms,
        "end_ms": transcript.end_ms,
        "forced_cut": transcript.forced_cut,
        "text": transcript.text,
        "language": transcript.language,
        "emotion": transcript.emotion,
        "event": transcript.event,
        "words": [{"text": word.text, "start_ms": word.start_ms, "end_ms": word.end_ms} for word in transcript.words],
    }

"""Transcripts to subtitle cues that can be read in time and fit the screen; pure functions.

A cue has at most two lines of 42 columns (characters of East Asian width take two) and lasts at most 7 s, as
broadcasters ask. Cues break at clause marks and at pauses where they can. They rise, never overlap, and stay inside
their segment, and so inside the audio.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from liveasr.types import Transcript, Word

MAX_COLUMNS = 42
MAX_CUE_MS = 7_000
_LEAD_MS = 200  # show a cue this much before its first word: recognisers place words late
_HOLD_MS = 400  # and leave it this much after its last, if the next one does not come sooner
_SENTENCE_MARKS = ".!?。！？…"  # noqa: RUF001 - full-width marks are what Chinese and Japanese write
_CLAUSE_MARKS = ",;:，；：、"  # noqa: RUF001
_PAUSE_MS = 300
# What it costs to end a cue somewhere; only their order matters.
_CUE_COST, _SENTENCE_COST, _CLAUSE_COST, _PAUSE_COST, _ANYWHERE_COST, _SCRAP_COST = 10, 0, 3, 4, 12, 6
_SCRAP_COLUMNS = 12  # shorter cues flash by


@dataclass(frozen=True, slots=True)
class Cue:
    """What stands on the screen from start_ms to end_ms."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    """One or two."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word as it stands in the text: with the space before it, if there is one."""

    text: str
    start_ms: int
    end_ms: int


def cues(transcript: Transcript) -> list[Cue]:
    """The cues of one segment; none if it has no text."""
    pieces = list(_pieces(transcript))
    found: list[Cue] = []
    earliest_ms = transcript.start_ms
    groups = _groups(pieces)
    for index, group in enumerate(groups):
        next_ms = groups[index + 1][0].start_ms if index + 1 < len(groups) else transcript.end_ms
        start_ms = max(earliest_ms, group[0].start_ms - _LEAD_MS)
        end_ms = min(max(group[-1].end_ms, min(group[-1].end_ms + _HOLD_MS, next_ms - _LEAD_MS)), transcript.end_ms)
        end_ms = min(max(end_ms, start_ms + 1), start_ms + MAX_CUE_MS)
        lines = _lines(group)
        assert lines is not None, "a group is made of pieces that fit"
        found.append(Cue(start_ms, end_ms, lines))
        earliest_ms = end_ms
    return found


def columns(text: str) -> int:
    """Width on the screen: characters of East Asian width count double."""
    return cell_len(text)


def _pieces(transcript: Transcript) -> Iterator[_Piece]:
    """The words in the spelling of the text, none wider than a line, none longer than a cue may last."""
    words = transcript.words or _spread(transcript)
    at = 0
    for word in words:
        begin = transcript.text.find(word.text, at)
        spaced = at > 0 and (begin > at if begin >= 0 else True)
        at = begin + len(word.text) if begin >= 0 else at
        parts = list(_narrow(word.text))
        length_ms = min(word.end_ms - word.start_ms, MAX_CUE_MS - _LEAD_MS - _HOLD_MS)
        for index, part in enumerate(parts):
            start_ms = word.start_ms + length_ms * index // len(parts)
            end_ms = word.start_ms + length_ms * (index + 1) // len(parts)
            yield _Piece(" " + part if spaced and index == 0 else part, start_ms, end_ms)


def _spread(transcript: Transcript) -> list[Word]:
    """Words of a transcript without word times, spread evenly over it."""
    texts = transcript.text.split()
    if len(texts) == 1 and columns(transcript.text) > len(transcript.text):  # a script without spaces
        texts = list(transcript.text)
    length_ms = transcript.end_ms - transcript.start_ms
    bounds = [transcript.start_ms + length_ms * index // max(1, len(texts)) for index in range(len(texts) + 1)]
    return [Word(text, bounds[index], bounds[index + 1]) for index, text in enumerate(texts)]


def _narrow(text: str) -> Iterator[str]:
    """A word in parts of at most one line."""
    part = ""
    for character in text:
        if columns(part + character) > MAX_COLUMNS:
            yield part
            part = ""
        part += character
    yield part


def _groups(pieces: list[_Piece]) -> list[list[_Piece]]:
    """The pieces of each cue: of all ways to break them that fit, the cheapest."""
    best: list[tuple[int, int]] = [(0, 0)]  # for each number of pieces: least cost, where its last cue begins
    for end in range(1, len(pieces) + 1):
        options = []
        for start in range(end - 1, -1, -1):
            group = pieces[start:end]
            too_long = group[-1].end_ms - group[0].start_ms > MAX_CUE_MS - _LEAD_MS - _HOLD_MS
            if start < end - 1 and (too_long or _lines(group) is None):
                break
            options.append((best[start][0] + _cost(pieces, start, end), start))
        best.append(min(options))
    groups = []
    end = len(pieces)
    while end:
        start = best[end][1]
        groups.append(pieces[start:end])
        end = start
    return groups[::-1]


def _cost(pieces: list[_Piece], start: int, end: int) -> int:
    """What a cue of the pieces [start, end) costs: itself, where it ends, and if it is a scrap."""
    cost = _CUE_COST
    if columns(_join(pieces[start:end])) < _SCRAP_COLUMNS:
        cost += _SCRAP_COST
    if end == len(pieces):
        return cost
    last = pieces[end - 1].text[-1]
    if last in _SENTENCE_MARKS:
        return cost + _SENTENCE_COST
    if last in _CLAUSE_MARKS:
        return cost + _CLAUSE_COST
    if pieces[end].start_ms - pieces[end - 1].end_ms >= _PAUSE_MS:
        return cost + _PAUSE_COST
    return cost + _ANYWHERE_COST


def _lines(group: list[_Piece]) -> tuple[str, ...] | None:
    """The text of a cue on one or two lines, or None if it needs more. Two lines break at a mark or near the middle."""
    whole = _join(group)
    if columns(whole) <= MAX_COLUMNS:
        return (whole,)
    options = []
    for split in range(1, len(group)):
        upper, lower = _join(group[:split]), _join(group[split:])
        if max(columns(upper), columns(lower)) <= MAX_COLUMNS:
            at_mark = upper[-1] in _SENTENCE_MARKS + _CLAUSE_MARKS
            options.append((abs(columns(upper) - columns(lower)) - (MAX_COLUMNS // 2 if at_mark else 0), upper, lower))
    if not options:
        return None
    _, upper, lower = min(options)
    return upper, lower


def _join(group: list[_Piece]) -> str:
    return "".join(piece.text for piece in group).strip()

"""Transcripts to subtitle cues that can be read in time and fit the screen; pure functions.

A cue has at most two lines of 42 columns (characters of East Asian width take two) and lasts at most 7 s, as
broadcasters ask. Cues break at clause marks and at pauses where they can. They rise, never overlap, and stay inside
their segment, and so inside the audio.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from rich.cells import cell_len

from liveasr.stream.spelling import joined, spaced
from liveasr.types import Transcript, Word

MAX_COLUMNS = 42
MAX_CUE_MS = 7_000
_SHORTEST_MS = 800  # what is shown for less cannot be read, unless the segment has no room
_LEAD_MS = 200  # show a cue this much before its first word: recognisers place words late
_HOLD_MS = 400  # and leave it this much after its last, if the next one does not come sooner
_MAX_SPOKEN_MS = MAX_CUE_MS - _LEAD_MS - _HOLD_MS
_SENTENCE_MARKS = ".!?。！？…"  # noqa: RUF001 - full-width marks are what Chinese and Japanese write
_CLAUSE_MARKS = ",;:，；：、"  # noqa: RUF001
_OPENING, _CLOSING = "([{“‘«「『（【《〈", "\"')]}”’»」』）】》〉"  # noqa: RUF001
# Scripts without spaces, to be broken anywhere: kana and Han. Korean writes spaces.
_SPACELESS = "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WRITES_SPACES = re.compile(rf"[^\W{_SPACELESS}]")
_WORDS = re.compile(
    rf"[{re.escape(_OPENING)}]*(?:[{_SPACELESS}][^\w\s{re.escape(_OPENING)}]*|[^\s{_SPACELESS}{re.escape(_OPENING)}]+|$)"
)
_PAUSE_MS = 300
# What it costs to end a cue somewhere; only their order matters.
_CUE_COST, _SENTENCE_COST, _CLAUSE_COST, _PAUSE_COST, _ANYWHERE_COST, _SCRAP_COST = 10, 0, 3, 4, 20, 6
_SCRAP_COLUMNS = 12  # shorter cues flash by


@dataclass(frozen=True, slots=True)
class Cue:
    """What stands on the screen from start_ms to end_ms."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    """One or two."""


def cues(transcript: Transcript) -> list[Cue]:
    """The cues of one segment; none if it has no text."""
    layout = _Layout(list(_pieces(transcript)))
    groups = layout.groups()
    room_ms = transcript.end_ms - transcript.start_ms
    shortest_ms = max(1, min(_SHORTEST_MS, room_ms // max(1, len(groups))))
    found: list[Cue] = []
    earliest_ms = transcript.start_ms
    for index, (first, end) in enumerate(groups):
        latest_ms = transcript.end_ms - shortest_ms * (len(groups) - 1 - index)  # the others need to be read too
        start_ms = max(earliest_ms, min(layout.pieces[first].start_ms - _LEAD_MS, latest_ms - shortest_ms))
        spoken_ms = layout.pieces[end - 1].end_ms
        held_ms = spoken_ms + _HOLD_MS
        if end < len(layout.pieces):
            held_ms = max(spoken_ms, min(held_ms, layout.pieces[end].start_ms - _LEAD_MS))
        end_ms = min(max(held_ms, start_ms + shortest_ms), latest_ms, start_ms + MAX_CUE_MS)
        found.append(Cue(start_ms, end_ms, layout.lines(first, end)))
        earliest_ms = end_ms
    return found


def columns(text: str) -> int:
    """Width on the screen: characters of East Asian width count double."""
    return cell_len(text)


class _Layout:
    """Ways to put pieces on lines and lines into cues.

    Args:
        pieces: words as `spaced` gives them, none wider than a line.
    """

    def __init__(self, pieces: Sequence[Word]) -> None:
        self.pieces = pieces
        gaps_ms = [later.start_ms - earlier.end_ms for earlier, later in pairwise(pieces)]
        # Recognisers mark where a word is surest, not its whole length, so there is some gap behind every word.
        self._pause_ms = max(_PAUSE_MS, 2 * median(gaps_ms)) if gaps_ms else _PAUSE_MS
        self._right = list(accumulate((columns(piece.text) for piece in pieces), initial=0))  # edges, on one long line

    def groups(self) -> list[tuple[int, int]]:
        """The pieces [first, end) of each cue: of all ways to break them that fit, the cheapest."""
        best: list[tuple[int, int]] = [(0, 0)]  # for each number of pieces: least cost, where its last cue begins
        for end in range(1, len(self.pieces) + 1):
            options = []
            for first in range(end - 1, -1, -1):
                if first < end - 1 and not self._fits_cue(first, end):
                    break
                options.append((best[first][0] + self._cost(first, end), first))
            best.append(min(options))
        found = []
        end = len(self.pieces)
        while end:
            first = best[end][1]
            found.append((first, end))
            end = first
        return found[::-1]

    def lines(self, first: int, end: int) -> tuple[str, ...]:
        """The text of a cue on one or two lines. Two lines break at a mark or near the middle."""
        if self._columns(first, end) <= MAX_COLUMNS:
            return (self._text(first, end),)
        options = []
        for split in range(self._longest_line(first, end), first, -1):
            upper, lower = self._columns(first, split), self._columns(split, end)
            if lower > MAX_COLUMNS:
                break
            at_mark = _mark(self.pieces[split - 1].text) in (*_SENTENCE_MARKS, *_CLAUSE_MARKS)
            options.append((abs(upper - lower) - (MAX_COLUMNS // 2 if at_mark else 0), split))
        _, split = min(options)
        return self._text(first, split), self._text(split, end)

    def _fits_cue(self, first: int, end: int) -> bool:
        if self.pieces[end - 1].end_ms - self.pieces[first].start_ms > _MAX_SPOKEN_MS:
            return False
        split = self._longest_line(first, end)
        return split == end or self._columns(split, end) <= MAX_COLUMNS

    def _cost(self, first: int, end: int) -> int:
        """What a cue costs: itself, if it is a scrap, and where it ends."""
        cost = _CUE_COST + (_SCRAP_COST if self._columns(first, end) < _SCRAP_COLUMNS else 0)
        if end == len(self.pieces):
            return cost
        mark = _mark(self.pieces[end - 1].text)
        if mark in _SENTENCE_MARKS:
            return cost + _SENTENCE_COST
        if mark in _CLAUSE_MARKS:
            return cost + _CLAUSE_COST
        if self.pieces[end].start_ms - self.pieces[end - 1].end_ms >= self._pause_ms:
            return cost + _PAUSE_COST
        return cost + _ANYWHERE_COST

    def _longest_line(self, first: int, end: int) -> int:
        """Behind the last piece that still fits a line that begins with the first one."""
        edge = self._right[first] + self._space(first) + MAX_COLUMNS
        return bisect_right(self._right, edge, first + 1, end + 1) - 1

    def _columns(self, first: int, end: int) -> int:
        return self._right[end] - self._right[first] - self._space(first)

    def _space(self, index: int) -> int:
        return int(self.pieces[index].text.startswith(" "))

    def _text(self, first: int, end: int) -> str:
        return joined(self.pieces[first:end]).strip()


def _mark(text: str) -> str:
    """The last character of a word, closing quotes and brackets aside."""
    return (text.rstrip(_CLOSING) or text)[-1]


def _pieces(transcript: Transcript) -> Iterator[Word]:
    """The words in the spelling of the text, none wider than a line, none longer than a cue may last."""
    words = [word for word in transcript.words if word.text] or _spread(transcript)
    for word in _whole(spaced(transcript.text, words)):
        parts = list(_narrow(word.text))
        length_ms = min(word.end_ms - word.start_ms, _MAX_SPOKEN_MS)
        for index, part in enumerate(parts):
            start_ms = word.start_ms + length_ms * index // len(parts)
            yield Word(part, start_ms, word.start_ms + length_ms * (index + 1) // len(parts))


def _spread(transcript: Transcript) -> list[Word]:
    """Words of a transcript without word times, which share its time by their widths."""
    texts = [text for text in _WORDS.findall(transcript.text) if text]
    edges = list(accumulate((columns(text) for text in texts), initial=0))
    length_ms = transcript.end_ms - transcript.start_ms
    bounds = [transcript.start_ms + length_ms * edge // max(1, edges[-1]) for edge in edges]
    return [Word(text, bounds[index], bounds[index + 1]) for index, text in enumerate(texts)]


def _whole(words: Iterable[Word]) -> Iterator[Word]:
    """Words that belong together as one, where the script has spaces: Korean comes character by character."""
    last: Word | None = None
    for word in words:
        if last is not None and _WRITES_SPACES.match(last.text[-1]) and _WRITES_SPACES.match(word.text[0]):
            last = Word(last.text + word.text, last.start_ms, word.end_ms)
            continue
        if last is not None:
            yield last
        last = word
    if last is not None:
        yield last


def _narrow(text: str) -> Iterator[str]:
    """A word in parts of at most one line."""
    part = ""
    for character in text:
        if columns((part + character).strip()) > MAX_COLUMNS:
            yield part
            part = ""
        part += character
    yield part

"""From hypotheses that change to text that does not: `committed` grows and never changes, `tentative` may.

A word is committed once two successive hypotheses agree on it and on all before it (LocalAgreement-2, Liu et al. 2020,
https://arxiv.org/abs/2005.11185), unless it is among the last words heard, which more audio often changes, or part of a
repetition, which recognisers fall into and agree on. A word is a character in the scripts that write no spaces.

A hypothesis that begins with all the committed words goes on behind them, whenever they are said to be: a Paraformer
moves its words as more audio comes. Any other is placed by when: words that end before the last committed one ended are
covered by it. So a hypothesis that hears an old passage otherwise can neither withdraw nor double what is committed.

The final of a segment closes it: `committed` then gets the words of the final that come after those committed before.
What the final hears otherwise before that stays as it was in `committed`; the final's own text has it right.
"""

from collections.abc import Sequence

from liveasr.stream.overlay import behind
from liveasr.stream.spelling import continued, joined
from liveasr.types import Word

HOLD_BACK_MS = 500
"""Words that end within so much of the end of the audio stay tentative."""
MAX_REPEATS = 3
"""A group of words that follows itself more often is not committed."""
MAX_WORD_REPEATS = 5
"""The same for a single word: people do say "no no no"."""
_MAX_GROUP = 8


class Stabilizer:
    """The text of one segment while it is open. All times are in ms on one clock."""

    def __init__(self) -> None:
        self._committed: list[Word] = []
        self._last: list[Word] = []  # the uncommitted words of the last hypothesis
        self._agreed = 0  # of those, the first so many would be committed if they were not so late

    @property
    def committed(self) -> str:
        """Text that will not change."""
        return joined(self._committed)

    @property
    def tentative(self) -> str:
        """Text that may still change; put behind `committed` as it is."""
        return joined(self._last)

    @property
    def committed_words(self) -> Sequence[Word]:
        """The words of `committed`."""
        return self._committed

    @property
    def tentative_words(self) -> Sequence[Word]:
        """The words of `tentative`."""
        return self._last

    @property
    def stable_words(self) -> Sequence[Word]:
        """All that hypotheses agreed on, with what is not committed only because it was heard too late."""
        return self._committed + self._last[: self._agreed]

    def accept(self, words: Sequence[Word], heard_until_ms: int, commit_until_ms: int) -> None:
        """Take the next hypothesis of the open segment.

        Args:
            words: spaced, of the whole segment or of its end.
            heard_until_ms: where the audio of the hypothesis ends.
            commit_until_ms: commit nothing that ends later.
        """
        new = self._uncommitted(words)
        limit_ms = min(heard_until_ms - HOLD_BACK_MS, commit_until_ms)
        agreed = 0
        while agreed < min(len(new), len(self._last)) and _same(new[agreed], self._last[agreed]):
            agreed += 1
        self._commit(new, _without_repetition(self._committed, new[:agreed]), limit_ms)

    def follow(self, words: Sequence[Word], commit_until_ms: int) -> None:
        """Take the next hypothesis of an engine that takes nothing back: it only grows at its end.

        All of it is committed but the last word where its script writes spaces, since that may go on.

        Args:
            words: spaced, of the whole segment so far.
            commit_until_ms: commit nothing that ends later.
        """
        new = list(words[len(self._committed) :])
        self._commit(new, len(new) - (bool(new) and new[-1].text[-1].isascii()), commit_until_ms)

    def finish(self, words: Sequence[Word], *, written: bool = False) -> None:
        """Close the segment with the words of its final, spaced.

        Args:
            words: of the final.
            written: their times are no evidence, since the engine that wrote them has none: what is committed covers as
                many of them as it has words.
        """
        self._committed += behind(self._committed, words) if written else self._uncommitted(words)
        self._last = []
        self._agreed = 0

    def _commit(self, new: Sequence[Word], agreed: int, until_ms: int) -> None:
        """Take the uncommitted words of a hypothesis, and commit those agreed on that do not end later."""
        sure = 0
        while sure < agreed and new[sure].end_ms <= until_ms:
            sure += 1
        self._committed += new[:sure]
        self._last = list(new[sure:])
        self._agreed = agreed - sure

    def _uncommitted(self, words: Sequence[Word]) -> list[Word]:
        """The words behind the last committed one."""
        count = len(self._committed)
        if len(words) >= count and all(map(_same, words, self._committed)):
            return list(words[count:])
        until_ms = self._committed[-1].end_ms
        rest = [word for word in words if (word.start_ms + word.end_ms) // 2 > until_ms]
        if rest and rest[0] is words[0]:
            # The hypothesis begins here, so its first word has no space of its own.
            rest[0] = continued(self._committed[-1], rest[0])
        return rest


def _same(a: Word, b: Word) -> bool:
    return a.text.strip().casefold() == b.text.strip().casefold()


def _without_repetition(committed: Sequence[Word], agreed: Sequence[Word]) -> int:
    """How many of the agreed words may be committed before a group of words follows itself too often."""
    texts = [word.text.strip().casefold() for word in committed]
    for count, word in enumerate(agreed):
        texts.append(word.text.strip().casefold())
        if _repeats(texts):
            return count
    return len(agreed)


def _repeats(texts: Sequence[str]) -> bool:
    """Whether the end of the words is one group over and over."""
    for size in range(1, _MAX_GROUP + 1):
        times = MAX_WORD_REPEATS + 1 if size == 1 else MAX_REPEATS + 1
        tail = texts[-size * times :]
        if len(tail) == size * times and all(tail[i] == tail[i % size] for i in range(len(tail))):
            return True
    return False

"""What to show of a segment while its final is written: the draft so far, and behind it what the partials heard.

The words of a draft have no times of their own, so the draft covers the partials word for word, by count. Text on the
screen is overwritten from the left and never shrinks to what is written so far.
"""

from collections.abc import Sequence

from liveasr.stream.spelling import continued
from liveasr.types import Word


def overlaid(committed: Sequence[Word], tentative: Sequence[Word], draft: Sequence[Word]) -> list[Word]:
    """The words to show behind the committed ones. All words are spaced.

    Args:
        committed: by the partials; the first words of the draft lie under them.
        tentative: what the partials heard behind them.
        draft: from the beginning of the segment.
    """
    found = behind(committed, draft)
    rest = list(tentative[len(found) :])
    if found and rest:
        rest[0] = continued(found[-1], rest[0])
    return found + rest


def behind(committed: Sequence[Word], words: Sequence[Word]) -> list[Word]:
    """The words behind as many as are committed."""
    rest = list(words[len(committed) :])
    if committed and rest:
        rest[0] = continued(committed[-1], rest[0])
    return rest

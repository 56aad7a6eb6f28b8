"""How steady text is while it grows, in the field's own measures; pure functions over words.

Edit overhead (Baumann, Atterer & Schlangen 2009): of all edits, additions and removals of words, the share that the
final text would not have needed. Unstable partial word ratio (Shangguan et al. 2020): words that were shown and then
taken back or changed, for each word of the final text. Both are 0 for text that only grows.
"""

from collections.abc import Sequence
from itertools import pairwise


def edit_overhead(shown: Sequence[Sequence[str]]) -> tuple[int, int]:
    """(unnecessary edits, all edits) over what was shown, in order, the final text last.

    An edit removes the last word or adds one behind it, so a change in the middle costs all words from there on, as it
    does for a reader.
    """
    edits = 0
    for before, after in pairwise([(), *shown]):
        kept = common_prefix(before, after)
        edits += len(before) - kept + len(after) - kept
    needed = len(shown[-1]) if shown else 0
    return edits - needed, edits


def unstable_words(shown: Sequence[Sequence[str]]) -> tuple[int, int]:
    """(words taken back or changed, words of the final text) over what was shown, in order, the final text last."""
    unstable = sum(len(before) - common_prefix(before, after) for before, after in pairwise(shown))
    return unstable, len(shown[-1]) if shown else 0


def common_prefix(a: Sequence[str], b: Sequence[str]) -> int:
    """How many words both begin with."""
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-int(len(ordered) * share * 1000) // 1000))
    return ordered[min(rank, len(ordered)) - 1]

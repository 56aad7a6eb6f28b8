"""Words back in the spelling of their text: which of them have a space before them.

A hypothesis has its words bare. Where a script writes no spaces, or scripts meet, only the text knows where they go.
"""

from collections.abc import Sequence

from liveasr.types import Word


def spaced(text: str, words: Sequence[Word]) -> list[Word]:
    """The words in order, a space in front of those that have one in the text; put together they are the text.

    Times stay. A word that the text does not have, which no engine of ours makes, gets a space.
    """
    found: list[Word] = []
    at = 0
    for word in words:
        begin = text.find(word.text, at)
        space = " " if found and (begin > at or begin < 0) else ""
        if begin >= 0:
            at = begin + len(word.text)
        found.append(Word(space + word.text, word.start_ms, word.end_ms))
    return found


def joined(words: Sequence[Word]) -> str:
    """The text of spaced words."""
    return "".join(word.text for word in words)

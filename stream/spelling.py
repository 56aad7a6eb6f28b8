"""Words back in the spelling of their text: which of them have a space before them.

A hypothesis has its words bare. Where a script writes no spaces, or scripts meet, only the text knows where they go.
"""

import unicodedata
from collections.abc import Sequence

from liveasr.types import Word

_HANGUL = ("\uac00", "\ud7a3")


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


def continued(before: Word, word: Word) -> Word:
    """The second of two spaced words that did not stand together: it gets a space if both scripts write them."""
    needs_space = before.text[-1].isascii() and word.text[0].isascii() and word.text[0] != " "
    return Word(" " + word.text, word.start_ms, word.end_ms) if needs_space else word


def put_together(first: str, second: str) -> str:
    """Two texts with a pause between them as one: with a space, unless the scripts at the seam write none."""
    if not (first and second):
        return first or second
    return first + (" " if _has_spaces(first[-1]) and _has_spaces(second[0]) else "") + second


def _has_spaces(character: str) -> bool:
    """Whether words are spaced in the script of a character. Wide ones are Han, kana and their marks, or Hangul."""
    is_wide = unicodedata.east_asian_width(character) in ("W", "F")
    return not is_wide or _HANGUL[0] <= character <= _HANGUL[1]

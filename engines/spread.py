"""Words with times for a text that came without: each gets its share of the segment.

A language model writes what is said, not when. Its words are spread over the segment by their length: right on the
average, wrong by a second and more where someone pauses.
"""

from liveasr.engines.tokens import SPACE, TimedPiece, to_words
from liveasr.types import Word


def spread(text: str, duration_ms: int) -> tuple[Word, ...]:
    """The words of a text in rising times within the segment.

    Args:
        text: of the whole segment.
        duration_ms: of the segment.
    """
    words = to_words([TimedPiece(SPACE + text, 0, duration_ms)])
    lengths = [_length(word.text) for word in words]
    total = sum(lengths)
    timed, before = [], 0.0
    for word, length in zip(words, lengths, strict=True):
        start_ms, before = int(before / total * duration_ms), before + length
        timed.append(Word(word.text, start_ms, int(before / total * duration_ms)))
    return tuple(timed)


def _length(word: str) -> float:
    """In syllables, about: a Chinese character is one, three Latin letters are one."""
    return sum(1.0 / 3 if character.isascii() else 1.0 for character in word if character.isalnum()) or 1.0 / 3

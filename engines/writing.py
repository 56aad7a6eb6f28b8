"""When a language model has written enough: it may repeat itself for ever, or write more than anyone can say.

A model that loops says the same tokens over and over; people do so, too, but not for that long, and a loop has all the
time until the bound. So it is stopped late and surely rather than early.
"""

from collections.abc import Sequence

_FRAME_MS = 60
_TOKENS_PER_S = 12
"""Nobody speaks faster: 8 Chinese characters a second are very fast, 5 English words of up to 2 tokens too, and marks
are tokens as well."""
_TOKENS_BESIDE = 8
"""However short the sound: numbers are spoken in a syllable and written in several tokens."""
_LOOP_TOKENS = 24
"""The least that has to be of one group."""
_LOOP_TIMES = 4
"""How often the group has to stand there at least."""


def most_tokens(frames: int) -> int:
    """How many tokens the audio of so many stacked frames can hold."""
    return frames * _FRAME_MS * _TOKENS_PER_S // 1000 + _TOKENS_BESIDE


def looped(ids: Sequence[int]) -> int:
    """How many tokens at the end do nothing but repeat the group before them; 0 if there is no loop.

    Looking at the end after every token finds each loop as soon as it is long enough.
    """
    for size in range(1, len(ids) // _LOOP_TIMES + 1):
        length = max(_LOOP_TOKENS, size * _LOOP_TIMES)
        tail = ids[-length:]
        if len(tail) == length and all(a == b for a, b in zip(tail, tail[size:], strict=False)):
            return length - size
    return 0

"""Hot words, words to listen for: what may be one.

They become part of what a language model is told, so nothing may be among them that is more than a word there.
"""

import re
import unicodedata
from collections.abc import Sequence

from liveasr.errors import UsageError

MAX_WORDS = 100
MAX_WORD_CHARS = 64
MAX_CHARS = 1_000
"""Of all words together: every one of them takes time in each segment."""
_TOKEN = re.compile(r"<\||\|>|<[^<>]*>")
"""Special tokens are written so: <|im_end|>, <think>."""
_NO_TEXT = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of characters, and ends of lines and paragraphs."""
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Turn the direction of writing, of all that follows."""
_QUOTED_CHARS = 20


def check(words: Sequence[str]) -> None:
    """Refuse what is no list of hot words.

    Raises:
        UsageError: one is empty, too long, or holds what no word holds; or there are too many.
    """
    if len(words) > MAX_WORDS:
        raise UsageError(f"{len(words)} hot words; at most {MAX_WORDS} can be listened for")
    for word in words:
        _check_word(word)
    if (chars := sum(map(len, words))) > MAX_CHARS:
        raise UsageError(f"the hot words have {chars:,} characters together; at most {MAX_CHARS:,} are taken")


def _check_word(word: str) -> None:
    if not word.strip():
        raise UsageError("a hot word is empty")
    if len(word) > MAX_WORD_CHARS:
        raise UsageError(
            f"the hot word {_quoted(word)} has {len(word):,} characters; at most {MAX_WORD_CHARS} are taken"
        )
    if any(_is_no_text(char) for char in word):
        raise UsageError(f"the hot word {_quoted(word)} holds a control character or the end of a line")
    if found := _TOKEN.search(word):
        raise UsageError(f"the hot word {_quoted(word)} holds {found[0]}, which marks the special tokens of a model")


def _quoted(word: str) -> str:
    """Enough of it to be known again, on one line, whatever it holds."""
    shown = word if len(word) <= _QUOTED_CHARS else f"{word[: _QUOTED_CHARS - 1]}…"
    return "".join(ascii(char)[1:-1] if _is_no_text(char) else char for char in shown)


def _is_no_text(char: str) -> bool:
    return unicodedata.category(char) in _NO_TEXT or char in _DIRECTIONS

"""Text that a terminal shows, and does not obey. No I/O."""

import unicodedata

_OBEYED = ("Cc", "Cf", "Zl", "Zp", "Cs")
"""Unicode's categories of what is no character to see: controls, ends of lines, bytes of a name that are no UTF-8."""


def visible(text: str) -> str:
    """A text in one line: what a terminal would obey, as names of files may have it, as Python would write it."""
    return "".join(
        character.encode("unicode_escape").decode("ascii") if unicodedata.category(character) in _OBEYED else character
        for character in text
    )

"""How a streaming model cuts a segment: windows of stacked frames that overlap, and how far they look back.

    frames      0 ......... 9 10 ........ 19 20 ...
    window 0    z z z z z 0 ......... 9                 [0, 10, 5]: the first 10 rows are its centre, the last 5 are
    window 1              5 .. 9 10 ........ 19         ahead of it; before the segment (z) there are zeros
    window 2                        15 .. 19 20 ...

Each window brings `now` new frames, and keeps the last `past + ahead` of what came before. Tokens fire in its centre,
`now` rows that begin behind `past`; those ahead of it are the centre of the next window, or of nothing: then they
belong to the last.
"""

from dataclasses import dataclass

from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile

_MOST_ROWS = 1024
"""Of a window, or of what is looked back at: one minute."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Sizes in stacked frames of 60 ms, look-backs in chunks of `now`.

    Raises:
        UsageError: a number is out of range. Nothing ahead is out of range, too: the reference cannot do it either.
    """

    past: int = 0
    now: int = 10
    ahead: int = 5
    encoder_look_back: int = 4
    decoder_look_back: int = 1

    def __post_init__(self) -> None:
        if min(self.now, self.ahead) < 1 or min(self.past, self.encoder_look_back, self.decoder_look_back) < 0:
            raise UsageError(f"{self} is no way to cut a segment: now and ahead are at least 1, the others at least 0")
        if max(self.window, self.encoder_rows, self.decoder_rows) > _MOST_ROWS:
            raise UsageError(f"{self} makes windows, or looks back at rows, of more than {_MOST_ROWS}")

    @property
    def kept(self) -> int:
        """Rows of a window that came before: the end of the last window."""
        return self.past + self.ahead

    @property
    def window(self) -> int:
        """Rows of a window; the last one of a segment may have fewer."""
        return self.past + self.now + self.ahead

    @property
    def encoder_rows(self) -> int:
        """Rows of earlier windows that a query of the encoder sees, at most."""
        return self.encoder_look_back * self.now

    @property
    def decoder_rows(self) -> int:
        """Rows of earlier windows that a query of the decoder sees, at most."""
        return self.decoder_look_back * self.now


def from_gguf(file: GgufFile, prefix: str) -> Chunks:
    """The sizes that a file recommends.

    Args:
        file: a validated file.
        prefix: of the keys: "pfs.".

    Raises:
        ModelFileError: a number is missing or absurd.
    """
    numbers = {
        "past": file.integer(f"{prefix}chunk.past", least=0),
        "now": file.integer(f"{prefix}chunk.now"),
        "ahead": file.integer(f"{prefix}chunk.ahead"),
        "encoder_look_back": file.integer(f"{prefix}encoder_look_back", least=0),
        "decoder_look_back": file.integer(f"{prefix}decoder_look_back", least=0),
    }
    try:
        return Chunks(**numbers)
    except UsageError as error:
        raise ModelFileError(file.path, str(error)) from error

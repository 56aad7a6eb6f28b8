"""SentencePiece pieces to text and words, and the tags that SenseVoice writes among them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from liveasr.types import Word

SPACE = "\u2581"
"""Stands for a space at the beginning of a piece."""
_TAG = re.compile(r"<\|(.+)\|>")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SILENT_PIECES = ("<s>", "</s>")
# Scripts that are captioned character by character: kana, Han with its extensions, Hangul, Bopomofo.
_CHARACTER_SCRIPTS = re.compile(
    "[\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class TimedPiece:
    """A piece of the vocabulary and when it was heard."""

    piece: str
    start_ms: int
    end_ms: int


def is_character(character: str) -> bool:
    """Whether it belongs to a script that is captioned character by character."""
    return _CHARACTER_SCRIPTS.match(character) is not None


def tag_name(piece: str) -> str | None:
    """Return "en" for the piece "<|en|>", None for ordinary text."""
    found = _TAG.fullmatch(piece)
    return found.group(1) if found else None


def to_words(pieces: Iterable[TimedPiece]) -> tuple[Word, ...]:
    """Words with their times: split at spaces, and character by character in the scripts that write none.

    The characters of one piece share its time evenly. Punctuation stays with what it touches. Byte pieces are joined to
    characters; bytes that are no UTF-8 become U+FFFD, as in SentencePiece.
    """
    words: list[Word] = []
    joins = False  # whether a letter or digit would belong to the last word
    after_space = True
    for piece in _merge_bytes(pieces):
        length_ms = piece.end_ms - piece.start_ms
        visible = sum(not character.isspace() for character in piece.piece.replace(SPACE, " "))
        index = 0  # among the visible characters
        for character in piece.piece.replace(SPACE, " "):
            if character.isspace():
                joins, after_space = False, True
                continue
            start_ms = piece.start_ms + length_ms * index // visible
            end_ms = piece.start_ms + length_ms * (index + 1) // visible
            index += 1
            alone = is_character(character)
            is_mark = not character.isalnum() and not alone
            if (is_mark and words and not after_space) or (joins and not alone):
                words[-1] = Word(words[-1].text + character, words[-1].start_ms, end_ms)
            else:
                words.append(Word(character, start_ms, end_ms))
                joins = not alone
            after_space = False
    return tuple(_attached(words))


def _attached(words: Iterable[Word]) -> Iterator[Word]:
    """Words, with marks that stand alone joined to the word before."""
    last: Word | None = None
    for word in words:
        if last is not None and not any(character.isalnum() for character in word.text):
            last = Word(last.text + word.text, last.start_ms, word.end_ms)
            continue
        if last is not None:
            yield last
        last = word
    if last is not None:
        yield last


def to_text(pieces: Iterable[TimedPiece]) -> str:
    """The plain text of pieces, as SentencePiece decodes them, without tags."""
    return "".join(piece.piece for piece in _merge_bytes(pieces)).replace(SPACE, " ").strip()


def _merge_bytes(pieces: Iterable[TimedPiece]) -> list[TimedPiece]:
    """Pieces of text: tags left out, runs of byte pieces decoded together."""
    merged: list[TimedPiece] = []
    pending = bytearray()
    first: TimedPiece | None = None
    last: TimedPiece | None = None

    def flush() -> None:
        nonlocal first
        if first is not None and last is not None:
            merged.append(TimedPiece(pending.decode("utf-8", errors="replace"), first.start_ms, last.end_ms))
            pending.clear()
            first = None

    for piece in pieces:
        byte = _BYTE.fullmatch(piece.piece)
        if byte:
            pending.append(int(byte.group(1), 16))
            first, last = first or piece, piece
            continue
        flush()
        if tag_name(piece.piece) is None and piece.piece not in _SILENT_PIECES:
            merged.append(piece)
    flush()
    return merged

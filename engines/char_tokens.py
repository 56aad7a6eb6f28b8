"""The tokens of Paraformer's vocabularies to text and words: characters, English words, and pieces of them.

A piece that goes on ends with "@@". Spaces stand between Latin words and nowhere else, and single letters that follow
each other are an abbreviation: "u", "s", "a" is "USA". Source: `funasr/utils/postprocess_utils.py`,
`sentence_postprocess` and `abbr_dispose`; where that loses a piece that nothing follows, or moves it behind the
characters that do, the piece is kept here, where it was heard.
"""

from collections.abc import Iterable, Iterator, Sequence

from liveasr.engines.tokens import TimedPiece, is_character
from liveasr.types import Word

_GOES_ON = "@@"
_SILENT_PIECES = ("<blank>", "<s>", "</s>", "<unk>", "<OOV>")


def join_tokens(pieces: Iterable[TimedPiece]) -> tuple[str, tuple[Word, ...]]:
    """The text of tokens, and its words with their times; a word is a character where no spaces are written."""
    return _joined(_whole(pieces))


def join_settled(pieces: Sequence[TimedPiece]) -> tuple[str, tuple[Word, ...]]:
    """`join_tokens` without the last word where a later piece may still change it, so that more pieces only add text.

    Such are a word that goes on, and a lone letter, which another letter would make an abbreviation.
    """
    words = list(_whole(pieces))
    last = next((piece.piece for piece in reversed(pieces) if _is_spoken(piece)), "")
    if _GOES_ON in last:
        words.pop()
    if words and _is_letter(words[-1]) and not (len(words) > 1 and _is_letter(words[-2])):
        words.pop()
    return _joined(words)


def _joined(whole: Iterable[Word]) -> tuple[str, tuple[Word, ...]]:
    words = tuple(_abbreviated(whole))
    text = ""
    for index, word in enumerate(words):
        between = index > 0 and _is_latin(word.text) and _is_latin(words[index - 1].text)
        text += f" {word.text}" if between else word.text
    return text, words


def _whole(pieces: Iterable[TimedPiece]) -> Iterator[Word]:
    """Words, their pieces joined."""
    begun: Word | None = None
    for piece in pieces:
        if not _is_spoken(piece):
            continue
        text = _text(piece)
        if begun is not None and _is_latin(text):
            begun = Word(begun.text + text, begun.start_ms, piece.end_ms)
        else:
            if begun is not None:
                yield begun
            begun = Word(text, piece.start_ms, piece.end_ms)
        if _GOES_ON not in piece.piece:
            yield begun
            begun = None
    if begun is not None:
        yield begun


def _abbreviated(words: Iterable[Word]) -> Iterator[Word]:
    """Words, with runs of single letters made one word in capitals."""
    run: list[Word] = []
    for word in words:
        if _is_letter(word):
            run.append(word)
            continue
        yield from _one_word(run)
        run = []
        yield word
    yield from _one_word(run)


def _one_word(letters: list[Word]) -> Iterator[Word]:
    if len(letters) > 1:
        text = "".join(letter.text for letter in letters).upper()
        yield Word(text, letters[0].start_ms, letters[-1].end_ms)
    else:
        yield from letters


def _text(piece: TimedPiece) -> str:
    return piece.piece.replace(_GOES_ON, "").strip()


def _is_spoken(piece: TimedPiece) -> bool:
    return piece.piece not in _SILENT_PIECES and _text(piece) != ""


def _is_letter(word: Word) -> bool:
    return len(word.text) == 1 and word.text.isascii() and word.text.isalpha()


def _is_latin(text: str) -> bool:
    """Whether spaces part it from its like: it has a letter of a script that writes them."""
    return any(character.isalpha() and not is_character(character) for character in text)

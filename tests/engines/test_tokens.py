"""Pieces to text and words, in every script that the models write."""

# ruff: noqa: RUF001 - Chinese punctuation is meant

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.tokens import SPACE, TimedPiece, tag_name, to_text, to_words

STEP_MS = 60


def timed(*pieces: str, step_ms: int = STEP_MS) -> list[TimedPiece]:
    """One piece a step, from 0."""
    return [TimedPiece(piece, step_ms * index, step_ms * (index + 1)) for index, piece in enumerate(pieces)]


def words(*pieces: str) -> list[tuple[str, int, int]]:
    return [(word.text, word.start_ms, word.end_ms) for word in to_words(timed(*pieces))]


def in_bytes(text: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in text.encode()]


# Words.


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        (["▁hello"], [("hello", 0, 60)]),
        (["▁hello", "▁world"], [("hello", 0, 60), ("world", 60, 120)]),
        (["▁cap", "tion", "s"], [("captions", 0, 180)]),
        (["hello", "▁world"], [("hello", 0, 60), ("world", 60, 120)]),
        (["▁", "one", "▁", "two"], [("one", 60, 120), ("two", 180, 240)]),
        (["▁it", "'", "s"], [("it's", 0, 180)]),
        (["▁don't"], [("don't", 0, 60)]),
        (["▁well", "-", "known", "▁x"], [("well-known", 0, 180), ("x", 180, 240)]),
        (["▁naïve", "▁Привет"], [("naïve", 0, 60), ("Привет", 60, 120)]),
        (["▁3", "1", "4"], [("314", 0, 180)]),
        (["▁3.5%"], [("3.5%", 0, 60)]),
    ],
)
def test_latin_words_part_at_spaces(pieces: list[str], expected: list[tuple[str, int, int]]) -> None:
    assert words(*pieces) == expected


def test_piece_of_two_words_shares_its_time_by_characters() -> None:
    assert words("▁a▁word") == [("a", 0, 12), ("word", 12, 60)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["你", "好"], [("你", 0, 60), ("好", 60, 120)]),
        (["你好"], [("你", 0, 30), ("好", 30, 60)]),
        (["▁你好吗"], [("你", 0, 20), ("好", 20, 40), ("吗", 40, 60)]),
        (["こん", "にちは"], [("こ", 0, 30), ("ん", 30, 60), ("に", 60, 80), ("ち", 80, 100), ("は", 100, 120)]),
        (["コーヒー"], [("コ", 0, 15), ("ー", 15, 30), ("ヒ", 30, 45), ("ー", 45, 60)]),
        (["人々"], [("人", 0, 30), ("々", 30, 60)]),
        (["안녕", "▁세"], [("안", 0, 30), ("녕", 30, 60), ("세", 60, 120)]),
        (["ㄅㄆ"], [("ㄅ", 0, 30), ("ㄆ", 30, 60)]),
        (["𠮷"], [("𠮷", 0, 60)]),
        (["豈", "ｱ"], [("豈", 0, 60), ("ｱ", 60, 120)]),
    ],
    ids=["zh", "zh piece", "zh behind a space", "ja", "long vowels", "iteration mark", "ko", "bopomofo", "rare Han",
         "compatibility"],
)  # fmt: skip
def test_scripts_without_spaces_go_character_by_character(
    pieces: list[str], expected: list[tuple[str, int, int]]
) -> None:
    assert words(*pieces) == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["我", "用", "app", "le"], ["我", "用", "apple"]),
        (["app", "吧"], ["app", "吧"]),
        (["▁T恤"], ["T", "恤"]),
        (["第", "10", "0", "章"], ["第", "100", "章"]),
        (["OK", "吗", "▁yes"], ["OK", "吗", "yes"]),
        (["恤", "x", "y"], ["恤", "xy"]),
    ],
)
def test_mixed_scripts_part_where_the_script_changes(pieces: list[str], expected: list[str]) -> None:
    assert [text for text, _, _ in words(*pieces)] == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["▁hello", ",", "▁world", "."], [("hello,", 0, 120), ("world.", 120, 240)]),
        (
            ["你", "好", "，", "世", "界", "。"],
            [("你", 0, 60), ("好，", 60, 180), ("世", 180, 240), ("界。", 240, 360)],
        ),
        (["你好，"], [("你", 0, 20), ("好，", 20, 60)]),
        (["好", ",", "a"], [("好,", 0, 120), ("a", 120, 180)]),
        (["。", "好"], [("。", 0, 60), ("好", 60, 120)]),
        (["▁", "?", "!"], [("?!", 60, 180)]),
        (["▁yes", "▁."], [("yes.", 0, 120)]),
        (["▁cost", "▁$", "5"], [("cost", 0, 60), ("$5", 60, 180)]),
        (["क", "\u093e"], [("का", 0, 120)]),
        (["e", "\u0301", "t"], [("e\u0301t", 0, 180)]),
    ],
)
def test_punctuation_and_marks_stay_with_what_they_follow(
    pieces: list[str], expected: list[tuple[str, int, int]]
) -> None:
    assert words(*pieces) == expected


# Byte pieces.


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (in_bytes("你"), [("你", 0, 180)]),
        (in_bytes("你好"), [("你", 0, 180), ("好", 180, 360)]),
        (["▁a", *in_bytes("é"), "b"], [("aéb", 0, 240)]),
        (["好", *in_bytes("🙂")], [("好🙂", 0, 300)]),
        (["<0xe4>", "<0xBd>", "<0xA0>"], [("你", 0, 180)]),
        (["<0x41>", "▁b"], [("A", 0, 60), ("b", 60, 120)]),
        (["a", "<0x20>", "b"], [("a", 0, 60), ("b", 120, 180)]),
    ],
    ids=["one", "two", "inside a word", "emoji", "any case", "ascii", "space"],
)
def test_bytes_are_joined_to_characters(pieces: list[str], expected: list[tuple[str, int, int]]) -> None:
    assert words(*pieces) == expected
    assert to_text(timed(*pieces)).replace(" ", "") == "".join(text for text, _, _ in expected)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["<0xE4>", "<0xBD>"], "\ufffd"),
        (["<0xFF>"], "\ufffd"),
        (["<0xE4>", "x", "<0xBD>", "<0xA0>"], "\ufffdx\ufffd\ufffd"),
        (["<0xE4>", "<|en|>", "<0xBD>", "<0xA0>"], "\ufffd\ufffd\ufffd"),
        (["<0xE4>", *in_bytes("你")], "\ufffd你"),
        (in_bytes(SPACE), ""),
        (["a", *in_bytes(SPACE), "b"], "a b"),
    ],
    ids=["cut short", "no lead byte", "split by text", "split by a tag", "stray before", "space mark", "space between"],
)
def test_bytes_that_are_no_character_become_a_replacement(pieces: list[str], text: str) -> None:
    assert to_text(timed(*pieces)) == text
    assert "".join(word.text for word in to_words(timed(*pieces))) == text.replace(" ", "")


@pytest.mark.parametrize("piece", ["<0xE4", "0xE4", "<0xE>", "<0xE4F>", "<0xGG>", "<0x>"])
def test_what_only_looks_like_a_byte_is_text(piece: str) -> None:
    assert to_text(timed(piece)) == piece


# Tags and text.


@pytest.mark.parametrize(
    ("piece", "name"),
    [("<|en|>", "en"), ("<|EMO_UNKNOWN|>", "EMO_UNKNOWN"), ("<||>", None), ("<|en", None), ("x<|en|>", None),
     ("<en>", None), ("", None), ("▁<|en|>", None)],
)  # fmt: skip
def test_tag_is_a_whole_piece(piece: str, name: str | None) -> None:
    assert tag_name(piece) == name


def test_tags_and_marks_of_the_sentence_are_left_out() -> None:
    pieces = ["<|en|>", "<|NEUTRAL|>", "<s>", "▁one", "<|Speech|>", "▁two", "</s>", "<|withitn|>"]
    assert to_text(timed(*pieces)) == "one two"
    assert words(*pieces) == [("one", 180, 240), ("two", 300, 360)]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([], ""),
        (["▁"], ""),
        (["▁hello", "▁world"], "hello world"),
        (["▁你好", "，", "▁a"], "你好， a"),
        (["▁a", "▁"], "a"),
    ],
)
def test_text_is_what_sentencepiece_decodes(pieces: list[str], text: str) -> None:
    assert to_text(timed(*pieces)) == text


# For any pieces at any times.

TAGS = ("<|zh|>", "<|HAPPY|>", "<|Speech|>", "<s>", "</s>")
CHARACTERS = "abZ09é'-,.!?$(\"我们好。，かナー한글कां\u0301\u200d🙂\ufffd \t\u3000▁▁▁"
BYTES = [f"<0x{byte:02X}>" for byte in (0xE4, 0xBD, 0xA0, 0x41, 0x20, 0x2C, 0xFF, 0xE2, 0x96, 0x81)]
PIECES = st.one_of(
    st.text(st.sampled_from(CHARACTERS), max_size=5),
    st.sampled_from(BYTES),
    st.sampled_from(BYTES),
    st.sampled_from(TAGS),
    st.text(st.characters(exclude_characters="<|>", exclude_categories=["Cs"]), max_size=3),
)


@st.composite
def timed_pieces(draw: st.DrawFn) -> list[TimedPiece]:
    """Pieces one behind the other, with gaps or without."""
    at = draw(st.integers(0, 1000))
    made = []
    for piece in draw(st.lists(PIECES, max_size=15)):
        start = at + draw(st.sampled_from((0, 0, 60, 1)))
        at = start + draw(st.sampled_from((60, 30, 0, 1, 240)))
        made.append(TimedPiece(piece, start, at))
    return made


@given(timed_pieces())
def test_words_joined_are_the_text_without_spaces(pieces: list[TimedPiece]) -> None:
    assert "".join(word.text for word in to_words(pieces)) == "".join(to_text(pieces).split())


@given(timed_pieces())
def test_word_times_rise_and_stay_inside(pieces: list[TimedPiece]) -> None:
    found = to_words(pieces)
    assert all(word.start_ms <= word.end_ms for word in found)
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(found))
    if found:
        assert pieces[0].start_ms <= found[0].start_ms
        assert found[-1].end_ms <= pieces[-1].end_ms


@given(timed_pieces())
def test_words_and_text_have_no_tag_no_mark_and_no_space_around(pieces: list[TimedPiece]) -> None:
    text = to_text(pieces)
    assert text == text.strip()
    for found in (text, *(word.text for word in to_words(pieces))):
        assert SPACE not in found
        assert not any(tag in found for tag in TAGS)
    assert all(word.text and not any(character.isspace() for character in word.text) for word in to_words(pieces))


@given(timed_pieces())
def test_tags_change_nothing_but_bytes_around_them(pieces: list[TimedPiece]) -> None:
    plain = [piece for piece in pieces if piece.piece not in {*TAGS, *BYTES}]
    tagged = [extra for piece in plain for extra in (TimedPiece("<|en|>", piece.start_ms, piece.start_ms), piece)]
    assert to_words(tagged) == to_words(plain)
    assert to_text(tagged) == to_text(plain)

"""Tokens to text and words, as the reference joins them, and where it loses some."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.char_tokens import join_settled, join_tokens
from liveasr.engines.tokens import TimedPiece

STEP_MS = 60


def timed(*pieces: str) -> list[TimedPiece]:
    """One piece a step, from 0."""
    return [TimedPiece(piece, STEP_MS * index, STEP_MS * (index + 1)) for index, piece in enumerate(pieces)]


def text(*pieces: str) -> str:
    return join_tokens(timed(*pieces))[0]


def words(*pieces: str) -> list[tuple[str, int, int]]:
    return [(word.text, word.start_ms, word.end_ms) for word in join_tokens(timed(*pieces))[1]]


# What `sentence_postprocess` of the reference answered to the same tokens, without and with times.
REFERENCE = [
    (
        ["good", "day", "今", "天"],
        "good day今天",
        [("good", 0, 60), ("day", 60, 120), ("今", 120, 180), ("天", 180, 240)],
    ),
    (["今", "天", "good", "好"], "今天good好", [("今", 0, 60), ("天", 60, 120), ("good", 120, 180), ("好", 180, 240)]),
    (["a@@", "ca@@", "day"], "acaday", [("acaday", 0, 180)]),
    (["a@@", "b", "c"], "ab c", [("ab", 0, 120), ("c", 120, 180)]),
    (["u", "s", "a", "is"], "USA is", [("USA", 0, 180), ("is", 180, 240)]),
    (["今", "u", "s", "a"], "今USA", [("今", 0, 60), ("USA", 60, 240)]),
    (["u", "今", "s"], "u今s", [("u", 0, 60), ("今", 60, 120), ("s", 120, 180)]),
    (["a", "b@@", "c", "d"], "a bc d", [("a", 0, 60), ("bc", 60, 180), ("d", 180, 240)]),
    (["i", "'m", "a"], "i 'm a", [("i", 0, 60), ("'m", 60, 120), ("a", 120, 180)]),
    (["3", "good", "4"], "3good4", [("3", 0, 60), ("good", 60, 120), ("4", 120, 180)]),
    (["123", "4"], "1234", [("123", 0, 60), ("4", 60, 120)]),
    (["it's", "好"], "it's好", [("it's", 0, 60), ("好", 60, 120)]),
    ([], "", []),
]


@pytest.mark.parametrize(("pieces", "expected", "timed_words"), REFERENCE)
def test_tokens_are_joined_as_the_reference_joins_them(
    pieces: list[str], expected: str, timed_words: list[tuple[str, int, int]]
) -> None:
    assert text(*pieces) == expected
    assert words(*pieces) == timed_words


@pytest.mark.parametrize("silent", ["<blank>", "<s>", "</s>", "<unk>", "<OOV>", "@@", " "])
def test_tokens_without_a_text_are_left_out_with_their_times(silent: str) -> None:
    """The reference then gives the words behind them the times of the words before."""
    assert text("good", silent, "今") == "good今"
    assert words("good", silent, "今") == [("good", 0, 60), ("今", 120, 180)]


def test_piece_that_nothing_follows_is_a_word() -> None:
    """The reference drops it at the end, and elsewhere puts it before the next Latin word."""
    assert text("day", "a@@") == "day a"
    assert words("th@@", "今", "good") == [("th", 0, 60), ("今", 60, 120), ("good", 120, 180)]


@given(
    st.lists(st.sampled_from(["今", "天", "good", "th@@", "u", "3", "4g", "'s", "<unk>", "é", "あ", "𠀀"]), max_size=30)
)
def test_words_are_the_text_and_their_times_rise(pieces: list[str]) -> None:
    joined, found = join_tokens(timed(*pieces))
    assert joined.replace(" ", "") == "".join(word.text for word in found)
    assert joined == joined.strip()
    assert "@@" not in joined
    assert all(word.text and word.start_ms < word.end_ms for word in found)
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(found))


# While more pieces may come.


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((), ""),
        (("你", "好"), "你好"),
        (("good", "morning"), "good morning"),
        (("good", "mor@@"), "good"),
        (("good", "mor@@", "<unk>"), "good"),
        (("good", "mor@@", "你"), "good mor你"),
        (("mor@@", "n@@"), ""),
        (("good", "u"), "good"),
        (("good", "u", "</s>"), "good"),
        (("good", "u", "s"), "good US"),
        (("good", "u", "s", "x@@"), "good US"),
        (("u", "x@@"), ""),
        (("a@@", "u", "s"), "au"),
        (("@@",), ""),
    ],
)
def test_word_that_may_still_change_is_kept_back(pieces: tuple[str, ...], expected: str) -> None:
    assert join_settled(timed(*pieces))[0] == expected


@given(st.lists(st.sampled_from(["u", "s", "x@@", "hel@@", "lo", "good", "你", "3", "3@@", "<unk>", "@@", "é", "B"])))
def test_more_pieces_only_add_text(pieces: list[str]) -> None:
    settled = [join_settled(timed(*pieces[:count])) for count in range(len(pieces) + 1)]
    for (before, before_words), (after, after_words) in pairwise([*settled, join_tokens(timed(*pieces))]):
        assert after.startswith(before)
        assert [(word.text, word.start_ms) for word in after_words[: max(0, len(before_words) - 1)]] == [
            (word.text, word.start_ms) for word in before_words[:-1]
        ]

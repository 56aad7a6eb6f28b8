"""What may be a hot word: words of every script, and nothing that a language model would read as more than a word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines import hotwords
from liveasr.engines.base import DecodeOptions
from liveasr.errors import UsageError
from tests.wire import hotword_lists


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("Lagrange", "Ada Lovelace", "café"),
        ("通义千问", "東京\u3000都", "한국어"),
        ("👩\u200d👧", "C++", "a|b", "x < y", "50 %", '"quoted"', "l'été"),
        ("x" * 64,),
        ("字",) * 100,
        ("x" * 50,) * 20,
    ],
)
def test_words_of_every_script_are_taken_up_to_the_limits(words: tuple[str, ...]) -> None:
    assert DecodeOptions(hotwords=words).hotwords == words


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("",), "a hot word is empty"),
        (("good", " \u3000"), "a hot word is empty"),
        (("x" * 65,), f"the hot word {'x' * 19}… has 65 characters; at most 64 are taken"),
        (("x" * 100_000,), f"the hot word {'x' * 19}… has 100,000 characters; at most 64 are taken"),
        (("x",) * 101, "101 hot words; at most 100 can be listened for"),
        (("x" * 50,) * 20 + ("y",), "the hot words have 1,001 characters together; at most 1,000 are taken"),
        (("a\nb",), r"the hot word a\nb holds a control character or the end of a line"),
        (("a\tb",), r"the hot word a\tb holds a control character or the end of a line"),
        (("a\x00",), r"the hot word a\x00 holds a control character or the end of a line"),
        (("a\u2028b",), r"the hot word a\u2028b holds a control character or the end of a line"),
        (("a\u2029b",), r"the hot word a\u2029b holds a control character or the end of a line"),
        (("a\x85b",), r"the hot word a\x85b holds a control character or the end of a line"),
        (("a\udcff",), r"the hot word a\udcff holds a control character or the end of a line"),
        (("<|im_end|>",), "the hot word <|im_end|> holds <|, which marks the special tokens of a model"),
        (("good", "im_end|>"), "the hot word im_end|> holds |>, which marks the special tokens of a model"),
        (("a <think> b",), "the hot word a <think> b holds <think>, which marks the special tokens of a model"),
        (("a\u202eb",), r"the hot word a\u202eb holds a control character or the end of a line"),
    ],
)
def test_what_is_no_word_is_refused_by_name_and_with_the_limit(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        DecodeOptions(hotwords=words)
    assert str(caught.value) == complaint
    assert str(caught.value).isprintable()


@given(hotword_lists)
def test_whatever_tests_take_for_hot_words_is_taken(words: tuple[str, ...]) -> None:
    hotwords.check(words)


@given(st.lists(st.text(), max_size=3))
def test_what_is_taken_is_on_one_line_and_has_no_mark_of_a_token(words: list[str]) -> None:
    try:
        hotwords.check(words)
    except UsageError:
        return
    for word in words:
        assert word.splitlines() == [word]
        assert "<|" not in word
        assert "|>" not in word
        word.encode()

"""Times for words that came without."""

from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.spread import spread
from liveasr.types import Word


@given(st.text(max_size=60), st.integers(0, 20_000))
def test_words_are_all_of_the_text_in_rising_times_within_the_segment(text: str, duration_ms: int) -> None:
    words = spread(text, duration_ms)
    assert "".join("".join(word.text for word in words).split()) == "".join(text.split())
    times = [time for word in words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert not words or (times[0] == 0 and times[-1] == duration_ms)


def test_a_word_gets_time_by_its_length() -> None:
    assert spread("ab abcd 中文", 4000) == (
        Word("ab", 0, 666),
        Word("abcd", 666, 2000),
        Word("中", 2000, 3000),
        Word("文", 3000, 4000),
    )


def test_what_looks_like_a_tag_or_a_byte_is_text() -> None:
    assert [word.text for word in spread("<0x41>", 100)] == ["<0x41>"]
    assert [word.text for word in spread("<|en|>", 100)] == ["<|en|>"]


def test_marks_alone_share_the_time_too() -> None:
    assert spread("...", 300) == (Word("...", 0, 300),)
    assert spread("", 300) == ()

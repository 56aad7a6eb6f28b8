"""A draft over what the partials heard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.stream.overlay import overlaid
from liveasr.stream.spelling import joined, spaced
from liveasr.types import Word


def words(text: str) -> list[Word]:
    """Spaced words, each a character where nothing else parts them."""
    bare = text.split() if text.isascii() else list(text.replace(" ", ""))
    return spaced(text, [Word(word, 0, 0) for word in bare])


@pytest.mark.parametrize(
    ("heard", "committed", "draft", "shown"),
    [
        ("one two three four", 0, "", "one two three four"),
        ("one two three four", 0, "won", "won two three four"),
        ("one two three four", 0, "won too free for five", "won too free for five"),
        ("one two three four", 2, "won", "one two three four"),
        ("one two three four", 2, "won too free", "one two free four"),
        ("one two three four", 4, "won too free for five", "one two three four five"),
        ("", 0, "won too", "won too"),
        ("今天天气很好", 2, "昨天夜", "今天夜气很好"),
        ("你好 ok", 1, "hi there", "你 there ok"),
    ],
)
def test_a_draft_covers_the_partials_word_for_word_from_the_left(
    heard: str, committed: int, draft: str, shown: str
) -> None:
    spoken = words(heard)
    found = joined(spoken[:committed] + overlaid(spoken[:committed], spoken[committed:], words(draft)))
    assert found.replace(" ", "") == shown.replace(" ", "")
    if shown.isascii():
        assert found == shown


def test_latin_words_that_did_not_stand_together_are_parted() -> None:
    tentative, draft = words("你ok"), spaced("hi", [Word("hi", 0, 0)])
    assert joined(overlaid([], [tentative[0], Word("ok", 0, 0)], draft)) == "hi ok"
    assert joined(overlaid([Word("ok", 0, 0)], [], [Word("你", 0, 0), Word("fine", 0, 0)])) == " fine"


@given(
    committed=st.lists(st.sampled_from("abc"), max_size=5),
    tentative=st.lists(st.sampled_from("abc"), max_size=5),
    draft=st.lists(st.sampled_from("xyz"), max_size=12),
)
def test_a_growing_draft_never_shows_fewer_words_than_before(
    committed: list[str], tentative: list[str], draft: list[str]
) -> None:
    before, behind = ([Word(text, 0, 0) for text in texts] for texts in (committed, tentative))
    lengths = [
        len(overlaid(before, behind, [Word(text, 0, 0) for text in draft[:count]])) for count in range(len(draft) + 1)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] == len(tentative)
    assert lengths[-1] == max(len(tentative), len(draft) - len(committed))

import pytest

from liveasr.clients.stability import edit_overhead, percentile, unstable_words


def shown(*lines: str) -> list[list[str]]:
    return [line.split() for line in lines]


def test_text_that_only_grows_costs_nothing() -> None:
    growing = shown("a", "a b", "a b c d", "a b c d")
    assert edit_overhead(growing) == (0, 4)
    assert unstable_words(growing) == (0, 4)


def test_a_word_that_changes_costs_its_removal_and_its_wrong_addition() -> None:
    changing = shown("a", "a x", "a b c")
    assert edit_overhead(changing) == (2, 5)  # x came and went
    assert unstable_words(changing) == (1, 3)


def test_a_change_in_the_middle_costs_all_words_behind_it() -> None:
    changing = shown("a x c d", "a b c d")
    assert edit_overhead(changing) == (6, 10)
    assert unstable_words(changing) == (3, 4)


def test_text_that_is_taken_back_altogether() -> None:
    assert edit_overhead(shown("a b", "")) == (4, 4)
    assert unstable_words(shown("a b", "")) == (2, 0)


def test_nothing_shown_costs_nothing() -> None:
    assert edit_overhead([]) == (0, 0)
    assert unstable_words([]) == (0, 0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 2), (0.51, 3), (0.75, 3), (0.95, 4), (1.0, 4)])
def test_percentiles_are_values_that_were_seen(share: float, expected: int) -> None:
    assert percentile([4, 1, 3, 2], share) == expected
    assert percentile([7], share) == 7

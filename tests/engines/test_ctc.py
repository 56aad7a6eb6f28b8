"""Greedy CTC: runs of equal ids become one token each, blanks none."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.ctc import CtcToken, collapse

BLANK = 0
IDS = st.lists(st.integers(0, 3), max_size=40)


@pytest.mark.parametrize(
    ("best", "tokens"),
    [
        ([], []),
        ([0, 0, 0], []),
        ([5], [(5, 0, 1)]),
        ([5, 5, 5], [(5, 0, 3)]),
        ([0, 5, 5, 0], [(5, 1, 3)]),
        ([5, 6, 5], [(5, 0, 1), (6, 1, 2), (5, 2, 3)]),
        ([5, 0, 5], [(5, 0, 1), (5, 2, 3)]),
        ([0, 7, 7, 0, 0, 7, 8, 0], [(7, 1, 3), (7, 5, 6), (8, 6, 7)]),
    ],
)
def test_runs_collapse_and_a_blank_parts_equal_ids(best: list[int], tokens: list[tuple[int, int, int]]) -> None:
    assert collapse(np.array(best, np.int32), BLANK) == [CtcToken(*token) for token in tokens]


def test_any_id_may_be_the_blank() -> None:
    assert collapse(np.array([0, 9, 9, 1], np.int32), 9) == [CtcToken(0, 0, 1), CtcToken(1, 3, 4)]


def test_numbers_are_plain_integers() -> None:
    (token,) = collapse(np.array([3], np.int32), BLANK)
    assert [type(number) for number in (token.id, token.start_step, token.end_step)] == [int, int, int]


@given(IDS)
def test_ids_are_the_runs_without_blanks(best: list[int]) -> None:
    assert [token.id for token in collapse(np.array(best, np.int32), BLANK)] == [i for i, _ in groupby(best) if i]


@given(IDS)
def test_tokens_cover_exactly_the_steps_that_are_not_blank(best: list[int]) -> None:
    tokens = collapse(np.array(best, np.int32), BLANK)
    heard = [BLANK] * len(best)
    end = 0
    for token in tokens:
        assert end <= token.start_step < token.end_step
        end = token.end_step
        heard[token.start_step : token.end_step] = [token.id] * (token.end_step - token.start_step)
    assert heard == best

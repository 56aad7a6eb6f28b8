"""Pauses between attempts."""

from itertools import pairwise

import pytest

from liveasr.clients.backoff import Backoff


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def pauses(patience_s: float, chance: float) -> list[float]:
    clock = Clock()
    backoff = Backoff(patience_s, clock, lambda: chance)
    backoff.begin()
    found = []
    while (pause_s := backoff.next()) is not None:
        found.append(pause_s)
        clock.now_s += pause_s
    return found


def test_pauses_double_up_to_the_longest_and_the_last_attempt_is_made_at_the_end() -> None:
    assert pauses(30, 0.0) == [0.5, 1, 2, 4, 8, 8, 6.5]


def test_chance_shortens_them_by_a_half_at_most() -> None:
    assert pauses(10, 1.0)[:5] == [0.25, 0.5, 1, 2, 4]
    assert all(before < after for before, after in pairwise(pauses(10, 0.5)[:4]))


@pytest.mark.parametrize("patience_s", [0, 0.1, 60])
def test_they_take_as_long_as_there_is_patience(patience_s: float) -> None:
    assert sum(pauses(patience_s, 0.3)) == pytest.approx(patience_s)


def test_a_new_beginning_is_patient_again() -> None:
    clock = Clock()
    backoff = Backoff(1.0, clock, lambda: 0.0)
    backoff.begin()
    clock.now_s += 1
    assert backoff.next() is None
    backoff.begin()
    assert backoff.next() == 0.5

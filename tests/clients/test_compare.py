"""Counting what changed between two hearings of one recording."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from liveasr.clients.compare import Comparison, Heard, changes, table


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ((), (), 0),
        ((1, 2, 3), (1, 2, 3), 0),
        ((1, 2, 3), (1, 9, 3), 1),
        ((1, 2, 3), (1, 3), 1),
        ((1, 3), (1, 2, 3), 1),
        ((), (7, 7), 2),
        ((1, 2, 3, 4), (2, 3, 4, 5), 2),
        ([5] * 500, [5] * 499, 1),
    ],
)
def test_changes_are_replaced_added_and_left_out(old: Sequence[int], new: Sequence[int], count: int) -> None:
    assert changes(old, new) == count


def test_a_table_sums_segments_and_recordings() -> None:
    before = (Heard(0, (1, 2), "a b", 0.5), Heard(900, (3,), "c", 0.25))
    after = (Heard(0, (1, 4), "a d", 0.25), Heard(900, (3,), "c", 0.125))
    item = Comparison(Path("x" * 30 + ".wav"), before, after)
    assert (item.ids, item.ids_changed, item.seconds) == (3, 1, (0.75, 0.375))
    assert item.texts_changed == [(before[0], after[0])]
    lines = table([item, item])
    assert lines[1].split() == ["x" * 20, "2", "1", "of", "3", "1", "0.750", "s", "0.375", "s"]
    assert lines[3].split() == ["all", "4", "2", "of", "6", "2", "1.500", "s", "0.750", "s"]
    assert {len(line) for line in lines} == {len(lines[0])}
    assert len(table([item])) == 2

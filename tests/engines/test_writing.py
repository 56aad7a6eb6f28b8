"""When a language model has written enough."""

from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.writing import looped, most_tokens


def first_loop(ids: list[int]) -> tuple[int, int] | None:
    """After how many tokens a loop is seen, and how many of them it repeats."""
    for count in range(1, len(ids) + 1):
        if repeated := looped(ids[:count]):
            return count, repeated
    return None


@given(
    begin=st.lists(st.integers(100, 200), max_size=20, unique=True),
    group=st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True),
)
def test_every_loop_is_seen_and_leaves_its_group_once(begin: list[int], group: list[int]) -> None:
    ids = begin + group * 60
    seen = first_loop(ids)
    assert seen is not None
    count, repeated = seen
    assert count <= len(begin) + max(24 + len(group), 4 * len(group))
    kept = ids[: count - repeated]
    assert kept[: len(begin)] == begin
    assert kept[len(begin) :] == group[: len(kept) - len(begin)]


@given(st.lists(st.integers(0, 50), max_size=60, unique=True))
def test_what_never_repeats_is_no_loop(ids: list[int]) -> None:
    assert looped(ids) == 0


def test_what_people_do_repeat_is_no_loop() -> None:
    no, five, ha = [7], [3, 4], [9]
    for said in (no * 6, five * 11, ha * 20, [1, 2, 3, 4, 5, 6] * 3):
        assert first_loop([50, 51, *said, 52]) is None


def test_a_second_holds_twelve_tokens_and_every_segment_some() -> None:
    assert most_tokens(0) == 8
    assert most_tokens(250) == 188  # 15 s
    assert all(most_tokens(frames) <= most_tokens(frames + 1) for frames in range(300))

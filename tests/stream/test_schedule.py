import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.stream.schedule import DecodeQueue


def drain(queue: DecodeQueue[str, str]) -> list[str]:
    """Everything, in the order it is taken."""
    jobs = []
    while (taken := queue.take()) is not None:
        jobs.append(taken[1])
    return jobs


def test_finals_go_before_partials_of_any_session() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(8, 8)
    queue.add_partial("a", "partial a")
    queue.add_final("b", "final b")
    assert drain(queue) == ["final b", "partial a"]


def test_sessions_take_turns() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(8, 8)
    for name in ("a1", "a2", "a3"):
        queue.add_final("a", name)
    queue.add_final("b", "b1")
    queue.add_final("c", "c1")
    assert drain(queue) == ["a1", "b1", "c1", "a2", "a3"]


def test_a_newer_partial_overtakes_the_one_that_waits() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(8, 8)
    for name in ("old", "newer", "newest"):
        queue.add_partial("a", name)
    assert (drain(queue), queue.overtaken) == (["newest"], 2)


def test_a_final_makes_the_waiting_partial_useless() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(8, 8)
    queue.add_partial("a", "partial")
    queue.add_final("a", "final")
    assert (drain(queue), queue.overtaken) == (["final"], 1)


def test_the_finals_of_a_session_are_bounded() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(2, 8)
    queue.add_final("a", "1")
    queue.add_final("a", "2")
    assert not queue.has_room("a")
    assert queue.has_room("b")
    with pytest.raises(OverflowError):
        queue.add_final("a", "3")


def test_the_finals_of_all_sessions_are_bounded() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(2, 3)
    for session in ("a", "b", "c"):
        queue.add_final(session, session)
    assert not queue.has_room("d")
    queue.take()
    assert queue.has_room("d")


def test_cancel_removes_all_of_one_session_and_nothing_else() -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(8, 8)
    queue.add_final("a", "final a")
    queue.add_partial("a", "partial a")
    queue.add_final("b", "final b")
    assert sorted(queue.cancel("a")) == ["final a", "partial a"]
    assert queue.cancel("a") == []
    assert drain(queue) == ["final b"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_counts_agree_and_nothing_is_left(adds: list[tuple[str, bool]]) -> None:
    queue: DecodeQueue[str, str] = DecodeQueue(3, 6)
    added = 0
    for session, final in adds:
        if not final:
            queue.add_partial(session, "partial")
        elif queue.has_room(session):
            queue.add_final(session, "final")
        else:
            continue
        added += 1
    waiting = len(queue)
    taken = drain(queue)
    assert len(taken) == waiting == added - queue.overtaken
    assert taken == sorted(taken)  # "final" before "partial"
    assert len(queue) == 0

import numpy as np
import pytest

from liveasr.stream.ring import FrameRing
from liveasr.types import FeatureFrames, Float32Array


def _frames(start: int, count: int) -> FeatureFrames:
    return FeatureFrames(np.repeat(np.arange(start, start + count, dtype=np.float32)[:, None], 3, axis=1), start)


def _first_column(rows: Float32Array) -> list[int]:
    return [int(row[0]) for row in rows]


def test_frames_keep_their_number_whatever_is_dropped() -> None:
    ring = FrameRing(3)
    for start in range(0, 3000, 7):
        ring.append(_frames(start, 7))
        ring.drop_before(start - 50)
    assert ring.end_frame == 3003
    assert _first_column(ring.slice(2960, 2963)) == [2960, 2961, 2962]


def test_memory_follows_the_frames_held() -> None:
    ring = FrameRing(3)
    for start in range(0, 100_000, 10):
        ring.append(_frames(start, 10))
        ring.drop_before(start - 100)
    assert len(ring) == 110
    assert len(ring._store) <= 512


def test_a_slice_is_a_copy() -> None:
    ring = FrameRing(3)
    ring.append(_frames(0, 5))
    ring.slice(0, 5)[:] = -1
    assert _first_column(ring.slice(0, 5)) == [0, 1, 2, 3, 4]


def test_dropping_what_is_gone_or_not_there_yet_is_fine() -> None:
    ring = FrameRing(3)
    ring.append(_frames(0, 5))
    ring.drop_before(-3)
    ring.drop_before(99)
    assert (len(ring), ring.start_frame, ring.end_frame) == (0, 5, 5)
    ring.append(_frames(5, 1))
    assert _first_column(ring.slice(5, 6)) == [5]


def test_frames_that_do_not_follow_are_refused() -> None:
    ring = FrameRing(3)
    with pytest.raises(AssertionError):
        ring.append(_frames(1, 1))
    with pytest.raises(AssertionError):
        ring.slice(0, 1)

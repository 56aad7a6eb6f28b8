from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.errors import UsageError
from liveasr.stream.lfr import OnlineLfr, stack
from liveasr.types import FeatureFrames, Float32Array
from tests.chunking import assert_same_for_any_split, cut_at, pieces
from tests.sounds import RECORDINGS

DIMS = 3
RECOGNISER, DETECTOR = (7, 6), (5, 1)
"""(m, n): frames in a row, frames between rows."""
BOTH = pytest.mark.parametrize(("m", "n"), [RECOGNISER, DETECTOR], ids=["recogniser", "VAD"])


def numbered(count: int) -> Float32Array:
    """(count, DIMS) frames that all differ."""
    return np.arange(count * DIMS, dtype=np.float32).reshape(count, DIMS)


def online_rows(feed: Iterable[Float32Array], m: int, n: int) -> Float32Array:
    """All rows of a stream; they must follow each other without a gap, and little may be kept."""
    online = OnlineLfr(m, n, DIMS)
    start_frame = 0
    rows: list[FeatureFrames] = []
    for piece in feed:
        rows.append(online.accept(FeatureFrames(piece, start_frame)))
        start_frame += len(piece)
        assert len(online._frames) < m + n
    rows.append(online.finish())
    end_row = 0
    for part in rows:
        assert part.start_frame == end_row
        assert part.data.dtype == np.float32
        end_row = part.end_frame
    return np.concatenate([part.data for part in rows])


@pytest.mark.parametrize("stem", RECORDINGS)
def test_rows_are_those_of_the_reference(stem: str, golden: Path) -> None:
    arrays = np.load(golden / "frontend.npz")
    assert np.array_equal(stack(arrays[f"{stem}/fbank"], 7, 6), arrays[f"{stem}/lfr7_6"])


@pytest.mark.parametrize("stem", ["zh", "jfk"])
def test_rows_of_real_speech_are_those_of_the_reference(stem: str, shared: Path) -> None:
    arrays = np.load(shared / "golden" / "sensevoice-tiny.npz")
    assert np.array_equal(stack(arrays[f"{stem}/fbank"], 7, 6), arrays[f"{stem}/lfr"])


def test_a_row_holds_its_neighbours_and_the_ends_repeat() -> None:
    frames = np.arange(9, dtype=np.float32)[:, None]
    assert stack(frames, 7, 6).tolist() == [[0, 0, 0, 0, 1, 2, 3], [3, 4, 5, 6, 7, 8, 8]]
    assert stack(frames, 5, 1)[[0, 4, 8]].tolist() == [[0, 0, 0, 1, 2], [2, 3, 4, 5, 6], [6, 7, 8, 8, 8]]


@BOTH
def test_no_frame_gives_no_row(m: int, n: int) -> None:
    assert stack(numbered(0), m, n).shape == (0, m * DIMS)
    assert OnlineLfr(m, n, DIMS).finish().data.shape == (0, m * DIMS)


@BOTH
def test_a_stream_of_any_length_gives_the_rows_of_the_whole(m: int, n: int) -> None:
    for count in range(61):
        frames = numbered(count)
        whole = stack(frames, m, n)
        assert len(whole) == -(-count // n)
        for size in (1, 2, 6, 7, 100):
            assert np.array_equal(online_rows(pieces(frames, size), m, n), whole), (count, size)


@BOTH
def test_any_split_gives_the_same_rows(m: int, n: int) -> None:
    assert_same_for_any_split(numbered(400), lambda feed: online_rows(feed, m, n).tobytes(), sizes=[1, 2, 5, 6, 100])


@given(
    kind=st.sampled_from([RECOGNISER, DETECTOR, (1, 1), (3, 2), (1, 6)]),
    count=st.integers(0, 60),
    places=st.lists(st.integers(0, 60), max_size=12),
)
def test_any_places_to_cut_give_the_rows_of_the_whole(kind: tuple[int, int], count: int, places: list[int]) -> None:
    frames = numbered(count)
    assert np.array_equal(online_rows(cut_at(frames, places), *kind), stack(frames, *kind))


@BOTH
def test_a_row_comes_as_soon_as_its_last_frame_is_there(m: int, n: int) -> None:
    online = OnlineLfr(m, n, DIMS)
    ahead = (m - 1) // 2
    for index, frame in enumerate(pieces(numbered(100), 1)):
        rows = online.accept(FeatureFrames(frame, index))
        complete = index >= ahead and (index - ahead) % n == 0
        assert len(rows.data) == complete
        assert not complete or rows.start_frame == (index - ahead) // n


@BOTH
@pytest.mark.parametrize("start_frame", [9, 11, 0])
def test_a_gap_and_an_overlap_are_refused(m: int, n: int, start_frame: int) -> None:
    online = OnlineLfr(m, n, DIMS)
    online.accept(FeatureFrames(numbered(10), 0))
    with pytest.raises(UsageError, match="frame 10 was expected next"):
        online.accept(FeatureFrames(numbered(1), start_frame))


def test_frames_after_finish_are_refused() -> None:
    online = OnlineLfr(7, 6, DIMS)
    online.finish()
    with pytest.raises(UsageError, match="after finish"):
        online.accept(FeatureFrames(numbered(1), 0))


def test_finishing_twice_is_refused() -> None:
    online = OnlineLfr(7, 6, DIMS)
    online.finish()
    with pytest.raises(UsageError, match="twice"):
        online.finish()


@BOTH
@pytest.mark.parametrize("fed", [0, 2, 50])
def test_reset_makes_it_new(m: int, n: int, fed: int) -> None:
    frames = numbered(20)
    online = OnlineLfr(m, n, DIMS)
    online.accept(FeatureFrames(numbered(fed), 0))
    online.finish()
    online.reset()
    first, last = online.accept(FeatureFrames(frames, 0)), online.finish()
    assert first.start_frame == 0
    assert np.array_equal(np.concatenate((first.data, last.data)), stack(frames, m, n))

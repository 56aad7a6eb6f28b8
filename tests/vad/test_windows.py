from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.types import SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.windows import FixedWindows

SECOND = 16_000


def events_of(window_ms: int, *sizes: int) -> list[SpeechEvent]:
    windows = FixedWindows(window_ms)
    found = [event for size in sizes for event in windows.accept(size)]
    return found + windows.finish()


def bounds(events: list[SpeechEvent]) -> list[tuple[int, int, bool]]:
    return [
        (start.sample, end.sample, end.forced_cut)
        for start, end in zip(events[::2], events[1::2], strict=True)
        if isinstance(start, SpeechStart) and isinstance(end, SpeechEnd)
    ]


def test_every_window_but_the_last_is_cut() -> None:
    assert bounds(events_of(1000, 40_000)) == [
        (0, SECOND, True),
        (SECOND, 2 * SECOND, True),
        (2 * SECOND, 40_000, False),
    ]


@pytest.mark.parametrize("seconds", [1, 2, 3])
def test_a_whole_number_of_windows_leaves_no_empty_one(seconds: int) -> None:
    found = bounds(events_of(1000, seconds * SECOND))
    assert found == [(index * SECOND, (index + 1) * SECOND, index < seconds - 1) for index in range(seconds)]


def test_a_single_sample_is_a_window() -> None:
    assert bounds(events_of(1000, 1)) == [(0, 1, False)]


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0)])
def test_no_audio_gives_no_window(sizes: tuple[int, ...]) -> None:
    assert events_of(1000, *sizes) == []


def test_a_window_is_told_with_the_first_sample_that_does_not_fit() -> None:
    windows = FixedWindows(1000)
    windows.accept(SECOND)
    assert windows.accept(1) == [
        SpeechEnd(SECOND, SECOND + 1, forced_cut=True),
        SpeechStart(SECOND, SECOND + 1),
    ]


@pytest.mark.parametrize(("window_ms", "samples"), [(1000, 16_000), (1005, 16_000), (1009, 16_000), (1010, 16_160)])
def test_cuts_lie_on_the_grid_of_the_frames(window_ms: int, samples: int) -> None:
    assert events_of(window_ms, 50_000)[1].sample == samples


def test_no_later_event_points_before_the_earliest_start() -> None:
    windows = FixedWindows(1000)
    assert windows.earliest_start == 0
    windows.accept(SECOND)
    assert windows.earliest_start == 0
    windows.accept(SECOND)
    assert windows.earliest_start == SECOND


def test_reset_makes_it_new() -> None:
    windows = FixedWindows(1000)
    windows.accept(50_000)
    windows.finish()
    windows.reset()
    assert windows.earliest_start == 0
    assert windows.accept(20_000) + windows.finish() == events_of(1000, 20_000)


@given(st.lists(st.integers(0, 50_000), max_size=12), st.sampled_from([1000, 1237, 2000]))
def test_any_pieces_give_the_windows_of_the_whole(sizes: list[int], window_ms: int) -> None:
    found = events_of(window_ms, *sizes)
    assert found == events_of(window_ms, sum(sizes))
    for (_, end, _), (start, _, _) in pairwise(bounds(found)):
        assert start == end
    assert sum(end - start for start, end, _ in bounds(found)) == sum(sizes)


# Flush.

HOP = 160
FLUSH = None


def events_with(window_ms: int, steps: list[int | None]) -> list[SpeechEvent]:
    """The events of so many samples each, and of flushes."""
    windows = FixedWindows(window_ms)
    found = [event for step in steps for event in (windows.flush() if step is FLUSH else windows.accept(step))]
    return found + windows.finish()


def test_a_flush_ends_the_window_at_the_last_whole_frame_and_the_next_begins_there() -> None:
    windows = FixedWindows(1000)
    windows.accept(1000)
    assert windows.flush() == [SpeechEnd(960, 1000), SpeechStart(960, 1000)]
    assert (windows.earliest_start, windows.open_samples) == (960, 40)
    assert windows.finish() == [SpeechEnd(1000, 1000)]


def test_a_flush_on_a_border_of_frames_leaves_nothing_open() -> None:
    windows = FixedWindows(1000)
    windows.accept(960)
    assert windows.flush() == [SpeechEnd(960, 960)]
    assert windows.open_samples == 0
    assert windows.flush() == []
    assert windows.accept(1) == [SpeechStart(960, 961)]
    windows.accept(SECOND - 1)
    assert windows.accept(1) == [
        SpeechEnd(960 + SECOND, 961 + SECOND, forced_cut=True),
        SpeechStart(960 + SECOND, 961 + SECOND),
    ]


@pytest.mark.parametrize("samples", [0, 1, 159])
def test_a_flush_of_less_than_a_frame_changes_nothing(samples: int) -> None:
    windows = FixedWindows(1000)
    windows.accept(samples)
    assert windows.flush() == []
    assert windows.accept(200 - samples) + windows.finish() == ([] if samples else [SpeechStart(0, 1)]) + [
        SpeechEnd(200, 200)
    ]


@given(st.lists(st.none() | st.integers(0, 50_000) | st.just(160), max_size=14), st.sampled_from([1000, 1237, 2000]))
def test_windows_tile_the_audio_with_flushes_anywhere(steps: list[int | None], window_ms: int) -> None:
    found = bounds(events_with(window_ms, steps))
    for (_, end, _), (start, _, _) in pairwise(found):
        assert start == end
    heard = sum(step or 0 for step in steps)
    assert sum(end - start for start, end, _ in found) == heard
    for start, end, forced_cut in found:
        assert 0 < end - start <= window_ms // 10 * HOP
        assert end % HOP == 0 or end == heard
        assert not forced_cut or end - start == window_ms // 10 * HOP


@given(
    st.lists(st.none() | st.lists(st.integers(0, 20_000), max_size=4), max_size=10), st.sampled_from([1000, 1237, 2000])
)
def test_with_flushes_in_place_any_pieces_give_the_windows_of_the_whole(
    steps: list[list[int] | None], window_ms: int
) -> None:
    split: list[int | None] = []
    whole: list[int | None] = []
    for step in steps:
        split += [FLUSH] if step is None else step
        whole.append(FLUSH if step is None else sum(step))
    assert events_with(window_ms, split) == events_with(window_ms, whole)

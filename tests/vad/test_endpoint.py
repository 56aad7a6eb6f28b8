from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.errors import UsageError
from liveasr.types import Float32Array, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import VadConfig
from liveasr.vad.endpoint import Endpointer
from tests.chunking import assert_same_for_any_split, cut_at, pieces
from tests.scores import DELAY, HOP, QUIET, SPEECH, any_config, any_scores, assert_well_formed, scores

NOTICE_START = 14
"""Speech is noticed in its 15th frame, counted from 0."""
NOTICE_END = 4
"""After 200 ms of speech, silence is noticed in its 5th frame."""
LOOK_BACK = 40
END_AFTER = 16
"""A segment ends so many frames behind its last frame of speech: 50 ms to notice, 100 ms, and the frame itself."""


def events_of(feed: Iterable[Float32Array], config: VadConfig) -> list[SpeechEvent]:
    endpointer = Endpointer(config, DELAY)
    found = [event for piece in feed for event in endpointer.accept(piece)]
    return found + endpointer.finish()


def segments_of(silence: Float32Array, config: VadConfig | None = None) -> list[tuple[int, int, bool]]:
    """(start frame, end frame, forced cut) of each segment."""
    events = events_of([silence], config or VadConfig())
    assert_well_formed(events, len(silence))
    return [
        (start.sample // HOP, end.sample // HOP, end.forced_cut)
        for start, end in zip(events[::2], events[1::2], strict=True)
        if isinstance(end, SpeechEnd)
    ]


def end_frames(config: VadConfig) -> int:
    """Frames of silence, once noticed, that end a segment."""
    assert config.end_silence_ms is not None
    return max(1, (config.end_silence_ms - 150) // 10)


# Where speech begins.


def test_silence_gives_no_event() -> None:
    assert segments_of(scores((QUIET, 2000))) == []


def test_no_frame_gives_no_event() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    assert endpointer.accept(np.empty(0, np.float32)) == []
    assert endpointer.finish() == []


def test_speech_begins_400_ms_before_it_is_noticed() -> None:
    ((start, _, _),) = segments_of(scores((QUIET, 100), (SPEECH, 100), (QUIET, 200)))
    assert start == 100 + NOTICE_START - LOOK_BACK


def test_the_start_is_told_as_soon_as_it_is_noticed() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    told = [
        index for index, score in enumerate(pieces(scores((QUIET, 50), (SPEECH, 50)), 1)) if endpointer.accept(score)
    ]
    assert told == [50 + NOTICE_START]


def test_a_start_is_confirmed_by_the_audio_of_the_score_that_showed_it() -> None:
    (start, _) = events_of([scores((QUIET, 50), (SPEECH, 50))], VadConfig())
    assert start.confirmed_at == (50 + NOTICE_START) * HOP + DELAY


@pytest.mark.parametrize("lead", [0, 1, 25, 26, 27])
def test_speech_never_begins_before_the_stream(lead: int) -> None:
    ((start, _, _),) = segments_of(scores((QUIET, lead), (SPEECH, 100)))
    assert start == max(0, lead + NOTICE_START - LOOK_BACK)


def test_speech_never_begins_before_the_last_end() -> None:
    config = VadConfig(end_silence_ms=150)
    pause = NOTICE_END + end_frames(config) + 1
    (_, first_end, _), (second_start, _, _) = segments_of(
        scores((SPEECH, 100), (QUIET, pause), (SPEECH, 100), (QUIET, 100)), config
    )
    assert second_start == first_end
    assert second_start > 100 + pause + NOTICE_START - LOOK_BACK


# Where it ends.


@pytest.mark.parametrize("end_silence_ms", [260, 500, 800, 2000])
def test_speech_ends_160_ms_into_a_pause_of_the_end_silence(end_silence_ms: int) -> None:
    config = VadConfig(end_silence_ms)
    pause = NOTICE_END + end_frames(config) + 1
    resumed = ((QUIET, pause), (SPEECH, 100))
    assert [end for _, end, _ in segments_of(scores((SPEECH, 100), *resumed), config)] == [
        100 + END_AFTER,
        200 + pause,
    ]


@pytest.mark.parametrize("end_silence_ms", [500, 800, 2000])
def test_a_pause_that_is_over_in_time_does_not_end_it(end_silence_ms: int) -> None:
    config = VadConfig(end_silence_ms)
    longest = NOTICE_END + end_frames(config) - NOTICE_START  # the speech behind it has to be noticed too
    for pause, segments in ((longest, 1), (longest + 1, 2)):
        assert len(segments_of(scores((SPEECH, 100), (QUIET, pause), (SPEECH, 100)), config)) == segments


@pytest.mark.parametrize("end_silence_ms", [150, 160, 200, 250])
def test_an_end_silence_below_the_100_ms_ends_where_the_pause_is_seen(end_silence_ms: int) -> None:
    config = VadConfig(end_silence_ms)
    seen = NOTICE_END + end_frames(config) + 1
    assert segments_of(scores((SPEECH, 100), (QUIET, 100)), config) == [(0, 100 + seen, False)]


def test_an_end_that_is_seen_too_late_is_not_longer_than_allowed() -> None:
    assert segments_of(scores((SPEECH, 195), (QUIET, 100)), VadConfig(150, 2000)) == [(0, 200, False)]


def test_the_end_is_told_after_the_end_silence() -> None:
    config = VadConfig()
    endpointer = Endpointer(config, DELAY)
    endpointer.accept(scores((SPEECH, 100)))
    told = [index for index, score in enumerate(pieces(scores((QUIET, 100)), 1)) if endpointer.accept(score)]
    assert told == [NOTICE_END + end_frames(config)]


def test_the_end_of_the_stream_ends_an_open_segment() -> None:
    assert segments_of(scores((QUIET, 100), (SPEECH, 57))) == [(74, 157, False)]


def test_the_end_of_the_stream_in_a_pause_ends_with_the_stream() -> None:
    assert segments_of(scores((SPEECH, 100), (QUIET, 30))) == [(0, 130, False)]


def test_the_end_of_the_stream_adds_nothing_where_no_segment_is_open() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    assert len(endpointer.accept(scores((SPEECH, 100), (QUIET, 100)))) == 2
    assert endpointer.finish() == []


# Hysteresis.


@pytest.mark.parametrize("frames", [1, 5, 14])
def test_a_click_is_no_speech(frames: int) -> None:
    assert segments_of(scores((QUIET, 100), (SPEECH, frames), (QUIET, 100))) == []


def test_15_frames_of_the_last_20_are_speech() -> None:
    flicker = [(SPEECH, 3), (QUIET, 1)] * 5
    assert len(segments_of(scores((QUIET, 100), *flicker, (QUIET, 200)))) == 1
    assert segments_of(scores((QUIET, 100), *[(SPEECH, 2), (QUIET, 1)] * 20, (QUIET, 200))) == []


def test_four_silent_frames_in_20_do_not_begin_a_pause() -> None:
    config = VadConfig(end_silence_ms=150)
    flicker = [(SPEECH, 16), (QUIET, 4)] * 10
    assert segments_of(scores((SPEECH, 50), *flicker), config) == [(0, 250, False)]


@pytest.mark.parametrize(("score", "is_speech"), [(0.0, True), (0.19, True), (0.21, False), (0.5, False)])
def test_speech_must_be_more_likely_than_silence_by_0_6(score: float, is_speech: bool) -> None:
    assert bool(segments_of(scores((score, 100)))) == is_speech


# Segments that grow too long.

SHORT = VadConfig(max_segment_ms=2000)
"""Cut after 200 frames, in the last 100."""
LONG = VadConfig(max_segment_ms=20_000)
"""Cut after 2000 frames, in the last 500."""
DIP = 0.3


def test_a_long_segment_is_cut_where_speech_is_least_likely() -> None:
    silence = scores((SPEECH, 130), (DIP, 1), (SPEECH, 30), (DIP / 2, 1), (SPEECH, 100))
    assert segments_of(silence, SHORT) == [(0, 130, True), (130, 262, False)]


def test_of_equal_scores_the_latest_is_taken() -> None:
    silence = scores((SPEECH, 130), (DIP, 1), (SPEECH, 29), (DIP, 1), (SPEECH, 101))
    assert segments_of(silence, SHORT) == [(0, 160, True), (160, 262, False)]


def test_without_any_dip_the_segment_has_its_full_length() -> None:
    assert segments_of(scores((SPEECH, 300)), SHORT) == [(0, 200, True), (200, 300, False)]


def test_a_dip_in_the_first_half_is_too_early() -> None:
    silence = scores((SPEECH, 90), (DIP, 1), (SPEECH, 200))
    assert segments_of(silence, SHORT) == [(0, 200, True), (200, 291, False)]


@pytest.mark.parametrize(("dip", "cut"), [(1501, 1501), (1500, 2000)])
def test_only_the_last_5_s_are_searched(dip: int, cut: int) -> None:
    silence = scores((SPEECH, dip), (DIP, 1), (SPEECH, 800))
    assert segments_of(silence, LONG)[0] == (0, cut, True)


def test_the_next_segment_begins_at_the_cut_and_at_the_same_time() -> None:
    _, end, start, _ = events_of([scores((SPEECH, 300))], SHORT)
    assert end == SpeechEnd(200 * HOP, 200 * HOP + DELAY, forced_cut=True)
    assert start == SpeechStart(200 * HOP, 200 * HOP + DELAY)


def test_cuts_in_a_row_leave_no_gap_and_no_overlap() -> None:
    random = np.random.default_rng(0)
    silence = random.uniform(0, 0.19, 5000).astype(np.float32)
    found = segments_of(silence, SHORT)
    assert len(found) > 25
    assert found[0][0] == 0
    assert found[-1][1] == 5000
    assert all(earlier[1] == later[0] for earlier, later in pairwise(found))
    assert [cut for *_, cut in found] == [True] * (len(found) - 1) + [False]
    assert max(end - start for start, end, _ in found) <= 200


def test_a_pause_just_before_the_cut_is_where_it_is_cut() -> None:
    silence = scores((SPEECH, 150), (QUIET, 30), (SPEECH, 200))
    (_, cut, forced), (start, _, _) = segments_of(silence, SHORT)[:2]
    assert forced
    assert cut == start == 179


@pytest.mark.parametrize("speech", [180, 195, 196, 199, 200])
def test_a_cut_inside_a_pause_gives_no_segment_of_silence(speech: int) -> None:
    # Up to 195 frames of speech the pause is noticed before the cut, then only behind it.
    assert segments_of(scores((SPEECH, speech), (QUIET, 1000)), SHORT) == [(0, 200, True)]


@pytest.mark.parametrize("speech", [180, 196, 200])
@pytest.mark.parametrize("pause", [1, 3, 30])
def test_a_cut_at_the_end_of_a_pause_does_not_lose_what_follows(speech: int, pause: int) -> None:
    found = segments_of(scores((SPEECH, speech), (QUIET, pause), (SPEECH, 100)), SHORT)
    (_, end, _), (start, last, _) = found
    assert start == end
    assert last == speech + pause + 100


def test_after_a_cut_in_a_pause_speech_that_resumes_soon_begins_at_the_cut() -> None:
    config = VadConfig(max_segment_ms=2000)
    for pause in range(21, NOTICE_END + end_frames(config) - NOTICE_START + 1):
        found = segments_of(scores((SPEECH, 180), (QUIET, pause), (SPEECH, 100)), config)
        assert found[0] == (0, 200, True), pause
        assert found[1][0] == 200, pause


def test_after_a_cut_in_a_pause_speech_that_resumes_late_begins_anew() -> None:
    found = segments_of(scores((SPEECH, 180), (QUIET, 500), (SPEECH, 100)), SHORT)
    assert found == [(0, 200, True), (680 + NOTICE_START - LOOK_BACK, 780, False)]


def test_after_a_cut_in_a_pause_the_end_of_the_stream_adds_nothing() -> None:
    assert segments_of(scores((SPEECH, 180), (QUIET, 40)), SHORT) == [(0, 200, True)]


def test_a_click_after_a_cut_in_a_pause_is_no_segment() -> None:
    assert segments_of(scores((SPEECH, 180), (QUIET, 40), (SPEECH, 10), (QUIET, 300)), SHORT) == [(0, 200, True)]


# The contract.


def test_scores_after_finish_are_refused() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    endpointer.finish()
    with pytest.raises(UsageError, match="after finish"):
        endpointer.accept(scores((QUIET, 1)))


def test_finishing_twice_is_refused() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    endpointer.accept(scores((SPEECH, 100)))
    endpointer.finish()
    with pytest.raises(UsageError, match="twice"):
        endpointer.finish()


@pytest.mark.parametrize(
    "before",
    [
        scores((SPEECH, 10)),
        scores((SPEECH, 100)),
        scores((SPEECH, 100), (QUIET, 20)),
        scores((SPEECH, 100), (QUIET, 200)),
        scores((SPEECH, 190), (QUIET, 30)),
    ],
    ids=["before speech", "in speech", "in a pause", "after the end", "after a cut in a pause"],
)
def test_reset_makes_it_new(before: Float32Array) -> None:
    silence = scores((QUIET, 5), (SPEECH, 250), (QUIET, 100), (SPEECH, 50))
    endpointer = Endpointer(SHORT, DELAY)
    endpointer.accept(before)
    endpointer.finish()
    endpointer.reset()
    assert endpointer.accept(silence) + endpointer.finish() == events_of([silence], SHORT)


@pytest.mark.parametrize("end_silence_ms", [-1, 0, 149])
def test_an_end_silence_that_cannot_be_noticed_is_refused(end_silence_ms: int) -> None:
    with pytest.raises(UsageError, match=f"{end_silence_ms} ms; at least 150 ms"):
        VadConfig(end_silence_ms=end_silence_ms)


@pytest.mark.parametrize("max_segment_ms", [-1, 0, 999])
def test_a_longest_segment_below_a_second_is_refused(max_segment_ms: int) -> None:
    with pytest.raises(UsageError, match=f"{max_segment_ms} ms; at least 1000 ms"):
        VadConfig(max_segment_ms=max_segment_ms)


def test_the_shortest_settings_are_taken() -> None:
    config = VadConfig(end_silence_ms=150, max_segment_ms=1000)
    assert segments_of(scores((SPEECH, 50), (QUIET, 50)), config) == [(0, 50 + NOTICE_END + 2, False)]


# Any scores at all.


@given(silence=any_scores(), config=any_config(), places=st.lists(st.integers(0, 2000), max_size=10))
@settings(max_examples=200)
def test_any_split_of_any_scores_gives_equal_events(
    silence: Float32Array, config: VadConfig, places: list[int]
) -> None:
    whole = events_of([silence], config)
    assert events_of(cut_at(silence, places), config) == whole
    assert events_of(pieces(silence, 1), config) == whole


@given(silence=any_scores(), config=any_config())
@settings(max_examples=200)
def test_any_scores_give_segments_in_order_and_no_longer_than_allowed(silence: Float32Array, config: VadConfig) -> None:
    for start, end, _ in segments_of(silence, config):
        assert (end - start) * 10 <= config.max_segment_ms


@given(silence=any_scores(), config=any_config())
@settings(max_examples=200)
def test_every_segment_of_any_scores_holds_speech(silence: Float32Array, config: VadConfig) -> None:
    for start, end, _ in segments_of(silence, config):
        assert (silence[start:end] <= 0.25).any()  # the threshold of the schedule; else 0.2


@given(silence=any_scores(), config=any_config())
@settings(max_examples=200)
def test_the_earliest_start_rises_and_no_later_event_points_before_it(silence: Float32Array, config: VadConfig) -> None:
    endpointer = Endpointer(config, DELAY)
    earliest = 0
    for piece in [*pieces(silence, 7), None]:
        for event in endpointer.finish() if piece is None else endpointer.accept(piece):
            assert event.sample >= earliest * HOP
        assert endpointer.earliest_start_frame >= earliest
        earliest = endpointer.earliest_start_frame


def test_an_hour_of_scores_in_any_pieces_gives_equal_events() -> None:
    random = np.random.default_rng(1)
    runs = [(float(random.choice([0.0, 0.1, 0.5, 1.0])), int(random.integers(1, 300))) for _ in range(200)]
    assert_same_for_any_split(scores(*runs), lambda feed: events_of(feed, LONG), sizes=[1, 2, 6, 20, 100])

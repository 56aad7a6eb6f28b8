"""A flush ends the open segment where the scores end, and the stream goes on as if it began there."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.errors import UsageError
from liveasr.types import Float32Array, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import VadConfig
from liveasr.vad.endpoint import Endpointer
from tests.chunking import cut_at, pieces
from tests.scores import DELAY, HOP, QUIET, SPEECH, any_config, any_scores, assert_well_formed, scores

SHORT = VadConfig(max_segment_ms=2000)
places = st.lists(st.integers(0, 1500), max_size=6).map(sorted)


def flushed(
    silence: Float32Array, flushes: Sequence[int], config: VadConfig, cuts: Sequence[int] = (), size: int | None = None
) -> list[list[SpeechEvent]]:
    """The events of each stretch between flushes, its flush (in the end, finish) included; cut up further or not."""
    endpointer = Endpointer(config, DELAY)
    found: list[list[SpeechEvent]] = []
    at = 0
    for stretch in cut_at(silence, flushes):
        own = [cut - at for cut in cuts if at < cut < at + len(stretch)]
        at += len(stretch)
        events: list[SpeechEvent] = []
        for piece in cut_at(stretch, own):
            for part in [piece] if size is None else pieces(piece, size):
                events += endpointer.accept(part)
        found.append(events + (endpointer.flush() if len(found) < len(flushes) else endpointer.finish()))
    return found


def together(stretches: list[list[SpeechEvent]]) -> list[SpeechEvent]:
    return [event for stretch in stretches for event in stretch]


def moved(events: list[SpeechEvent], frames: int) -> list[SpeechEvent]:
    """The same, so much later."""
    by = frames * HOP
    return [
        SpeechStart(event.sample + by, event.confirmed_at + by)
        if isinstance(event, SpeechStart)
        else SpeechEnd(event.sample + by, event.confirmed_at + by, event.forced_cut)
        for event in events
    ]


def spoken(*runs: tuple[float, int], flushes: Sequence[int], config: VadConfig = SHORT) -> list[tuple[int, int, bool]]:
    """(start frame, end frame, forced cut) of each segment."""
    events = together(flushed(scores(*runs), flushes, config))
    assert_well_formed(events, sum(frames for _, frames in runs))
    return [
        (start.sample // HOP, end.sample // HOP, end.forced_cut)
        for start, end in zip(events[::2], events[1::2], strict=True)
        if isinstance(end, SpeechEnd)
    ]


# One flush.


def test_a_flush_in_speech_ends_the_segment_there_and_the_rest_is_the_next() -> None:
    assert spoken((SPEECH, 100), (SPEECH, 60), flushes=[100]) == [(0, 100, False), (100, 160, False)]


def test_a_flush_in_a_pause_ends_the_segment_there() -> None:
    assert spoken((SPEECH, 100), (QUIET, 30), (QUIET, 200), flushes=[130]) == [(0, 130, False)]


def test_speech_that_resumes_after_a_flush_in_a_pause_begins_at_the_flush_at_the_earliest() -> None:
    assert spoken((SPEECH, 100), (QUIET, 30), (SPEECH, 60), flushes=[120]) == [(0, 120, False), (120, 190, False)]


def test_a_flush_before_speech_is_noticed_ends_nothing_and_cuts_nothing_off() -> None:
    assert spoken((SPEECH, 100), flushes=[14]) == [(0, 100, False)]
    assert spoken((SPEECH, 100), flushes=[15]) == [(0, 15, False), (15, 100, False)]


def test_what_is_left_after_a_flush_must_be_speech_by_itself() -> None:
    assert spoken((SPEECH, 100), (SPEECH, 14), (QUIET, 100), flushes=[100]) == [(0, 100, False)]


def test_a_flush_just_behind_a_forced_cut_ends_the_segment_of_the_rest() -> None:
    assert spoken((SPEECH, 260), flushes=[201]) == [(0, 200, True), (200, 201, False), (201, 260, False)]


@pytest.mark.parametrize("flush", [202, 210, 230])
def test_a_flush_behind_a_forced_cut_in_a_pause_changes_nothing(flush: int) -> None:
    runs = [(SPEECH, 180), (QUIET, 60), (SPEECH, 100)]
    expected = spoken(*runs, flushes=[])
    assert expected[:1] == [(0, 200, True)]
    assert spoken(*runs, flushes=[flush]) == expected


def test_a_segment_with_too_little_speech_is_dropped_by_a_flush_as_by_a_pause() -> None:
    config = VadConfig(min_speech_ms=500)
    assert spoken((SPEECH, 49), (QUIET, 200), flushes=[49], config=config) == []
    assert spoken((SPEECH, 50), (QUIET, 200), flushes=[50], config=config) == [(0, 50, False)]
    assert spoken((SPEECH, 49), (SPEECH, 60), flushes=[49], config=config) == [(49, 109, False)]


def test_a_flush_begins_the_schedule_of_the_end_silence_anew() -> None:
    # After 10 s of speech a pause of 1 s ends a segment, before only one of 2 s.
    config = VadConfig(end_silence_ms=None, max_segment_ms=60_000, min_speech_ms=500)
    found = spoken((SPEECH, 1200), (SPEECH, 30), (QUIET, 150), (SPEECH, 100), flushes=[1200], config=config)
    assert found == [(0, 1200, False), (1200, 1480, False)]


def test_the_look_back_and_the_padding_stop_at_a_flush() -> None:
    config = VadConfig(pad_before_ms=5000, pad_after_ms=5000)
    assert spoken((SPEECH, 50), (QUIET, 10), (SPEECH, 50), flushes=[55], config=config)[1][0] == 55


def test_a_flush_is_told_with_the_audio_that_was_scored() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    endpointer.accept(scores((SPEECH, 100)))
    assert endpointer.speech_frames == 100
    assert endpointer.flush() == [SpeechEnd(100 * HOP, 99 * HOP + DELAY)]
    assert endpointer.speech_frames == 0
    assert endpointer.earliest_start_frame == 100
    assert endpointer.flush() == []


def test_a_flush_of_nothing_gives_nothing() -> None:
    assert Endpointer(VadConfig(), DELAY).flush() == []


def test_a_flush_after_finish_is_refused_until_reset() -> None:
    endpointer = Endpointer(VadConfig(), DELAY)
    endpointer.accept(scores((SPEECH, 100)))
    endpointer.finish()
    with pytest.raises(UsageError, match="after finish"):
        endpointer.flush()
    endpointer.reset()
    assert endpointer.flush() == []


def test_reset_forgets_a_flush() -> None:
    silence = scores((QUIET, 5), (SPEECH, 250), (QUIET, 100), (SPEECH, 50))
    endpointer = Endpointer(SHORT, DELAY)
    endpointer.accept(scores((SPEECH, 100)))
    endpointer.flush()
    endpointer.reset()
    assert endpointer.accept(silence) + endpointer.finish() == together(flushed(silence, [], SHORT))


# Any scores, any settings, flushes anywhere.


@given(silence=any_scores(), config=any_config(), flushes=places)
@settings(max_examples=150)
def test_events_are_well_formed_and_no_segment_is_too_long(
    silence: Float32Array, config: VadConfig, flushes: list[int]
) -> None:
    events = together(flushed(silence, flushes, config))
    assert_well_formed(events, len(silence))
    for start, end in zip(events[::2], events[1::2], strict=True):
        assert (end.sample - start.sample) // HOP * 10 <= config.max_segment_ms


@given(
    silence=any_scores(), config=any_config(), flushes=places, cuts=places, size=st.sampled_from([None, 1, 6, 20, 100])
)
@settings(max_examples=150)
def test_with_flushes_in_place_any_split_gives_equal_events(
    silence: Float32Array, config: VadConfig, flushes: list[int], cuts: list[int], size: int | None
) -> None:
    assert flushed(silence, flushes, config, cuts, size) == flushed(silence, flushes, config)


@given(silence=any_scores(), config=any_config(), flush=st.integers(0, 1500))
@settings(max_examples=200)
def test_a_flush_says_what_the_end_of_the_stream_would_say(
    silence: Float32Array, config: VadConfig, flush: int
) -> None:
    before, _ = flushed(silence, [flush], config)
    assert before == together(flushed(silence[:flush], [], config))


def is_open_after(silence: Float32Array, config: VadConfig) -> bool:
    endpointer = Endpointer(config, DELAY)
    endpointer.accept(silence)
    return endpointer._start is not None


@given(silence=any_scores(), config=any_config(), flush=st.integers(0, 1500))
@settings(max_examples=300)
def test_after_a_flush_that_ended_something_the_stream_begins_anew_and_else_nothing_has_changed(
    silence: Float32Array, config: VadConfig, flush: int
) -> None:
    # The schedule of the end silence runs on a grid of 6 frames over the whole stream.
    flush -= flush % 6
    before, after = flushed(silence, [flush], config)
    if is_open_after(silence[:flush], config):
        assert after == moved(together(flushed(silence[flush:], [], config)), min(flush, len(silence)))
    else:
        assert before + after == together(flushed(silence, [], config))


@given(silence=any_scores(), config=any_config(), flushes=places)
@settings(max_examples=150)
def test_no_event_points_before_a_flush_that_ended_something_nor_before_the_earliest_start(
    silence: Float32Array, config: VadConfig, flushes: list[int]
) -> None:
    endpointer = Endpointer(config, DELAY)
    earliest = at = 0
    for stretch in cut_at(silence, flushes):
        for piece in [*pieces(stretch, 7), None]:
            was_open = endpointer._start is not None
            events = endpointer.flush() if piece is None else endpointer.accept(piece)
            assert all(event.sample >= earliest * HOP for event in events)
            assert endpointer.earliest_start_frame >= earliest
            at += 0 if piece is None else len(piece)
            earliest = at if piece is None and was_open else endpointer.earliest_start_frame
            assert piece is not None or endpointer._start is None


def test_flushes_in_speech_leave_no_gap() -> None:
    random = np.random.default_rng(0)
    silence = random.uniform(0, 0.19, 3000).astype(np.float32)
    flushes = sorted(int(place) for place in random.integers(0, 3000, 30))
    events = together(flushed(silence, flushes, SHORT))
    assert_well_formed(events, len(silence))
    assert events[0].sample == 0
    assert events[-1].sample == 3000 * HOP
    assert len(events) >= 60
    for end, start in zip(events[1:-1:2], events[2::2], strict=True):
        assert start.sample == end.sample

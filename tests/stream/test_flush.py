"""A flush through the chain: detectors, segments, a session's requests and finals."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liveasr import store
from liveasr.engines.base import DecodeOptions, Engine
from liveasr.engines.registry import open_engine
from liveasr.errors import UsageError
from liveasr.stream.detect import Detector, DetectorKind, detectors
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.segmenter import Segment, Segmenter
from liveasr.stream.session import DecodeRequest, LiveConfig, Session, SessionStep
from liveasr.types import Float32Array, LiveTranscript, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import VadConfig
from tests.chunking import cut_at, pieces
from tests.sounds import load, silence, white

HELD_BACK = 800
"""Samples: 50 ms, as docs/protocol.md tells."""
PLACES = (15_000, 40_000, 66_000, 90_000)
"""In a word, between words, in a pause, in the next sentence."""
SegmentStep: TypeAlias = SpeechEvent | Segment


@pytest.fixture(scope="module")
def samples(data: Path) -> Float32Array:
    return load(data / "digits-clean.wav")


@pytest.fixture(params=["fsmn", "webrtc", "none"])
def new_detector(request: pytest.FixtureRequest) -> Callable[[], Detector]:
    kind: DetectorKind = request.param
    return detectors(kind, VadConfig(max_segment_ms=3000))


def stretches(samples: Float32Array, flushes: Sequence[int], size: int | None) -> list[list[Float32Array]]:
    """The pieces between the flushes."""
    return [[stretch] if size is None else list(pieces(stretch, size)) for stretch in cut_at(samples, flushes)]


def segmented(
    samples: Float32Array, detector: Detector, flushes: Sequence[int], size: int | None = None
) -> list[list[SegmentStep]]:
    """What each stretch gives, its flush included; the last one ends the stream."""
    segmenter = Segmenter(detector)
    found: list[list[SegmentStep]] = []
    for stretch in stretches(samples, flushes, size):
        steps = [step for piece in stretch for step in segmenter.follow(piece)]
        found.append(steps + (segmenter.flush() if len(found) < len(flushes) else segmenter.follow_end()))
    return found


def only_segments(found: list[list[SegmentStep]]) -> list[Segment]:
    return [step for steps in found for step in steps if isinstance(step, Segment)]


def assert_segments_follow_each_other(segments: list[Segment], samples: Float32Array) -> None:
    """In order, apart, and with the frames of the audio cut there."""
    assert [segment.segment_id for segment in segments] == list(range(len(segments)))
    for earlier, later in pairwise(segments):
        assert earlier.end_sample <= later.start_sample
    for segment in segments:
        assert 0 <= segment.start_sample < segment.end_sample <= len(samples)
        expected = OnlineFbank().accept(samples[segment.start_sample : segment.end_sample]).data
        assert np.array_equal(segment.frames, expected)


# Detectors and segments.


def test_a_flush_ends_what_is_open_near_the_last_sample_and_nothing_later_begins_before(
    samples: Float32Array, new_detector: Callable[[], Detector]
) -> None:
    ended = 0
    for place in PLACES:
        segmenter = Segmenter(new_detector())
        for piece in pieces(samples[:place], 320):
            segmenter.accept(piece)
        was_open = segmenter._start is not None
        steps = segmenter.flush()
        assert bool(steps) == was_open
        if not was_open:
            continue
        ended += 1
        end = steps[0]
        assert isinstance(end, SpeechEnd)
        assert place - HELD_BACK <= end.sample <= place
        for step in segmenter.follow(samples[place:]) + segmenter.follow_end():
            assert isinstance(step, Segment) or step.sample >= end.sample
    assert ended >= 2


def test_segments_with_flushes_follow_each_other_and_have_the_frames_of_the_audio_cut_there(
    samples: Float32Array, new_detector: Callable[[], Detector]
) -> None:
    found = segmented(samples, new_detector(), PLACES, 777)
    assert_segments_follow_each_other(only_segments(found), samples)
    assert len(only_segments(found)) > len(only_segments(segmented(samples, new_detector(), [])))


def test_with_flushes_in_place_any_pieces_give_the_same_segments(
    samples: Float32Array, new_detector: Callable[[], Detector]
) -> None:
    def comparable(size: int | None) -> list[tuple[int, int, int, bytes]]:
        segments = only_segments(segmented(samples, new_detector(), PLACES, size))
        return [(each.segment_id, each.start_sample, each.end_sample, each.frames.tobytes()) for each in segments]

    whole = comparable(None)
    for size in (160, 960, 4001):
        assert comparable(size) == whole, size


@given(flushes=st.lists(st.integers(0, 60_000), max_size=8).map(sorted), size=st.sampled_from([None, 700]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flushes_anywhere_lose_nothing_of_the_windows(flushes: list[int], size: int | None) -> None:
    samples = white(4, 0.1)
    new = detectors("none", VadConfig(max_segment_ms=1000))
    segments = only_segments(segmented(samples, new(), flushes, size))
    assert_segments_follow_each_other(segments, samples)
    assert sum(segment.end_sample - segment.start_sample for segment in segments) == len(samples)


def test_each_end_of_a_flush_is_followed_by_its_segment(
    samples: Float32Array, new_detector: Callable[[], Detector]
) -> None:
    for steps in segmented(samples, new_detector(), PLACES, 320):
        for step, then in pairwise([*steps, None]):
            if isinstance(step, SpeechEnd):
                assert isinstance(then, Segment)
                assert then.end_sample == step.sample


def test_a_flush_where_nobody_speaks_gives_nothing_and_changes_nothing(samples: Float32Array) -> None:
    new = detectors("fsmn", VadConfig())
    audio = np.concatenate((silence(2), samples))
    first, second, rest = segmented(audio, new(), [10_000, 20_000], 320)
    assert first == second == []
    expected = only_segments(segmented(audio, new(), []))
    assert [(each.start_sample, each.end_sample) for each in only_segments([rest])] == [
        (each.start_sample, each.end_sample) for each in expected
    ]


def test_a_flush_after_finish_is_refused(new_detector: Callable[[], Detector]) -> None:
    segmenter = Segmenter(new_detector())
    segmenter.accept(white(1, 0.1))
    segmenter.finish()
    with pytest.raises(UsageError, match="after finish"):
        segmenter.flush()


# A session, with the engine at work.


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = open_engine(store.find("digits"), threads=1)
    yield engine
    engine.close()


def live(
    samples: Float32Array, flushes: Sequence[int], session: Session, engine: Engine, *, late: bool = False
) -> tuple[list[LiveTranscript], list[list[SessionStep]]]:
    """All transcripts, and the steps that each flush (or finish) itself gave.

    Args:
        samples: fed in pieces of 20 ms.
        flushes: after how many samples.
        session: a fresh one.
        engine: answers each request at once; if `late`, all of them in the end, the newest first.
        late: see there.
    """
    found: list[LiveTranscript] = []
    ends: list[list[SessionStep]] = []
    waiting: list[DecodeRequest] = []

    def answer(request: DecodeRequest) -> None:
        found.extend(session.decoded(request, engine.decode(request.features, DecodeOptions()), 20))

    def take(steps: list[SessionStep]) -> None:
        for step in steps:
            if isinstance(step, DecodeRequest):
                waiting.append(step) if late else answer(step)

    for stretch in stretches(samples, flushes, 320):
        for piece in stretch:
            take(session.accept(piece))
        ends.append(session.flush() if len(ends) < len(flushes) else session.finish())
        take(ends[-1])
    for request in reversed(waiting):
        answer(request)
    assert session.finals_pending == 0
    return found, ends


def assert_transcripts_keep_their_promises(found: list[LiveTranscript]) -> None:
    finals = [each for each in found if each.is_final]
    assert [final.segment_id for final in finals] == list(range(len(finals)))
    assert {each.segment_id for each in found} == set(range(len(finals)))
    for earlier, later in pairwise(finals):
        assert earlier.end_ms <= later.start_ms
    for final in finals:
        own = [each for each in found if each.segment_id == final.segment_id]
        assert own[-1] is final
        for before, after in pairwise(own):
            assert after.revision > before.revision
            assert after.committed.startswith(before.committed)


@pytest.mark.parametrize("kind", ["fsmn", "webrtc", "none"])
@pytest.mark.parametrize("late", [False, True])
def test_a_session_with_flushes_keeps_all_promises(
    samples: Float32Array, engine: Engine, kind: DetectorKind, late: bool
) -> None:
    session = Session(
        detectors(kind, VadConfig(max_segment_ms=3000))(), engine.front_end, LiveConfig(max_segment_ms=3000)
    )
    found, ends = live(samples, PLACES, session, engine, late=late)
    assert_transcripts_keep_their_promises(found)
    assert len([each for each in found if each.is_final]) >= 4
    for steps in ends:
        assert [type(step) for step in steps] in (
            [],
            [SpeechEnd, DecodeRequest],
            [SpeechEnd, DecodeRequest, SpeechStart],
        )
        assert all(step.is_final for step in steps if isinstance(step, DecodeRequest))


def test_a_flush_between_words_splits_the_text_and_loses_none(samples: Float32Array, engine: Engine) -> None:
    session = Session(detectors("fsmn", VadConfig())(), engine.front_end, LiveConfig())
    whole, _ = live(samples, [], session, engine)
    texts = [each.final.text for each in whole if each.final]
    assert texts == ["three one four", "one five nine two", "six five"]
    first = next(each.final for each in whole if each.final)
    # Between the second word and the third.
    place = (first.words[1].end_ms + first.words[2].start_ms) // 2 * 16
    session = Session(detectors("fsmn", VadConfig())(), engine.front_end, LiveConfig())
    found, ends = live(samples, [place], session, engine)
    assert [each.final.text for each in found if each.final] == ["three one", "four", *texts[1:]]
    assert [type(step) for step in ends[0]] == [SpeechEnd, DecodeRequest]


def test_flushes_one_after_the_other_and_before_any_audio_end_one_segment_once(
    samples: Float32Array, engine: Engine
) -> None:
    session = Session(detectors("fsmn", VadConfig())(), engine.front_end, LiveConfig())
    found, ends = live(samples, [0, 0, 20_000, 20_000, 20_000, 20_001], session, engine)
    assert [bool(steps) for steps in ends[:-1]] == [False, False, True, False, False, False]
    assert_transcripts_keep_their_promises(found)


def test_segments_too_short_for_a_frame_of_features_get_an_empty_final(engine: Engine) -> None:
    session = Session(detectors("none", VadConfig())(), engine.front_end, LiveConfig())
    found, ends = live(white(0.05, 0.1), [160, 320, 330, 500], session, engine)
    assert [each.final.text for each in found if each.final] == [""] * len(found)
    assert len(found) == 4
    assert [request.features.shape for steps in ends for request in steps if isinstance(request, DecodeRequest)] == [
        (0, 560)
    ] * 4


def test_a_session_refuses_a_flush_after_finish(engine: Engine) -> None:
    session = Session(detectors("fsmn", VadConfig())(), engine.front_end, LiveConfig())
    session.finish()
    with pytest.raises(UsageError, match="after finish"):
        session.flush()

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.base import DecodeOptions, FrontEnd
from liveasr.errors import EngineError, LiveasrError
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.lfr import stack
from liveasr.stream.recognize import Recognizer, to_transcript
from liveasr.stream.segmenter import Segment
from liveasr.types import Hypothesis, Word
from tests.fakes import FakeEngine, said
from tests.sounds import white

MS = 16


def segment_of(start_ms: int, end_ms: int, *, segment_id: int = 0, forced_cut: bool = False) -> Segment:
    samples = white((end_ms - start_ms) / 1000, 0.1)
    return Segment(segment_id, start_ms * MS, end_ms * MS, forced_cut, OnlineFbank().accept(samples).data)


def recognizer(*answers: Hypothesis | LiveasrError) -> Recognizer:
    return Recognizer(FakeEngine(answers), DecodeOptions())


def test_words_are_on_the_clock_of_the_stream() -> None:
    transcript = recognizer(said("three one four")).transcript(segment_of(2000, 3000))
    assert transcript.words == (
        Word("three", 2000, 2100),
        Word("one", 2100, 2200),
        Word("four", 2200, 2300),
    )


def test_a_transcript_is_about_its_segment() -> None:
    hypothesis = Hypothesis((1,), "好", (Word("好", 60, 120),), language="zh", emotion="happy", event="speech")
    transcript = recognizer(hypothesis).transcript(segment_of(500, 900, segment_id=7, forced_cut=True))
    assert (transcript.segment_id, transcript.start_ms, transcript.end_ms) == (7, 500, 900)
    assert transcript.forced_cut
    assert (transcript.text, transcript.language, transcript.emotion, transcript.event) == (
        "好",
        "zh",
        "happy",
        "speech",
    )


def test_words_that_leave_the_segment_are_clipped_to_it() -> None:
    words = (Word("in", 0, 400), Word("half", 350, 600), Word("out", 600, 900))
    transcript = to_transcript(segment_of(1000, 1500), Hypothesis((), "in half out", words))
    assert transcript.words == (Word("in", 1000, 1400), Word("half", 1350, 1500), Word("out", 1500, 1500))


@given(
    lengths=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=20),
    start_ms=st.integers(0, 10_000),
    length_ms=st.integers(10, 500),
)
def test_words_rise_and_stay_inside(lengths: list[tuple[int, int]], start_ms: int, length_ms: int) -> None:
    words = []
    at = 0
    for gap, length in lengths:
        words.append(Word("x", at + gap, at + gap + length))
        at += gap + length
    segment = Segment(0, start_ms * MS, (start_ms + length_ms) * MS, False, np.empty((0, 80), np.float32))
    placed = to_transcript(segment, Hypothesis((), "x", tuple(words))).words
    assert len(placed) == len(words)
    times = [ms for word in placed for ms in (word.start_ms, word.end_ms)]
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert all(start_ms <= ms <= start_ms + length_ms for ms in times)


def test_the_engine_gets_the_frames_of_the_segment_stacked_as_it_wants_them() -> None:
    class Other(FakeEngine):
        front_end = FrontEnd(mel_bins=80, lfr_m=5, lfr_n=1)

    segment = segment_of(0, 1000)
    for engine in (FakeEngine([said("")]), Other([said("")])):
        Recognizer(engine, DecodeOptions()).transcript(segment)
        expected = stack(segment.frames, engine.front_end.lfr_m, engine.front_end.lfr_n)
        assert np.array_equal(engine.heard[0], expected)


def test_the_engine_is_told_what_the_caller_wants() -> None:
    engine = FakeEngine([said("")])
    options = DecodeOptions(language="yue", itn=True)
    asked = Recognizer(engine, options)
    segment = segment_of(0, 100)
    asked.transcript(segment)
    asked.encode(asked.features(segment))
    assert engine.options == [options, options]


@pytest.mark.parametrize("length_ms", [0, 10, 20])
def test_a_segment_without_a_frame_is_no_error(length_ms: int) -> None:
    engine = FakeEngine([said("")])
    transcript = Recognizer(engine, DecodeOptions()).transcript(segment_of(100, 100 + length_ms))
    assert engine.heard[0].shape == (0, 560)
    assert (transcript.text, transcript.start_ms, transcript.end_ms) == ("", 100, 100 + length_ms)


def test_an_error_of_the_engine_comes_through() -> None:
    with pytest.raises(EngineError, match="out of memory"):
        recognizer(EngineError("out of memory")).transcript(segment_of(0, 100))

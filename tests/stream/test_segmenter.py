import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from liveasr.errors import UsageError
from liveasr.stream.detect import Detector, FsmnDetector, WindowDetector
from liveasr.stream.fbank import HOP_SAMPLES, MEL_BINS, OnlineFbank, frame_count
from liveasr.stream.segmenter import Segment, Segmenter
from liveasr.types import (
    SAMPLE_RATE_HZ,
    SAMPLES_PER_MS,
    FeatureFrames,
    Float32Array,
    SpeechEnd,
    SpeechEvent,
    SpeechStart,
)
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.chunking import PIECES, assert_same_for_any_split, pieces
from tests.memory import held_bytes
from tests.sounds import RECORDINGS, SHARED_RECORDINGS, load, pink, silence, tone, white

AS_REFERENCE = VadConfig(end_silence_ms=800, max_segment_ms=60_000)
"""The longest segment of the reference."""
LONGER_RECORDINGS = ("jfk", "noise", "dots", "vad_example")
"""11 to 70 s: left out of the pieces of 1 ms, which would take more time than all these tests together."""
FRAME_BYTES = MEL_BINS * 4

Comparable: TypeAlias = tuple[int, int, int, bool, bytes]


def comparable(segment: Segment) -> Comparable:
    return (
        segment.segment_id,
        segment.start_sample,
        segment.end_sample,
        segment.forced_cut,
        segment.frames.tobytes(),
    )


def segments_of(feed: Iterable[Float32Array], detector: Detector) -> list[Segment]:
    segmenter = Segmenter(detector)
    found = [segment for piece in feed for segment in segmenter.accept(piece)]
    found += segmenter.finish()
    assert [segment.segment_id for segment in found] == list(range(len(found)))
    return found


def times_ms(segments: Iterable[Segment] | Iterable[Comparable]) -> list[list[int]]:
    """As in the goldens."""
    whole = [comparable(item) if isinstance(item, Segment) else item for item in segments]
    return [[start // SAMPLES_PER_MS, end // SAMPLES_PER_MS] for _, start, end, _, _ in whole]


def assert_frames_are_those_of_the_audio_cut_there(segments: Iterable[Segment], samples: Float32Array) -> None:
    for segment in segments:
        expected = OnlineFbank().accept(samples[segment.start_sample : segment.end_sample]).data
        assert np.array_equal(segment.frames, expected)


def assert_same_for_all_pieces(
    samples: Float32Array, new_detector: Callable[[], Detector], sizes: Iterable[int]
) -> list[Comparable]:
    def run(feed: Iterable[Float32Array]) -> list[Comparable]:
        return [comparable(segment) for segment in segments_of(feed, new_detector())]

    return assert_same_for_any_split(samples, run, list(sizes))


# Against the reference.


@pytest.mark.parametrize("stem", RECORDINGS)
def test_segments_are_those_of_the_reference_in_any_pieces(
    stem: str, fsmn: FsmnWeights, data: Path, golden: Path
) -> None:
    found = assert_same_for_all_pieces(load(data / f"{stem}.wav"), lambda: FsmnDetector(fsmn, AS_REFERENCE), PIECES)
    expected = json.loads((golden / "vad.json").read_text(encoding="utf-8"))[stem]["offline/fixed_800"]
    assert times_ms(found) == expected


@pytest.mark.parametrize("stem", SHARED_RECORDINGS)
def test_segments_of_real_recordings_are_those_of_the_reference_in_any_pieces(
    stem: str, fsmn: FsmnWeights, shared: Path
) -> None:
    sizes = PIECES[1:] if stem in LONGER_RECORDINGS else PIECES
    samples = load(shared / "audio" / f"{stem}.wav")
    found = assert_same_for_all_pieces(samples, lambda: FsmnDetector(fsmn, AS_REFERENCE), sizes)
    goldens = json.loads((shared / "golden" / "fsmn-vad.json").read_text(encoding="utf-8"))
    assert times_ms(found) == goldens[stem]["offline/fixed_800"]


def test_events_are_confirmed_within_the_piece_that_the_reference_tells_them_after(
    fsmn: FsmnWeights, data: Path, golden: Path
) -> None:
    for stem in RECORDINGS:
        samples = load(data / f"{stem}.wav")
        detector, fbank = FsmnDetector(fsmn, AS_REFERENCE), OnlineFbank()
        told = []
        fed = 0
        for piece in pieces(samples, 960):
            fed += len(piece)
            for event in detector.accept(piece, fbank.accept(piece)):
                assert fed - 960 < event.confirmed_at <= fed
                is_start = isinstance(event, SpeechStart)
                at_ms = event.sample // SAMPLES_PER_MS
                told.append([fed // SAMPLES_PER_MS, at_ms if is_start else -1, -1 if is_start else at_ms])
        expected = json.loads((golden / "vad.json").read_text(encoding="utf-8"))[stem]["online_60ms/fixed_800"]
        assert told == expected


# Frames.


@pytest.mark.parametrize("stem", RECORDINGS)
@pytest.mark.parametrize("max_segment_ms", [20_000, 1000])
def test_frames_of_a_segment_are_those_of_the_audio_cut_there(
    stem: str, max_segment_ms: int, fsmn: FsmnWeights, data: Path
) -> None:
    samples = load(data / f"{stem}.wav")
    found = segments_of(pieces(samples, 777), FsmnDetector(fsmn, VadConfig(max_segment_ms=max_segment_ms)))
    assert len(found) >= 3
    assert_frames_are_those_of_the_audio_cut_there(found, samples)


def test_frames_of_a_long_recording_are_those_of_the_audio_cut_there(fsmn: FsmnWeights, shared: Path) -> None:
    samples = load(shared / "audio" / "vad_example.wav")
    found = segments_of(pieces(samples, 3200), FsmnDetector(fsmn, VadConfig(max_segment_ms=5000)))
    assert any(segment.forced_cut for segment in found)
    assert_frames_are_those_of_the_audio_cut_there(found, samples)


def test_forced_cuts_are_the_same_in_any_pieces(fsmn: FsmnWeights, data: Path) -> None:
    samples = np.tile(load(data / "digits-clean.wav")[8000:30_000], 5)
    config = VadConfig(max_segment_ms=1500)
    found = assert_same_for_all_pieces(samples, lambda: FsmnDetector(fsmn, config), [160, 960, 16_000])
    cuts = [index for index, (_, _, _, forced_cut, _) in enumerate(found) if forced_cut]
    assert cuts
    for index in cuts[:-1]:
        assert found[index + 1][1] >= found[index][2]


def test_a_segment_keeps_its_frames_after_the_segmenter_has_gone_on(fsmn: FsmnWeights, data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    segmenter = Segmenter(FsmnDetector(fsmn, VadConfig()))
    found = segmenter.accept(samples[: 3 * SAMPLE_RATE_HZ])
    before = [segment.frames.copy() for segment in found]
    assert before
    segmenter.accept(samples[3 * SAMPLE_RATE_HZ :])
    assert all(np.array_equal(segment.frames, frames) for segment, frames in zip(found, before, strict=True))


# Where nobody speaks.


@pytest.mark.parametrize("stem", ["noise", "jobs-silence"])
def test_recorded_noise_and_silence_give_no_segment(stem: str, fsmn: FsmnWeights, shared: Path) -> None:
    samples = load(shared / "audio" / f"{stem}.wav")
    assert segments_of(pieces(samples, 960), FsmnDetector(fsmn, VadConfig())) == []


@pytest.mark.parametrize(
    "samples",
    [
        silence(20),
        white(20, 0.001),
        white(20, 0.03),
        white(20, 0.3),
        pink(20, 0.001),
        pink(20, 0.03),
        pink(20, 0.2),
        tone(20, 50.0, level=0.1),
    ],
    ids=["zeros", "faint white", "white", "loud white", "faint pink", "pink", "loud pink", "mains hum"],
)
def test_sounds_that_nobody_speaks_in_give_no_segment(samples: Float32Array, fsmn: FsmnWeights) -> None:
    assert segments_of(pieces(samples, 960), FsmnDetector(fsmn, VadConfig())) == []


@pytest.mark.parametrize("size", [0, 1, 159, 399, 400, 1000])
def test_audio_too_short_for_speech_gives_no_segment(size: int, fsmn: FsmnWeights) -> None:
    assert segments_of([white(1, 0.3)[:size]], FsmnDetector(fsmn, VadConfig())) == []


def test_no_audio_gives_no_segment(fsmn: FsmnWeights) -> None:
    assert segments_of([], FsmnDetector(fsmn, VadConfig())) == []
    assert segments_of([], WindowDetector(VadConfig())) == []


# What is kept.


def test_long_silence_keeps_only_the_look_back(fsmn: FsmnWeights) -> None:
    segmenter = Segmenter(FsmnDetector(fsmn, VadConfig()))
    kept = 0
    for second in range(60):
        segmenter.accept(silence(1))
        assert len(segmenter._ring) <= 45  # 400 ms of look-back, and what waits for its score
        if second == 10:
            kept = held_bytes(segmenter)
    assert held_bytes(segmenter) <= kept + 50 * FRAME_BYTES


def test_long_speech_keeps_only_the_open_segment(fsmn: FsmnWeights, data: Path) -> None:
    speech = np.tile(load(data / "digits-clean.wav")[8000:30_000], 20)
    segmenter = Segmenter(FsmnDetector(fsmn, VadConfig(max_segment_ms=2000)))
    cuts = 0
    empty_bytes = held_bytes(segmenter)
    for piece in pieces(speech, 1600):
        cuts += sum(segment.forced_cut for segment in segmenter.accept(piece))
        assert len(segmenter._ring) <= 200 + 10 + 5  # the longest segment, a piece, and what waits for its score
    assert cuts > 5
    assert held_bytes(segmenter) - empty_bytes <= 2 * 250 * FRAME_BYTES


# The contract.


def test_audio_after_finish_is_refused(fsmn: FsmnWeights) -> None:
    segmenter = Segmenter(FsmnDetector(fsmn, VadConfig()))
    segmenter.finish()
    with pytest.raises(UsageError, match="after finish"):
        segmenter.accept(silence(1))


def test_finishing_twice_is_refused(fsmn: FsmnWeights) -> None:
    segmenter = Segmenter(FsmnDetector(fsmn, VadConfig()))
    segmenter.finish()
    with pytest.raises(UsageError, match="twice"):
        segmenter.finish()


class ScriptedDetector:
    """Says what it was told to say, once so much was heard."""

    def __init__(self, script: list[tuple[int, SpeechEvent]], earliest_start: int = 0) -> None:
        self._script = script
        self._heard = 0
        self.earliest_start = earliest_start
        self.speech_frames = 0

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:
        assert frames.end_frame == frame_count(self._heard + samples.size)
        self._heard += samples.size
        due = [event for at, event in self._script if at <= self._heard]
        self._script = self._script[len(due) :]
        return due

    def flush(self) -> list[SpeechEvent]:
        return []

    def finish(self) -> list[SpeechEvent]:
        return [event for _, event in self._script]


def test_several_segments_may_end_in_one_piece() -> None:
    samples = white(1, 0.1)
    script: list[tuple[int, SpeechEvent]] = [
        (16_000, SpeechStart(160, 0)),
        (16_000, SpeechEnd(3200, 0)),
        (16_000, SpeechStart(3200, 0)),
        (16_000, SpeechEnd(8000, 0, forced_cut=True)),
        (99_999, SpeechStart(8000, 0)),
        (99_999, SpeechEnd(16_000, 0)),
    ]
    found = segments_of([samples], ScriptedDetector(script))
    assert [comparable(segment)[:4] for segment in found] == [
        (0, 160, 3200, False),
        (1, 3200, 8000, True),
        (2, 8000, 16_000, False),
    ]
    assert_frames_are_those_of_the_audio_cut_there(found, samples)


def test_a_segment_may_begin_before_the_piece_that_shows_it() -> None:
    samples = white(1, 0.1)
    script: list[tuple[int, SpeechEvent]] = [(12_000, SpeechStart(1600, 0)), (16_000, SpeechEnd(14_400, 0))]
    found = segments_of(pieces(samples, 1000), ScriptedDetector(script, earliest_start=1600))
    assert len(found) == 1
    assert_frames_are_those_of_the_audio_cut_there(found, samples)


# Windows instead of speech.


@pytest.mark.parametrize("size", [1, 400, 15_999, 16_000, 16_001, 32_000, 40_123])
def test_windows_tile_the_audio_to_its_last_sample(size: int) -> None:
    samples = white(3, 0.1)[:size]
    found = segments_of(pieces(samples, 777), WindowDetector(VadConfig(max_segment_ms=1000)))
    assert found[0].start_sample == 0
    assert found[-1].end_sample == size
    assert all(earlier.end_sample == later.start_sample for earlier, later in pairwise(found))
    assert [segment.forced_cut for segment in found] == [True] * (len(found) - 1) + [False]
    assert max(segment.end_sample - segment.start_sample for segment in found) <= SAMPLE_RATE_HZ
    assert_frames_are_those_of_the_audio_cut_there(found, samples)


@pytest.mark.parametrize("max_segment_ms", [1000, 1005, 1237])
def test_windows_are_the_same_in_any_pieces_and_lie_on_the_grid_of_the_frames(max_segment_ms: int) -> None:
    samples = white(5, 0.1)
    config = VadConfig(max_segment_ms=max_segment_ms)
    found = assert_same_for_all_pieces(samples, lambda: WindowDetector(config), PIECES)
    assert len(found) > 3
    assert all(start % HOP_SAMPLES == 0 for _, start, _, _, _ in found)
    assert_frames_are_those_of_the_audio_cut_there(segments_of([samples], WindowDetector(config)), samples)


def test_windows_keep_only_the_open_window() -> None:
    segmenter = Segmenter(WindowDetector(VadConfig(max_segment_ms=1000)))
    for piece in pieces(white(10, 0.1), 1600):
        segmenter.accept(piece)
        assert len(segmenter._ring) <= 110


# The detector alone.


def events_of(feed: Iterable[Float32Array], detector: Detector) -> list[SpeechEvent]:
    fbank = OnlineFbank()
    found = [event for piece in feed for event in detector.accept(piece, fbank.accept(piece))]
    return found + detector.finish()


@pytest.mark.parametrize("stem", RECORDINGS)
def test_events_and_when_they_are_confirmed_are_the_same_in_any_pieces(
    stem: str, fsmn: FsmnWeights, data: Path
) -> None:
    samples = load(data / f"{stem}.wav")
    makers: list[Callable[[], Detector]] = [
        lambda: FsmnDetector(fsmn, VadConfig()),
        lambda: WindowDetector(VadConfig(max_segment_ms=1500)),
    ]
    for new_detector in makers:

        def run(feed: Iterable[Float32Array], new: Callable[[], Detector] = new_detector) -> list[SpeechEvent]:
            return events_of(feed, new())

        assert_same_for_any_split(samples, run, [160, 960, 16_000])


def test_nothing_is_said_before_the_audio_it_needs(fsmn: FsmnWeights, data: Path) -> None:
    samples = load(data / "digits-noisy.wav")
    detector, fbank = FsmnDetector(fsmn, VadConfig()), OnlineFbank()
    heard = 0
    for piece in pieces(samples, 16):
        heard += len(piece)
        for event in detector.accept(piece, fbank.accept(piece)):
            assert event.confirmed_at == heard
            assert event.sample <= heard


def test_every_frame_is_judged(fsmn: FsmnWeights, data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    detector = FsmnDetector(fsmn, VadConfig())
    frames = OnlineFbank().accept(samples)
    detector.accept(samples, frames)
    detector.finish()
    assert detector._endpointer._frame == len(frames.data)

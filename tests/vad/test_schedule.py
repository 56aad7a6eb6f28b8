"""The schedule of end silences against the reference, and the settings that shape segments: padding, threshold, least
speech. What every machine must hold for any scores and settings stands in test_endpoint.py."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from liveasr.stream.detect import FsmnDetector
from liveasr.stream.fbank import OnlineFbank
from liveasr.types import SAMPLES_PER_MS, Float32Array, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import VadConfig
from liveasr.vad.endpoint import Endpointer
from liveasr.vad.weights import FsmnWeights
from tests.chunking import PIECES, assert_same_for_any_split, pieces, ways
from tests.scores import HOP, QUIET, SPEECH, scores
from tests.sounds import RECORDINGS, SHARED_RECORDINGS, load

AS_REFERENCE = VadConfig(end_silence_ms=None, max_segment_ms=60_000)
PACKET = 960
"""Samples: the goldens' 60 ms."""


def events_of(feed: Iterable[Float32Array], fsmn: FsmnWeights, config: VadConfig) -> list[SpeechEvent]:
    detector, fbank = FsmnDetector(fsmn, config), OnlineFbank()
    found = [event for piece in feed for event in detector.accept(piece, fbank.accept(piece))]
    return found + detector.finish()


def rows(feed: Iterable[Float32Array], fsmn: FsmnWeights) -> list[list[int]]:
    """[ms fed, start or -1, end or -1] of each event, as in the goldens."""
    detector, fbank = FsmnDetector(fsmn, AS_REFERENCE), OnlineFbank()
    found: list[list[int]] = []
    fed = 0

    def note(events: list[SpeechEvent]) -> None:
        for event in events:
            at_ms = event.sample // SAMPLES_PER_MS
            times = [at_ms, -1] if isinstance(event, SpeechStart) else [-1, at_ms]
            found.append([round(fed / SAMPLES_PER_MS), *times])

    for piece in feed:
        fed += len(piece)
        note(detector.accept(piece, fbank.accept(piece)))
    note(detector.finish())
    return found


def golden_rows(path: Path, stem: str) -> list[list[int]]:
    found: list[list[int]] = json.loads(path.read_text(encoding="utf-8"))[stem]["online_60ms/dynamic"]
    return found


# Against the reference.


@pytest.mark.parametrize("stem", RECORDINGS)
def test_events_are_those_of_the_reference_and_come_with_the_same_packet(
    stem: str, fsmn: FsmnWeights, data: Path, golden: Path
) -> None:
    assert rows(pieces(load(data / f"{stem}.wav"), PACKET), fsmn) == golden_rows(golden / "vad.json", stem)


@pytest.mark.parametrize("stem", SHARED_RECORDINGS)
def test_events_of_real_recordings_are_those_of_the_reference_and_come_with_the_same_packet(
    stem: str, fsmn: FsmnWeights, shared: Path
) -> None:
    samples = load(shared / "audio" / f"{stem}.wav")
    assert rows(pieces(samples, PACKET), fsmn) == golden_rows(shared / "golden" / "fsmn-vad.json", stem)


def assert_segments_are_those_of(expected: list[list[int]], samples: Float32Array, fsmn: FsmnWeights) -> None:
    """In packets of any size. The scores are those of any packets (test_fsmn.py), so they are computed once."""
    frames = OnlineFbank().accept(samples)
    scores: list[Float32Array] = []
    detector = FsmnDetector(fsmn, AS_REFERENCE, scores.append)
    detector.accept(samples, frames)
    detector.finish()
    silence = np.concatenate(scores)
    wanted = [row[1:] for row in expected]
    for name, feed in [("whole", iter([silence])), *ways(silence, [1, 2, 5, 6, 7, 20, 100, 1000])]:
        endpointer = Endpointer(AS_REFERENCE, 0)
        events = [event for piece in feed for event in endpointer.accept(piece)] + endpointer.finish()
        found = [
            [event.sample // SAMPLES_PER_MS, -1]
            if isinstance(event, SpeechStart)
            else [-1, event.sample // SAMPLES_PER_MS]
            for event in events
        ]
        assert found == wanted, name


@pytest.mark.parametrize("stem", RECORDINGS)
def test_segments_are_those_of_the_reference_in_any_packets(
    stem: str, fsmn: FsmnWeights, data: Path, golden: Path
) -> None:
    samples = load(data / f"{stem}.wav")
    assert_segments_are_those_of(golden_rows(golden / "vad.json", stem), samples, fsmn)
    assert_same_for_any_split(samples, lambda feed: events_of(feed, fsmn, AS_REFERENCE), PIECES[1:])


@pytest.mark.parametrize("stem", SHARED_RECORDINGS)
def test_segments_of_real_recordings_are_those_of_the_reference_in_any_packets(
    stem: str, fsmn: FsmnWeights, shared: Path
) -> None:
    samples = load(shared / "audio" / f"{stem}.wav")
    assert_segments_are_those_of(golden_rows(shared / "golden" / "fsmn-vad.json", stem), samples, fsmn)


# What the schedule does.


def segments_of(silence: Float32Array, config: VadConfig) -> list[tuple[int, int]]:
    """(start, end) in frames."""
    endpointer = Endpointer(config, 0)
    at = [event.sample // HOP for event in endpointer.accept(silence) + endpointer.finish()]
    return list(zip(at[::2], at[1::2], strict=True))


SCHEDULE = VadConfig(end_silence_ms=None, max_segment_ms=120_000)


@pytest.mark.parametrize(
    ("speech_s", "pause_ms"), [(5, 2000), (15, 1000), (25, 800), (35, 600), (45, 400), (55, 200), (65, 150)]
)
def test_the_longer_one_speaks_the_shorter_the_pause_that_ends_a_segment(speech_s: int, pause_ms: int) -> None:
    # A pause is noticed in its 5th frame, 150 ms of it are counted as noticed, and speech behind it in its 15th frame.
    shortest = 5 + (pause_ms - 150) // 10 + (1 if pause_ms == 150 else 0)
    for pause, segments in ((shortest - 15, 1), (shortest + 1, 2)):
        silence = scores((SPEECH, speech_s * 100), (QUIET, max(1, pause)), (SPEECH, 100))
        assert len(segments_of(silence, SCHEDULE)) == segments, pause


def test_every_segment_begins_the_schedule_anew() -> None:
    silence = scores((SPEECH, 3500), (QUIET, 100), (SPEECH, 500), (QUIET, 100), (SPEECH, 500))
    assert len(segments_of(silence, SCHEDULE)) == 2  # 1 s of pause ends 35 s of speech, and not 5 s


def test_a_segment_that_is_dropped_begins_the_schedule_anew_too() -> None:
    config = VadConfig(end_silence_ms=None, max_segment_ms=60_000, min_speech_ms=500)
    dropped = [(SPEECH, 30), (QUIET, 300)] * 6
    found = segments_of(scores(*dropped, (SPEECH, 30), (QUIET, 150), (SPEECH, 100)), config)
    assert found == [(6 * 330 + 14 - 40, 6 * 330 + 280)]


def test_a_pause_that_is_already_long_enough_ends_the_segment_when_its_turn_comes() -> None:
    silence = scores((SPEECH, 950), (QUIET, 195))
    ((_, end),) = segments_of(silence, SCHEDULE)
    assert end < len(silence)


@pytest.mark.parametrize(("score", "is_speech"), [(0.24, True), (0.26, False)])
def test_with_the_schedule_less_sure_speech_is_speech(score: float, is_speech: bool) -> None:
    assert bool(segments_of(scores((score, 100)), SCHEDULE)) == is_speech
    assert not segments_of(scores((0.24, 100)), VadConfig())


# Threshold.


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("end_silence_ms", [None, 800])
def test_speech_must_be_more_likely_than_silence_by_the_threshold(threshold: float, end_silence_ms: int | None) -> None:
    config = VadConfig(end_silence_ms, speech_threshold=threshold)
    border = (1 - threshold) / 2
    assert segments_of(scores((border - 0.01, 100)), config)
    assert not segments_of(scores((border + 0.01, 100)), config)


def test_a_higher_threshold_hears_less(fsmn: FsmnWeights, data: Path) -> None:
    samples = load(data / "digits-noisy.wav")
    lengths = []
    for threshold in (-0.5, 0.6, 0.98):
        at = [event.sample for event in events_of([samples], fsmn, VadConfig(speech_threshold=threshold))]
        lengths.append(sum(end - start for start, end in zip(at[::2], at[1::2], strict=True)))
    assert lengths[0] > lengths[1] > lengths[2]


# Least speech.


@pytest.mark.parametrize("speech", [20, 29, 30, 31, 100])
def test_a_segment_with_less_speech_is_never_spoken_of(speech: int) -> None:
    found = segments_of(scores((QUIET, 50), (SPEECH, speech), (QUIET, 200)), VadConfig(min_speech_ms=300))
    assert bool(found) == (speech >= 30)


def test_pauses_do_not_count_as_speech() -> None:
    flicker = [(SPEECH, 10), (QUIET, 20)] * 3
    silence = scores((SPEECH, 20), *flicker, (QUIET, 200))  # 50 frames of speech in 110
    assert segments_of(silence, VadConfig(min_speech_ms=500))
    assert not segments_of(silence, VadConfig(min_speech_ms=510))


def test_a_segment_that_is_long_enough_keeps_its_beginning() -> None:
    silence = scores((QUIET, 100), (SPEECH, 100), (QUIET, 200))
    assert segments_of(silence, VadConfig(min_speech_ms=500)) == segments_of(silence, VadConfig())


def test_its_start_is_told_once_there_was_so_much_speech() -> None:
    endpointer = Endpointer(VadConfig(min_speech_ms=500), 0)
    told = [
        index for index, score in enumerate(pieces(scores((QUIET, 50), (SPEECH, 100)), 1)) if endpointer.accept(score)
    ]
    assert told == [50 + 49]


def test_a_short_word_does_not_take_the_place_of_the_next_segment() -> None:
    silence = scores((QUIET, 50), (SPEECH, 20), (QUIET, 100), (SPEECH, 100), (QUIET, 200))
    (only,) = segments_of(silence, VadConfig(min_speech_ms=300))
    assert only[0] < 170 < only[1]


def test_what_follows_a_forced_cut_is_no_segment_of_its_own() -> None:
    config = VadConfig(max_segment_ms=2000, min_speech_ms=500)
    found = segments_of(scores((SPEECH, 210), (QUIET, 200)), config)
    assert len(found) == 2  # the 10 frames behind the cut belong to speech that was long enough
    assert found[0][1] == found[1][0]


# Padding.

PAUSE = ((QUIET, 300), (SPEECH, 100), (QUIET, 300), (SPEECH, 100), (QUIET, 300))
"""Two segments, far from each other and from both ends."""


@pytest.mark.parametrize("before_ms", [0, 10, 200, 1500])
@pytest.mark.parametrize("after_ms", [0, 10, 200])
def test_padding_moves_both_ends(before_ms: int, after_ms: int) -> None:
    plain = segments_of(scores(*PAUSE), VadConfig())
    padded = segments_of(scores(*PAUSE), VadConfig(pad_before_ms=before_ms, pad_after_ms=after_ms))
    assert padded == [(start - before_ms // 10, end + after_ms // 10) for start, end in plain]


def test_padding_never_reaches_into_the_segment_before() -> None:
    found = segments_of(scores(*PAUSE), VadConfig(pad_before_ms=5000))
    assert found[0][0] == 0
    assert found[1][0] == found[0][1]


def test_padding_behind_reaches_no_further_than_what_was_heard() -> None:
    ((_, end),) = segments_of(scores((SPEECH, 100), (QUIET, 300)), VadConfig(pad_after_ms=5000))
    assert end == 100 + 5 + 65  # where the end silence has been heard


def test_padding_makes_no_segment_longer_than_the_longest() -> None:
    config = VadConfig(max_segment_ms=2000, pad_before_ms=5000, pad_after_ms=5000)
    found = segments_of(scores((QUIET, 500), (SPEECH, 700), (QUIET, 300)), config)
    assert len(found) > 3
    assert max(end - start for start, end in found) <= 200


def test_padding_is_the_same_in_any_packets(fsmn: FsmnWeights, data: Path) -> None:
    samples = load(data / "digits-noisy.wav")
    config = VadConfig(400, 1500, 0.3, 200, 300, 300)
    found = assert_same_for_any_split(samples, lambda feed: events_of(feed, fsmn, config), PIECES[1:])
    assert len(found) > 6
    assert any(isinstance(event, SpeechEnd) and event.forced_cut for event in found)


# A longest segment of 20 s.


def test_long_speech_is_cut_after_at_most_20_s_where_it_was_least_likely(fsmn: FsmnWeights, shared: Path) -> None:
    samples = load(shared / "audio" / "dots.wav")
    scores_: list[Float32Array] = []
    detector = FsmnDetector(fsmn, VadConfig(end_silence_ms=2000), scores_.append)
    events = detector.accept(samples, OnlineFbank().accept(samples)) + detector.finish()
    silence = np.concatenate(scores_)
    cuts = 0
    for start, end, following in zip(events[::2], events[1::2], [*events[2::2], None], strict=True):
        assert isinstance(end, SpeechEnd)
        assert end.sample - start.sample <= 20_000 * SAMPLES_PER_MS
        if end.forced_cut:
            cuts += 1
            first = start.sample // HOP + 1501  # 2001 frames were too many
            last_5_s = silence[first : first + 500]
            assert end.sample // HOP - first in np.flatnonzero(last_5_s == last_5_s.max())
            assert following is not None
            assert following.sample == end.sample
    assert cuts

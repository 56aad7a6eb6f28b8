from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from liveasr.clients.file import segments, transcribe
from liveasr.engines.base import DecodeOptions
from liveasr.errors import AudioError, EngineError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import FsmnDetector, WindowDetector
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Transcript
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.fakes import FakeEngine, said
from tests.sounds import silence


def hears(text: str) -> Recognizer:
    return Recognizer(FakeEngine([said(text)]), DecodeOptions())


def blocks_of(samples: Float32Array, size: int = 1024) -> Iterator[Float32Array]:
    for start in range(0, samples.size, size):
        yield samples[start : start + size]


def detector_of(fsmn: FsmnWeights) -> FsmnDetector:
    return FsmnDetector(fsmn, VadConfig())


def texts(transcripts: Iterable[Transcript]) -> list[str]:
    return [transcript.text for transcript in transcripts]


def test_segments_come_in_order_with_their_transcripts(clean: Float32Array, fsmn: FsmnWeights) -> None:
    engine = FakeEngine([said("one"), said("two words"), said("three")])
    found = list(transcribe(blocks_of(clean), Recognizer(engine, DecodeOptions()), detector_of(fsmn)))
    assert texts(found) == ["one", "two words", "three"]
    assert [transcript.segment_id for transcript in found] == [0, 1, 2]
    assert [(transcript.start_ms, transcript.end_ms) for transcript in found] == [
        (250, 2150),
        (2790, 5150),
        (5830, 7510),
    ]


def test_segments_without_words_are_left_out_and_keep_their_number(clean: Float32Array, fsmn: FsmnWeights) -> None:
    engine = FakeEngine([said("one"), said(""), said("three")])
    found = list(transcribe(blocks_of(clean), Recognizer(engine, DecodeOptions()), detector_of(fsmn)))
    assert texts(found) == ["one", "three"]
    assert [transcript.segment_id for transcript in found] == [0, 2]


def test_a_transcript_comes_as_soon_as_its_segment_has_ended(clean: Float32Array, fsmn: FsmnWeights) -> None:
    fed = 0

    def feed() -> Iterator[Float32Array]:
        nonlocal fed
        for block in blocks_of(clean, 160):
            fed += block.size
            yield block

    first = next(transcribe(feed(), hears("x"), detector_of(fsmn)))
    assert first.end_ms == 2150
    assert fed < 3 * SAMPLE_RATE_HZ


def test_how_far_it_has_read_is_told_in_milliseconds(clean: Float32Array, fsmn: FsmnWeights) -> None:
    heard: list[int] = []
    list(transcribe(blocks_of(clean, 1600), hears("x"), detector_of(fsmn), heard.append))
    assert heard[:3] == [100, 200, 300]
    assert heard == sorted(heard)
    assert heard[-1] == clean.size // 16


def test_no_audio_gives_nothing(fsmn: FsmnWeights) -> None:
    engine = FakeEngine([said("x")])
    assert list(transcribe([], Recognizer(engine, DecodeOptions()), detector_of(fsmn))) == []
    assert list(transcribe([], Recognizer(engine, DecodeOptions()), WindowDetector(VadConfig()))) == []
    assert engine.heard == []


def test_silence_gives_nothing_to_the_engine(fsmn: FsmnWeights) -> None:
    engine = FakeEngine([said("x")])
    assert list(transcribe(blocks_of(silence(5)), Recognizer(engine, DecodeOptions()), detector_of(fsmn))) == []
    assert engine.heard == []


def test_without_a_detector_every_window_is_a_segment(clean: Float32Array) -> None:
    detector = WindowDetector(VadConfig(max_segment_ms=2000))
    found = list(transcribe(blocks_of(clean), hears("x"), detector))
    assert [transcript.start_ms for transcript in found] == [0, 2000, 4000, 6000, 8000]
    assert found[-1].end_ms == clean.size // 16


def damaged_after(samples: Float32Array) -> Iterator[Float32Array]:
    yield from blocks_of(samples)
    raise AudioError("x.wav", "is damaged")


@pytest.mark.parametrize(
    ("seconds", "ends_ms"), [(0, []), (0.4, []), (1.5, [1480]), (2.3, [2280]), (4, [2150, 3980]), (5.5, [2150, 5480])]
)
def test_what_could_be_read_of_a_damaged_recording_is_given_before_the_error(
    seconds: float, ends_ms: list[int], clean: Float32Array, fsmn: FsmnWeights
) -> None:
    read = clean[: round(seconds * SAMPLE_RATE_HZ)]
    found = []
    with pytest.raises(AudioError, match="is damaged"):  # noqa: PT012 - what came before the error is the point
        for transcript in transcribe(damaged_after(read), hears("x"), detector_of(fsmn)):
            found.append(transcript)  # noqa: PERF402
    assert [transcript.end_ms for transcript in found] == ends_ms


def test_a_file_that_was_cut_off_gives_its_segments_and_then_the_error(
    clean: Float32Array, fsmn: FsmnWeights, tmp_path: Path
) -> None:
    path = tmp_path / "x.flac"
    soundfile.write(path, clean, SAMPLE_RATE_HZ)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    found = []
    with AudioFile(path) as audio, pytest.raises(AudioError):  # noqa: PT012
        for segment in segments(audio.blocks(), detector_of(fsmn)):
            found.append(segment.end_sample // 16)  # noqa: PERF401
    assert found[0] == 2150
    assert len(found) >= 2


def test_an_error_of_the_engine_ends_it(clean: Float32Array, fsmn: FsmnWeights) -> None:
    engine = FakeEngine([said("one"), EngineError("broken")])
    transcripts = transcribe(blocks_of(clean), Recognizer(engine, DecodeOptions()), detector_of(fsmn))
    assert next(transcripts).text == "one"
    with pytest.raises(EngineError, match="broken"):
        next(transcripts)


def test_blocks_of_any_size_give_equal_transcripts(clean: Float32Array, fsmn: FsmnWeights) -> None:
    results = []
    features = []
    for size in (100, 1024, 16_000, clean.size):
        engine = FakeEngine([said("one"), said("two"), said("three")])
        results.append(list(transcribe(blocks_of(clean, size), Recognizer(engine, DecodeOptions()), detector_of(fsmn))))
        features.append([heard.tobytes() for heard in engine.heard])
    assert all(result == results[0] for result in results)
    assert all(feature == features[0] for feature in features)


def test_empty_blocks_change_nothing(clean: Float32Array, fsmn: FsmnWeights) -> None:
    def feed() -> Iterator[Float32Array]:
        for block in blocks_of(clean):
            yield np.zeros(0, np.float32)
            yield block

    assert len(list(segments(feed(), detector_of(fsmn)))) == 3

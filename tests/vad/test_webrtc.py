import logging
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import webrtcvad

from liveasr import store
from liveasr.stream.detect import FsmnDetector, WebrtcDetector, detectors
from liveasr.stream.fbank import OnlineFbank
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Float32Array, SpeechEnd, SpeechEvent
from liveasr.vad.config import VadConfig
from liveasr.vad.fsmn import FsmnScorer
from liveasr.vad.webrtc import Aggressiveness, WebrtcScorer, WindowMs
from tests.chunking import PIECES, assert_same_for_any_split, pieces
from tests.memory import held_bytes
from tests.sounds import RECORDINGS, load, silence, white

WINDOWS_MS: tuple[WindowMs, ...] = get_args(WindowMs)
LEVELS: tuple[Aggressiveness, ...] = get_args(Aggressiveness)
SPOKEN_MS = {
    "digits-clean": [(250, 2150), (2790, 5150), (5830, 7510)],
    "digits-noisy": [(250, 2110), (2850, 4550), (5240, 7190)],
}
"""As the FSMN-VAD hears it."""


def scores_of(feed: Iterable[Float32Array], window_ms: WindowMs = 20, level: Aggressiveness = 2) -> Float32Array:
    scorer = WebrtcScorer(window_ms, level)
    return np.concatenate([np.empty(0, np.float32), *(scorer.accept(piece) for piece in feed)])


def events_of(feed: Iterable[Float32Array], config: VadConfig, window_ms: WindowMs = 20) -> list[SpeechEvent]:
    detector, fbank = WebrtcDetector(WebrtcScorer(window_ms), config), OnlineFbank()
    found = [event for piece in feed for event in detector.accept(piece, fbank.accept(piece))]
    return found + detector.finish()


def segments_ms(
    samples: Float32Array, config: VadConfig | None = None, window_ms: WindowMs = 20
) -> list[tuple[int, int]]:
    events = events_of([samples], config or VadConfig(), window_ms)
    times = [event.sample // SAMPLES_PER_MS for event in events]
    return list(zip(times[::2], times[1::2], strict=True))


# Scores.


@pytest.mark.parametrize("window_ms", WINDOWS_MS)
@pytest.mark.parametrize("level", LEVELS)
def test_scores_are_the_decisions_of_webrtc(window_ms: WindowMs, level: Aggressiveness, data: Path) -> None:
    samples = load(data / "digits-noisy.wav")[: 3 * SAMPLE_RATE_HZ]
    size = window_ms * SAMPLES_PER_MS
    vad = webrtcvad.Vad(level)
    integers = np.round(samples * 32_768).astype("<i2")
    decisions = [vad.is_speech(window.tobytes(), SAMPLE_RATE_HZ) for window in integers.reshape(-1, size)]
    found = scores_of([samples], window_ms, level)
    assert found.dtype == np.float32
    assert found.tolist() == [0.0 if speech else 1.0 for speech in decisions for _ in range(window_ms // 10)]
    assert 0 < found.mean() < 1


@pytest.mark.parametrize("window_ms", WINDOWS_MS)
def test_any_split_gives_the_same_scores(window_ms: WindowMs, data: Path) -> None:
    samples = load(data / "digits-noisy.wav")[: 3 * SAMPLE_RATE_HZ]
    assert_same_for_any_split(samples, lambda feed: scores_of(feed, window_ms).tolist(), PIECES[1:])


@pytest.mark.parametrize("window_ms", WINDOWS_MS)
@pytest.mark.parametrize("size", [0, 1, 159, 160, 161, 479, 480, 481, 1000])
def test_only_whole_windows_get_scores(window_ms: WindowMs, size: int) -> None:
    windows = size // (window_ms * SAMPLES_PER_MS)
    assert len(scores_of([white(1, 0.1)[:size]], window_ms)) == windows * window_ms // 10


def test_silence_is_silence() -> None:
    assert scores_of([silence(2)]).min() == 1.0


def test_samples_beyond_full_scale_are_cut_off_and_not_turned_over() -> None:
    loud = np.array([1.0, 3.0, -3.0, -1.0] * 4000, np.float32)
    clipped = np.clip(loud, -1.0, 32_767 / 32_768).astype(np.float32)
    assert np.array_equal(scores_of([loud]), scores_of([clipped]))


def test_a_scorer_keeps_less_than_a_window(data: Path) -> None:
    scorer = WebrtcScorer(30)
    for piece in pieces(load(data / "digits-clean.wav"), 777):
        scorer.accept(piece)
        assert held_bytes(scorer._rest) < 30 * SAMPLES_PER_MS * 2 + 300


# Events: what is behind the scores is the same as for the FSMN-VAD.


@pytest.mark.parametrize("stem", RECORDINGS)
@pytest.mark.parametrize("window_ms", WINDOWS_MS)
def test_speech_is_found_about_where_the_better_detector_finds_it(stem: str, window_ms: WindowMs, data: Path) -> None:
    found = segments_ms(load(data / f"{stem}.wav"), window_ms=window_ms)
    expected = SPOKEN_MS[stem]
    if stem == "digits-clean":
        assert np.abs(np.array(found) - expected).max() <= 250
    else:  # it takes the noise between for speech, but loses none
        assert found[0][0] <= expected[0][0] + 250
        assert found[-1][1] >= expected[-1][1] - 250


@pytest.mark.parametrize("window_ms", WINDOWS_MS)
def test_events_are_the_same_in_any_pieces(window_ms: WindowMs, data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    config = VadConfig(max_segment_ms=1500)
    found = assert_same_for_any_split(samples, lambda feed: events_of(feed, config, window_ms), [160, 960, 16_000])
    assert any(isinstance(event, SpeechEnd) and event.forced_cut for event in found)


@pytest.mark.parametrize("window_ms", WINDOWS_MS)
def test_nothing_is_said_before_the_audio_it_needs(window_ms: WindowMs, data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    detector, fbank = WebrtcDetector(WebrtcScorer(window_ms), VadConfig()), OnlineFbank()
    heard = 0
    for piece in pieces(samples, 160):
        heard += len(piece)
        for event in detector.accept(piece, fbank.accept(piece)):
            assert event.sample <= heard
            assert event.confirmed_at <= heard + (window_ms - 10) * SAMPLES_PER_MS


def test_the_settings_are_those_of_the_other_detector(data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    plain = segments_ms(samples)
    assert len(segments_ms(samples, VadConfig(end_silence_ms=None))) == 1
    assert segments_ms(samples, VadConfig(end_silence_ms=200))[0][1] < plain[0][1]
    padded = segments_ms(samples, VadConfig(pad_before_ms=100, pad_after_ms=100))
    assert padded == [(start - 100, end + 100) for start, end in plain]
    longest = max(end - start for start, end in plain)
    assert len(segments_ms(samples, VadConfig(min_speech_ms=longest))) < len(plain)
    assert segments_ms(samples, VadConfig(min_speech_ms=60_000)) == []


def test_the_hangover_is_the_end_silence(data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    for end_silence_ms in (400, 800):
        events = events_of(pieces(samples, 160), VadConfig(end_silence_ms))
        end = next(event for event in events if isinstance(event, SpeechEnd))
        waited_ms = (end.confirmed_at - end.sample) // SAMPLES_PER_MS
        assert waited_ms == pytest.approx(end_silence_ms - 250, abs=30)  # 150 ms to notice, and 100 ms that it keeps


# When it is used.


def test_it_is_used_when_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(detectors("webrtc", VadConfig())(), WebrtcDetector)
    assert caplog.records == []


def test_every_stream_gets_its_own(data: Path) -> None:
    samples = load(data / "digits-clean.wav")
    new_detector = detectors("webrtc", VadConfig())
    fbank = OnlineFbank()
    frames = fbank.accept(samples)
    assert new_detector().accept(samples, frames) == new_detector().accept(samples, frames) != []


@pytest.mark.parametrize("content", [None, b"", b"GGUF but not really"])
def test_it_takes_over_with_a_warning_when_the_weights_of_the_other_are_missing(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "fsmn-vad.gguf"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(store, "built_in", lambda _name: path)
    with caplog.at_level(logging.WARNING, "liveasr"):
        new_detector = detectors("fsmn", VadConfig())
        assert isinstance(new_detector(), WebrtcDetector)
        assert isinstance(new_detector(), WebrtcDetector)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: ")
    assert "falling back to WebRTC's voice activity detector, which is less exact" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_the_other_is_used_when_its_weights_are_there(caplog: pytest.LogCaptureFixture) -> None:
    detector = detectors("fsmn", VadConfig())()
    assert isinstance(detector, FsmnDetector)
    assert isinstance(detector._scorer, FsmnScorer)
    assert caplog.records == []

"""Samples from the wire: any split gives the same, and the same as a file of them."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.stream.decode import AudioFile
from liveasr.stream.messages import AudioFormat, Encoding
from liveasr.stream.pcm import PcmDecoder, encode_pcm
from liveasr.types import SAMPLE_RATE_HZ, Float32Array
from tests.chunking import cut_at
from tests.sounds import tone
from tests.wire import audio_formats


def of(rate_hz: Any, encoding: Any = "s16le", channels: int = 1) -> AudioFormat:
    return AudioFormat(encoding=encoding, rate_hz=rate_hz, channels=channels)


RATES = (8000, 16000, 24000, 44100, 48000)
FORMATS = [of(*each) for each in product(RATES, get_args(Encoding), (1, 2, 3, 8))]
SUBTYPES: dict[Encoding, str] = {"s16le": "PCM_16", "f32le": "FLOAT"}


def name(format_: AudioFormat) -> str:
    return f"{format_.encoding}-{format_.rate_hz}-{format_.channels}"


def noise(format_: AudioFormat, seconds: float = 0.5) -> Float32Array:
    """(n, channels), another in every channel."""
    random = np.random.default_rng(format_.rate_hz + format_.channels)
    return random.uniform(-1, 1, (int(seconds * format_.rate_hz), format_.channels)).astype(np.float32)


def decoded(feed: Iterable[bytes], format_: AudioFormat) -> Float32Array:
    decoder = PcmDecoder(format_)
    parts = [decoder.accept(payload) for payload in feed]
    found = np.concatenate([*parts, decoder.flush()])
    assert all(part.dtype == np.float32 for part in parts)
    assert found.dtype == np.float32
    assert found.ndim == 1
    return found


def loudest(samples: Float32Array) -> tuple[float, float]:
    """Frequency in Hz and amplitude of the strongest partial, without the first and last tenth of a second."""
    middle = samples[1600:-1600].astype(np.float64)
    window = np.hanning(middle.size)
    spectrum = np.abs(np.fft.rfft(middle * window)) / window.sum() * 2
    return float(spectrum.argmax() * SAMPLE_RATE_HZ / middle.size), float(spectrum.max())


# Any split.


@pytest.mark.parametrize("format_", FORMATS, ids=name)
def test_pieces_of_any_size_give_equal_samples(format_: AudioFormat) -> None:
    payload = encode_pcm(noise(format_), format_.encoding)
    whole = decoded([payload], format_)
    for frames in (7, 160, 441, 4801):
        size = frames * format_.frame_bytes
        parts = (payload[start : start + size] for start in range(0, len(payload), size))
        assert np.array_equal(decoded(parts, format_), whole), frames


@given(format_=audio_formats, places=st.lists(st.integers(0, 3000), max_size=12))
@settings(max_examples=60)
def test_any_split_gives_equal_samples(format_: AudioFormat, places: list[int]) -> None:
    samples = noise(format_, 2400 / format_.rate_hz)
    parts = [encode_pcm(part, format_.encoding) for part in cut_at(samples, places)]
    assert np.array_equal(decoded(parts, format_), decoded([b"".join(parts)], format_))


@pytest.mark.parametrize("rate_hz", RATES)
def test_single_samples_give_equal_samples(rate_hz: int) -> None:
    format_ = of(rate_hz)
    payload = encode_pcm(noise(format_, 0.1), "s16le")
    parts = (payload[start : start + 2] for start in range(0, len(payload), 2))
    assert np.array_equal(decoded(parts, format_), decoded([payload], format_))


# The same as a file.


@pytest.mark.parametrize("format_", FORMATS, ids=name)
def test_samples_are_those_of_a_file_of_the_same_sound(format_: AudioFormat, tmp_path: Path) -> None:
    samples = noise(format_, 1.5)
    payload = encode_pcm(samples, format_.encoding)
    exact = np.frombuffer(payload, "<i2" if format_.encoding == "s16le" else "<f4").reshape(samples.shape)
    soundfile.write(tmp_path / "x.wav", exact, format_.rate_hz, subtype=SUBTYPES[format_.encoding])
    with AudioFile(tmp_path / "x.wav") as file:
        expected = np.concatenate(list(file.blocks()))
    assert np.array_equal(decoded([payload], format_), expected)


def test_what_is_louder_than_full_scale_is_clipped_unlike_in_a_file(tmp_path: Path) -> None:
    samples = np.array([0.5, 1.5, -3.0, 1.0], np.float32)
    soundfile.write(tmp_path / "x.wav", samples, SAMPLE_RATE_HZ, subtype="FLOAT")
    with AudioFile(tmp_path / "x.wav") as file:
        assert np.concatenate(list(file.blocks())).tolist() == samples.tolist()
    assert decoded([samples.tobytes()], AudioFormat(encoding="f32le")).tolist() == [0.5, 1, -1, 1]


# Exactness.


def test_every_value_of_16_bits_goes_there_and_back() -> None:
    integers = np.arange(-32768, 32768, dtype="<i2")
    samples = decoded([integers.tobytes()], AudioFormat())
    assert samples.min() == -1
    assert encode_pcm(samples, "s16le") == integers.tobytes()


@given(st.lists(st.floats(-1, 1, width=32), max_size=50))
def test_floats_go_there_and_back(values: list[float]) -> None:
    samples = np.array(values, np.float32)
    assert decoded([encode_pcm(samples, "f32le")], AudioFormat(encoding="f32le")).tobytes() == samples.tobytes()


@given(st.lists(st.floats(width=32), max_size=50))
def test_any_floats_become_16_bits_by_rounding_and_clipping(values: list[float]) -> None:
    samples = np.array(values, np.float32)
    expected = [round(max(-32768.0, min(32767.0, value * 32768))) if np.isfinite(value) else 0 for value in values]
    assert np.frombuffer(encode_pcm(samples, "s16le"), "<i2").tolist() == expected


def test_channels_are_interleaved_and_averaged() -> None:
    frames = np.array([[0.5, 0.25, 0.0], [-1.0, 1.0, 0.75]], np.float32)
    payload = encode_pcm(frames, "f32le")
    assert payload == frames.tobytes()
    assert decoded([payload], AudioFormat(encoding="f32le", channels=3)).tolist() == [0.25, 0.25]


@given(st.lists(st.floats(width=32), min_size=2, max_size=64), st.sampled_from([1, 2]), st.sampled_from([16000, 48000]))
def test_any_float_gives_samples_within_full_scale(values: list[float], channels: int, rate_hz: int) -> None:
    format_ = of(rate_hz, "f32le", channels)
    payload = np.array(values[: len(values) // channels * channels], "<f4").tobytes()
    found = decoded([payload], format_)
    assert np.isfinite(found).all()
    assert np.abs(found).max(initial=0) <= (1 if rate_hz == SAMPLE_RATE_HZ else 2)  # the filter may ring


@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3.4e38, -3.4e38])
def test_one_bad_sample_does_not_spoil_the_others(bad: float, rate_hz: int) -> None:
    format_ = of(rate_hz, "f32le")
    good = tone(1, 440, rate_hz)
    spoilt = good.copy()
    spoilt[rate_hz // 2] = bad
    ours, expected = (decoded([encode_pcm(each, "f32le")], format_) for each in (spoilt, good))
    differs = np.flatnonzero(np.abs(ours - expected) > 1e-4)
    assert differs.size == 0 or differs.max() - differs.min() < 0.1 * SAMPLE_RATE_HZ
    assert np.abs(ours - expected).max() <= 1.6


def test_what_is_no_number_is_silence() -> None:
    payload = np.array([np.nan, np.inf, -np.inf, 0.5], "<f4").tobytes()
    assert decoded([payload], AudioFormat(encoding="f32le")).tolist() == [0, 0, 0, 0.5]


# Flush.


@pytest.mark.parametrize("rate_hz", RATES)
def test_flush_gives_all_that_was_heard(rate_hz: int) -> None:
    format_ = of(rate_hz)
    for frames in (0, 1, 2, 3, 100, rate_hz // 10, rate_hz, rate_hz + 1):
        found = decoded([bytes(2 * frames)], format_)
        assert abs(len(found) - frames * SAMPLE_RATE_HZ / rate_hz) <= 1, frames


@pytest.mark.parametrize("rate_hz", RATES)
def test_what_flush_holds_back_is_less_than_a_tenth_of_a_second(rate_hz: int) -> None:
    decoder = PcmDecoder(of(rate_hz))
    for _ in range(50):
        decoder.accept(bytes(2 * rate_hz // 50))
    assert decoder.flush().size < SAMPLE_RATE_HZ / 10
    assert decoder.flush().size == 0


@pytest.mark.parametrize("rate_hz", RATES)
def test_audio_after_a_flush_is_as_that_of_a_new_stream(rate_hz: int) -> None:
    format_ = of(rate_hz)
    payload = encode_pcm(noise(format_), "s16le")
    decoder = PcmDecoder(format_)
    for _ in range(3):
        assert np.array_equal(np.concatenate((decoder.accept(payload), decoder.flush())), decoded([payload], format_))


@pytest.mark.parametrize("format_", FORMATS, ids=name)
def test_a_tone_keeps_its_frequency_and_level(format_: AudioFormat) -> None:
    wave = np.repeat(tone(1.2, 1000, format_.rate_hz)[:, None], format_.channels, axis=1)
    hz, level = loudest(decoded([encode_pcm(wave, format_.encoding)], format_))
    assert hz == pytest.approx(1000, abs=1)
    assert level == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("rate_hz", RATES)
def test_flushes_on_the_way_shift_nothing(rate_hz: int) -> None:
    format_ = of(rate_hz)
    payload = encode_pcm(tone(1.2, 1000, rate_hz), "s16le")
    decoder = PcmDecoder(format_)
    half = len(payload) // 4 * 2
    found = [decoder.accept(payload[:half]), decoder.flush(), decoder.accept(payload[half:]), decoder.flush()]
    hz, level = loudest(np.concatenate(found))
    assert hz == pytest.approx(1000, abs=1)
    assert level == pytest.approx(0.5, rel=1e-2)

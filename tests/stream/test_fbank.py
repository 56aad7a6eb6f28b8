from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.errors import UsageError
from liveasr.stream import fbank
from liveasr.stream.fbank import FRAME_SAMPLES, HOP_SAMPLES, MEL_BINS, OnlineFbank, frame_count
from liveasr.types import SAMPLE_RATE_HZ, FeatureFrames, Float32Array
from tests.chunking import assert_same_for_any_split, cut_at, pieces
from tests.memory import held_bytes
from tests.sounds import RECORDINGS, load, silence, white


def frames_of(samples: Float32Array) -> Float32Array:
    return OnlineFbank().accept(samples).data


def run(feed: Iterable[Float32Array]) -> bytes:
    """All frames, to the bit; they must follow each other without a gap."""
    online = OnlineFbank()
    parts = [online.accept(piece) for piece in feed]
    parts.append(online.finish())
    assert_consecutive(parts)
    return np.concatenate([part.data for part in parts]).tobytes()


def assert_consecutive(parts: list[FeatureFrames]) -> None:
    end_frame = 0
    for part in parts:
        assert part.start_frame == end_frame
        assert part.data.dtype == np.float32
        assert part.data.flags.c_contiguous
        assert part.data.shape[1:] == (MEL_BINS,)
        end_frame = part.end_frame


@pytest.mark.parametrize("stem", RECORDINGS)
def test_frames_are_those_of_the_reference(stem: str, data: Path, golden: Path, tolerances: dict[str, Any]) -> None:
    expected = np.load(golden / "frontend.npz")[f"{stem}/fbank"]
    frames = frames_of(load(data / f"{stem}.wav")[: 3 * SAMPLE_RATE_HZ])
    assert frames.shape == expected.shape
    assert np.abs(frames - expected).max() <= tolerances["stream"]["fbank"]["value"]


@pytest.mark.parametrize("stem", ["zh", "jfk"])
def test_frames_of_real_speech_are_those_of_the_reference(stem: str, shared: Path, tolerances: dict[str, Any]) -> None:
    arrays = np.load(shared / "golden" / "sensevoice-tiny.npz")
    frames = frames_of(load(shared / "audio" / f"{stem}.wav")[: arrays[f"{stem}/samples"]])
    expected = arrays[f"{stem}/fbank"]
    assert frames.shape == expected.shape
    assert np.abs(frames - expected).max() <= tolerances["stream"]["fbank"]["value"]


@pytest.mark.parametrize("size", [400, 401, 559, 560, 561, 719, 720, 721])
def test_frames_at_the_edges_of_a_window_are_those_of_the_reference(
    size: int, data: Path, golden: Path, tolerances: dict[str, Any]
) -> None:
    arrays = np.load(golden / "frontend.npz")
    frames = frames_of(load(data / "digits-clean.wav")[arrays["short/start"] :][:size])
    expected = arrays[f"short/fbank{size}"]
    assert frames.shape == expected.shape
    assert np.abs(frames - expected).max() <= tolerances["stream"]["fbank"]["value"]


def test_every_length_gives_as_many_frames_as_in_the_reference(golden: Path) -> None:
    arrays = np.load(golden / "frontend.npz")
    noise = white(0.2, 0.1)
    for samples, frames in zip(arrays["short/lengths"].tolist(), arrays["short/frames"].tolist(), strict=True):
        assert frame_count(samples) == frames
        assert len(frames_of(noise[:samples])) == frames


@pytest.mark.parametrize("size", [0, 1, 159, 160, 399])
def test_less_than_a_window_gives_no_frame(size: int) -> None:
    online = OnlineFbank()
    assert frame_count(size) == 0
    assert online.accept(silence(1)[:size]).data.shape == (0, MEL_BINS)
    assert online.finish().data.shape == (0, MEL_BINS)


def test_no_audio_gives_no_frame() -> None:
    assert OnlineFbank().finish().data.shape == (0, MEL_BINS)


@pytest.mark.parametrize("stem", RECORDINGS)
def test_any_split_gives_the_same_frames_to_the_bit(stem: str, data: Path) -> None:
    assert_same_for_any_split(load(data / f"{stem}.wav"), run)


def test_single_samples_give_the_same_frames_to_the_bit() -> None:
    assert_same_for_any_split(white(0.1, 0.3), run, sizes=[1, 3, 159, 161, 399, 401])


@given(size=st.integers(0, 4000), places=st.lists(st.integers(0, 4000), max_size=8))
@settings(max_examples=50)
def test_any_places_to_cut_give_the_same_frames_to_the_bit(size: int, places: list[int]) -> None:
    samples = white(0.25, 0.3)[:size]
    assert run(cut_at(samples, places)) == run([samples])


def test_a_frame_depends_on_its_own_samples_alone(data: Path) -> None:
    samples = load(data / "digits-noisy.wav")
    frames = frames_of(samples)
    for index in range(0, len(frames), 50):
        start = index * HOP_SAMPLES
        alone = frames_of(samples[start : start + FRAME_SAMPLES])
        assert np.array_equal(alone, frames[index : index + 1])


def test_the_frames_of_a_stretch_are_a_slice_of_the_streams(data: Path) -> None:
    samples = load(data / "digits-noisy.wav")
    frames = frames_of(samples)
    first, end = 25, 211
    stretch = frames_of(samples[first * HOP_SAMPLES : end * HOP_SAMPLES])
    assert np.array_equal(stretch, frames[first : first + len(stretch)])


def test_silence_lies_on_the_floor() -> None:
    assert np.unique(frames_of(silence(0.1))).tolist() == [np.float32(np.log(np.finfo(np.float32).eps))]


def test_an_hour_of_audio_leaves_less_than_a_window_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # The arithmetic is the same for every frame; without it the hour takes no time.
    monkeypatch.setattr(fbank, "_log_mel", lambda _samples, count: np.zeros((count, MEL_BINS), np.float32))
    online = OnlineFbank()
    empty_bytes = held_bytes(online)
    for piece in pieces(silence(3600), 1_000_001):
        online.accept(piece)
        assert held_bytes(online) - empty_bytes <= FRAME_SAMPLES * 8 + 16
    assert online.finish().start_frame == frame_count(3600 * SAMPLE_RATE_HZ)


def test_pieces_may_be_overwritten_by_the_caller() -> None:
    samples = white(0.1, 0.3)
    online, buffer = OnlineFbank(), np.empty(100, np.float32)
    frames = []
    for piece in pieces(samples, 100):
        buffer[:] = piece
        frames.append(online.accept(buffer).data)
        buffer[:] = np.nan
    assert np.array_equal(np.concatenate(frames), frames_of(samples))


def test_audio_after_finish_is_refused() -> None:
    online = OnlineFbank()
    online.finish()
    with pytest.raises(UsageError, match="after finish"):
        online.accept(silence(1))


def test_finishing_twice_is_refused() -> None:
    online = OnlineFbank()
    online.finish()
    with pytest.raises(UsageError, match="twice"):
        online.finish()


@pytest.mark.parametrize("fed", [0, 100, 1000])
def test_reset_makes_it_new(fed: int) -> None:
    samples = white(0.1, 0.3)
    online = OnlineFbank()
    online.accept(samples[:fed])
    online.finish()
    online.reset()
    frames = online.accept(samples)
    assert frames.start_frame == 0
    assert np.array_equal(frames.data, frames_of(samples))


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(1000, np.float64),
        np.zeros(1000, np.int16),
        np.zeros((1000, 2), np.float32),
        np.zeros((1, 1000), np.float32),
        np.zeros((), np.float32),
    ],
    ids=["float64", "int16", "two columns", "one row", "a number"],
)
def test_other_types_and_shapes_are_refused(samples: Any) -> None:
    with pytest.raises(UsageError, match="one-dimensional float32"):
        OnlineFbank().accept(samples)

"""Sounds for the tests: recordings from disk, and noises that nobody speaks in."""

from pathlib import Path

import numpy as np
import soundfile

from liveasr.types import SAMPLE_RATE_HZ, Float32Array
from tests.data.make_recordings import pink_noise

RECORDINGS = ("digits-clean", "digits-noisy")
"""In tests/data, beside spoken.json."""
SHARED_RECORDINGS = ("sample", "zh", "jfk", "jobs-silence", "noise", "dots", "vad_example")
"""In ../shared/audio, the shortest first."""


def load(path: Path) -> Float32Array:
    """(n,) samples of a mono recording at 16 kHz, as they are in the file."""
    samples: Float32Array
    samples, rate_hz = soundfile.read(path, dtype="float32")
    assert rate_hz == SAMPLE_RATE_HZ
    assert samples.ndim == 1
    return samples


def silence(seconds: float) -> Float32Array:
    """Digital silence."""
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)


def white(seconds: float, level: float, seed: int = 0) -> Float32Array:
    """White noise of the standard deviation `level`."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * SAMPLE_RATE_HZ))
    return (level * noise).astype(np.float32)


def pink(seconds: float, level: float, seed: int = 0) -> Float32Array:
    """Pink noise of the standard deviation `level`."""
    return (level * pink_noise(round(seconds * SAMPLE_RATE_HZ), seed)).astype(np.float32)


def tone(seconds: float, hz: float, rate_hz: int = SAMPLE_RATE_HZ, level: float = 0.5) -> Float32Array:
    """A sine of the amplitude `level`."""
    phase = 2 * np.pi * hz / rate_hz * np.arange(round(seconds * rate_hz))
    wave: Float32Array = (level * np.sin(phase)).astype(np.float32)
    return wave

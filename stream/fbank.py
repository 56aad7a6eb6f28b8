"""Log-mel filter bank features, computed as the audio arrives.

The numbers are those of Kaldi's `compute-fbank-feats` as FunASR calls it (`funasr/frontends/wav_frontend.py`, dither
0): samples scaled to the int16 range, frames of 25 ms every 10 ms, DC removed, pre-emphasis 0.97, symmetric Hamming
window, 512-point power spectrum, 80 triangular mel filters from 20 Hz to Nyquist, natural log with a floor.

Frames carry nothing over from one to the next, so frame i depends on samples [160 i, 160 i + 400) and nothing else.
All arithmetic is float64: each row is then the same to the last bit of its float32 result, however many rows are
computed in one call, which float32 matrix products do not promise.
"""

import functools

import numpy as np

from liveasr.errors import UsageError
from liveasr.types import SAMPLE_RATE_HZ, FeatureFrames, Float32Array, Float64Array

FRAME_SAMPLES = 400
"""Window: 25 ms."""
HOP_SAMPLES = 160
"""Frame shift: 10 ms."""
MEL_BINS = 80
_FFT_POINTS = 512
_SPECTRUM_BINS = _FFT_POINTS // 2  # Kaldi leaves the Nyquist bin out of every filter
_LOW_HZ = 20.0
_PREEMPHASIS = 0.97
_INT16_SCALE = 32_768.0
_LOG_FLOOR = float(np.finfo(np.float32).eps)
_BLOCK_FRAMES = 64  # frames computed at a time, so that the intermediate arrays stay in the processor's cache


def frame_count(samples: int) -> int:
    """How many whole frames so many samples hold (Kaldi's snip_edges)."""
    return max(0, (samples - FRAME_SAMPLES) // HOP_SAMPLES + 1)


def _span(frames: int) -> int:
    """How many samples so many frames cover."""
    return (frames - 1) * HOP_SAMPLES + FRAME_SAMPLES


@functools.cache
def _window() -> Float64Array:
    """(400,) symmetric Hamming window."""
    phase = 2.0 * np.pi * np.arange(FRAME_SAMPLES) / (FRAME_SAMPLES - 1)
    return 0.54 - 0.46 * np.cos(phase)


@functools.cache
def _mel_filters() -> Float64Array:
    """(256, 80) weights: triangles that are equally wide in mel = 1127 ln(1 + f / 700), not normalised by area."""
    bins_hz = np.arange(_SPECTRUM_BINS, dtype=np.float64) * (SAMPLE_RATE_HZ / _FFT_POINTS)
    edges_hz = np.array([_LOW_HZ, SAMPLE_RATE_HZ / 2])
    bins_mel, (low, high) = (1127.0 * np.log(1.0 + hz / 700.0) for hz in (bins_hz, edges_hz))
    step = (high - low) / (MEL_BINS + 1)
    left = low + step * np.arange(MEL_BINS)
    rising = (bins_mel[:, None] - left) / step
    falling = (left + 2 * step - bins_mel[:, None]) / step
    filters: Float64Array = np.maximum(0.0, np.minimum(rising, falling))
    return filters


def _log_mel(samples: Float64Array, count: int) -> Float32Array:
    """(count, 80) features of the first `count` frames of samples in the int16 range."""
    means = _frames_of(samples, count).sum(axis=1, keepdims=True) / FRAME_SAMPLES
    # Pre-emphasis of (x - mean) is pre-emphasis of x less (1 - 0.97) mean, and the former is shared by the frames that
    # overlap. In the first place of a frame Kaldi lets the sample be its own predecessor.
    emphasised = np.empty_like(samples)
    emphasised[0] = 0.0  # never used: the first place of a frame is overwritten below
    np.multiply(samples[:-1], -_PREEMPHASIS, out=emphasised[1:])
    emphasised[1:] += samples[1:]
    windowed = _frames_of(emphasised, count) - (1.0 - _PREEMPHASIS) * means
    windowed[:, 0] = (1.0 - _PREEMPHASIS) * (samples[: count * HOP_SAMPLES : HOP_SAMPLES] - means[:, 0])
    windowed *= _window()
    squares = np.square(np.fft.rfft(windowed, _FFT_POINTS).view(np.float64)[:, : 2 * _SPECTRUM_BINS])
    energies = (squares[:, 0::2] + squares[:, 1::2]) @ _mel_filters()  # real and imaginary parts lie side by side
    np.maximum(energies, _LOG_FLOOR, out=energies)
    return np.log(energies, out=energies).astype(np.float32)


def _frames_of(samples: Float64Array, count: int) -> Float64Array:
    """(count, 400) view of overlapping frames; as numpy's sliding_window_view, without its 15 microseconds."""
    step = samples.itemsize
    return np.ndarray((count, FRAME_SAMPLES), np.float64, samples, strides=(HOP_SAMPLES * step, step))


class OnlineFbank:
    """Features of a stream of samples. Keeps less than one window of audio.

    Call `accept` any number of times, then `finish` once; any split of the samples gives the same frames, bit for bit.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything; afterwards this equals a new object."""
        self._rest = np.zeros(0, np.float64)
        self._next_frame = 0
        self._finished = False

    def accept(self, samples: Float32Array) -> FeatureFrames:
        """The frames that these samples complete.

        Args:
            samples: (n,) float32 in [-1, 1], 16 kHz, mono.

        Raises:
            UsageError: after finish, or if samples is not one-dimensional float32.
        """
        if self._finished:
            raise UsageError("audio was fed after finish(); call reset() for a new stream")
        if samples.dtype != np.float32 or samples.ndim != 1:
            raise UsageError(f"samples must be one-dimensional float32, not {samples.dtype} of shape {samples.shape}")
        pending = np.concatenate((self._rest, samples * _INT16_SCALE))
        count = frame_count(pending.size)
        start_frame = self._next_frame
        data = np.empty((count, MEL_BINS), np.float32)
        for first in range(0, count, _BLOCK_FRAMES):
            block = min(_BLOCK_FRAMES, count - first)
            data[first : first + block] = _log_mel(pending[first * HOP_SAMPLES :][: _span(block)], block)
        self._rest = pending[count * HOP_SAMPLES :].copy()
        self._next_frame += count
        return FeatureFrames(data, start_frame)

    def finish(self) -> FeatureFrames:
        """End the stream. Samples that do not fill a window give no frame, so this is always empty."""
        if self._finished:
            raise UsageError("finish() was called twice")
        self._finished = True
        return FeatureFrames(np.empty((0, MEL_BINS), np.float32), self._next_frame)

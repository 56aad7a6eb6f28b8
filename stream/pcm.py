"""Samples as they come over a wire, to mono float32 at 16 kHz, and back.

soxr resamples as a stream: any split of the same bytes gives the same samples.
"""

import numpy as np
import soxr

from liveasr.stream.messages import AudioFormat, Encoding
from liveasr.types import SAMPLE_RATE_HZ, Float32Array

_DTYPES: dict[Encoding, str] = {"s16le": "<i2", "f32le": "<f4"}
_S16_SCALE = 32768.0


class PcmDecoder:
    """One stream of samples. Call `accept` any number of times; `flush` where what was heard must come out at once.

    Args:
        format_: how to read the bytes.
    """

    def __init__(self, format_: AudioFormat) -> None:
        self._format = format_
        self._resampler = self._new_resampler()

    def accept(self, payload: bytes) -> Float32Array:
        """The next samples, (n,) float32 in [-1, 1], 16 kHz, mono: channels are averaged, as the reference does.

        Args:
            payload: whole samples of every channel. Those that are no numbers count as silence.
        """
        samples = np.frombuffer(payload, _DTYPES[self._format.encoding]).astype(np.float32)
        if self._format.encoding == "s16le":
            samples /= np.float32(_S16_SCALE)
        else:
            # One sample that is not a number would silence a whole segment, and one that is huge would deafen the rest.
            # Infinity is none either, as in a file (decode.py).
            samples = np.clip(np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0), -1.0, 1.0)
        mono = samples if self._format.channels == 1 else samples.reshape(-1, self._format.channels).mean(axis=1)
        return mono if self._resampler is None else self._resampler.resample_chunk(np.ascontiguousarray(mono))

    def flush(self) -> Float32Array:
        """What the resampler still holds, up to a tenth of a second. Audio that comes later begins anew."""
        if self._resampler is None:
            return np.zeros(0, np.float32)
        rest: Float32Array = self._resampler.resample_chunk(np.zeros(0, np.float32), last=True)
        self._resampler = self._new_resampler()
        return rest

    def _new_resampler(self) -> soxr.ResampleStream | None:
        if self._format.rate_hz == SAMPLE_RATE_HZ:
            return None
        return soxr.ResampleStream(self._format.rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")


def encode_pcm(samples: Float32Array, encoding: Encoding) -> bytes:
    """The bytes of samples (n,) or (n, channels), float32 in [-1, 1].

    In s16le, louder ones are clipped, and those that are no numbers become silence.
    """
    if encoding == "f32le":
        wide: bytes = samples.astype("<f4").tobytes()
        return wide
    full = np.clip(np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0), -1.0, 1.0)
    narrow: bytes = np.rint(full * _S16_SCALE).clip(-32768, 32767).astype("<i2").tobytes()
    return narrow

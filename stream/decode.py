"""Recordings of any format, rate and channel count to mono float32 at 16 kHz, block by block.

PyAV (FFmpeg's libraries) reads nearly everything, the sound of videos too; soundfile reads the rest. Channels are
averaged, as the reference does, and soxr resamples as a stream, so a recording of any length needs the memory of a
short one.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import numpy as np
import soundfile
import soxr

from liveasr.errors import AudioError
from liveasr.types import SAMPLE_RATE_HZ, Float32Array

_BLOCK_SAMPLES = 16_000  # of a soundfile read; FFmpeg sets its own
_INTEGER_SCALES = {"u1": 128.0, "i2": 32_768.0, "i4": 2_147_483_648.0}


class AudioFile:
    """One recording, open for reading once.

    Raises:
        AudioError: there is no such file, it holds no audio, or nothing here can decode it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise AudioError(path, "no such file")
        if self.path.is_dir():
            raise AudioError(path, "is a folder; name the recordings in it")
        self._container: Any = None
        self._sound_file: Any = None
        try:
            self._container = av.open(str(self.path))
        except (av.FFmpegError, ValueError) as error:
            self._sound_file = self._open_sound_file(error)
        if self._container is not None and not self._container.streams.audio:
            self.close()
            raise AudioError(path, "holds no audio")

    @property
    def duration_ms(self) -> int | None:
        """Length as the file's header tells it; None where it does not. Good for progress, not for times."""
        if self._sound_file is not None:
            return int(self._sound_file.frames * 1000 // self._sound_file.samplerate)
        duration = self._container.duration  # microseconds
        return None if duration is None else int(duration // 1000)

    def blocks(self) -> Iterator[Float32Array]:
        """The audio in order, (n,) float32 in [-1, 1], 16 kHz, mono; n varies and may be 0.

        Raises:
            AudioError: the file turns out to be damaged, or to hold no sample. What came before it stands.
        """
        resampler: soxr.ResampleStream | None = None
        rate_hz: int | None = None
        for samples, block_rate_hz in self._mono():
            if rate_hz is None and block_rate_hz != SAMPLE_RATE_HZ:
                resampler = soxr.ResampleStream(block_rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")
            if rate_hz is not None and block_rate_hz != rate_hz:
                raise AudioError(self.path, f"changes its sample rate from {rate_hz} to {block_rate_hz} Hz on the way")
            rate_hz = block_rate_hz
            yield samples if resampler is None else resampler.resample_chunk(samples)
        if rate_hz is None:
            raise AudioError(self.path, "holds no audio")
        if resampler is not None:
            yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        for source in (self._container, self._sound_file):
            if source is not None:
                source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_sound_file(self, first_error: Exception) -> Any:
        try:
            return soundfile.SoundFile(self.path)
        except (soundfile.SoundFileError, OSError, TypeError):
            reason = getattr(first_error, "strerror", None) or first_error
            raise AudioError(self.path, f"is not a recording that can be decoded ({reason})") from first_error

    def _mono(self) -> Iterator[tuple[Float32Array, int]]:
        """Blocks at the file's own rate, with that rate in Hz."""
        if self._sound_file is not None:
            for block in self._sound_file.blocks(_BLOCK_SAMPLES, dtype="float32", always_2d=True):
                yield block.mean(axis=1), self._sound_file.samplerate
            return
        frames = self._container.decode(audio=0)
        while True:
            try:
                frame = next(frames, None)
            except av.FFmpegError as error:
                raise AudioError(self.path, f"is damaged from some point on ({error.strerror})") from error
            if frame is None:
                return
            if frame.samples:
                yield _mean_of_channels(frame), frame.sample_rate


def _mean_of_channels(frame: Any) -> Float32Array:
    """(n,) of an av.AudioFrame in any of FFmpeg's sample formats."""
    data = frame.to_ndarray()  # (channels, n), or (1, n * channels) where samples are interleaved
    if not frame.format.is_planar:
        data = data.reshape(-1, frame.layout.nb_channels).T
    kind = data.dtype.str[1:]
    samples = data.astype(np.float32 if kind != "i4" else np.float64)
    if kind in _INTEGER_SCALES:
        samples = (samples - (128.0 if kind == "u1" else 0.0)) / _INTEGER_SCALES[kind]
    mean: Float32Array = samples.mean(axis=0).astype(np.float32)
    return mean

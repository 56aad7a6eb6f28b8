"""Recordings of any format, rate and channel count to mono float32 at 16 kHz, block by block.

Channels are averaged, as the reference does, and soxr resamples as a stream, so a recording of any length needs the
memory of a short one.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import soxr

from liveasr.errors import AudioError
from liveasr.stream.sources import open_source
from liveasr.types import SAMPLE_RATE_HZ, Float32Array

# Decoders give some 20 ms at a time; the stages after them are several times faster on more.
_BLOCK_SAMPLES = SAMPLE_RATE_HZ


class AudioFile:
    """One recording, open for reading once.

    Args:
        source: a file, or a binary stream such as stdin, which is then read without seeking.

    Raises:
        AudioError: there is no such file, it holds no audio, or nothing here can decode it.
    """

    def __init__(self, source: Path | str | BinaryIO) -> None:
        stream = Path(source) if isinstance(source, str) else source
        self.name = str(stream) if isinstance(stream, Path) else "stdin"
        self._source = open_source(stream, self.name)

    @property
    def duration_ms(self) -> int | None:
        """Length as the header tells it, if it does. Good for progress, not for times."""
        return self._source.duration_ms

    def blocks(self) -> Iterator[Float32Array]:
        """The audio in order, (n,) float32, full scale at 1, 16 kHz, mono; about a second each.

        Raises:
            AudioError: the file is damaged or cut off, told after all that could be read; or it holds no sample.
        """
        waiting: list[Float32Array] = []
        size = 0
        fault: AudioError | None = None
        blocks = self._blocks()
        while True:
            try:
                block = next(blocks, None)
            except AudioError as error:
                block, fault = None, error
            if block is not None:
                waiting.append(block)
                size += block.size
            if size >= _BLOCK_SAMPLES or (block is None and size):
                yield np.concatenate(waiting)
                waiting, size = [], 0
            if block is None:
                break
        if fault is not None:
            raise fault

    def _blocks(self) -> Iterator[Float32Array]:
        """As `blocks`, in whatever pieces the decoder gives."""
        resampler: soxr.ResampleStream | None = None
        rate_hz: int | None = None
        fault: AudioError | None = None
        blocks = self._source.mono()
        while True:
            try:
                samples, block_rate_hz = next(blocks, (None, 0))
            except AudioError as error:
                samples, fault = None, error
            if samples is None:
                break
            if rate_hz is None and block_rate_hz != SAMPLE_RATE_HZ:
                resampler = soxr.ResampleStream(block_rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")
            if rate_hz is not None and block_rate_hz != rate_hz:
                fault = AudioError(
                    self.name, f"changes its sample rate from {rate_hz} to {block_rate_hz} Hz on the way"
                )
                break
            rate_hz = block_rate_hz
            # A float file may hold NaN, and one sample of that would silence a whole segment.
            np.nan_to_num(samples, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            yield samples if resampler is None else resampler.resample_chunk(samples)
        if resampler is not None:
            yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)
        if fault is not None:
            raise fault
        if rate_hz is None:
            raise AudioError(self.name, "holds no audio")

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

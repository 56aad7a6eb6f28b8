"""What is inside a file: mono blocks at the file's own rate.

FFmpeg's libraries read nearly everything, libsndfile the rest.

Damage does not end a recording: what can be read before and after it is read, the time that was lost is filled with
silence, and the fault is told at the end. So times stay right, and nothing is lost that could be had.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import av
import numpy as np
import soundfile

from liveasr.errors import AudioError
from liveasr.types import Float32Array

_BLOCK_SAMPLES = 16_000  # of a libsndfile read; FFmpeg sets its own
_INTEGER_SCALES = {"u1": 128.0, "i2": 32_768.0, "i4": 2_147_483_648.0}
_GAP_S = 0.2  # smaller differences between a file's clock and its samples are rounding
_CUT_OFF_S = 1.0  # a header may be wrong by less than this, or by
_CUT_OFF_SHARE = 0.02  # this share of the length
_EXACT_DURATIONS = ("flac", "matroska", "mov", "wav")  # containers that say how long they are, instead of guessing


class Source(Protocol):
    """An open file."""

    duration_ms: int | None
    """Length as the header tells it, if it does; good for progress, not for times."""

    def mono(self) -> Iterator[tuple[Float32Array, int]]:
        """Blocks (n,) with full scale at 1, and their rate in Hz. Raises AudioError, at the end if it can wait."""
        ...

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        ...


def open_source(source: Path | BinaryIO, name: str) -> Source:
    """A file, or a binary stream such as stdin, opened by whichever library can.

    Raises:
        AudioError: there is no such file, it holds no audio, or nothing here can decode it.
    """
    if isinstance(source, Path):
        _check_file(source, name)
    try:
        return FfmpegSource(source, name)
    except (av.FFmpegError, ValueError) as error:
        if isinstance(source, Path) and isinstance(error, av.InvalidDataError):
            try:
                return SoundFileSource(source, name)
            except (soundfile.SoundFileError, OSError, TypeError):
                pass  # libsndfile's reason would be about a format that it took the file for
        raise AudioError(name, f"is not a recording that can be decoded ({_reason(error)})") from error


class FfmpegSource:
    """Anything that PyAV opens: recordings, and the first sound track of videos."""

    def __init__(self, source: Path | BinaryIO, name: str) -> None:
        self._name = name
        # Absolute, because FFmpeg takes "10:30.wav" for something to be fetched by a protocol named 10.
        place = str(source.absolute()) if isinstance(source, Path) else source
        self._container: Any = av.open(place, mode="r")
        if not self._container.streams.audio:
            self._container.close()
            raise AudioError(name, "holds no audio")
        duration_us = self._container.duration
        self.duration_ms = None if duration_us is None else int(duration_us // 1000)
        self._missing_bytes = _missing_riff_bytes(source) if isinstance(source, Path) else 0

    def mono(self) -> Iterator[tuple[Float32Array, int]]:
        """Blocks in order; gaps in the file's own clock are silence."""
        start_s = (self._container.start_time or 0) / av.time_base
        given_s = 0.0
        faults = 0
        for frame in self._frames():
            if frame is None:
                faults += 1
                continue
            if frame.pts is not None:
                gap_s = float(frame.pts * frame.time_base) - start_s - given_s
                if _GAP_S < gap_s <= (self.duration_ms or 0) / 1000:
                    yield np.zeros(round(gap_s * frame.sample_rate), np.float32), frame.sample_rate
                    given_s += gap_s
            yield self._mean_of_channels(frame), frame.sample_rate
            given_s += frame.samples / frame.sample_rate
        self._report(given_s, faults)

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def _frames(self) -> Iterator[Any]:
        """Decoded frames with samples in them; None for a packet that could not be decoded."""
        packets = self._container.demux(audio=0)
        while True:
            try:
                packet = next(packets, None)
            except av.FFmpegError:
                yield None
                return
            if packet is None:
                return
            try:
                yield from (frame for frame in packet.decode() if frame.samples)
            except av.FFmpegError:
                yield None

    def _report(self, given_s: float, faults: int) -> None:
        """Raise AudioError if the recording was not whole."""
        expected_s = (self.duration_ms or 0) / 1000
        exact = self._container.format.name.startswith(_EXACT_DURATIONS)
        if self._missing_bytes or (exact and expected_s - given_s > max(_CUT_OFF_S, _CUT_OFF_SHARE * expected_s)):
            length = "" if self._missing_bytes else f" of the {expected_s:.1f} s that it announces"
            raise AudioError(self._name, f"is cut off: it holds {given_s:.1f} s{length}")
        if faults:
            places = "one place" if faults == 1 else f"{faults} places"
            raise AudioError(self._name, f"is damaged in {places}; what could be read was")

    def _mean_of_channels(self, frame: Any) -> Float32Array:
        """(n,) of an av.AudioFrame in any sample format that numpy shares with FFmpeg."""
        try:
            data = frame.to_ndarray()  # (channels, n), or (1, n * channels) where samples are interleaved
        except ValueError as error:
            raise AudioError(self._name, f"has samples that cannot be read ({frame.format.name})") from error
        if not frame.format.is_planar:
            data = data.reshape(-1, frame.layout.nb_channels).T
        kind = data.dtype.str[1:]
        samples = data.astype(np.float32 if kind != "i4" else np.float64)
        if kind in _INTEGER_SCALES:
            samples = (samples - (128.0 if kind == "u1" else 0.0)) / _INTEGER_SCALES[kind]
        mean: Float32Array = samples.mean(axis=0).astype(np.float32)
        return mean


class SoundFileSource:
    """The few formats that libsndfile reads and FFmpeg does not."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._file: Any = soundfile.SoundFile(path)
        self.duration_ms: int | None = self._file.frames * 1000 // self._file.samplerate

    def mono(self) -> Iterator[tuple[Float32Array, int]]:
        """Blocks in order."""
        while True:
            try:
                block = self._file.read(_BLOCK_SAMPLES, dtype="float32", always_2d=True)
            except soundfile.SoundFileError as error:
                raise AudioError(self._name, f"is damaged from some point on ({error})") from error
            if not len(block):
                return
            yield block.mean(axis=1), self._file.samplerate

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _check_file(path: Path, name: str) -> None:
    """Name the most common mistakes better than a decoder does."""
    try:
        if path.is_dir():
            raise AudioError(name, "is a folder; name the recordings in it")
        with path.open("rb") as file:
            if path.is_file() and not file.read(1):
                raise AudioError(name, "is empty")
    except FileNotFoundError as error:
        raise AudioError(name, "no such file") from error
    except OSError as error:
        raise AudioError(name, f"cannot be read: {error.strerror}") from error


def _missing_riff_bytes(path: Path) -> int:
    """How many bytes a WAV file lacks of what its header announces; FFmpeg corrects the header without a word."""
    try:
        with path.open("rb") as file:
            head = file.read(12)
        announced = int.from_bytes(head[4:8], "little") + 8
        # Recorders that write to a pipe leave the largest number, or nothing.
        if head[:4] != b"RIFF" or head[8:] != b"WAVE" or announced in (8, 0xFFFFFFFF + 8):
            return 0
        return max(0, announced - path.stat().st_size)
    except OSError:
        return 0


def _reason(error: Exception) -> str:
    """What a library says, without the path that it repeats."""
    return getattr(error, "strerror", None) or str(error)

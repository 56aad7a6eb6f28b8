"""What is inside a file: mono blocks at the file's own rate.

FFmpeg's libraries read nearly everything, libsndfile the rest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import av
import soundfile

from liveasr.errors import AudioError
from liveasr.stream import heads
from liveasr.stream.ffmpeg import FfmpegSource, Pipe
from liveasr.types import Float32Array

_BLOCK_SAMPLES = 16_000  # of a libsndfile read
_NOT_UNDERSTOOD = (av.InvalidDataError, av.EOFError)  # by FFmpeg


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
    if not isinstance(source, Path):
        return _open_pipe(Pipe(source, name, is_own=False), name)
    try:
        fifo = source.open("rb") if source.is_fifo() else None
    except OSError as error:
        raise AudioError(name, f"cannot be read: {error.strerror}") from error
    if fifo is not None:  # it is opened once, as what has been read of it is gone
        return _open_pipe(Pipe(fifo, name, is_own=True), name)
    heads.check_file(source, name)
    return _open_file(source, name)


def _open_pipe(pipe: Pipe, name: str) -> Source:
    try:
        return FfmpegSource(pipe, name)
    except (av.FFmpegError, ValueError) as error:
        pipe.close()
        pipe.check()
        if pipe.is_empty:
            raise AudioError(name, "is empty") from error
        raise _cannot_be_decoded(name, error) from error
    except BaseException:
        pipe.close()
        raise


def _open_file(path: Path, name: str) -> Source:
    try:
        return FfmpegSource(path, name)
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, _NOT_UNDERSTOOD):
            if heads.begins_as_mp4(path):
                raise AudioError(name, "is cut off: its index, which stands at the end, is missing") from error
            try:
                return SoundFileSource(path, name)
            except (soundfile.SoundFileError, OSError, TypeError):
                pass  # libsndfile's reason would be about a format that it took the file for
        raise _cannot_be_decoded(name, error) from error


def _cannot_be_decoded(name: str, error: av.FFmpegError | ValueError) -> AudioError:
    reason = "is not a recording that can be decoded"
    if isinstance(error, _NOT_UNDERSTOOD):  # which says no more than that
        return AudioError(name, reason)
    return AudioError(name, f"{reason} ({getattr(error, 'strerror', None) or error})")


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

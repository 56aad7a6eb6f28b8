"""Recordings and the sound of videos, read through FFmpeg's libraries.

Damage does not end a recording: what can be read before and after it is read, the time that was lost is filled with
silence, and the fault is told at the end. So times stay right, and nothing is lost that could be had. The sound of a
video counts from where its picture begins, if that is earlier.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.stream import Disposition

from liveasr.errors import AudioError
from liveasr.stream import heads
from liveasr.types import Float32Array

_SILENCE_SAMPLES = 16_000  # in a block of it
_INTEGER_SCALES = {"u1": 128.0, "i2": 32_768.0, "i4": 2_147_483_648.0}
_GAP_S = 0.04  # smaller differences between a file's clock and its samples are rounding
_LONGEST_GAP_S = 3600.0  # in a stream of unknown length: more is a clock gone wrong
_CUT_OFF_S = 1.0  # a header may be wrong by less than this, or by
_CUT_OFF_SHARE = 0.02  # this share of the length
_CUT_OFF_RIFF_S = 0.1  # RIFF counts bytes; some writers count eight too many
_EXACT_DURATIONS = ("flac", "matroska", "mov", "wav")  # containers that say how long they are, instead of guessing
_WITHOUT_CLOCK = ("ac3", "dts", "eac3", "mp3")  # bare frames: FFmpeg counts those that it finds


class Pipe:
    """A binary stream as PyAV reads it. PyAV would lose a Ctrl-C on the way, so what breaks a read off is kept.

    Args:
        stream: is read without seeking if it cannot do that.
        name: for messages.
        is_own: whether nobody else closes it.
    """

    def __init__(self, stream: BinaryIO, name: str, *, is_own: bool) -> None:
        self._name = name
        self.close = stream.close if is_own else lambda: None
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)  # what is there, without waiting
        self._broken_by: KeyboardInterrupt | OSError | None = None
        self.is_empty = True
        if stream.seekable():
            self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end, and from where it breaks off."""
        if self._broken_by is not None:
            return b""
        try:
            found = self._read(size)
        except (KeyboardInterrupt, OSError) as error:
            self._broken_by = error
            return b""
        self.is_empty = self.is_empty and not found
        return found

    def check(self) -> None:
        """Raise what broke it off, if anything did."""
        if isinstance(self._broken_by, OSError):
            raise AudioError(self._name, f"cannot be read: {self._broken_by.strerror}") from self._broken_by
        if self._broken_by is not None:
            raise self._broken_by


@dataclass(frozen=True, slots=True)
class _Fault:
    """A place that cannot be decoded."""

    size: int
    """Bytes, as far as is known."""


class FfmpegSource:
    """Anything that PyAV opens: recordings, and the first sound track of videos."""

    def __init__(self, source: Path | Pipe, name: str) -> None:
        self._name = name
        self._path = source if isinstance(source, Path) else None
        self._pipe = None if isinstance(source, Path) else source
        # Absolute, because FFmpeg takes "10:30.wav" for something to be fetched by a protocol named 10.
        place = str(source.absolute()) if isinstance(source, Path) else source
        self._container: Any = av.open(place, mode="r")
        if not self._container.streams.audio:
            self._container.close()
            raise AudioError(name, "holds no audio")
        self._format: str = self._container.format.name
        self._audio: Any = self._container.streams.audio[0]
        pictures = [s for s in self._container.streams.video if not s.disposition & Disposition.attached_pic]
        self._picture_starts_s = [_seconds(s, s.start_time) for s in pictures if s.start_time is not None]
        start_s = min([_seconds(self._audio, self._audio.start_time or 0), *self._picture_starts_s])
        end_s = self._announced_end_s()
        self.duration_ms = None if end_s is None else max(0, round((end_s - start_s) * 1000))
        self._missing_bytes = 0 if self._path is None else heads.missing_riff_bytes(self._path)
        self._is_exact = self._format.startswith(_EXACT_DURATIONS)
        if self._format == "mp3" and self._path is not None:
            self._is_exact = heads.has_mp3_length(self._path)
        # While it is read:
        self._start_s: float | None = None  # of the first block, on the file's clock
        self._given_s = 0.0
        self._others_end_s = 0.0  # of what was read of other streams, on the file's clock
        self._decoded_bytes = 0
        self._decoded_s = 0.0  # what these bytes gave
        self._faults = 0

    def mono(self) -> Iterator[tuple[Float32Array, int]]:
        """Blocks in order; gaps in the file's own clock are silence."""
        rate_hz = 0
        for found in self._frames():
            if not isinstance(found, _Fault):
                rate_hz = found.sample_rate
            lost_s = self._lost_s(found)
            self._given_s += lost_s
            lost = round(lost_s * rate_hz)
            for start in range(0, lost, _SILENCE_SAMPLES):
                yield np.zeros(min(_SILENCE_SAMPLES, lost - start), np.float32), rate_hz
            if not isinstance(found, _Fault):
                self._given_s += found.samples / rate_hz
                self._decoded_s += found.samples / rate_hz
                yield self._mean_of_channels(found), rate_hz
        if self._pipe is not None:
            self._pipe.check()
        self._report()

    def close(self) -> None:
        """Close the file."""
        self._container.close()
        if self._pipe is not None:
            self._pipe.close()

    def _frames(self) -> Iterator[Any]:
        """Decoded frames with samples in them, and a _Fault for each packet that could not be decoded."""
        # Matroska tells the length of its longest stream only; it is whole if any stream could be read so far.
        whole = self._format.startswith("matroska") and self._picture_starts_s
        packets = self._container.demux() if whole else self._container.demux(self._audio)
        while True:
            try:
                packet = next(packets, None)
            except av.FFmpegError:
                yield _Fault(0)
                return
            if packet is None:
                return
            if packet.stream_index != self._audio.index:
                if packet.pts is not None:
                    end_s = _seconds(packet, packet.pts + (packet.duration or 0))
                    self._others_end_s = max(self._others_end_s, end_s)
                continue
            try:
                yield from (frame for frame in packet.decode() if frame.samples)
                self._decoded_bytes += packet.size
            except av.FFmpegError:
                yield _Fault(packet.size)

    def _lost_s(self, found: Any) -> float:
        """How much time is missing before a frame, or in a place that cannot be decoded."""
        without_clock = self._format in _WITHOUT_CLOCK
        if isinstance(found, _Fault):
            self._faults += 1
            return self._decoded_s * found.size / self._decoded_bytes if without_clock and self._decoded_bytes else 0.0
        if found.pts is None or (without_clock and self._start_s is not None):
            return 0.0
        at_s = _seconds(found, found.pts)
        shortest_s = _GAP_S
        if self._start_s is None:
            shortest_s, self._start_s = 0.0, min([at_s, *self._picture_starts_s])
        gap_s = at_s - self._start_s - self._given_s
        longest_s = _LONGEST_GAP_S if self.duration_ms is None else self.duration_ms / 1000
        if not shortest_s < gap_s <= longest_s:
            return 0.0
        self._faults += self._format == "flac"  # which has no gaps of its own
        return gap_s

    def _report(self) -> None:
        """Raise AudioError if the recording was not whole."""
        if not self._given_s and self._path is None and self._format.startswith("mov"):
            raise AudioError(self._name, "cannot be read from a pipe, as its index stands at the end; name the file")
        if not self._given_s and self._faults:
            raise AudioError(self._name, "holds nothing that can be decoded")
        whole_s = self._length_if_cut_off_s()
        if whole_s is not None:
            raise AudioError(
                self._name, f"is cut off: it holds {self._given_s:.1f} s of the {whole_s:.1f} s that it announces"
            )
        if self._faults:
            places = "one place" if self._faults == 1 else f"{self._faults} places"
            raise AudioError(self._name, f"is damaged in {places}; the rest of it was read")

    def _length_if_cut_off_s(self) -> float | None:
        """The announced length, if clearly less than that is there."""
        if self._missing_bytes:
            missing_s = self._missing_bytes * 8 / (self._audio.bit_rate or 1)
            return self._given_s + missing_s if missing_s > _CUT_OFF_RIFF_S else None
        end_s = self._announced_end_s() if self._is_exact else None
        if end_s is None:
            return None
        start_s = self._start_s or 0.0
        missing_s = end_s - max(start_s + self._given_s, self._others_end_s)
        return end_s - start_s if missing_s > max(_CUT_OFF_S, _CUT_OFF_SHARE * (end_s - start_s)) else None

    def _announced_end_s(self) -> float | None:
        """Where on the file's clock the sound ends, as the header tells; in Matroska, the longest of all streams."""
        if self._audio.duration is not None:
            return _seconds(self._audio, (self._audio.start_time or 0) + self._audio.duration)
        if self._container.duration is not None:
            return float(((self._container.start_time or 0) + self._container.duration) / av.time_base)
        return None

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


def _seconds(thing: Any, ticks: int) -> float:
    """A time in the ticks of a stream, packet or frame."""
    return float(ticks * thing.time_base)

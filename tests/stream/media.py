"""Files of every kind, written for a test; what is heard in them, and what is said about them.

Most hold white noise with a click in it, and the click tells where the file's time went.
"""

import io
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, cast

import av
import numpy as np
import soundfile

from liveasr.errors import AudioError
from liveasr.stream.decode import AudioFile
from liveasr.types import SAMPLE_RATE_HZ, Float32Array

RATE_HZ = 48_000
"""What every codec can."""
FORMATS = {
    "m4a": "aac",
    "aac": "aac",
    "webm": "libopus",
    "opus": "libopus",
    "ogg": "vorbis",
    "mka": "flac",
    "mp3": "libmp3lame",
    "flac": "flac",
    "ts": "mp2",
    "ac3": "ac3",
}
EARLY_MS = 20
"""A decoder may ring before a click."""
LATE_MS = {"ts": 30, "ac3": 10, "aac": 30, "m4a": 30}
"""What an encoder puts in front of the sound without a word in the file, or FFmpeg does not cut; else less than 15."""


def clicks(seconds: float, *at: float, rate_hz: int = RATE_HZ) -> Float32Array:
    """Faint noise with short bursts."""
    samples = 0.01 * np.random.default_rng(0).standard_normal(round(seconds * rate_hz))
    for moment in at:
        samples[round(moment * rate_hz) : round((moment + 0.005) * rate_hz)] = 0.8
    return samples.astype(np.float32)


def clicks_in(samples: Float32Array) -> list[float]:
    """Where they are, in seconds."""
    loud = np.flatnonzero(np.abs(samples) > 0.3) / SAMPLE_RATE_HZ
    return [float(at) for at, before in zip(loud, [-1.0, *loud[:-1]], strict=True) if at - before > 0.1]


def assert_clicks_at(samples: Float32Array, *expected: float, late_ms: float = 15) -> None:
    found = clicks_in(samples)
    assert len(found) == len(expected), found
    for at, moment in zip(found, expected, strict=True):
        assert -EARLY_MS <= (at - moment) * 1000 <= late_ms, found


@dataclass(frozen=True, slots=True)
class Sound:
    """One sound track."""

    samples: Float32Array
    codec: str
    begins_s: float = 0.0
    gap: tuple[float, float] | None = None
    """(at, length) in seconds: of a jump in the clock."""


def write(
    path: Path,
    sound: Sound | None,
    *,
    picture_s: tuple[float, float] | None = None,
    options: dict[str, str] | None = None,
) -> Path:
    """A file by FFmpeg's own writers, with a black picture from one moment to another if wanted."""
    if sound and sound.codec == "vorbis":  # PyAV comes without its encoder
        soundfile.write(path, sound.samples, RATE_HZ)
        return path
    with av.open(str(path), "w", options=options or {}) as container:
        video_codec = {".ts": "mpeg2video", ".webm": "libvpx"}.get(path.suffix, "mpeg4")
        video: Any = container.add_stream(video_codec, rate=25) if picture_s else None
        audio: Any = container.add_stream(sound.codec, rate=RATE_HZ, layout="mono") if sound else None
        packets: list[Any] = []
        if picture_s is not None:
            video.width = video.height = 64
            video.pix_fmt = "yuv420p"
            for index in range(round(picture_s[0] * 25), round(picture_s[1] * 25)):
                image = black()
                image.pts, image.time_base = index, Fraction(1, 25)
                packets += video.encode(image)
            packets += video.encode()
        if sound is not None:
            packets += encoded(audio, sound)
        packets.sort(key=lambda packet: float((packet.dts or 0) * packet.time_base))
        for packet in packets:
            container.mux(packet)
    return path


def black() -> av.VideoFrame:
    return av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")


def encoded(audio: Any, sound: Sound) -> Iterator[Any]:
    """Packets of a sound track."""
    if sound.codec == "libmp3lame":
        audio.codec_context.format = "fltp"
    audio.codec_context.open(strict=False)
    size = audio.codec_context.frame_size or 1024
    format_ = audio.codec_context.format.name
    for start in range(0, sound.samples.size, size):
        block: Any = np.ascontiguousarray(sound.samples[start : start + size][None, :])
        if format_.startswith("s16"):
            block = np.round(block * 32_767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(block, format=format_, layout="mono")
        frame.sample_rate, frame.time_base = RATE_HZ, Fraction(1, RATE_HZ)
        jump_s = sound.gap[1] if sound.gap and start >= sound.gap[0] * RATE_HZ else 0.0
        frame.pts = start + round((sound.begins_s + jump_s) * RATE_HZ)
        yield from audio.encode(frame)
    yield from audio.encode()


def heard(source: Path | BinaryIO) -> tuple[Float32Array, str | None]:
    """What could be read, and what was said about it, without the name."""
    blocks = [np.zeros(0, np.float32)]
    fault: AudioError | None = None
    try:
        with AudioFile(source) as audio:
            blocks += audio.blocks()
    except AudioError as error:
        fault = error
    assert {block.dtype for block in blocks} == {np.dtype(np.float32)}
    if fault is None:
        return np.concatenate(blocks), None
    assert str(fault) == f"{source if isinstance(source, Path) else 'stdin'}: {fault.reason}"
    assert "\n" not in fault.reason
    return np.concatenate(blocks), fault.reason


def whole(source: Path | BinaryIO) -> Float32Array:
    """A recording with which nothing is wrong."""
    samples, reason = heard(source)
    assert reason is None
    return samples


def wav(path: Path, samples: Float32Array, *, riff_bytes: int | None = None, data_bytes: int | None = None) -> Path:
    """16-bit WAV with any numbers in its header."""
    data = np.round(samples * 32_767).astype("<i2").tobytes()
    sizes = [len(data) if data_bytes is None else data_bytes, len(data) + 36 if riff_bytes is None else riff_bytes]
    layout = struct.pack("<IHHIIHH", 16, 1, 1, SAMPLE_RATE_HZ, SAMPLE_RATE_HZ * 2, 2, 16)
    head = b"RIFF" + struct.pack("<I", sizes[1]) + b"WAVEfmt " + layout + b"data" + struct.pack("<I", sizes[0])
    path.write_bytes(head + data)
    return path


class Pipe(io.RawIOBase):
    """Bytes that come once, in pieces; then its end, or an error again and again."""

    def __init__(self, pieces: Iterable[bytes | BaseException]) -> None:
        self._pieces = iter(pieces)
        self._piece: bytes | BaseException = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._piece == b"":
            self._piece = next(self._pieces, b"")
        if isinstance(self._piece, BaseException):
            raise self._piece
        size = min(len(self._piece), len(buffer))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size


def pipe_of(pieces: Iterable[bytes | BaseException]) -> BinaryIO:
    """As stdin is."""
    return cast("BinaryIO", io.BufferedReader(Pipe(pieces)))

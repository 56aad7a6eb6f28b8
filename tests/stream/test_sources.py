"""Files of every kind, whole and broken: what comes out, when it was, and what is said about it.

Most files hold white noise with a click in it, and the click tells where the file's time went.
"""

import io
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, cast

import av
import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liveasr.clients.file import segments
from liveasr.errors import AudioError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import WebrtcDetector
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Float32Array
from liveasr.vad.config import VadConfig
from liveasr.vad.webrtc import WebrtcScorer
from tests.helpers import open_files, resident_bytes
from tests.sounds import load, silence, tone, white

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


# Everything that sound comes in.


@pytest.mark.parametrize(("subtype", "step"), [("PCM_U8", 0.012), ("ULAW", 0.02), ("ALAW", 0.02), ("IMA_ADPCM", 0.05)])
@pytest.mark.parametrize("rate_hz", [8000, 16_000])
def test_telephone_sound_comes_out(subtype: str, step: float, rate_hz: int, tmp_path: Path) -> None:
    expected = tone(2, 440, rate_hz)
    soundfile.write(tmp_path / "x.wav", expected, rate_hz, subtype=subtype)
    samples = whole(tmp_path / "x.wav")
    assert samples.size == pytest.approx(2 * SAMPLE_RATE_HZ, abs=600)  # ADPCM comes in blocks
    middle = slice(1000, 30_000)
    assert np.abs(samples[middle] - tone(2, 440)[middle]).max() <= step


@pytest.mark.parametrize(
    ("rate_hz", "count"), [(11_025, 1), (32_000, 3), (88_200, 2), (96_000, 4), (192_000, 8), (8000, 8)]
)
@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_any_rate_and_number_of_channels_keep_their_time(rate_hz: int, count: int, ending: str, tmp_path: Path) -> None:
    samples = np.repeat(clicks(3, 0.5, 2.5, rate_hz=rate_hz)[:, None], count, axis=1)
    soundfile.write(tmp_path / f"x.{ending}", samples, rate_hz)
    out = whole(tmp_path / f"x.{ending}")
    assert out.size == pytest.approx(3 * SAMPLE_RATE_HZ, abs=2)
    assert_clicks_at(out, 0.5, 2.5, late_ms=1)


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_keeps_its_time(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", Sound(clicks(4, 0.5, 3.5), FORMATS[ending]))
    assert_clicks_at(whole(path), 0.5, 3.5, late_ms=LATE_MS.get(ending, 15))


@pytest.mark.parametrize("ending", FORMATS)
def test_stdin_gives_what_the_file_gives(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", Sound(clicks(2, 0.5), FORMATS[ending]))
    with path.open("rb") as file:
        assert np.array_equal(whole(file), whole(path))


@pytest.mark.parametrize("ending", [ending for ending in FORMATS if ending != "m4a"])
def test_a_pipe_gives_what_the_file_gives(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", Sound(clicks(2, 0.5), FORMATS[ending]))
    piped, of_file = whole(pipe_of([path.read_bytes()])), whole(path)
    same = of_file.size - 200
    assert np.array_equal(piped[:same], of_file[:same])
    assert piped.size - of_file.size < 0.02 * SAMPLE_RATE_HZ  # where some end is known only to who can look there


# Video: times count from its beginning.


@pytest.mark.parametrize("ending", ["mp4", "mkv", "webm", "ts", "mov"])
@pytest.mark.parametrize("begins_s", [0.0, 0.13, 1.5])
def test_the_sound_of_a_video_may_begin_later_than_its_picture(ending: str, begins_s: float, tmp_path: Path) -> None:
    codec = {"webm": "libopus", "ts": "mp2"}.get(ending, "aac")
    path = write(tmp_path / f"x.{ending}", Sound(clicks(3, 0.5, 2.5), codec, begins_s), picture_s=(0, 5))
    assert_clicks_at(whole(path), begins_s + 0.5, begins_s + 2.5, late_ms=LATE_MS.get(ending, 30))


@pytest.mark.parametrize("ending", ["mp4", "mkv"])
def test_the_sound_of_a_video_may_begin_before_its_picture(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", Sound(clicks(3, 0.5, 2.5), "aac"), picture_s=(2, 4))
    assert_clicks_at(whole(path), 0.5, 2.5, late_ms=30)


@pytest.mark.parametrize("ending", ["mp4", "mkv", "webm"])
def test_a_video_that_goes_on_without_sound_is_whole(ending: str, tmp_path: Path) -> None:
    codec = "libopus" if ending == "webm" else "aac"
    path = write(tmp_path / f"x.{ending}", Sound(clicks(3, 0.5), codec), picture_s=(0, 12))
    assert whole(path).size == pytest.approx(3 * SAMPLE_RATE_HZ, abs=1600)


def test_a_cover_picture_does_not_move_the_sound(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.mp3", Sound(clicks(2, 0.5), "libmp3lame"))
    path = tmp_path / "x.mp3"
    with av.open(str(plain)) as source, av.open(str(path), "w") as target:
        audio: Any = target.add_stream_from_template(source.streams.audio[0])
        cover: Any = target.add_stream("mjpeg", rate=1)
        cover.width = cover.height = 64
        cover.pix_fmt = "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        target.mux([*cover.encode(black()), *cover.encode()])
        for packet in source.demux(source.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = audio
                target.mux(packet)
    with av.open(str(path)) as container:
        assert len(container.streams.video) == 1
    assert_clicks_at(whole(path), 0.5)


def test_the_length_for_the_progress_is_that_of_the_sound(tmp_path: Path) -> None:
    path = write(tmp_path / "x.mp4", Sound(clicks(3, 0.5), "aac", 1.0), picture_s=(0, 12))
    with AudioFile(path) as audio:
        assert audio.duration_ms == pytest.approx(4000, abs=60)


# Holes in a file's own clock are silence, so that what comes after them is where it belongs.


@pytest.mark.parametrize("ending", ["mkv", "webm", "mp4"])
@pytest.mark.parametrize("hole_s", [0.06, 0.5, 3.0])
def test_a_hole_is_filled_with_silence(ending: str, hole_s: float, tmp_path: Path) -> None:
    codec = "aac" if ending == "mp4" else "libopus"
    path = write(tmp_path / f"x.{ending}", Sound(clicks(4, 0.5, 3.5), codec, gap=(2.0, hole_s)))
    assert_clicks_at(whole(path), 0.5, 3.5 + hole_s, late_ms=30)


def test_a_clock_that_trembles_makes_no_holes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.mkv", Sound(clicks(4, 0.5, 3.5), "libopus", gap=(2.0, 0.02)))
    assert whole(path).size == pytest.approx(4 * SAMPLE_RATE_HZ, abs=400)


def test_an_hour_without_sound_comes_in_small_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "x.mkv", Sound(clicks(1, 0.5), "libopus", begins_s=3600.0), picture_s=(0, 0.2))
    with AudioFile(path) as audio:
        blocks = list(audio.blocks())
    assert max(block.size for block in blocks) <= 2 * SAMPLE_RATE_HZ
    assert sum(block.size for block in blocks) == pytest.approx(3601 * SAMPLE_RATE_HZ, abs=1600)
    assert clicks_in(np.concatenate(blocks[-100:]))


# Cut off.


def cut(path: Path, share: float) -> Path:
    """The first part of a file, as a download that broke off leaves it."""
    target = path.with_name(f"cut{path.suffix}")
    target.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return target


def wav(path: Path, samples: Float32Array, *, riff_bytes: int | None = None, data_bytes: int | None = None) -> Path:
    """16-bit WAV with any numbers in its header."""
    data = np.round(samples * 32_767).astype("<i2").tobytes()
    sizes = [len(data) if data_bytes is None else data_bytes, len(data) + 36 if riff_bytes is None else riff_bytes]
    layout = struct.pack("<IHHIIHH", 16, 1, 1, SAMPLE_RATE_HZ, SAMPLE_RATE_HZ * 2, 2, 16)
    head = b"RIFF" + struct.pack("<I", sizes[1]) + b"WAVEfmt " + layout + b"data" + struct.pack("<I", sizes[0])
    path.write_bytes(head + data)
    return path


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("ending", ["flac", "webm", "mka", "mp3", "wav"])
def test_a_file_that_was_cut_off_says_how_much_there_is(ending: str, share: float, tmp_path: Path) -> None:
    samples = clicks(20, 0.5)
    path = tmp_path / f"x.{ending}"
    if ending == "wav":
        wav(path, clicks(20, 0.5, rate_hz=SAMPLE_RATE_HZ))
    else:
        write(path, Sound(samples, FORMATS[ending]))
    assert heard(path)[1] is None
    there, reason = heard(cut(path, share))
    assert reason is not None
    assert reason.startswith(f"is cut off: it holds {there.size / SAMPLE_RATE_HZ:.1f} s of the 20.")
    assert there.size / SAMPLE_RATE_HZ == pytest.approx(20 * share, abs=2)
    assert_clicks_at(there, 0.5)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_mp4_with_its_index_in_front_says_how_much_there_is(share: float, tmp_path: Path) -> None:
    path = write(tmp_path / "x.m4a", Sound(clicks(20, 0.5), "aac"), options={"movflags": "faststart"})
    there, reason = heard(cut(path, share))
    assert reason == f"is cut off: it holds {there.size / SAMPLE_RATE_HZ:.1f} s of the 20.0 s that it announces"


def test_mp4_that_lost_its_index_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.m4a", Sound(clicks(4, 0.5), "aac"))
    assert heard(cut(path, 0.7))[1] == "is cut off: its index, which stands at the end, is missing"


def test_a_video_that_was_cut_off_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.mkv", Sound(clicks(10, 0.5), "libopus"), picture_s=(0, 20))
    there, reason = heard(cut(path, 0.3))
    assert reason is not None
    assert reason.startswith(f"is cut off: it holds {there.size / SAMPLE_RATE_HZ:.1f} s of the 20.")


def test_a_wav_that_lacks_a_tenth_of_a_second_is_not_worth_a_word(tmp_path: Path) -> None:
    samples = white(2, 0.1)
    for missing_bytes in (0, 1, 8, 3000):
        path = wav(tmp_path / "x.wav", samples, riff_bytes=36 + samples.size * 2 + missing_bytes)
        assert whole(path).size == samples.size
    path = wav(tmp_path / "x.wav", samples, riff_bytes=36 + samples.size * 2 + 3300)
    assert heard(path)[1] == "is cut off: it holds 2.0 s of the 2.1 s that it announces"


@pytest.mark.parametrize("announced", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF - 36, 0xFFFFFFFF], ids=hex)
def test_a_recorder_that_did_not_know_the_length_wrote_a_whole_file(announced: int, tmp_path: Path) -> None:
    """Sox, arecord and FFmpeg write these into a pipe."""
    samples = white(2, 0.1)
    path = wav(tmp_path / "x.wav", samples, data_bytes=announced, riff_bytes=min(announced + 36, 0xFFFFFFFF))
    assert whole(path).size == samples.size
    assert whole(pipe_of([path.read_bytes()])).size == samples.size


def test_a_header_without_sound_is_cut_off(tmp_path: Path) -> None:
    path = wav(tmp_path / "x.wav", np.zeros(0, np.float32), data_bytes=64_000, riff_bytes=64_036)
    assert heard(path)[1] == "is cut off: it holds 0.0 s of the 2.0 s that it announces"


# Damaged.


def damaged(path: Path, at: float, size: int, fill: Callable[[int], bytes]) -> Path:
    """A file with some of its bytes replaced."""
    content = bytearray(path.read_bytes())
    start = int(len(content) * at)
    content[start : start + size] = fill(size)
    target = path.with_name(f"damaged{path.suffix}")
    target.write_bytes(content)
    return target


FILLS: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "noise": lambda size: np.random.default_rng(1).bytes(size),
    "nothing": lambda _size: b"",
}


@pytest.mark.parametrize("fill", ["zeros", "noise"])
@pytest.mark.parametrize("ending", ["flac", "mp3", "ac3", "ogg", "opus", "ts"])
def test_damage_in_the_middle_moves_nothing_that_comes_after_it(ending: str, fill: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", Sound(clicks(12, 0.5, 11.0), FORMATS[ending]))
    size = path.stat().st_size // 12  # about a second
    there, _ = heard(damaged(path, 0.5, size, FILLS[fill]))
    first, *_, last = clicks_in(there)
    assert first == pytest.approx(0.5, abs=0.04)
    assert last == pytest.approx(11.0, abs=0.08)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("ending", ["flac", "mp3", "ac3"])
def test_damage_is_told(ending: str, fill: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{ending}", Sound(clicks(12, 0.5, 11.0), FORMATS[ending]))
    _, reason = heard(damaged(path, 0.5, path.stat().st_size // 12, FILLS[fill]))
    assert reason is not None
    assert "damaged in" in reason or "cut off" in reason


def test_several_damaged_places_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.mp3", Sound(clicks(20, 0.5), "libmp3lame"))
    for at in (0.3, 0.6):
        path = damaged(path, at, 3000, FILLS["zeros"])
    assert heard(path)[1] == "is damaged in 2 places; the rest of it was read"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Half a second in every format."""
    folder = tmp_path_factory.mktemp("small")
    found = {
        ending: write(folder / f"x.{ending}", Sound(clicks(0.5, 0.1), codec)).read_bytes()
        for ending, codec in FORMATS.items()
    }
    return {**found, "wav": wav(folder / "x.wav", white(0.5, 0.1)).read_bytes()}


@pytest.mark.parametrize("ending", [*FORMATS, "wav"])
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=40)), max_size=6), kept=st.floats(0, 1)
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_at_all_do_more_harm_than_an_error_of_one_line(
    ending: str, changes: list[tuple[float, bytes]], kept: float, small: dict[str, bytes], tmp_path: Path
) -> None:
    content = bytearray(small[ending])
    for at, new in changes:
        start = int(at * len(content))
        content[start : start + len(new)] = new
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content[: max(1, int(len(content) * max(kept, 0.05)))])
    samples, _ = heard(path)
    assert np.isfinite(samples).all()


# Pipes.


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


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Four seconds of WAV."""
    return wav(tmp_path / "x.wav", white(4, 0.1)).read_bytes()


def test_what_comes_through_a_pipe_is_given_at_most_some_seconds_later(tmp_path: Path) -> None:
    content = wav(tmp_path / "x.wav", white(20, 0.1)).read_bytes()
    read = 0

    def pieces() -> Iterator[bytes]:
        nonlocal read
        for start in range(0, len(content), 3200):
            read += 1600
            yield content[start : start + 3200]

    given = 0
    with AudioFile(pipe_of(pieces())) as audio:
        for block in audio.blocks():
            given += block.size
            assert read - given <= 4 * SAMPLE_RATE_HZ  # FFmpeg looks that far ahead to know what it is
    assert given == 20 * SAMPLE_RATE_HZ


@pytest.mark.parametrize("what", ["a recording", "text", "nothing"])
def test_a_named_pipe_is_read_once_as_stdin_is(what: str, content: bytes, tmp_path: Path) -> None:
    sent = {"a recording": content, "text": b"nobody speaks here\n" * 100, "nothing": b""}[what]
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(path.write_bytes, sent)
        samples, fault = heard(path)
    expected_samples, expected_fault = heard(pipe_of([sent]))
    assert fault == expected_fault
    np.testing.assert_array_equal(samples, expected_samples)


def test_an_empty_pipe_is_told() -> None:
    assert heard(pipe_of([]))[1] == "is empty"


def test_text_in_a_pipe_is_told() -> None:
    assert heard(pipe_of([b"nobody speaks here\n" * 100]))[1] == "is not a recording that can be decoded"


def test_a_pipe_that_breaks_is_told_after_what_came_through(content: bytes) -> None:
    samples, reason = heard(pipe_of([content[:80_000], OSError(5, "Input/output error")]))
    assert reason == "cannot be read: Input/output error"
    assert samples.size == pytest.approx(40_000, abs=1100)


def test_a_pipe_that_breaks_at_once_is_told() -> None:
    assert heard(pipe_of([OSError(5, "Input/output error")]))[1] == "cannot be read: Input/output error"


@pytest.mark.parametrize("before", [0, 80_000])
def test_ctrl_c_while_a_pipe_is_silent_is_not_lost(before: int, content: bytes) -> None:
    given = 0
    source = pipe_of([content[:before], KeyboardInterrupt()] if before else [KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt), AudioFile(source) as audio:  # noqa: PT012 - blocks come before it
        for block in audio.blocks():
            given += block.size
    assert max(0, before / 2 - SAMPLE_RATE_HZ - 1100) <= given <= before / 2  # a second may be waiting for its end


def test_mp4_in_a_pipe_needs_its_index_in_front(tmp_path: Path) -> None:
    sound = Sound(clicks(20, 0.5), "aac")  # longer than what FFmpeg holds in its hands
    behind = write(tmp_path / "behind.m4a", sound)
    front = write(tmp_path / "front.m4a", sound, options={"movflags": "faststart"})
    assert np.array_equal(whole(pipe_of([front.read_bytes()])), whole(front))
    samples, reason = heard(pipe_of([behind.read_bytes()]))
    assert samples.size == 0
    assert reason == "cannot be read from a pipe, as its index stands at the end; name the file"
    with behind.open("rb") as file:  # as in: liveasr transcribe - <behind.m4a
        assert np.array_equal(whole(file), whole(behind))


# Long.


def test_an_hour_needs_the_memory_of_a_minute_and_its_last_times_are_exact(data: Path, tmp_path: Path) -> None:
    speech = load(data / "digits-clean.wav")
    path = tmp_path / "hour.flac"
    quiet = silence(60)
    before_s = 3600
    with soundfile.SoundFile(path, "w", SAMPLE_RATE_HZ, 1) as file:
        for _ in range(before_s // 60):
            file.write(quiet)
        file.write(speech)

    def new_detector() -> WebrtcDetector:
        return WebrtcDetector(WebrtcScorer(), VadConfig())

    alone = [(segment.start_sample, segment.end_sample) for segment in segments([speech], new_detector())]
    assert len(alone) == 3
    held: list[int] = []

    def watch(heard_ms: int) -> None:
        if heard_ms >= 60_000 * len(held):
            held.append(resident_bytes())

    with AudioFile(path) as audio:
        found = [
            (segment.start_sample, segment.end_sample) for segment in segments(audio.blocks(), new_detector(), watch)
        ]
    shift = before_s * SAMPLE_RATE_HZ
    for (start, end), (expected_start, expected_end) in zip(found, alone, strict=True):
        assert abs(start - shift - expected_start) <= 10 * SAMPLES_PER_MS
        assert abs(end - shift - expected_end) <= 10 * SAMPLES_PER_MS
    assert len(held) == before_s // 60 + 1
    assert max(held) - held[1] < 10_000_000


def test_closing_a_file_that_was_read_in_part_leaves_nothing_open(tmp_path: Path) -> None:
    path = write(tmp_path / "x.webm", Sound(clicks(2, 0.5), "libopus"))
    before = open_files()
    with AudioFile(path) as audio:
        next(audio.blocks())
        assert open_files() > before
    assert open_files() == before

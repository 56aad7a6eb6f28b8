"""Files of every kind: what comes out, and when it was."""

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from liveasr.clients.file import segments
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import WebrtcDetector
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS
from liveasr.vad.config import VadConfig
from liveasr.vad.webrtc import WebrtcScorer
from tests.helpers import open_files, resident_bytes
from tests.sounds import load, silence, tone
from tests.stream.media import (
    FORMATS,
    LATE_MS,
    Sound,
    assert_clicks_at,
    black,
    clicks,
    clicks_in,
    pipe_of,
    whole,
    write,
)

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

"""Files that were cut off or damaged: what is there still comes out, when it was, and what is wrong is told."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liveasr.types import SAMPLE_RATE_HZ
from tests.sounds import white
from tests.stream.media import FORMATS, Sound, assert_clicks_at, clicks, clicks_in, heard, pipe_of, wav, whole, write

# Cut off.


def cut(path: Path, share: float) -> Path:
    """The first part of a file, as a download that broke off leaves it."""
    target = path.with_name(f"cut{path.suffix}")
    target.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return target


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

import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from liveasr.errors import AudioError
from liveasr.stream.decode import AudioFile
from liveasr.types import SAMPLE_RATE_HZ, Float32Array
from tests.sounds import RECORDINGS, load, tone, white

SECONDS = 2.0
TONE_HZ = 440.0
LEVEL = 0.5
RATES_HZ = (8000, 16_000, 22_050, 24_000, 44_100, 48_000)


def decoded(path: Path) -> Float32Array:
    """The whole recording; every block must be as the contract says."""
    with AudioFile(path) as audio:
        blocks = list(audio.blocks())
    for block in blocks:
        assert block.dtype == np.float32
        assert block.ndim == 1
    return np.concatenate(blocks)


def heard_before_error(path: Path) -> tuple[Float32Array, AudioError | None]:
    """What could be read of a damaged recording, and what was said about it."""
    blocks = [np.zeros(0, np.float32)]
    try:
        with AudioFile(path) as audio:
            for block in audio.blocks():
                blocks.append(block)  # noqa: PERF402 - those that came before an error count
    except AudioError as error:
        return np.concatenate(blocks), error
    return np.concatenate(blocks), None


def loudest_hz(samples: Float32Array) -> float:
    """Frequency of the strongest partial, to a fraction of a bin."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    peak = int(spectrum.argmax())
    left, top, right = np.log(spectrum[peak - 1 : peak + 2])
    return float((peak + (left - right) / (2 * (left - 2 * top + right))) * SAMPLE_RATE_HZ / samples.size)


def amplitude(samples: Float32Array) -> float:
    """Of a sine, without its first and last 0.2 s."""
    middle = samples[SAMPLE_RATE_HZ // 5 : -SAMPLE_RATE_HZ // 5]
    return float(np.sqrt(2 * np.mean(middle.astype(np.float64) ** 2)))


def channels(count: int, rate_hz: int = SAMPLE_RATE_HZ) -> Float32Array:
    """(n, count): the same sine in all channels."""
    return np.repeat(tone(SECONDS, TONE_HZ, rate_hz, LEVEL)[:, None], count, axis=1)


def write_wav(
    path: Path, data: bytes, *, bits: int, rate_hz: int = SAMPLE_RATE_HZ, data_bytes: int | None = None
) -> Path:
    """A mono WAV file of whole numbers by hand."""
    size = len(data) if data_bytes is None else data_bytes
    layout = struct.pack("<HHIIHH", 1, 1, rate_hz, rate_hz * bits // 8, bits // 8, bits)
    head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + struct.pack("<I", 16) + layout
    path.write_bytes(head + b"data" + struct.pack("<I", size) + data)
    return path


def mux(path: Path, *, sound: bool, picture: bool) -> Path:
    """A second of video, of sound, or of both."""
    with av.open(str(path), "w") as container:
        video: Any = container.add_stream("mpeg4", rate=25) if picture else None
        audio: Any = container.add_stream("aac", rate=SAMPLE_RATE_HZ, layout="mono") if sound else None
        if video is not None:
            video.width = video.height = 64
            video.pix_fmt = "yuv420p"
            for index in range(25):
                image = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 8 * index, np.uint8), format="rgb24")
                container.mux(video.encode(image))
            container.mux(video.encode())
        if audio is not None:
            samples = tone(1, TONE_HZ, level=LEVEL)
            for start in range(0, samples.size, 1024):
                frame = av.AudioFrame.from_ndarray(samples[None, start : start + 1024], format="fltp", layout="mono")
                frame.sample_rate = SAMPLE_RATE_HZ
                frame.pts = start
                frame.time_base = Fraction(1, SAMPLE_RATE_HZ)
                container.mux(audio.encode(frame))
            container.mux(audio.encode())
    return path


# What is in the file comes out.


@pytest.mark.parametrize("stem", RECORDINGS)
def test_16_khz_16_bit_wav_comes_out_as_its_integers_over_32768(stem: str, data: Path) -> None:
    integers, _ = soundfile.read(data / f"{stem}.wav", dtype="int16")
    samples = decoded(data / f"{stem}.wav")
    assert np.array_equal(samples, integers.astype(np.float32) / 32768)
    assert np.array_equal(samples, load(data / f"{stem}.wav"))


def test_the_extremes_of_16_bit_come_out_exactly(tmp_path: Path) -> None:
    integers = np.array([-32768, -32767, -1, 0, 1, 32767], np.int16)
    soundfile.write(tmp_path / "x.wav", integers, SAMPLE_RATE_HZ)
    assert decoded(tmp_path / "x.wav").tolist() == (integers / 32768).tolist()


@pytest.mark.parametrize(
    ("subtype", "step"),
    [("PCM_U8", 2**-7), ("PCM_16", 2**-15), ("PCM_24", 2**-23), ("PCM_32", 2**-24), ("FLOAT", 0.0), ("DOUBLE", 0.0)],
)
@pytest.mark.parametrize("count", [1, 2, 6])
def test_every_kind_of_wav_comes_out_to_its_own_precision(
    subtype: str, step: float, count: int, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "x.wav", channels(count), SAMPLE_RATE_HZ, subtype=subtype)
    samples = decoded(tmp_path / "x.wav")
    expected = tone(SECONDS, TONE_HZ, level=LEVEL)
    assert samples.size == expected.size
    assert np.abs(samples - expected).max() <= step + 2**-24


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_sine_survives_any_rate_and_number_of_channels(
    rate_hz: int, count: int, tmp_path: Path, tolerances: dict[str, Any]
) -> None:
    soundfile.write(tmp_path / "x.wav", channels(count, rate_hz), rate_hz, subtype="PCM_24")
    samples = decoded(tmp_path / "x.wav")
    assert abs(samples.size - SECONDS * SAMPLE_RATE_HZ) <= SAMPLE_RATE_HZ / 1000
    assert loudest_hz(samples) == pytest.approx(TONE_HZ, abs=0.1)
    assert amplitude(samples) == pytest.approx(LEVEL, rel=tolerances["stream"]["sine_level"]["value"])


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("ending", ["flac", "ogg", "mp3"])
def test_a_sine_survives_other_formats(ending: str, rate_hz: int, tmp_path: Path, tolerances: dict[str, Any]) -> None:
    limits = tolerances["stream"]
    lossless = ending == "flac"
    level = limits["sine_level" if lossless else "lossy_level"]["value"]
    length_ms = 1 if lossless else limits["lossy_length_ms"]["value"]
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, channels(2, rate_hz), rate_hz)
    samples = decoded(path)
    assert abs(samples.size - SECONDS * SAMPLE_RATE_HZ) <= length_ms * SAMPLE_RATE_HZ / 1000
    assert loudest_hz(samples) == pytest.approx(TONE_HZ, abs=0.1)
    assert amplitude(samples) == pytest.approx(LEVEL, rel=level)


def test_a_click_stays_where_it_is_at_any_rate(tmp_path: Path) -> None:
    for rate_hz in RATES_HZ:
        click = np.zeros(2 * rate_hz, np.float32)
        click[rate_hz] = 0.9
        soundfile.write(tmp_path / "x.wav", click, rate_hz, subtype="PCM_24")
        assert abs(int(np.abs(decoded(tmp_path / "x.wav")).argmax()) - SAMPLE_RATE_HZ) <= 1


def test_what_is_above_the_new_rate_is_gone(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", tone(1, 12_000, 48_000), 48_000)
    assert np.abs(decoded(tmp_path / "x.wav")[1000:-1000]).max() < 1e-3


def test_channels_are_averaged(tmp_path: Path) -> None:
    left, right = white(0.5, 0.1, seed=1), white(0.5, 0.1, seed=2)
    for subtype in ("FLOAT", "DOUBLE"):
        soundfile.write(tmp_path / "x.wav", np.stack((left, right), axis=1), SAMPLE_RATE_HZ, subtype=subtype)
        assert np.abs(decoded(tmp_path / "x.wav") - (left + right) / 2).max() <= 2**-24
    soundfile.write(tmp_path / "x.flac", np.stack((left, -left), axis=1), SAMPLE_RATE_HZ)
    assert not decoded(tmp_path / "x.flac").any()


def test_six_channels_weigh_the_same(tmp_path: Path) -> None:
    for channel in range(6):
        samples = np.zeros((1000, 6), np.float32)
        samples[:, channel] = 0.6
        soundfile.write(tmp_path / "x.wav", samples, SAMPLE_RATE_HZ, subtype="FLOAT")
        assert np.abs(decoded(tmp_path / "x.wav") - 0.1).max() <= 1e-6


@pytest.mark.parametrize("ending", ["mp4", "mkv", "mov", "avi"])
def test_the_sound_of_a_video_is_read(ending: str, tmp_path: Path) -> None:
    samples = decoded(mux(tmp_path / f"x.{ending}", sound=True, picture=True))
    assert samples.size == pytest.approx(SAMPLE_RATE_HZ, abs=2048)  # AAC is made of blocks of 1024
    assert loudest_hz(samples) == pytest.approx(TONE_HZ, abs=1)


# HTK parameter files and MATLAB's are known to libsndfile, not to FFmpeg.
@pytest.mark.parametrize(("kind", "subtype"), [("HTK", "PCM_16"), ("MAT5", "FLOAT")])
@pytest.mark.parametrize("rate_hz", [8000, 16_000])
def test_what_only_libsndfile_reads_is_read_too(kind: str, subtype: str, rate_hz: int, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind.lower()}"
    soundfile.write(path, tone(SECONDS, TONE_HZ, rate_hz), rate_hz, format=kind, subtype=subtype)
    with pytest.raises(av.FFmpegError):
        av.open(str(path))
    samples = decoded(path)
    assert abs(samples.size - SECONDS * SAMPLE_RATE_HZ) <= SAMPLE_RATE_HZ / 1000
    assert loudest_hz(samples) == pytest.approx(TONE_HZ, abs=0.1)
    with AudioFile(path) as audio:
        assert audio.duration_ms == SECONDS * 1000


def test_a_recording_comes_in_blocks(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", white(60, 0.1), SAMPLE_RATE_HZ)
    with AudioFile(tmp_path / "x.wav") as audio:
        sizes = [block.size for block in audio.blocks()]
    assert sum(sizes) == 60 * SAMPLE_RATE_HZ
    assert max(sizes) <= 1.1 * SAMPLE_RATE_HZ


def test_the_length_is_told_before_it_is_read(data: Path) -> None:
    with AudioFile(data / "digits-clean.wav") as audio:
        assert audio.duration_ms == load(data / "digits-clean.wav").size * 1000 // SAMPLE_RATE_HZ


def test_closing_twice_is_fine(data: Path) -> None:
    audio = AudioFile(data / "digits-clean.wav")
    audio.close()
    audio.close()


def test_a_name_given_as_text_is_a_path(data: Path) -> None:
    with AudioFile(str(data / "digits-clean.wav")) as audio:
        assert next(audio.blocks()).size > 0


@pytest.mark.parametrize("name", ["10:30 talk.wav", "http:talk.wav", "-", "a%03d.wav", "grüße 你好.wav", "x.txt"])
def test_any_name_will_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = tone(0.1, TONE_HZ)
    soundfile.write(tmp_path / name, samples, SAMPLE_RATE_HZ, subtype="FLOAT", format="WAV")
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(decoded(Path(name)), samples)


def test_samples_that_are_no_numbers_are_silence(tmp_path: Path) -> None:
    samples = tone(0.5, TONE_HZ)
    bad = samples.copy()
    bad[1000:1010] = np.nan
    bad[2000] = np.inf
    bad[3000] = -np.inf
    soundfile.write(tmp_path / "x.wav", bad, SAMPLE_RATE_HZ, subtype="FLOAT")
    result = decoded(tmp_path / "x.wav")
    assert np.array_equal(result, np.where(np.isfinite(bad), samples, 0))


# What cannot be read is told, by name.


def refused(path: Path, reason: str) -> None:
    with pytest.raises(AudioError, match=reason) as caught:
        decoded(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    refused(tmp_path / "missing.wav", "no such file")


def test_a_folder_is_told(tmp_path: Path) -> None:
    refused(tmp_path, "folder")


@pytest.mark.parametrize("ending", ["wav", "mp3", "flac", "ogg", "txt", "mp4"])
def test_an_empty_file_is_told(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"x.{ending}").touch()
    refused(tmp_path / f"x.{ending}", "empty")


@pytest.mark.parametrize("ending", ["wav", "mp3", "flac", "ogg", "txt", "md", "mp4", "raw"])
def test_text_is_no_recording(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    path.write_text("This is a page of text, and nobody speaks in it.\n" * 100, encoding="utf-8")
    refused(path, "decoded|no audio|damaged")


@pytest.mark.parametrize("ending", ["wav", "mp3", "flac", "ogg", "mp4"])
def test_random_bytes_are_no_recording(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    path.write_bytes(np.random.default_rng(0).bytes(4000))
    refused(path, "decoded|no audio|damaged")


@pytest.mark.parametrize("ending", ["wav", "flac", "aiff"])
def test_a_recording_without_a_sample_is_told(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, np.zeros(0, np.float32), SAMPLE_RATE_HZ)
    refused(path, "no audio|empty")  # libsndfile writes such a FLAC without its header


def test_a_video_without_sound_is_told(tmp_path: Path) -> None:
    refused(mux(tmp_path / "x.mp4", sound=False, picture=True), "no audio")


def test_samples_of_64_bits_are_told(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", np.zeros(1000, np.int64).tobytes(), bits=64)
    refused(path, r"cannot be read \(s64\)")


def test_a_format_that_libsndfile_opens_but_cannot_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.aiff"
    soundfile.write(path, tone(0.5, TONE_HZ), SAMPLE_RATE_HZ, subtype="DWVW_16")
    refused(path, "damaged")


# What is cut off or damaged gives what there is.


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
def test_what_there_is_of_a_file_that_was_cut_off_is_given(ending: str, share: float, tmp_path: Path) -> None:
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    soundfile.write(whole, white(8, 0.1), SAMPLE_RATE_HZ)
    content = whole.read_bytes()
    cut.write_bytes(content[: int(len(content) * share)])
    there, error = heard_before_error(cut)
    expected = decoded(whole)
    assert share * 8 - 2 <= there.size / SAMPLE_RATE_HZ <= share * 8 * 1.1  # Ogg comes in pages of more than a second
    same = there.size - 4096  # a last block may be made up from half of its bytes
    assert np.abs(there[:same] - expected[:same]).max() < 1e-3
    assert error is None or str(error).startswith(f"{cut}: ")


@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_a_file_that_was_cut_off_is_called_so(ending: str, tmp_path: Path) -> None:
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    soundfile.write(whole, white(8, 0.1), SAMPLE_RATE_HZ)
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    refused(cut, "cut off|damaged")


@pytest.mark.parametrize("announced", [0, 0xFFFFFFFF - 36])
def test_a_wav_that_was_written_to_a_pipe_is_whole(announced: int, tmp_path: Path) -> None:
    integers = np.round(white(2, 0.1) * 32767).astype("<i2")
    path = write_wav(tmp_path / "x.wav", integers.tobytes(), bits=16, data_bytes=announced)
    there, error = heard_before_error(path)
    assert error is None
    assert np.array_equal(there, integers.astype(np.float32) / 32768)


# Not MP3: its frames tell no time, so what is lost there is lost.
@pytest.mark.parametrize("ending", ["flac", "ogg"])
def test_damage_in_the_middle_moves_nothing_that_comes_after_it(ending: str, tmp_path: Path) -> None:
    samples = white(10, 0.01)
    samples[8 * SAMPLE_RATE_HZ] = 0.95
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, samples, SAMPLE_RATE_HZ)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 3000] = np.random.default_rng(1).bytes(3000)
    path.write_bytes(content)
    there, error = heard_before_error(path)
    assert abs(int(np.abs(there[6 * SAMPLE_RATE_HZ :]).argmax()) - 2 * SAMPLE_RATE_HZ) <= SAMPLE_RATE_HZ // 5
    assert error is None or str(error).startswith(f"{path}: ")


def test_what_was_read_of_a_damaged_file_comes_before_the_error(tmp_path: Path) -> None:
    path = tmp_path / "x.flac"
    soundfile.write(path, white(8, 0.1), 44_100)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with AudioFile(path) as audio:
        blocks = audio.blocks()
        assert next(blocks).size >= 0
        with pytest.raises(AudioError):
            list(blocks)
    assert heard_before_error(path)[0].size > SAMPLE_RATE_HZ


# From a stream that cannot be sought in.


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
def test_a_stream_gives_what_the_file_gives(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    soundfile.write(path, white(3, 0.1), 44_100)
    with path.open("rb") as stream, AudioFile(stream) as audio:
        assert audio.name == "stdin"
        samples = np.concatenate(list(audio.blocks()))
    assert np.array_equal(samples, decoded(path))

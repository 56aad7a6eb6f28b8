"""`liveasr live`, as a person runs it: a recording on the same path, Ctrl-C, files to keep, a real sound server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
import srt

from liveasr import store
from liveasr.clients.keep import Keep
from liveasr.errors import OutputError, UsageError
from liveasr.types import LiveTranscript, Transcript

SPOKEN = ["three one four", "one five nine two", "six five"]
LIVE = [sys.executable, "-m", "liveasr", "live", "--model", "digits"]
NEEDS_PULSE = "apt-get install pulseaudio pulseaudio-utils libasound2-plugins libportaudio2"


def live(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*LIVE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


def texts(stdout: str) -> list[str]:
    return [line.split("  ", 1)[1] for line in stdout.splitlines()]


def test_a_recording_is_captioned_and_kept_in_every_form(data: Path, tmp_path: Path) -> None:
    kept = [tmp_path / f"talk{ending}" for ending in (".srt", ".vtt", ".json", ".txt", ".tsv", ".wav")]
    save = [argument for path in kept for argument in ("--save", path)]
    done = live("--file", data / "digits-clean.wav", *save)
    assert done.returncode == 0
    assert texts(done.stdout) == SPOKEN
    assert [cue.content for cue in srt.parse((tmp_path / "talk.srt").read_text())] == SPOKEN
    document = json.loads((tmp_path / "talk.json").read_text())
    assert [segment["text"] for segment in document["segments"]] == SPOKEN
    assert (document["error"], document["duration_ms"]) == (None, 8628)
    kept_sound, rate = soundfile.read(tmp_path / "talk.wav", dtype="int16")
    said_sound, _ = soundfile.read(data / "digits-clean.wav", dtype="int16")
    assert rate == 16_000
    assert (kept_sound == said_sound).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in kept)


@pytest.mark.parametrize("model", store.DEMONSTRATION_MODELS)
def test_live_text_is_the_file_transcribers(data: Path, model: str) -> None:
    transcribe = [sys.executable, "-m", "liveasr", "transcribe", "--model", model, str(data / "digits-noisy.wav")]
    expected = subprocess.run(transcribe, capture_output=True, text=True, timeout=60, check=True)
    assert live("--model", model, "--file", data / "digits-noisy.wav").stdout == expected.stdout


def test_ctrl_c_finishes_the_last_words_and_keeps_everything(data: Path, tmp_path: Path) -> None:
    kept = tmp_path / "talk.srt"
    command = [*LIVE, "--file", str(data / "digits-clean.wav"), "--realtime", "--save", str(kept)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(1.5)  # in the middle of the second string
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=30)
    assert texts(first) == SPOKEN[:1]
    assert rest
    assert SPOKEN[1].startswith(texts(rest)[0])
    assert [cue.content for cue in srt.parse(kept.read_text())] == [SPOKEN[0], *texts(rest)]
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_damaged_recording_keeps_what_was_captioned_and_is_told(data: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "half.wav"
    damaged.write_bytes((data / "digits-clean.wav").read_bytes()[:200_000])
    done = live("--file", damaged, "--save", tmp_path / "half.txt")
    assert done.returncode == 1
    assert texts(done.stdout)[:2] == SPOKEN[:2]
    assert (tmp_path / "half.txt").read_text() == done.stdout
    assert f"{damaged}: is cut off" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--save", "talk.doc"], "talk.doc: its ending must be one of .txt"),
        (["--save", "/nowhere/at/all/\0"], ""),
    ],
)
def test_files_that_cannot_be_kept_are_refused_before_anything_is_said(
    data: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    if "\0" in arguments[-1]:
        arguments = ["--save", str(tmp_path / "file" / "talk.srt")]
        (tmp_path / "file").write_text("in the way")
        words = "talk.srt: cannot be written"
    done = live("--file", data / "digits-clean.wav", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_existing_files_are_kept_without_force(tmp_path: Path) -> None:
    path = tmp_path / "talk.srt"
    path.write_text("precious")
    with pytest.raises(OutputError, match="exists already; use --force"):
        Keep([path], None, "digits", force=False)
    assert path.read_text() == "precious"
    keep = Keep([path], None, "digits", force=True)
    assert path.read_text() == "precious"  # until the new one is complete
    keep.transcript(LiveTranscript(0, 1, "one", "", 0, 500, Transcript(0, "one", (), 0, 500)))
    keep.finish(500, None)
    assert "one" in path.read_text()


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"its ending must be one of"):
        Keep([tmp_path / "talk"], None, "digits", force=False)


# A real sound server, whose monitor is a microphone that hears what is played.


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which PortAudio's default device hears the sink `loop`."""
    if not shutil.which("pulseaudio") or not shutil.which("paplay"):
        pytest.skip(f"the loopback needs: {NEEDS_PULSE}")
    config = tmp_path / "asound.conf"
    config.write_text(
        'pcm.!default { type pulse device loop.monitor hint { show on description "loopback" } }\n'
        "ctl.!default { type pulse }\n"
    )
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path), "ALSA_CONFIG_PATH": str(config)}
    server = subprocess.Popen(
        ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "-L", "module-native-protocol-unix",
         "-L", "module-null-sink sink_name=loop"],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for _ in range(100):
        if subprocess.run(["pactl", "info"], env=env, capture_output=True, check=False).returncode == 0:
            break
        time.sleep(0.05)
    yield env
    server.terminate()
    server.wait(10)


def start_on_loopback(env: dict[str, str], *arguments: object) -> subprocess.Popen[str]:
    """`liveasr live` on the microphone, once it listens."""
    command = [*LIVE, *map(str, arguments)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(200):
        listing = subprocess.run(
            ["pactl", "list", "short", "source-outputs"], env=env, capture_output=True, text=True, check=False
        )
        if listing.stdout.strip():
            return process
        time.sleep(0.05)
    process.kill()
    _, errors = process.communicate()
    if "PortAudio" in errors:
        pytest.skip(f"the loopback needs: {NEEDS_PULSE}")
    raise AssertionError(f"it never listened: {errors}")


def test_a_microphone_is_captioned(loopback: dict[str, str], data: Path, tmp_path: Path) -> None:
    kept = tmp_path / "heard.wav"
    process = start_on_loopback(loopback, "--save", kept)
    subprocess.run(["paplay", "-d", "loop", str(data / "digits-clean.wav")], env=loopback, timeout=30, check=True)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert texts(output) == SPOKEN
    assert soundfile.info(kept).duration >= 8.0


def test_a_microphone_that_is_unplugged_is_told_and_the_captions_stay(
    loopback: dict[str, str], data: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "heard.txt"
    process = start_on_loopback(loopback, "--save", kept)
    playing = subprocess.Popen(["paplay", "-d", "loop", str(data / "digits-clean.wav")], env=loopback)
    assert process.stdout is not None
    first = process.stdout.readline()
    subprocess.run(["pulseaudio", "--kill"], env=loopback, check=True)
    rest, errors = process.communicate(timeout=30)
    playing.wait(10)
    assert process.returncode == 1
    assert texts(first) == SPOKEN[:1]
    assert kept.read_text() == first + rest
    assert "stopped delivering sound; is it still plugged in?" in errors
    assert "Traceback" not in errors


@pytest.mark.skipif(sys.platform != "linux", reason="only ALSA can be told to have no devices")
def test_without_a_sound_input_the_way_out_is_told(tmp_path: Path) -> None:
    config = tmp_path / "asound.conf"
    config.write_text("pcm.!default { type hw card 99 }\n")
    done = live(env={**os.environ, "ALSA_CONFIG_PATH": str(config)})
    assert (done.returncode, done.stdout) == (1, "")
    assert "liveasr devices" in done.stderr or "libportaudio2" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_recording_itself_is_never_written_over(data: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.wav"
    shutil.copy(data / "digits-clean.wav", own)
    before = own.read_bytes()
    done = live("--file", own, "--save", own, "--force")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{own}: is the recording itself" in done.stderr
    assert own.read_bytes() == before


def test_realtime_without_a_file_is_refused() -> None:
    done = live("--realtime")
    assert done.returncode == 1
    assert "--realtime plays a recording" in done.stderr

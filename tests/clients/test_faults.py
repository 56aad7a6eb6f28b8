"""What goes wrong around the program, which runs as a process of its own: each fault gives a clear line, an exit code,
and nothing is lost that was heard.

What depends on options alone, and what is printed, stands in test_cli_transcribe.py.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from liveasr.types import SAMPLE_RATE_HZ
from tests.sounds import load, silence

HEARD = ["three one four", "one five nine two", "six five"]
NOTICE = "liveasr: 'digits' is a demonstration"
LIMIT_S = 120
ROOT_MAY_NOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Takes from root what lets it read and write everything."""


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """What was said on stderr, the notice about the demonstration model aside."""
        lines = [line for line in self.err.splitlines() if line]
        return [line.removeprefix("liveasr: ") for line in lines if not line.startswith(NOTICE)]


def start(*arguments: object, before: tuple[str, ...] = (), **settings: Any) -> subprocess.Popen[bytes]:
    command = [*before, sys.executable, "-m", "liveasr", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment, **{**pipes, **settings})


def ended(process: subprocess.Popen[bytes]) -> Result:
    out, err = process.communicate(timeout=LIMIT_S)
    assert b"Traceback" not in err, err.decode()
    return Result(process.returncode, (out or b"").decode(), err.decode())


def transcribe(*arguments: object, **settings: Any) -> Result:
    return ended(start("transcribe", "--model", "digits", *arguments, **settings))


def texts(path: Path) -> list[str]:
    """What was heard, from a JSON transcript, which must be whole."""
    return [segment["text"] for segment in json.loads(path.read_text(encoding="utf-8"))["segments"]]


def error_in(path: Path) -> str | None:
    error: str | None = json.loads(path.read_text(encoding="utf-8"))["error"]
    return error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def clean(data: Path) -> Path:
    return data / "digits-clean.wav"


@pytest.fixture(scope="module")
def long(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of digits, of which a test hears some seconds."""
    path = tmp_path_factory.mktemp("long") / "long.flac"
    samples = np.round(load(data / "digits-clean.wav") * 32_767).astype(np.int16)
    with soundfile.SoundFile(path, "w", SAMPLE_RATE_HZ, 1) as file:
        for _ in range(3600 * SAMPLE_RATE_HZ // samples.size):
            file.write(samples)
    return path


# Recordings.


def test_bad_recordings_among_good_ones_are_a_line_each_and_all_others_are_done(clean: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    whole = clean.read_bytes()
    (folder / "a good.wav").write_bytes(whole)
    (folder / "b empty.mp3").touch()
    (folder / "c text.wav").write_text("nobody speaks here\n" * 50, encoding="utf-8")
    soundfile.write(folder / "d no sample.flac", silence(0), SAMPLE_RATE_HZ, format="WAV")
    (folder / "e cut off.wav").write_bytes(whole[: len(whole) * 6 // 10])
    (folder / "f noise.ogg").write_bytes(np.random.default_rng(0).bytes(5000))
    (folder / "g gone.wav").symlink_to(folder / "nowhere.wav")
    (folder / "h good.wav").write_bytes(whole)
    result = transcribe("-f", "json", "-f", "srt", "-o", out, folder, tmp_path / "missing.wav")
    assert result.code == 1
    assert result.out == ""
    assert result.complaints == [
        f"{folder}/b empty.mp3: is empty",
        f"{folder}/c text.wav: is not a recording that can be decoded",
        f"{folder}/d no sample.flac: holds no audio",
        f"{folder}/e cut off.wav: is cut off: it holds 5.2 s of the 8.6 s that it announces",
        f"{folder}/f noise.ogg: is not a recording that can be decoded",
        f"{folder}/g gone.wav: no such file",
        f"{tmp_path}/missing.wav: no such file",
    ]
    assert texts(out / "a good.json") == texts(out / "h good.json") == HEARD
    assert texts(out / "e cut off.json") == HEARD[:2]
    assert error_in(out / "e cut off.json") == result.complaints[3]
    assert (out / "h good.srt").read_text(encoding="utf-8").count("-->") == 3
    assert not list(out.glob("*.part"))


def test_a_folder_without_recordings_is_a_line(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("nothing", encoding="utf-8")
    result = transcribe("-f", "json", "-o", tmp_path / "out.json", tmp_path / "notes", clean)
    assert (result.code, result.complaints) == (1, [f"{tmp_path}/notes: has no recordings in it"])
    assert texts(tmp_path / "out.json") == HEARD


# Permission.


@pytest.fixture
def without_privilege() -> tuple[str, ...]:
    """What stands before a command so that permissions hold for root too."""
    if os.geteuid() != 0:
        return ()
    if shutil.which(ROOT_MAY_NOT[0]) is None or subprocess.run([*ROOT_MAY_NOT, "true"], check=False).returncode != 0:
        pytest.skip("root may read everything here, and setpriv, which would change that, is missing")
    return tuple(ROOT_MAY_NOT)


def test_recordings_in_a_folder_that_may_not_be_read_are_a_line_each(
    clean: Path, tmp_path: Path, without_privilege: tuple[str, ...]
) -> None:
    folder = tmp_path / "in"
    for name in ("a locked.wav", "b good.wav", "c locked/x.wav"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(clean.read_bytes())
    (folder / "a locked.wav").chmod(0)
    (folder / "c locked").chmod(0)
    try:
        result = transcribe(
            "-f", "json", "-o", tmp_path / "out", folder, folder / "c locked" / "x.wav", before=without_privilege
        )
    finally:
        (folder / "c locked").chmod(0o755)
    assert result.code == 1
    assert result.complaints == [
        f"{folder}/c locked: cannot be read: Permission denied",
        f"{folder}/a locked.wav: cannot be read: Permission denied",
        f"{folder}/c locked/x.wav: cannot be read: Permission denied",
    ]
    assert texts(tmp_path / "out" / "b good.json") == HEARD


def test_a_recording_that_is_named_and_may_not_be_read_is_a_line(
    clean: Path, tmp_path: Path, without_privilege: tuple[str, ...]
) -> None:
    locked = tmp_path / "locked.wav"
    locked.write_bytes(clean.read_bytes())
    locked.chmod(0)
    result = transcribe("-f", "tsv", locked, clean, before=without_privilege)
    assert (result.code, result.complaints) == (1, [f"{locked}: cannot be read: Permission denied"])
    assert result.out.count("\n") == 1 + 3
    result = ended(start("vad", locked, before=without_privilege))
    assert (result.code, result.complaints) == (1, [f"{locked}: cannot be read: Permission denied"])


def test_an_output_that_may_not_be_written_is_a_line(
    clean: Path, tmp_path: Path, without_privilege: tuple[str, ...]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    folder.chmod(0o555)
    result = transcribe("-o", folder / "x.txt", clean, before=without_privilege)
    assert (result.code, result.complaints) == (1, [f"{folder}/x.txt: cannot be written: Permission denied"])
    assert names(folder) == []


# A full disk.


def at_most(size: int) -> Callable[[], None]:
    """No file may grow beyond so many bytes: a disk that is full, without one."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_when_the_disk_is_full_what_was_written_is_kept_and_the_place_is_told(clean: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = transcribe("-f", "json", "-f", "tsv", "-o", out, clean, preexec_fn=at_most(700))
    assert result.code == 1
    (complaint,) = result.complaints
    path = out / "digits-clean.json"
    assert complaint == f"{path}: cannot be written: File too large; what was written is in {path}.part"
    assert names(out) == ["digits-clean.json.part", "digits-clean.tsv.part"]
    assert HEARD[0] in (out / "digits-clean.json.part").read_text(encoding="utf-8")


def test_when_the_disk_is_full_the_old_file_stands(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old", encoding="utf-8")
    result = transcribe("-f", "json", "--force", "-o", path, clean, preexec_fn=at_most(700))
    assert result.code == 1
    assert path.read_text(encoding="utf-8") == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize(
    "command", [["vad"], ["bench", "--model", "digits", "--runs", "1"]], ids=lambda command: command[0]
)
def test_a_full_disk_behind_stdout_is_a_line(command: list[str], clean: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = ended(start(*command, clean, stdout=full))
    assert (result.code, result.complaints) == (1, ["No space left on device"])


def test_a_reader_that_has_seen_enough_is_nothing_to_talk_about(clean: Path) -> None:
    process = start("vad", clean)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(LIMIT_S), err) == (1, b"")


# Ctrl-C, and worse.


def test_ctrl_c_completes_the_files_with_what_was_heard(long: Path, clean: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start("transcribe", "--model", "digits", "-f", "json", "-f", "vtt", "-f", "tsv", "-o", out, long, clean)
    part = out / "long.tsv.part"
    wait_until(lambda: part.exists() and part.read_text(encoding="utf-8").count("\n") > 4)
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert (result.code, result.complaints) == (130, ["interrupted"])
    assert names(out) == ["long.json", "long.tsv", "long.vtt"]
    heard = texts(out / "long.json")
    assert heard[:6] == HEARD * 2 or heard == (HEARD * 2)[: len(heard)]
    assert len(heard) >= 4
    assert error_in(out / "long.json") == "interrupted"
    assert (out / "long.tsv").read_text(encoding="utf-8").count("\n") == len(heard) + 1
    assert (out / "long.vtt").read_text(encoding="utf-8").count("-->") == len(heard)


def test_ctrl_c_while_stdin_is_silent_keeps_what_was_said(clean: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    process = start("transcribe", "--model", "digits", "-f", "json", "-o", out, "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(clean.read_bytes())
    process.stdin.flush()  # and never closed
    part = tmp_path / "x.json.part"
    wait_until(lambda: part.exists() and part.read_text(encoding="utf-8").count('"start_ms"') > 10)
    process.send_signal(signal.SIGINT)
    code = process.wait(LIMIT_S)
    result = ended(process)
    assert (code, result.complaints) == (130, ["interrupted"])
    assert texts(out) == HEARD[: len(texts(out))]
    assert len(texts(out)) >= 2


def test_a_process_that_is_killed_leaves_all_that_was_heard_in_its_part(long: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.srt"
    path.write_text("old", encoding="utf-8")
    process = start("transcribe", "--model", "digits", "-f", "srt", "--force", "-o", path, long)
    part = tmp_path / "x.srt.part"
    wait_until(lambda: part.exists() and part.read_text(encoding="utf-8").count("-->") > 3)
    process.kill()
    process.communicate()
    assert path.read_text(encoding="utf-8") == "old"
    cues = part.read_text(encoding="utf-8").split("\n\n")
    assert [cue.splitlines()[2] for cue in cues[:4]] == [*HEARD, HEARD[0]]


# Stdin.


def test_a_stdin_that_is_closed_is_a_line() -> None:
    command = f"exec {sys.executable} -m liveasr vad - <&-"
    result = ended(subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    assert (result.code, result.complaints) == (1, ["stdin: is closed"])


def test_an_empty_stdin_is_a_line() -> None:
    result = ended(start("vad", "-"))
    assert (result.code, result.complaints) == (1, ["stdin: is empty"])

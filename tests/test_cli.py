"""The command line as a program: what it tells of itself, and how it ends in a process of its own.

What depends on signals, pipes and descriptors runs in one; everything else calls `main` in this process, which takes no
time to start.
"""

import errno
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import liveasr
from liveasr import model_list
from liveasr.types import SAMPLE_RATE_HZ
from tests.command import CLEAN, CLEAN_TEXT, DIGITS, NOTICE, Result, Run
from tests.sounds import load

LIMIT_S = 120
NOBODY = "nothing was removed: nobody is here to be asked; add --yes"
NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")


def start(*arguments: object, **settings: Any) -> subprocess.Popen[bytes]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "liveasr", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    # Unbuffered, or communicate() would not know of what readline() has read ahead.
    return subprocess.Popen(command, bufsize=0, **{**pipes, **settings})


def ended(process: subprocess.Popen[bytes], already: bytes = b"") -> Result:
    """What a process has said, once it has ended, after what was read of its output already."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert b"Traceback" not in err, err.decode()
    return Result(process.returncode, (already + (out or b"")).decode(), err.decode())


@pytest.fixture(scope="session")
def long(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of digits."""
    path = tmp_path_factory.mktemp("long") / "long.wav"
    samples = load(data / "digits-clean.wav")
    soundfile.write(path, np.tile(samples, 600 * SAMPLE_RATE_HZ // samples.size), SAMPLE_RATE_HZ)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe"],
        ["vad"],
        ["models", "convert"],
        ["models", "pull"],
        ["models", "rm"],
        ["nonesuch"],
        ["transcribe", "--language", "klingon", "x.wav"],
        ["transcribe", "--format", "docx", "x.wav"],
        ["transcribe", "--max-segment-ms", "999", "x.wav"],
        ["transcribe", "--end-silence-ms", "149", "x.wav"],
        ["transcribe", "--threads", "0", "x.wav"],
        ["transcribe", "--nonesuch", "x.wav"],
    ],
    ids=" ".join,
)
def test_a_slip_in_the_command_is_told_with_exit_code_2(arguments: list[str], run: Run) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "Error: " in result.err
    assert "--help" in result.err


# What it tells of itself.


@pytest.mark.parametrize(
    ("command", "mentions"),
    [
        ([], ["transcribe", "vad", "live", "stream", "models", "--version"]),
        (
            ["transcribe"],
            ["PATH", "--model", "--vad", "--language", "--hotword", "fun-asr-nano:", "--format", "digits"],
        ),
        (["transcribe"], ["--output", "--offline", "Examples:"]),
        (["vad"], ["FILE", "--format", "--end-silence-ms", "--max-segment-ms"]),
        (["live"], ["--device", "--file", "--server", "LIVEASR_TOKEN", "--save", "--end-silence-ms"]),
        (
            ["stream"],
            ["FILE", "--server", "http://127.0.0.1:8765", "--realtime", "--save", "LIVEASR_TOKEN", "Examples:"],
        ),
        (["models"], ["list", "pull", "rm", "convert"]),
        (["models", "list"], ["--json", "models.toml", "to convert"]),
        (["models", "pull"], ["NAME[:VARIANT]", "--from", "modelscope", "HF_ENDPOINT", "HF_TOKEN", "Examples:"]),
        (["models", "rm"], ["NAME[:VARIANT]", "--yes", "Examples:"]),
        (
            ["models", "convert"],
            ["DIR", "--type", "--output", "--force", "--licence", "README.md", "Examples:"],
        ),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else str(part),
)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_explains_itself(command: list[str], mentions: list[str], option: str, run: Run) -> None:
    result = run(*command, option)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: ")
    for mention in mentions:
        assert mention in result.out


@pytest.mark.parametrize("group", [(), ("models",), ("bench",)])
def test_what_commands_do_is_told_in_whole_on_a_narrow_terminal(
    group: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*group, "--help").out.splitlines()
    commands = lines[lines.index("Commands:") + 1 :]
    assert len(commands) > 2
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


def test_version_is_the_packages(run: Run) -> None:
    assert run("--version").out == f"liveasr {liveasr.__version__}\n"


# In a process of its own.


def test_results_go_to_stdout_and_everything_else_to_stderr(clean: Path) -> None:
    result = ended(start(*DIGITS, clean))
    assert (result.code, result.out) == (0, CLEAN_TEXT)
    assert result.err.startswith(NOTICE)
    assert len(result.err.splitlines()) == 1


def test_errors_of_a_process_are_one_line_and_an_exit_code(tmp_path: Path) -> None:
    result = ended(start(*DIGITS, tmp_path / "missing.wav"))
    assert (result.code, result.out) == (1, "")
    assert result.complaint == f"liveasr: {tmp_path / 'missing.wav'}: no such file"


def test_a_recording_may_come_on_stdin(clean: Path) -> None:
    with clean.open("rb") as stream:
        result = ended(start(*DIGITS, "-", stdin=stream))
    assert (result.code, result.out) == (0, CLEAN_TEXT)


def interrupted(process: subprocess.Popen[bytes], lines: int) -> Result:
    """Press Ctrl-C once so many lines have come."""
    assert process.stdout is not None
    already = b"".join(process.stdout.readline() for _ in range(lines))
    process.send_signal(signal.SIGINT)
    return ended(process, already)


def test_ctrl_c_keeps_what_was_printed(long: Path) -> None:
    result = interrupted(start(*DIGITS, long), 2)
    assert result.code == 130
    assert result.complaint == "liveasr: interrupted"
    assert result.out.startswith("".join(CLEAN_TEXT.splitlines(keepends=True)[:2]))
    assert result.out.endswith("\n")


def test_ctrl_c_leaves_whole_json(long: Path) -> None:
    result = interrupted(start(*DIGITS, "--format", "json", long), 3)
    document = json.loads(result.out)
    assert result.code == 130
    assert document["error"] == "interrupted"
    assert [segment["text"] for segment in document["segments"][:2]] == list(CLEAN[:2])
    assert document["duration_ms"] >= document["segments"][-1]["end_ms"]


def test_a_reader_that_has_seen_enough_is_no_error_to_talk_about(long: Path) -> None:
    process = start(*DIGITS, long)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().decode() == CLEAN_TEXT.splitlines(keepends=True)[0]
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(LIMIT_S) != 0
    assert err.startswith(NOTICE)
    assert len(err.splitlines()) == 1


@NEEDS_LINUX
def test_who_closes_all_streams_is_not_answered_with_a_traceback(tmp_path: Path) -> None:
    script = '"$0" -m liveasr models rm mine <&-'
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    result = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**os.environ, "LIVEASR_MODELS": str(tmp_path)},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, f"liveasr: {NOBODY}\n")


def test_what_runs_under_nohup_goes_on_when_its_terminal_is_closed(clean: Path) -> None:
    process = start(
        *DIGITS, "-", stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert process.stderr is not None
    process.stderr.readline()  # the notice, before which the signals are seen to
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(clean.read_bytes(), timeout=LIMIT_S)
    assert (process.returncode, out.decode()) == (0, CLEAN_TEXT), err


def test_no_name_of_a_file_is_obeyed_by_the_terminal(run: Run) -> None:
    result = run("models", "inspect", "a\nb\x1b[31m/\u3000模型.gguf")
    assert result.complaint == "liveasr: a\\nb\\x1b[31m/\u3000模型.gguf: no such model file"


def test_a_lack_of_memory_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lack() -> None:
        raise MemoryError

    monkeypatch.setattr(model_list, "listed", lack)
    result = run("models", "list")
    assert (result.code, result.err) == (1, "liveasr: there is not enough memory for this\n")


def test_a_full_disk_is_one_line(clean: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = ended(start(*DIGITS, clean, stdout=full))
    assert result.code == 1
    assert os.strerror(errno.ENOSPC) in result.complaint


@NEEDS_LINUX
def test_a_name_that_is_no_utf_8_can_be_read_and_written_about(clean: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"talk\xff\xe4.wav")
    odd.write_bytes(clean.read_bytes())
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    result = ended(start(*DIGITS, odd, tmp_path / "missing.wav", env=environment))
    assert (result.code, result.out.count(CLEAN_TEXT)) == (1, 1)
    result = ended(start(*DIGITS, "-f", "json", "-f", "txt", "-o", tmp_path / "out", odd, env=environment))
    assert result.code == 0
    documents = [path for path in (tmp_path / "out").iterdir() if path.suffix == ".json"]
    assert len(json.loads(documents[0].read_text(encoding="utf-8"))["segments"]) == 3


def test_a_terminal_gets_the_progress_on_stderr_and_stdout_stays_clean(clean: Path) -> None:
    controller, terminal = pty.openpty()
    process = start(*DIGITS, clean, stderr=terminal)
    os.close(terminal)
    assert process.stdout is not None
    shown = b""
    try:
        while piece := os.read(controller, 4096):
            shown += piece
    except OSError as error:
        if error.errno != errno.EIO:  # which is how Linux tells that the other end has closed
            raise
    os.close(controller)
    with process.stdout:
        assert process.stdout.read().decode() == CLEAN_TEXT
    assert process.wait(LIMIT_S) == 0
    assert b"digits-clean.wav" in shown
    assert b"three" not in shown

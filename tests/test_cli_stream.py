"""`liveasr stream` and `liveasr live --server`, as a person runs them, against a server of its own process."""

import contextlib
import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
import soxr
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from liveasr.stream.messages import (
    ClientMessage,
    Limits,
    ModelInfo,
    Ready,
    ServerMessage,
    Start,
    Stop,
    Transcript,
    decode_client,
    encode,
)
from tests.servers import ServerProcess
from tests.sounds import load

ROOT = Path(__file__).resolve().parents[1]
SPOKEN = ["three one four", "one five nine two", "six five"]
NOTICE = "liveasr: 'digits' is a demonstration"
LIMIT_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ServerProcess() as process:
        yield process.url


def start(*arguments: object, token: str = "", **settings: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "liveasr", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    # Unbuffered, or communicate() would not know of what readline() has read ahead.
    return subprocess.Popen(command, bufsize=0, env={**os.environ, "LIVEASR_TOKEN": token}, **{**pipes, **settings})


def ended(process: subprocess.Popen[bytes], already: bytes = b"") -> tuple[int, str, list[str]]:
    """Exit code, what was printed, and the complaints, the notice of the demonstration model aside."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert b"Traceback" not in err, err.decode()
    complaints = [line.removeprefix("liveasr: ") for line in err.decode().splitlines() if not line.startswith(NOTICE)]
    return process.returncode, (already + (out or b"")).decode(), complaints


def ran(*arguments: object, **settings: Any) -> tuple[int, str, list[str]]:
    return ended(start(*arguments, **settings))


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def texts(out: str) -> list[str]:
    return [line.split("  ", 1)[1] for line in out.splitlines()]


# What is heard.


@pytest.mark.parametrize("command", [["stream"], ["live", "--file"]])
def test_a_server_hears_what_transcribe_hears(command: list[str], server: str, data: Path) -> None:
    noisy = data / "digits-noisy.wav"
    expected = ran("transcribe", "--model", "digits", noisy)
    assert ran(*command, noisy, "--server", server) == expected
    assert texts(expected[1]) == ["two seven one eight", "two eight one eight", "zero zero seven"]


@pytest.mark.parametrize("rate_hz", [8000, 44100])
def test_a_recording_of_any_rate_is_heard_as_transcribe_hears_it(
    rate_hz: int, server: str, clean: Path, tmp_path: Path
) -> None:
    path = tmp_path / "talk.wav"
    soundfile.write(path, soxr.resample(load(clean), 16_000, rate_hz), rate_hz)
    expected = ran("transcribe", "--model", "digits", path)
    assert ran("stream", "--server", server, path) == expected
    assert len(texts(expected[1])) == len(SPOKEN)


def test_captions_and_sound_are_kept(server: str, clean: Path, tmp_path: Path) -> None:
    save = [argument for name in ("talk.json", "talk.srt", "talk.wav") for argument in ("--save", tmp_path / name)]
    code, out, complaints = ran("stream", clean, "--server", server, *save)
    assert (code, texts(out), complaints) == (0, SPOKEN, [])
    document = json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))
    assert (document["model"], document["error"], document["duration_ms"]) == ("digits", None, 8628)
    assert [[word["text"] for word in segment["words"]] for segment in document["segments"]] == [
        text.split() for text in SPOKEN
    ]
    assert (tmp_path / "talk.srt").read_text(encoding="utf-8").count(" --> ") == len(SPOKEN)
    assert (load(tmp_path / "talk.wav") == load(clean)).all()
    assert len(list(tmp_path.iterdir())) == 3
    assert ran("stream", clean, "--server", server, *save)[2] == [
        f"{tmp_path}/talk.json: exists already; use --force to replace it"
    ]


def test_stdin_is_captioned_while_it_goes_on(server: str, clean: Path) -> None:
    process = start("stream", "-", "--server", server, stdin=subprocess.PIPE)
    assert process.stdin is not None
    recording = clean.read_bytes()
    process.stdin.write(recording[: 4 * 32_000])
    first = first_line(process)  # and only then comes the rest
    process.stdin.write(recording[4 * 32_000 :])
    code, out, complaints = ended(process, first)
    assert (code, texts(out), complaints) == (0, SPOKEN, [])


def test_settings_reach_the_server(server: str, clean: Path) -> None:
    code, out, _ = ran("stream", clean, "--server", server, "--max-segment-ms", 1000, "--model", "digits")
    assert code == 0
    assert len(texts(out)) > len(SPOKEN)
    code, out, complaints = ran("stream", clean, "--server", server, "--model", "parrot")
    assert (code, out, complaints) == (1, "", [f"{server}: no model named parrot; there is: digits"])
    code, out, complaints = ran("stream", clean, "--server", server, "--hotword", "Lagrange")
    assert (code, out, complaints) == (1, "", [f"{server}: digits takes no hot words; none does"])
    code, out, complaints = ran("live", "--file", clean, "--server", server, "--hotword", "a\nb")
    assert (code, out) == (1, "")
    assert [line.startswith("--hotword: the hot word") for line in complaints] == [True]


def test_the_demonstration_model_is_called_so_once(server: str, clean: Path) -> None:
    _, err = start("stream", clean, "--server", server).communicate(timeout=LIMIT_S)
    assert err.decode().count(NOTICE) == 1


@pytest.mark.parametrize("command", [["stream"], ["live", "--file"]])
def test_a_token_comes_from_the_option_or_the_environment(command: list[str], clean: Path) -> None:
    with ServerProcess(token="sesame") as guarded:  # noqa: S106 - of a server that the test starts
        call = [*command, clean, "--server", guarded.url]
        assert texts(ran(*call, "--token", "sesame")[1]) == SPOKEN
        assert texts(ran(*call, token="sesame")[1]) == SPOKEN  # noqa: S106
        assert ran(*call) == (1, "", [f"{guarded.url}: wants a token; give it with --token or LIVEASR_TOKEN"])


def test_a_terminal_shows_what_is_being_said(server: str, clean: Path) -> None:
    controller, terminal = pty.openpty()
    process = start("stream", clean, "--server", server, stdout=terminal)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(controller, 4096):
            shown += piece
    except OSError as error:
        if error.errno != errno.EIO:  # which is how Linux tells that the other end has closed
            raise
    os.close(controller)
    assert ended(process)[0] == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    positions = [plain.find(text) for text in SPOKEN]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert "Ctrl-C ends" in plain


# How it ends.


def test_ctrl_c_finishes_the_last_words_and_keeps_them(server: str, clean: Path, tmp_path: Path) -> None:
    kept = tmp_path / "talk.txt"
    process = start("stream", clean, "--server", server, "--realtime", "--save", kept)
    first = first_line(process)
    process.send_signal(signal.SIGINT)
    code, out, complaints = ended(process, first)
    assert (code, complaints) == (0, [])
    assert texts(out)[0] == SPOKEN[0]
    assert len(texts(out)) < len(SPOKEN)
    assert kept.read_text(encoding="utf-8") == out


def test_ctrl_c_is_heard_while_stdin_is_silent(server: str, clean: Path, tmp_path: Path) -> None:
    kept = tmp_path / "talk.txt"
    process = start("stream", "-", "--server", server, "--save", kept, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(clean.read_bytes()[: 4 * 32_000])
    first = first_line(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 0
    code, out, complaints = ended(process, first)
    assert (code, complaints) == (0, [])
    assert texts(out)[0] == SPOKEN[0]
    assert kept.read_text(encoding="utf-8") == out


@contextlib.contextmanager
def scripted(script: Callable[[ServerConnection], None]) -> Iterator[str]:
    """A server in a thread of this process that says ready, and then does as the script says."""

    def handler(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            until(connection, Start)
            model = ModelInfo(name="real", languages=("auto",), hotwords=False)
            limits = Limits(message_bytes=1 << 20, idle_s=60, resume_s=30.0, session_s=86_400.0)
            tell(connection, Ready(session="s", model="real", limits=limits, models=(model,)))
            script(connection)

    with serve(handler, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def tell(connection: ServerConnection, message: ServerMessage) -> None:
    connection.send(encode(message))


def until(connection: ServerConnection, kind: type[ClientMessage]) -> None:
    while True:
        frame = connection.recv(LIMIT_S)
        if isinstance(frame, str) and isinstance(decode_client(frame), kind):
            return


FINAL = Transcript(
    segment_id=0, revision=1, final=True, committed="", tentative="", start_ms=0, end_ms=900, text="so far"
)


def test_a_second_ctrl_c_does_not_wait_and_keeps_what_was_captioned(clean: Path, tmp_path: Path) -> None:
    stopping = threading.Event()

    def never_done(connection: ServerConnection) -> None:
        tell(connection, FINAL)
        until(connection, Stop)
        stopping.set()
        connection.recv()

    kept = tmp_path / "talk.txt"
    with scripted(never_done) as url:
        process = start("stream", clean, "--server", url, "--realtime", "--save", kept)
        first = first_line(process)
        process.send_signal(signal.SIGINT)
        assert stopping.wait(LIMIT_S)
        process.send_signal(signal.SIGINT)
        code, out, complaints = ended(process, first)
    assert (code, texts(out), complaints) == (0, ["so far"], [])
    assert kept.read_text(encoding="utf-8") == out


LOST = "the connection was lost; is the server still running?"
STOPPED = "the server was stopped; what it had heard is complete"
NOBODY = "nobody listens there; start a server with: liveasr serve (tried again for 0.5 s)"


@pytest.mark.parametrize(
    ("number", "reconnect_s", "lines"),
    [
        (signal.SIGKILL, 0, [LOST]),
        (signal.SIGTERM, 0, [STOPPED]),
        (signal.SIGKILL, 0.5, [f"{LOST}; trying again", NOBODY]),
        (signal.SIGTERM, 0.5, [f"{STOPPED}; trying again", NOBODY]),
    ],
)
def test_a_server_that_ends_in_the_middle_is_a_line_and_the_captions_stay(
    number: signal.Signals, reconnect_s: float, lines: list[str], clean: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "talk.json"
    with ServerProcess() as mortal:
        process = start(
            "stream", clean, "--server", mortal.url, "--reconnect-s", reconnect_s, "--realtime", "--save", kept
        )
        first = first_line(process)
        mortal.stop(number)
        code, out, complaints = ended(process, first)
    assert (code, complaints) == (1, [f"{mortal.url}: {words}" for words in lines])
    assert texts(out)[0] == SPOKEN[0]
    document = json.loads(kept.read_text(encoding="utf-8"))
    assert [segment["text"] for segment in document["segments"]] == texts(out)
    assert document["error"] == complaints[-1]


def test_a_server_that_is_started_anew_goes_on_and_that_is_told(clean: Path, tmp_path: Path) -> None:
    kept = tmp_path / "talk.json"
    with ServerProcess() as mortal:
        process = start("stream", clean, "--server", mortal.url, "--realtime", "--save", kept)
        first = first_line(process)
        mortal.stop(signal.SIGKILL)
        with ServerProcess(port=int(mortal.url.rpartition(":")[2])):
            code, out, complaints = ended(process, first)
    assert (code, texts(out)) == (0, SPOKEN)
    assert complaints == [f"{mortal.url}: {LOST}; trying again", "connected again"]
    document = json.loads(kept.read_text(encoding="utf-8"))
    assert [segment["text"] for segment in document["segments"]] == SPOKEN
    assert document["error"] is None


def test_ctrl_c_without_a_connection_ends_at_once_and_keeps_what_was_captioned(clean: Path, tmp_path: Path) -> None:
    kept = tmp_path / "talk.txt"
    with ServerProcess() as mortal:
        process = start("stream", clean, "--server", mortal.url, "--reconnect-s", 1000, "--realtime", "--save", kept)
        first = first_line(process)
        mortal.stop(signal.SIGKILL)
        assert process.stderr is not None
        while not (line := process.stderr.readline()).endswith(b"trying again\n"):
            assert line
        process.send_signal(signal.SIGINT)
        code, out, complaints = ended(process, first)
    assert code == 1
    assert complaints == ["ended without a connection to the server; what was said last has no text"]
    assert texts(out) == SPOKEN[:1]
    assert kept.read_text(encoding="utf-8") == out


def test_a_server_that_ends_while_stdin_is_silent_is_a_line(clean: Path) -> None:
    with ServerProcess() as mortal:
        process = start("stream", "-", "--server", mortal.url, "--reconnect-s", 0, stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(clean.read_bytes()[: 4 * 32_000])
        first = first_line(process)
        mortal.stop(signal.SIGKILL)
        assert process.wait(LIMIT_S) == 1
        _, out, complaints = ended(process, first)
    assert texts(out) == SPOKEN[:1]
    assert complaints == [f"{mortal.url}: the connection was lost; is the server still running?"]


def test_nothing_is_lost_when_the_recording_is_cut_off(server: str, clean: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "half.wav"
    damaged.write_bytes(clean.read_bytes()[:200_000])
    code, out, complaints = ran("stream", damaged, "--server", server)
    assert (code, texts(out)[:2]) == (1, SPOKEN[:2])
    assert [line.startswith(f"{damaged}: is cut off") for line in complaints] == [True]


# What is refused.


def test_where_nobody_listens_it_is_a_line_and_no_file_is_left(clean: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = ran("stream", clean, "--server", url, "--save", tmp_path / "talk.txt")
    assert result == (1, "", [f"{url}: nobody listens there; start a server with: liveasr serve"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "localhost", "--threads", "2"], "--threads cannot be set together with --server"),
        (["--server", "localhost", "--cmvn", "am.mvn"], "--cmvn cannot be set together with --server"),
        (["--server", "localhost", "--vad", "fsmn"], "--vad cannot be set together with --server"),
        (["--token", "sesame"], "--token is shown to a server: add --server URL"),
        (["--reconnect-s", "5"], "--reconnect-s is about a server: add --server URL"),
        (["--server", "ftp://host"], "'ftp://host' is no address of a server"),
    ],
)
def test_options_that_do_not_go_together_are_named(arguments: list[str], words: str, clean: Path) -> None:
    code, out, complaints = ran("live", "--file", clean, *arguments)
    assert (code, out) == (1, "")
    assert [line.startswith(words) for line in complaints] == [True], complaints


def test_a_recording_that_does_not_exist_is_a_line(server: str, tmp_path: Path) -> None:
    code, out, complaints = ran("stream", tmp_path / "none.wav", "--server", server)
    assert (code, out, len(complaints)) == (1, "", 1)
    assert complaints[0].startswith(f"{tmp_path}/none.wav: ")


# The README, and the page of the protocol.


@pytest.mark.parametrize(
    ("page", "section"),
    [("README.md", "## From another program\n"), ("README.md", "## From Python\n"), ("docs/protocol.md", "")],
)
def test_the_examples_run_as_they_are_printed(server: str, page: str, section: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").partition(section or "# ")[2]
    code = text.partition("```python\n")[2].partition("```")[0]
    assert ("//127.0.0.1:8765" in code) is (section != "## From Python\n")
    code = code.replace("//127.0.0.1:8765", server.removeprefix("http:"))  # the usual port may be taken here
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.lstrip("0123456789 ") for line in done.stdout.splitlines()] == SPOKEN  # behind times, in one of them

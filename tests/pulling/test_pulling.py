"""`liveasr models pull`, against servers that are what they are in the world: a process, a network, a folder."""

import hashlib
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from liveasr import store
from liveasr.clients.pull import pull as install
from liveasr.errors import FetchError
from liveasr.model_registry import RegisteredFile
from tests.file_server import Served, refused
from tests.models import register
from tests.pulls import LIMIT_S, NAME, Pull, names, pull_ended, start_pull

A_FOLDER = "is a folder where the model's file belongs; move it away"


# From a web server.


def test_a_model_is_installed_and_found(pull: Pull, served: Served, folder: Path, model: bytes) -> None:
    code, out, err = pull("sensevoice-small", "--from", f"{served.url}/models")
    assert (code, err) == (0, [f"liveasr: fetching {NAME} from {served.url[7:]}"])
    assert out.splitlines() == [f"{folder / NAME}: 1.0 MB", "installed; use it by --model sensevoice-small"]
    assert served.asked == [("GET", f"/models/{NAME}", 0)]
    assert (folder / NAME).read_bytes() == model
    assert names(folder) == {NAME}
    assert store.find("sensevoice-small") == folder / NAME


def test_a_model_that_is_there_is_not_fetched_again(pull: Pull, served: Served, folder: Path, model: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(model)
    code, out, err = pull("sensevoice-small", "--from", served.url)
    assert (code, err, served.asked) == (0, [], [])
    assert str(folder / NAME) in out


def test_half_a_model_that_is_there_is_replaced(pull: Pull, served: Served, folder: Path, model: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(model[:500_000])
    code, _, err = pull("sensevoice-small", "--from", served.url)
    assert code == 0
    assert "is there, but is not a usable GGUF file: " in err[0]
    assert (folder / NAME).read_bytes() == model


def test_a_variant_of_two_files_has_both(pull: Pull, served: Served, folder: Path) -> None:
    code, out, _ = pull("fun-asr-nano:q4km", "--from", served.url)
    assert code == 0
    assert names(folder) == {"funasr-encoder-f16.gguf", "qwen3-0.6b-q4km.gguf"}
    assert out.endswith("installed; use it by --model fun-asr-nano:q4km\n")
    code, out, err = pull("fun-asr-nano", "--from", f"{served.url}/x.gguf")
    assert (code, out, len(err)) == (1, "", 1)
    assert "is 2 files; name the folder" in err[0]


def test_the_url_of_the_file_itself_will_do(pull: Pull, served: Served, folder: Path) -> None:
    assert pull("sensevoice-small", "--from", f"{served.url}/other.gguf")[0] == 0
    assert served.asked == [("GET", "/other.gguf", 0)]
    assert names(folder) == {NAME}


def test_a_url_may_have_a_query(pull: Pull, served: Served, folder: Path) -> None:
    assert pull("sensevoice-small", "--from", f"{served.url}/other.gguf?signed=yes")[0] == 0
    assert pull("paraformer", "--from", f"{served.url}/models?signed=yes")[0] == 0
    assert [path for _, path, _ in served.asked] == [
        "/other.gguf?signed=yes",
        "/models/paraformer-q8.gguf?signed=yes",
    ]
    assert names(folder) == {NAME, "paraformer-q8.gguf"}


def test_what_is_there_and_damaged_is_told_once_and_fetched(
    pull: Pull, served: Served, folder: Path, model: bytes
) -> None:
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(model[:1000])
    code, _, err = pull("sensevoice-small", "--from", served.url)
    assert (code, len(err)) == (0, 2)
    assert err[0].startswith(f"liveasr: {folder / NAME} is there, but is not a usable GGUF file: it ends inside")
    assert (folder / NAME).read_bytes() == model


def test_a_folder_where_the_file_belongs_is_told_before_anything_comes(
    pull: Pull, served: Served, folder: Path
) -> None:
    (folder / NAME).mkdir(parents=True)
    code, _, err = pull("sensevoice-small", "--from", served.url)
    assert (code, err, served.asked) == (1, [f"liveasr: {folder / NAME}: {A_FOLDER}"], [])


@pytest.mark.parametrize("place", ["http://", "https://[::1", "http://\x01", "~nobody-of-this-name/models"])
def test_a_place_that_is_none_is_one_line(pull: Pull, folder: Path, place: str) -> None:
    code, out, err = pull("sensevoice-small", "--from", place)
    assert (code, out, len(err), names(folder)) == (1, "", 1, set())
    assert err[0].isprintable()


@pytest.mark.parametrize("content", ["a page", "half a model", "nothing"])
def test_what_is_no_whole_model_is_thrown_away(
    pull: Pull, served: Served, folder: Path, content: str, model: bytes
) -> None:
    served.content = {"a page": b"<html>log in</html>", "half a model": model[:500_000], "nothing": b""}[content]
    code, out, err = pull("sensevoice-small", "--from", served.url)
    assert (code, out, len(err)) == (1, "", 2)
    assert re.match(rf"liveasr: {NAME}: what came is not a usable GGUF file: .*; it was thrown away", err[1])
    assert names(folder) == set()


@pytest.mark.parametrize(
    ("status", "complaint"),
    [(404, "has no /sensevoice-small-q8.gguf"), (403, "to everyone (403)"), (500, "500 Internal Server Error")],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    pull: Pull, served: Served, folder: Path, status: int, complaint: str
) -> None:
    served.status = status
    code, out, err = pull("sensevoice-small", "--from", served.url)
    assert (code, out, len(err)) == (1, "", 2)
    assert complaint in err[1]
    assert names(folder) == set()


def test_ctrl_c_keeps_what_came_and_the_next_time_goes_on(
    pull: Pull, served: Served, folder: Path, model: bytes
) -> None:
    served.stall_at = [400_000]
    process = start_pull("sensevoice-small", "--from", served.url)
    part = folder / f"{NAME}.part"
    deadline = time.monotonic() + LIMIT_S
    while not part.is_file() or part.stat().st_size < 400_000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code, out, err = pull_ended(process)
    assert (code, out) == (130, "")
    assert err[1:] == [
        f"liveasr: {NAME}; 0.4 MB came and are kept, the same command goes on from there",
        "liveasr: interrupted",
    ]
    assert names(folder) == {f"{NAME}.part", f"{NAME}.part.id"}
    assert pull("sensevoice-small", "--from", served.url)[0] == 0
    assert [start for _, _, start in served.asked] == [0, 400_000]
    assert (folder / NAME).read_bytes() == model
    assert names(folder) == {NAME}


def test_two_processes_that_want_the_same_model_fetch_it_once(served: Served, folder: Path, model: bytes) -> None:
    served.gate = threading.Event()
    first = start_pull("sensevoice-small", "--from", served.url)
    deadline = time.monotonic() + LIMIT_S
    while not served.asked:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = start_pull("sensevoice-small", "--from", served.url)
    assert second.stderr is not None
    assert second.stderr.readline() == f"liveasr: another process is fetching {NAME}; waiting for it\n"
    served.gate.set()
    assert pull_ended(first)[::2] == (0, [f"liveasr: fetching {NAME} from {served.url[7:]}"])
    assert pull_ended(second)[::2] == (0, [])
    assert len(served.asked) == 1
    assert (folder / NAME).read_bytes() == model
    assert names(folder) == {NAME}


def test_who_waits_for_another_process_can_be_stopped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    (folder / ".locks").mkdir(parents=True)
    file = RegisteredFile("mine.gguf", {"url": refused()})
    with FileLock(folder / ".locks" / "mine.gguf"), caplog.at_level(logging.WARNING, "liveasr"):
        stop.set()
        with pytest.raises(FetchError, match="the fetch was stopped"):
            install([file], None, lambda _name: lambda _came, _total: None, stop)
    assert caplog.messages == ["another process is fetching mine.gguf; waiting for it"]


def test_a_terminal_sees_how_much_has_come_how_fast_and_how_long_it_will_take(served: Served, folder: Path) -> None:
    served.pace_s = 0.1
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "liveasr", "models", "pull", "sensevoice-small", "--from", served.url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal, env={**os.environ, "COLUMNS": "120"}):
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(controller, 4096):
                shown += piece
        except OSError:  # which is how Linux tells that the other end has closed
            pass
    os.close(controller)
    assert NAME[:20].encode() in shown
    assert re.search(rb"\d/1\.0 MB", shown)
    assert re.search(rb"\d [kM]B/s", shown)
    assert re.search(rb"00:0\d", shown)
    assert names(folder) == {NAME}


def test_a_folder_that_cannot_be_made_is_one_line(pull: Pull, served: Served, folder: Path) -> None:
    folder.parent.write_text("a file where a folder should be")
    code, out, err = pull("sensevoice-small", "--from", served.url)
    assert (code, out) == (1, "")
    assert err == [f"liveasr: {folder}: cannot be written: Not a directory"]


# What the registry knows.


@pytest.mark.parametrize("right", [True, False])
def test_the_checksum_of_the_registry_decides(
    pull: Pull, served: Served, folder: Path, model: bytes, right: bool
) -> None:
    digest = hashlib.sha256(model if right else b"other").hexdigest()
    register(f'url = "{served.url}/m.gguf", size-bytes = {len(model)}, sha256 = "{digest}"')
    code, _, err = pull("mine")
    assert err[0].endswith(", 1.0 MB")
    if right:
        assert (code, len(err), names(folder)) == (0, 1, {"mine.gguf"})
        assert store.find("mine") == folder / "mine.gguf"
    else:
        found = hashlib.sha256(model).hexdigest()
        assert (code, names(folder)) == (1, set())
        assert err[1].startswith(f"liveasr: mine.gguf: what came has the SHA-256 {found}, not {digest}; it was thrown")


def test_a_model_comes_from_a_local_folder(pull: Pull, folder: Path, tmp_path: Path, model: bytes) -> None:
    stick = tmp_path / "stick"
    stick.mkdir()
    (stick / NAME).write_bytes(model)
    (stick / "mine.gguf").write_bytes(model)
    register(f'folder = "{stick}"')
    assert pull("sensevoice-small", "--from", str(stick))[0] == 0
    assert pull("mine")[0] == 0
    assert names(folder) == {NAME, "mine.gguf"}
    assert (folder / NAME).read_bytes() == (stick / NAME).read_bytes() == model
    code, _, err = pull("paraformer", "--from", str(stick))
    assert (code, err) == (1, [f"liveasr: {stick / 'paraformer-q8.gguf'}: no such file"])
    (stick / "paraformer-q8.gguf").write_bytes(model[:1000])
    code, _, err = pull("paraformer", "--from", str(stick))
    assert (code, names(folder)) == (1, {NAME, "mine.gguf"})
    assert "it was thrown away" in err[1]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["digits"], 0, "digits is built in; there is nothing to fetch"),
        (["paraformer-streaming"], 1, "liveasr: paraformer-streaming: nobody publishes it as GGUF; convert a released"),
        (["nothing"], 1, "liveasr: no model named nothing in the registry; known are sensevoice-small, "),
        (["paraformer:q9"], 1, "liveasr: paraformer has no variant q9; known are q8, f16, f32"),
        (
            ["mine", "--from", "huggingface"],
            1,
            "liveasr: --from huggingface: the registry does not say where mine.gguf ",
        ),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_what_cannot_be_fetched_is_one_line(pull: Pull, arguments: list[str], code: int, said: str) -> None:
    register('folder = "/nowhere"')
    found, out, err = pull(*arguments)
    assert found == code
    (line,) = [*out.splitlines(), *err]
    assert line.startswith(said)

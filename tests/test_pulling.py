"""`liveasr models pull`, against servers that are what they are in the world: a process, a network, a folder."""

import hashlib
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from filelock import FileLock

from liveasr import cli, store
from liveasr.clients.pull import pull as install
from liveasr.errors import FetchError
from liveasr.model_registry import RegisteredFile
from tests.file_server import COMMIT, Served, as_hugging_face, refused, serving
from tests.models import register, write_model

NAME = "sensevoice-small-q8.gguf"
REPOSITORY = "FunAudioLLM/SenseVoiceSmall-GGUF"
CREDENTIAL = "hf_made_up"
LIMIT_S = 60
A_FOLDER = "is a folder where the model's file belongs; move it away"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model file of about a megabyte."""
    path = tmp_path_factory.mktemp("model") / NAME
    return write_model(path, "sensevoice-small", "f32", rows=4000).read_bytes()


@pytest.fixture
def served(model: bytes) -> Iterator[Served]:
    with serving(model) as server:
        yield server


@pytest.fixture
def folder(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where models are installed, which is not there yet; what the user has configured is out of sight."""
    for variable in ("XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    for variable in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MODELSCOPE_DOMAIN", served.url)
    models = tmp_path / "data" / "models"
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(models))
    return models


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "liveasr", "models", "pull", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines on stderr."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert "Traceback" not in err, err
    return process.returncode, out, [line for line in err.splitlines() if line]  # click ends the line that ^C stands on


Pull: TypeAlias = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def pull(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Pull]:
    """Calls the command, in this process unless an environment is given, which libraries read when they are loaded."""
    log = logging.getLogger("liveasr")
    handlers = list(log.handlers)

    def call(*arguments: str, **environment: str) -> tuple[int, str, list[str]]:
        if environment:
            return ended(start(*arguments, **environment))
        monkeypatch.setattr(sys, "argv", ["liveasr", "models", "pull", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        log.handlers[:] = handlers
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err.splitlines()

    yield call
    log.handlers[:] = handlers


def names(folder: Path) -> set[str]:
    """What is in a folder besides its locks."""
    return {path.name for path in folder.iterdir()} - {".locks"}


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
    process = start("sensevoice-small", "--from", served.url)
    part = folder / f"{NAME}.part"
    deadline = time.monotonic() + LIMIT_S
    while not part.is_file() or part.stat().st_size < 400_000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
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
    first = start("sensevoice-small", "--from", served.url)
    deadline = time.monotonic() + LIMIT_S
    while not served.asked:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = start("sensevoice-small", "--from", served.url)
    assert second.stderr is not None
    assert second.stderr.readline() == f"liveasr: another process is fetching {NAME}; waiting for it\n"
    served.gate.set()
    assert ended(first)[::2] == (0, [f"liveasr: fetching {NAME} from {served.url[7:]}"])
    assert ended(second)[::2] == (0, [])
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


# Hugging Face, by a stand-in that answers as it does.


def test_hugging_face_tells_size_and_checksum_and_hears_the_token(
    pull: Pull, served: Served, folder: Path, model: bytes
) -> None:
    as_hugging_face(served)
    code, _, err = pull("sensevoice-small", HF_ENDPOINT=served.url, HF_TOKEN=CREDENTIAL)
    assert (code, err) == (0, [f"liveasr: fetching {NAME} from {served.url[7:]}, 1.0 MB"])
    assert (folder / NAME).read_bytes() == model
    assert [each for each in served.asked if NAME in each[1]] == [
        ("HEAD", f"/{REPOSITORY}/resolve/main/{NAME}", 0),
        ("GET", f"/{REPOSITORY}/resolve/{COMMIT}/{NAME}", 0),
    ]
    seen = [headers for (_, path, _), headers in zip(served.asked, served.seen, strict=True) if NAME in path]
    assert [headers.get("authorization") for headers in seen] == [f"Bearer {CREDENTIAL}"] * 2


def test_what_hugging_face_began_is_checked_as_a_whole(pull: Pull, served: Served, folder: Path, model: bytes) -> None:
    as_hugging_face(served)
    folder.mkdir(parents=True)
    (folder / f"{NAME}.part").write_bytes(b"x" * 1000)  # damaged by whatever
    (folder / f"{NAME}.part.id").write_text(hashlib.sha256(model).hexdigest())
    code, _, err = pull("sensevoice-small", HF_ENDPOINT=served.url)
    assert (code, names(folder)) == (1, set())
    assert "what came has the SHA-256 " in err[1]
    assert pull("sensevoice-small", HF_ENDPOINT=served.url)[0] == 0


def test_a_file_in_the_cache_of_huggingface_hub_is_not_fetched(pull: Pull, folder: Path, model: bytes) -> None:
    cached = Path(os.environ["HF_HOME"]) / "hub" / f"models--{REPOSITORY.replace('/', '--')}"
    snapshot = cached / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / NAME).write_bytes(model)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    code, _, err = pull("sensevoice-small", HF_ENDPOINT=refused(), HF_HUB_OFFLINE="1")
    assert (code, err) == (0, [f"liveasr: fetching {NAME} from {snapshot / NAME}"])
    assert (folder / NAME).read_bytes() == model


@pytest.mark.parametrize(
    ("status", "complaint"),
    [(404, "has no /"), (401, "HF_TOKEN, or `hf auth login`"), (403, "HF_TOKEN, or `hf"), (500, "answered 500 ")],
)
def test_a_refusal_of_hugging_face_is_one_line(
    pull: Pull, served: Served, folder: Path, status: int, complaint: str
) -> None:
    served.status = status
    code, out, err = pull("sensevoice-small", HF_ENDPOINT=served.url)
    assert (code, out, len(err), names(folder)) == (1, "", 1, set())
    assert complaint in err[0]


@pytest.mark.parametrize("offline", ["0", "1"])
def test_without_a_network_hugging_face_is_one_line_and_names_the_ways(pull: Pull, folder: Path, offline: str) -> None:
    code, out, err = pull("sensevoice-small", HF_ENDPOINT=refused(), HF_HUB_OFFLINE=offline)
    assert (code, out, len(err), names(folder)) == (1, "", 1, set())
    assert err[0].startswith("liveasr: no connection to 127.0.0.1:")
    assert err[0].endswith("is there a network? HF_ENDPOINT names a mirror, liveasr models pull --from another source")
    assert "Errno" not in err[0]


@pytest.mark.parametrize("endpoint", ["hf-mirror.com", "http://[", "http://localhost:99999999", "http://a\nb"])
def test_an_endpoint_that_is_none_is_one_line(pull: Pull, folder: Path, endpoint: str) -> None:
    code, out, err = pull("sensevoice-small", HF_ENDPOINT=endpoint)
    assert (code, out, len(err), names(folder)) == (1, "", 1, set())


# ModelScope, by another.


def as_modelscope(served: Served, *, digest: str | None = None) -> None:
    file = {"Path": NAME, "Name": NAME, "Type": "blob", "Size": len(served.content),
            "Sha256": digest or hashlib.sha256(served.content).hexdigest()}  # fmt: skip
    listing = {"Code": 200, "Success": True, "Data": {"Files": [{"Path": "README.md", "Type": "blob"}, file]}}
    served.json[f"/api/v1/models/{REPOSITORY}/repo/files"] = json.dumps(listing)


def test_modelscope_tells_size_and_checksum(pull: Pull, served: Served, folder: Path, model: bytes) -> None:
    as_modelscope(served)
    code, _, err = pull("sensevoice-small", "--from", "modelscope")
    assert (code, err) == (0, [f"liveasr: fetching {NAME} from {served.url[7:]}, 1.0 MB"])
    assert [path for _, path, _ in served.asked] == [
        f"/api/v1/models/{REPOSITORY}/repo/files?Revision=master&Recursive=True",
        f"/api/v1/models/{REPOSITORY}/repo?Revision=master&FilePath={NAME}",
    ]
    assert (folder / NAME).read_bytes() == model


def test_a_wrong_checksum_of_modelscope_is_told(pull: Pull, served: Served, folder: Path) -> None:
    as_modelscope(served, digest="ab" * 32)
    code, _, err = pull("sensevoice-small", "--from", "modelscope")
    assert (code, names(folder)) == (1, set())
    assert f"not {'ab' * 32}; it was thrown away" in err[1]


@pytest.mark.parametrize(
    "answer", ["404", "nobody", "no server", "a page", "too deep", "broken", "less than nothing", "another repository"]
)
def test_what_modelscope_does_not_have_is_one_line(
    pull: Pull, served: Served, folder: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match answer:
        case "404":
            served.status = 404
            complaint = "has no /api/v1/models/"
        case "nobody":
            monkeypatch.setenv("MODELSCOPE_DOMAIN", refused())
            complaint = "no connection to 127.0.0.1:"
        case "no server":
            monkeypatch.setenv("MODELSCOPE_DOMAIN", f"http://{'x' * 300}")
            complaint = "label "
        case "broken":
            served.headers = {"Content-Encoding": "gzip"}
            complaint = "the connection to 127.0.0.1:"
        case "a page" | "too deep" | "less than nothing":
            served.content = {
                "a page": b"<html>log in</html>",
                "too deep": b'{"x":' * 100_000,
                "less than nothing": f'{{"Data": {{"Files": [{{"Path": "{NAME}", "Size": -5}}]}}}}'.encode(),
            }[answer]
            complaint = "answered in a way that ModelScope does not"
        case _:
            served.json["/"] = '{"Code": 200, "Data": {"Files": []}}'
            complaint = f"has no {NAME} in {REPOSITORY}; liveasr models pull --from names another source"
    code, out, err = pull("sensevoice-small", "--from", "modelscope")
    assert (code, out, len(err), names(folder)) == (1, "", 1, set())
    assert complaint in err[0]


def test_where_hugging_face_cannot_be_reached_modelscope_is_asked(
    pull: Pull, served: Served, folder: Path, model: bytes
) -> None:
    as_modelscope(served)
    code, out, err = pull("sensevoice-small", HF_ENDPOINT=refused())
    assert (code, len(err)) == (0, 2)
    assert err[0].startswith("liveasr: no connection to 127.0.0.1:")
    assert err[0].endswith("; taking the next source")
    assert err[1] == f"liveasr: fetching {NAME} from {served.url[7:]}, 1.0 MB"
    assert (folder / NAME).read_bytes() == model
    assert "installed" in out
    (folder / NAME).unlink()
    # Whoever names a source gets it from there or not at all, and whoever forbids the hub nobody's.
    assert pull("sensevoice-small", "--from", "huggingface", HF_ENDPOINT=refused())[0] == 1
    assert pull("sensevoice-small", HF_ENDPOINT=refused(), HF_HUB_OFFLINE="1")[0] == 1

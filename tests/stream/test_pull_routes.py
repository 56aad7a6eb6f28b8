"""A server that fetches models, over real sockets, from sources that are what they are in the world."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile

from liveasr import store
from liveasr.stream.messages import Start
from liveasr.stream.pcm import encode_pcm
from tests.file_server import Served, as_hugging_face, refused
from tests.models import register
from tests.pulls import let_fetch, pulled
from tests.servers import ServerProcess, finals, talk

CONTENT = store.built_in("digits").read_bytes()
SAID = ["three one four", "one five nine two", "six five"]
TOKEN = "s3cret"  # noqa: S105 - of servers that live for one test


@pytest.fixture
def folder(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server installs models; it knows `mine` and `other`, which are the built-in one under other names."""
    return let_fetch(monkeypatch, tmp_path, served, sizes_known=False)


@pytest.fixture
def server(folder: Path) -> Iterator[ServerProcess]:
    assert not folder.exists()
    with ServerProcess("--allow-pull") as process:
        yield process
        code, _out, err = process.stop()
    assert code == 0, err
    assert "Traceback" not in err, err


def payload() -> bytes:
    samples = soundfile.read(Path(__file__).parents[1] / "data" / "digits-clean.wav", dtype="float32")[0]
    return encode_pcm(samples, "s16le")


def offered(url: str) -> list[tuple[str, bool]]:
    return [(each["name"], each["demonstration"]) for each in httpx.get(f"{url}/v1/models").json()["models"]]


def asked(served: Served) -> list[tuple[str, int]]:
    return [(path, start) for _, path, start in served.asked]


# What is fetched, and used.


def test_what_can_be_fetched_is_what_the_registry_knows_where_to_find(server: ServerProcess, served: Served) -> None:
    answer = httpx.get(f"{server.url}/v1/pull").json()
    found = {each.pop("name"): each for each in answer["models"]}
    assert {"sensevoice-small", "paraformer", "mine", "other"} <= found.keys()
    assert not {"digits", "fsmn-vad", "paraformer-streaming"} & found.keys()
    assert found["mine"] == {
        "languages": ["en"], "licence": "MIT", "size_bytes": None, "state": "available", "begun_bytes": 0,
        "served_as": None, "progress": None, "error": None,
    }  # fmt: skip
    assert httpx.get(f"{server.url}/v1/models").json()["allow_pull"] is True
    assert served.asked == []


def test_a_model_joins_while_sessions_go_on_and_the_next_session_chooses_it(
    server: ServerProcess, served: Served, folder: Path
) -> None:
    served.gate = threading.Event()
    started = httpx.post(f"{server.url}/v1/pull/mine")
    assert (started.status_code, started.json()["state"]) == (202, "fetching")
    assert [each.text for each in finals(talk(server.ws_url, Start(), payload(), 6400))] == SAID
    assert offered(server.url) == [("digits", True)]
    served.gate.set()
    found = pulled(server.url, "mine", "served")
    assert (found["served_as"], found["progress"], found["error"]) == ("mine", None, None)
    assert offered(server.url) == [("digits", True), ("mine", False)]
    messages = talk(server.ws_url, Start(model="mine"), payload(), 6400)
    assert [each.text for each in finals(messages)] == SAID
    assert (folder / "mine.gguf").read_bytes() == CONTENT
    again = httpx.post(f"{server.url}/v1/pull/mine")  # of somebody who did not see that it is there
    assert (again.status_code, again.json()["state"]) == (202, "served")
    assert len(served.asked) == 1


def test_a_model_of_the_programs_own_registry_comes_from_hugging_face(
    served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_hugging_face(served)
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("HF_HOME", str(folder.parent / "cache"))
    with ServerProcess("--allow-pull") as server:
        httpx.post(f"{server.url}/v1/pull/sensevoice-small")
        assert pulled(server.url, "sensevoice-small", "served", "failed")["served_as"] == "sensevoice-small-q8"
    assert (folder / "sensevoice-small-q8.gguf").read_bytes() == CONTENT


def test_its_course_is_told_in_bytes(server: ServerProcess, served: Served) -> None:
    served.pace_s = 0.05
    httpx.post(f"{server.url}/v1/pull/mine")
    seen = []
    while (found := pulled(server.url, "mine", "fetching", "opening", "served"))["state"] == "fetching":
        seen.append(found["progress"])
        time.sleep(0.05)
    courses = [each for each in seen if each is not None and each["total_bytes"] is not None]
    assert {(each["file"], each["number"], each["files"], each["total_bytes"]) for each in courses} == {
        ("mine.gguf", 1, 1, len(CONTENT))
    }
    came = [each["came_bytes"] for each in courses]
    assert came == sorted(came)
    assert len(set(came)) > 5
    assert any(each["bytes_per_s"] and each["left_s"] for each in courses)


def test_a_model_that_is_installed_already_only_joins(server: ServerProcess, served: Served, folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.gguf").write_bytes(CONTENT)
    assert pulled(server.url, "mine", "installed")["begun_bytes"] == 0
    httpx.post(f"{server.url}/v1/pull/mine")
    assert pulled(server.url, "mine", "served")["served_as"] == "mine"
    assert served.asked == []


def test_one_model_is_fetched_at_a_time_and_who_wants_the_same_joins(server: ServerProcess, served: Served) -> None:
    served.gate = threading.Event()
    assert httpx.post(f"{server.url}/v1/pull/mine").status_code == 202
    assert httpx.post(f"{server.url}/v1/pull/mine").status_code == 202
    busy = httpx.post(f"{server.url}/v1/pull/other")
    words = "the server fetches one model at a time, and mine is on its way; try again later"
    assert (busy.status_code, busy.json()) == (409, {"error": {"code": "busy", "message": words}})
    served.gate.set()
    pulled(server.url, "mine", "served")
    assert httpx.post(f"{server.url}/v1/pull/other").status_code == 202
    pulled(server.url, "other", "served")
    assert asked(served) == [("/mine.gguf", 0), ("/other.gguf", 0)]


# What goes wrong.


def failed(url: str) -> str:
    httpx.post(f"{url}/v1/pull/mine")
    error: str = pulled(url, "mine", "failed")["error"]
    assert error.isprintable()
    assert "--from" not in error  # which nobody can say on a page
    return error


def test_a_failed_fetch_says_why_and_can_be_tried_again(server: ServerProcess, served: Served, folder: Path) -> None:
    host = served.url.removeprefix("http://")
    served.status = 404
    assert failed(server.url) == f"{host} has no /mine.gguf"
    served.status, served.content = None, b"<html>log in</html>"
    assert failed(server.url).startswith("mine.gguf: what came is not a usable GGUF file")
    (folder / "mine.gguf.part").symlink_to("/dev/full")
    assert failed(server.url).startswith(f"{folder}: the disk is full; make room")
    (folder / "mine.gguf.part").unlink()
    served.content = CONTENT[:-64] + bytes(64)
    httpx.post(f"{server.url}/v1/pull/mine")
    assert pulled(server.url, "mine", "served", "failed")["error"] is None
    assert offered(server.url) == [("digits", True), ("mine", False)]


@pytest.mark.usefixtures("folder")
def test_a_wrong_checksum_a_missing_network_and_a_model_that_cannot_be_run_are_told(served: Served) -> None:
    digest = hashlib.sha256(b"another").hexdigest()
    register(f'url = "{served.url}/a.gguf", sha256 = "{digest}"', name="changed")
    register(f'url = "{refused()}/a.gguf"', name="nowhere")
    register(f'folder = "{store.built_in("fsmn-vad").parent}"', name="fsmn-vad-again", file="fsmn-vad.gguf")
    with ServerProcess("--allow-pull") as server:
        httpx.post(f"{server.url}/v1/pull/changed")
        error = pulled(server.url, "changed", "failed")["error"]
        assert error.endswith(f"not {digest}; it was thrown away")
        httpx.post(f"{server.url}/v1/pull/fsmn-vad-again")
        assert "is a fsmn-vad model" in pulled(server.url, "fsmn-vad-again", "failed")["error"]
        httpx.post(f"{server.url}/v1/pull/nowhere")
        assert pulled(server.url, "nowhere", "failed")["error"].startswith("no connection to 127.0.0.1:")
        assert offered(server.url) == [("digits", True)]
        err = server.stop()[2]
    assert [line for line in err.splitlines() if "pull failed" in line and "model=nowhere reason=" in line]
    assert "Traceback" not in err


def test_a_folder_that_may_not_be_written_is_named(server: ServerProcess, folder: Path) -> None:
    folder.write_text("a file where a folder should be")
    assert failed(server.url) == f"{folder}: cannot be written: Not a directory"


def test_what_was_cancelled_is_kept_and_gone_on_with(server: ServerProcess, served: Served, folder: Path) -> None:
    served.pace_s = 0.1
    httpx.post(f"{server.url}/v1/pull/mine")
    while not (pulled(server.url, "mine", "fetching")["progress"] or {}).get("came_bytes"):
        time.sleep(0.02)
    cancelled = httpx.delete(f"{server.url}/v1/pull/mine")
    assert cancelled.status_code == 200
    found = pulled(server.url, "mine", "begun")
    assert 0 < found["begun_bytes"] < len(CONTENT)
    assert httpx.delete(f"{server.url}/v1/pull/mine").json()["state"] == "begun"
    served.pace_s = 0
    httpx.post(f"{server.url}/v1/pull/mine")
    pulled(server.url, "mine", "served")
    assert [start > 0 for _, start in asked(served)] == [False, True]
    assert (folder / "mine.gguf").read_bytes() == CONTENT


def test_sigterm_ends_a_fetch_that_stalls_and_the_next_server_goes_on_with_it(served: Served, folder: Path) -> None:
    served.stall_at = [400_000]
    with ServerProcess("--allow-pull") as server:
        httpx.post(f"{server.url}/v1/pull/mine")
        while pulled(server.url, "mine", "fetching")["begun_bytes"] < 400_000:
            time.sleep(0.02)
        server.process.terminate()
        server.process.wait(timeout=20)  # it would be 30 if it waited for as long as a source may be silent
        code, _out, err = server.stop()
    assert (code, "Traceback" in err) == (0, False), err
    with ServerProcess("--allow-pull") as server:
        assert pulled(server.url, "mine", "begun")["begun_bytes"] == 400_000
        httpx.post(f"{server.url}/v1/pull/mine")
        pulled(server.url, "mine", "served")
    assert asked(served) == [("/mine.gguf", 0), ("/mine.gguf", 400_000)]
    assert (folder / "mine.gguf").read_bytes() == CONTENT


# Who may, and what.


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/mine"), ("POST", "/mine"), ("DELETE", "/mine")])
def test_a_server_that_was_not_told_to_fetches_nothing(served: Served, method: str, path: str) -> None:
    with ServerProcess() as server:
        answer = httpx.request(method, f"{server.url}/v1/pull{path}")
        assert httpx.get(f"{server.url}/v1/models").json()["allow_pull"] is False
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert error["code"] == "not_allowed"
    assert "--allow-pull" in error["message"]
    assert store.download_command() in error["message"]
    assert served.asked == []


@pytest.mark.parametrize(
    "name",
    [
        "nonesuch", "digits", "fsmn-vad", "paraformer-streaming", "mine.gguf", "mine:f32", "Mine", "..", "%2e%2e",
        "http:%2f%2f127.0.0.1%2fx.gguf", "..%2fmine", "%2fetc%2fpasswd", "x" * 5000,
    ],
)  # fmt: skip
def test_only_names_of_the_registry_are_taken(server: ServerProcess, served: Served, name: str) -> None:
    for method in ("POST", "DELETE", "GET"):
        answer = httpx.request(method, f"{server.url}/v1/pull/{name}")
        assert answer.status_code in {404, 405}, (method, answer.text)
    if name == "nonesuch":
        error: dict[str, Any] = answer.json()["error"]
        assert error["code"] == "unknown_model"
        assert error["message"].startswith("no model named nonesuch can be fetched here; these can: sensevoice-small, ")
    assert len(answer.content) < 1000
    assert served.asked == []


def test_no_page_of_another_site_starts_or_ends_anything(server: ServerProcess, served: Served) -> None:
    own = server.url
    strangers = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"})
    for headers in strangers:
        for method in ("POST", "DELETE", "GET"):
            assert httpx.request(method, f"{own}/v1/pull/mine", headers=headers).status_code == 403
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in httpx.options(f"{own}/v1/pull/mine", headers=preflight).headers
    assert httpx.get(f"{own}/v1/pull/mine").json()["state"] == "available"
    assert served.asked == []
    assert httpx.post(f"{own}/v1/pull/mine", headers={"Origin": own}).status_code == 202
    pulled(own, "mine", "served")


@pytest.mark.usefixtures("folder")
def test_a_token_is_wanted_here_too_and_allowed_origins_may(served: Served) -> None:
    origin = "https://app.example"
    with ServerProcess("--allow-pull", "--allow-origin", origin, token=TOKEN) as server:
        for method, path in (("GET", ""), ("POST", "/mine"), ("DELETE", "/mine")):
            assert httpx.request(method, f"{server.url}/v1/pull{path}").status_code == 401
            assert httpx.request(method, f"{server.url}/v1/pull{path}?token=wrong").status_code == 401
        assert served.asked == []
        preflight = {
            "Origin": origin,
            "Access-Control-Request-Method": "DELETE",
            "Access-Control-Request-Headers": "authorization",
        }
        assert httpx.options(f"{server.url}/v1/pull/mine", headers=preflight).status_code == 200
        headers = {"Origin": origin, "Authorization": f"Bearer {TOKEN}"}
        answer = httpx.post(f"{server.url}/v1/pull/mine", headers=headers)
        assert answer.status_code == 202
        assert answer.headers["access-control-allow-origin"] == origin
        code, _out, err = server.stop()
    assert code == 0, err
    events = [line for line in err.splitlines() if 'event="pull started"' in line]
    assert len(events) == 1
    assert "peer=127.0.0.1:" in events[0]
    assert json.dumps(TOKEN) not in err

"""`liveasr models pull` from Hugging Face and ModelScope, by stand-ins that answer as they do."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.file_server import COMMIT, Served, as_hugging_face, refused
from tests.pulls import NAME, REPOSITORY, Pull, names

CREDENTIAL = "hf_made_up"


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

"""A model that is named is fetched on its first use, unless that is forbidden."""

import logging
from pathlib import Path

import pytest

from liveasr import first_use, options, serving, store
from liveasr.engines.base import DecodeOptions
from liveasr.errors import FetchError, ModelNotFoundError
from tests.file_server import Served
from tests.models import register


@pytest.fixture
def folder(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where models are installed; the user's registry knows one, `mine`, on the server."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "models"))
    monkeypatch.delenv(first_use.OFFLINE_VARIABLE)
    register(f'url = "{served.url}/m.gguf", size-bytes = {len(served.content)}', file="mine-f32.gguf")
    return tmp_path / "models"


def test_it_is_fetched_once_after_its_size_is_told(
    served: Served, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert first_use.find("mine") == first_use.find("mine") == folder / "mine-f32.gguf"
    assert len(served.asked) == 1
    assert caplog.messages == [
        "mine is not installed; it is fetched once (--offline never does that)",
        f"fetching mine-f32.gguf from {served.url[7:]}, {len(served.content) / 1e6:.1f} MB",
    ]


def test_a_variant_that_is_named_is_fetched(served: Served, folder: Path) -> None:
    assert first_use.find("mine:f32") == first_use.find("mine:f32") == folder / "mine-f32.gguf"
    assert len(served.asked) == 1
    with pytest.raises(ModelNotFoundError, match="mine has no variant f16; known are f32"):
        first_use.find("mine:f16")


def test_every_command_fetches_what_it_is_told_to_use(served: Served, folder: Path) -> None:
    engine, name = options.open_model("mine", 1, None, DecodeOptions())
    engine.close()
    assert name == "mine-f32"
    (folder / "mine-f32.gguf").unlink()
    assert options.partials_for(engine, name, "mine") == folder / "mine-f32.gguf"
    (folder / "mine-f32.gguf").unlink()
    assert serving._chosen(["mine"]) == [folder / "mine-f32.gguf"]
    assert len(served.asked) == 3


@pytest.mark.parametrize("value", ["1", "yes"])
def test_offline_it_never_is(served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(first_use.OFFLINE_VARIABLE, value)
    with pytest.raises(ModelNotFoundError, match=r"mine is not in .*; get it with: liveasr models pull mine"):
        first_use.find("mine")
    assert (served.asked, folder.exists()) == ([], False)
    monkeypatch.setenv(first_use.OFFLINE_VARIABLE, "0")
    assert first_use.find("mine").is_file()


def test_what_nobody_publishes_or_knows_is_not_looked_for(served: Served, folder: Path) -> None:
    for name in ("paraformer-streaming", "nonesuch", "mine.gguf"):
        with pytest.raises(ModelNotFoundError):
            first_use.find(name)
    assert (served.asked, folder.exists()) == ([], False)
    assert first_use.find("digits") == store.built_in("digits")


def test_what_cannot_be_fetched_is_told(served: Served, folder: Path) -> None:
    served.status = 404
    with pytest.raises(FetchError, match=r"has no /m\.gguf"):
        first_use.find("mine")
    assert not list(folder.glob("*.gguf*"))

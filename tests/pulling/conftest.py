"""`liveasr models pull`, and what it fetches from."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from liveasr import cli, store
from tests.file_server import Served, serving
from tests.models import write_model
from tests.pulls import NAME, Pull, pull_ended, start_pull


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


@pytest.fixture
def pull(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Pull]:
    """Calls the command, in this process unless an environment is given, which libraries read when they are loaded."""
    log = logging.getLogger("liveasr")
    handlers = list(log.handlers)

    def call(*arguments: str, **environment: str) -> tuple[int, str, list[str]]:
        if environment:
            return pull_ended(start_pull(*arguments, **environment))
        monkeypatch.setattr(sys, "argv", ["liveasr", "models", "pull", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        log.handlers[:] = handlers
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err.splitlines()

    yield call
    log.handlers[:] = handlers

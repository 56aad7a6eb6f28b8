"""What tests of models that a server fetches share."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from liveasr import first_use, store
from tests.file_server import Served
from tests.models import register

_PATIENCE_S = 60.0


def let_fetch(monkeypatch: pytest.MonkeyPatch, folder: Path, served: Served, *, sizes_known: bool) -> Path:
    """Have processes of this test fetch models; what the user has configured is out of sight.

    Args:
        monkeypatch: of the test.
        folder: what they may write into.
        served: where they find `mine` and `other`, which are what it serves under two names.
        sizes_known: whether the registry tells how large these are.

    Returns:
        Where they install models, which is not there yet.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv(first_use.OFFLINE_VARIABLE, "0")
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder / "models"))
    size = f", size-bytes = {len(served.content)}" if sizes_known else ""
    for name in ("mine", "other"):
        register(f'url = "{served.url}/{name}.gguf"{size}', name=name)
    return folder / "models"


def pulled(url: str, name: str, *states: str) -> dict[str, Any]:
    """What a server tells of a model once it is in one of these states."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found: dict[str, Any] = httpx.get(f"{url}/v1/pull/{name}").json()
        if found["state"] in states:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)

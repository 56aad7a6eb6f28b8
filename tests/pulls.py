"""What tests of models that a server fetches share."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from liveasr import first_use, store

_PATIENCE_S = 60.0


def let_fetch(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Have processes of this test fetch models; what the user has configured is out of sight. The folder of models."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv(first_use.OFFLINE_VARIABLE, "0")
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(folder / "models"))
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

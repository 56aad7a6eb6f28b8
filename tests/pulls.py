"""What tests of models that are fetched share: by `liveasr models pull`, and by a server."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from liveasr import first_use, store
from tests.file_server import Served
from tests.models import register

LIMIT_S = 60
NAME = "sensevoice-small-q8.gguf"
REPOSITORY = "FunAudioLLM/SenseVoiceSmall-GGUF"

Pull: TypeAlias = Callable[..., tuple[int, str, list[str]]]
"""Calls the command with arguments; exit code, stdout, and the lines on stderr."""


def start_pull(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command as a process of its own, with more variables in its environment."""
    command = [sys.executable, "-m", "liveasr", "models", "pull", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def pull_ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines on stderr."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert "Traceback" not in err, err
    return process.returncode, out, [line for line in err.splitlines() if line]  # click ends the line that ^C stands on


def names(folder: Path) -> set[str]:
    """What is in a folder of models besides its locks."""
    return {path.name for path in folder.iterdir()} - {".locks"}


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
    deadline = time.monotonic() + LIMIT_S
    while True:
        found: dict[str, Any] = httpx.get(f"{url}/v1/pull/{name}").json()
        if found["state"] in states:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)

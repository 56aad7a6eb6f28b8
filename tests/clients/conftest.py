"""What tests of the clients ask for.

The page in Chromium hears a recording, with a server of its own for each module.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from liveasr.clients import backoff, line
from liveasr.types import Float32Array
from tests.browser import Visit, chromium
from tests.clients.page import LISTEN_TO_STATUS, LISTEN_TO_VOICE, Scripted
from tests.file_server import Served
from tests.pulls import let_fetch
from tests.scripted import ScriptedServer
from tests.servers import ServerProcess
from tests.sounds import load


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as found:
        yield found


@pytest.fixture(scope="module")
def browser(playwright: Playwright, data: Path) -> Iterator[Browser]:
    with chromium(playwright, data / "digits-clean.wav") as found:
        yield found


@pytest.fixture(scope="module")
def clean(data: Path) -> Float32Array:
    """Three segments: 250-2150, 2790-5150, 5830-7510 ms."""
    return load(data / "digits-clean.wav")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks are noticed and mended within tenths of a second, so that many fit into a test."""
    monkeypatch.setattr(line, "SILENCE_S", 0.6)
    monkeypatch.setattr(line, "CONNECT_S", 1.5)
    monkeypatch.setattr(line, "PING_S", 0.1)
    monkeypatch.setattr(backoff, "FIRST_S", 0.02)
    monkeypatch.setattr(backoff, "LONGEST_S", 0.2)


@pytest.fixture
def visit(browser: Browser, server: ServerProcess) -> Iterator[Visit]:
    with Visit(browser, server.url, script=LISTEN_TO_VOICE) as found:
        yield found


@pytest.fixture
def scripted(visit: Visit) -> Iterator[Scripted]:
    server = ScriptedServer(visit.page)
    page = visit.open()
    expect(page.locator("#model")).to_be_enabled()
    yield Scripted(visit, page, server)
    assert [fault for session in server.sessions for fault in session.faults] == []


# Models that a server fetches.


@pytest.fixture
def folder(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server installs models; it knows `mine` and `other`, which are the built-in one under other names."""
    return let_fetch(monkeypatch, tmp_path, served, sizes_known=True)


@pytest.fixture
def generous(folder: Path) -> Iterator[ServerProcess]:
    """A server that fetches models."""
    assert not folder.exists()
    with ServerProcess("--allow-pull") as process:
        yield process


@pytest.fixture
def fetching(browser: Browser, generous: ServerProcess) -> Iterator[Visit]:
    """Its page, yet to be opened."""
    with Visit(browser, generous.url, script=LISTEN_TO_STATUS) as found:
        yield found

"""The page in Chromium, which hears a recording, with a server of its own for each module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.browser import Visit, chromium
from tests.clients.page import LISTEN_TO_VOICE, Scripted
from tests.scripted import ScriptedServer
from tests.servers import ServerProcess


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

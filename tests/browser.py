"""Chromium with a recording for a microphone, for tests of the page, and what a page did that it should not have."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect

PATIENCE_MS = 60_000
"""Until something that is waited for counts as missing; a machine that others use too may take its time."""
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
)
_ALLOW_MICROPHONE = "--use-fake-ui-for-media-stream"


@contextmanager
def chromium(
    playwright: Playwright, recording: Path, *arguments: str, allow_microphone: bool = True
) -> Iterator[Browser]:
    """A browser whose microphone hears `recording` once, from its beginning each time it is opened, then silence.

    Args:
        playwright: made by `sync_playwright`, of which a thread has one at a time.
        recording: a WAV.
        arguments: more for the command line of Chromium.
        allow_microphone: whether whoever asks gets it; else nobody does.
    """
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("the page is tested in Chromium, which is not here; on Debian: apt-get install chromium")
    flags = [*_FLAGS, *arguments, f"--use-file-for-fake-audio-capture={recording}%noloop"]
    if allow_microphone:
        flags.append(_ALLOW_MICROPHONE)
    expect.set_options(timeout=PATIENCE_MS)
    browser = playwright.chromium.launch(executable_path=executable, args=flags)
    try:
        yield browser
    finally:
        browser.close()


class Visit:
    """A page in a context of its own, closed at the end of a `with` block. It is yet to be opened: `visit.open()`.

    Args:
        browser: made by `chromium`.
        url: of the page.
        script: to run before those of the page.
        settings: of the context, as playwright names them.
    """

    def __init__(self, browser: Browser, url: str, *, script: str | None = None, **settings: Any) -> None:
        self._url = url
        self._context = browser.new_context(**settings)
        self._context.set_default_timeout(PATIENCE_MS)
        if script is not None:
            self._context.add_init_script(script)
        self.page: Page = self._context.new_page()
        self.complaints: list[str] = []
        """Errors and warnings of the console, and exceptions."""
        self.hosts: set[str] = set()
        """That the page asked for anything."""
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._see(request.url))
        self.page.on("websocket", lambda socket: self._see(socket.url))

    def open(self) -> Page:
        """Go there."""
        self.page.goto(self._url)
        return self.page

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _see(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"blob", "data"}:
            self.hosts.add(parts.netloc)

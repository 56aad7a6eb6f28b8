"""The microphone of the page: every way in which it cannot be had, or says nothing, is told."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Playwright, expect

from tests.browser import Visit, chromium
from tests.clients.page import HEARD, expect_state, segments, texts
from tests.servers import ServerProcess


def fake_error(name: str) -> str:
    return f'navigator.mediaDevices.getUserMedia = async () => {{ throw new DOMException("said so", "{name}"); }};'


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NotAllowedError", "The microphone is not allowed"),
        ("NotFoundError", "There is no microphone"),
        ("NotReadableError", "Another program may be using it"),
        ("TypeError", "said so"),
    ],
)
def test_a_microphone_that_cannot_be_had_says_why(
    browser: Browser, server: ServerProcess, name: str, words: str
) -> None:
    with Visit(browser, server.url, script=fake_error(name)) as visit:
        page = visit.open()
        page.click("#toggle")
        expect_state(page, "error")
        expect(page.locator("#notices")).to_contain_text(words)
        expect(page.locator("#toggle")).to_have_text("Start")


def test_a_person_who_denies_the_microphone_is_told_how_to_allow_it(
    playwright: Playwright, data: Path, server: ServerProcess
) -> None:
    with (
        chromium(playwright, data / "digits-clean.wav", allow_microphone=False) as browser,
        Visit(browser, server.url) as visit,
    ):
        page = visit.open()
        page.click("#toggle")
        expect(page.locator("#notices")).to_contain_text("Allow it for this page")
        expect_state(page, "error")


def test_an_address_that_browsers_do_not_trust_names_the_way_out(playwright: Playwright, data: Path) -> None:
    elsewhere = "--host-resolver-rules=MAP liveasr.test 127.0.0.1"
    with (
        ServerProcess("--allow-origin", "http://liveasr.test") as server,
        chromium(playwright, data / "digits-clean.wav", elsewhere) as browser,
        Visit(browser, server.url.replace("127.0.0.1", "liveasr.test")) as visit,
    ):
        page = visit.open()
        expect(page.locator("#notices")).to_contain_text(f"http://localhost:{urlsplit(server.url).port}")
        expect(page.locator("#privacy")).to_contain_text("liveasr.test")


def test_a_microphone_that_is_unplugged_ends_the_captions_cleanly(browser: Browser, server: ServerProcess) -> None:
    keep_tracks = """const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (...wanted) => (window.stream = await ask(...wanted));"""
    with Visit(browser, server.url, script=keep_tracks) as visit:
        page = visit.open()
        page.click("#toggle")
        expect(segments(page)).to_have_count(1)
        page.evaluate("window.stream.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
        expect(page.locator("#notices")).to_contain_text("The microphone is gone")
        expect_state(page, "error")
        assert texts(page)[0] == HEARD[0]


def test_silence_is_remarked_on(browser: Browser, server: ServerProcess) -> None:
    silence = """const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (...wanted) => {
          const stream = await ask(...wanted);
          stream.getAudioTracks()[0].enabled = false;
          return stream;
        };"""
    with Visit(browser, server.url, script=silence) as visit:
        page = visit.open()
        page.click("#toggle")
        expect(page.locator("#notices")).to_contain_text("Nothing is heard")

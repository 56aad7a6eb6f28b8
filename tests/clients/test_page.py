"""The page in Chromium, which hears a recording, with the real server and the built-in model."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import srt
from playwright.sync_api import Browser, expect

from tests.browser import Visit
from tests.clients.page import (
    CONTRAST,
    HEARD,
    LISTEN_TO_VOICE,
    PHONE,
    TOO_SMALL,
    expect_state,
    listen_to_all,
    said,
    segments,
    texts,
)
from tests.proxy import Proxy
from tests.servers import ServerProcess

# What was spoken, with the real server


@pytest.fixture(scope="module")
def spoken(browser: Browser, server: ServerProcess) -> Iterator[Visit]:
    """After a whole recording, and Stop."""
    permissions = ["microphone", "clipboard-read", "clipboard-write"]
    with Visit(browser, server.url, script=LISTEN_TO_VOICE, permissions=permissions) as found:
        listen_to_all(found.open())
        yield found


def test_spoken_digits_stand_on_the_page_in_order(spoken: Visit) -> None:
    assert texts(spoken.page) == HEARD


def test_every_segment_has_its_time_and_its_language(spoken: Visit) -> None:
    times = spoken.page.locator("#transcript time").all_text_contents()
    assert all(re.fullmatch(r"\d\d:\d\d", time) for time in times)
    assert times == sorted(times)
    languages = [item.get_attribute("lang") for item in spoken.page.locator("#transcript p").all()]
    assert languages == ["en"] * len(HEARD)


def test_a_screen_reader_hears_every_final_once_and_no_revision(spoken: Visit) -> None:
    assert said(spoken.page) == HEARD


def test_the_page_asks_nobody_but_its_server_and_makes_no_complaint(spoken: Visit, server: ServerProcess) -> None:
    assert spoken.hosts == {urlsplit(server.url).netloc}
    assert spoken.complaints == []


def test_the_text_is_downloaded_a_line_a_segment(spoken: Visit) -> None:
    with spoken.page.expect_download() as download:
        spoken.page.click("#save-txt")
    assert download.value.suggested_filename.endswith(".txt")
    assert Path(download.value.path()).read_text(encoding="utf-8").splitlines() == HEARD


def test_the_subtitles_are_valid_and_rise(spoken: Visit) -> None:
    with spoken.page.expect_download() as download:
        spoken.page.click("#save-srt")
    assert download.value.suggested_filename.endswith(".srt")
    found = list(srt.parse(Path(download.value.path()).read_text(encoding="utf-8")))
    assert [cue.content for cue in found] == HEARD
    edges = [edge for cue in found for edge in (cue.start, cue.end)]
    assert edges == sorted(edges)
    assert edges[0] >= timedelta(0)


def test_the_text_is_copied(spoken: Visit) -> None:
    spoken.page.click("#copy")
    expect(spoken.page.locator("#feedback")).not_to_be_empty()
    assert spoken.page.evaluate("navigator.clipboard.readText()").splitlines() == HEARD


def test_numbers_stay_words_without_the_figures(visit: Visit) -> None:
    page = visit.open()
    page.get_by_label("figures").uncheck()
    page.click("#toggle")
    expect(segments(page)).to_have_count(1)
    page.click("#toggle")
    expect_state(page, "idle")
    assert texts(page)[0] == "three one four"
    page.reload()
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.get_by_label("figures")).not_to_be_checked()


def test_a_server_that_is_killed_within_a_word_and_comes_back_costs_no_word(browser: Browser) -> None:
    with ServerProcess() as first, Visit(browser, first.url) as visit:
        page = visit.open()
        page.click("#toggle")
        expect(segments(page)).to_have_count(1)
        expect(page.locator("#transcript p").nth(1)).to_contain_text("15")
        first.process.kill()
        first.process.wait()
        expect_state(page, "reconnecting")
        expect(page.locator("#state")).to_have_text("Reconnecting…")
        assert texts(page)[0] == HEARD[0]
        with ServerProcess(port=urlsplit(first.url).port or 0):
            expect_state(page, "listening")
            expect(segments(page)).to_have_count(3)
            page.click("#toggle")
            expect_state(page, "idle")
        assert texts(page) == HEARD
        times = page.locator("#transcript time").all_text_contents()
        assert times == sorted(times)
        assert times[-1] >= "00:05"  # the clock of the page went on


def test_connections_that_are_cut_while_people_speak_cost_no_word(browser: Browser) -> None:
    with (
        ServerProcess() as server,
        Proxy(server.url) as road,
        Visit(browser, road.url, script=LISTEN_TO_VOICE) as visit,
    ):
        page = visit.open()
        page.click("#toggle")
        for _ in range(8):
            expect_state(page, "listening")
            page.wait_for_timeout(400)
            road.cut()
            expect_state(page, "reconnecting")
        expect(segments(page)).to_have_count(len(HEARD))
        page.click("#toggle")
        road.cut()
        expect_state(page, "idle")
        assert texts(page) == said(page) == HEARD
        figures = httpx.get(f"{server.url}/metrics").text
        assert re.search(r"^liveasr_sessions_started_total\S* 1.0$", figures, re.MULTILINE)
        assert re.search(r"^liveasr_sessions_resumed_total ([89]|1\d).0$", figures, re.MULTILINE)


@pytest.fixture(scope="module")
def guarded() -> Iterator[ServerProcess]:
    """A server that wants a token."""
    with ServerProcess(token="open-sesame") as process:  # noqa: S106 - of a test
        yield process


def test_a_token_is_asked_for_until_it_is_right_and_opens_the_page(browser: Browser, guarded: ServerProcess) -> None:
    with Visit(browser, guarded.url) as visit:
        page = visit.open()
        wrong = page.get_by_role("alert")
        expect(wrong).to_have_count(0)
        page.get_by_label("Token").fill("sesame, please")
        page.keyboard.press("Enter")
        expect(wrong).to_have_text("That was not it. Try again.")
        page.get_by_label("Token").fill("open-sesame")
        page.get_by_role("button").click()
        expect(page.locator("#model")).to_be_enabled()
        assert "token" not in page.url
        page.click("#toggle")
        expect(segments(page)).not_to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_form_for_a_token_looks_like_the_page(browser: Browser, guarded: ServerProcess, scheme: str) -> None:
    with Visit(browser, f"{guarded.url}/?token=wrong", color_scheme=scheme, **PHONE) as visit:
        page = visit.open()
        for part in ("h1", "h2", "p", ".wrong", "label", "input", "button"):
            assert page.locator(part).first.evaluate(CONTRAST) >= 4.5, part
        ground = page.locator("html").evaluate("(html) => getComputedStyle(html).backgroundColor")
        assert (int(re.findall(r"\d+", ground)[0]) > 128) == (scheme == "light")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate(TOO_SMALL) == []
        expect(page.get_by_label("Token")).to_be_focused()
        assert not [complaint for complaint in visit.complaints if "401" not in complaint]
        answer = page.request.get(f"{guarded.url}/")
        assert "unsafe" not in answer.headers["content-security-policy"]


def test_the_demonstration_model_is_called_one(visit: Visit) -> None:
    page = visit.open()
    notice = page.locator("#demonstration")
    expect(notice).to_contain_text("ten words")
    page.get_by_text("Get a full model").click()
    expect(notice).to_contain_text("README")


def test_languages_are_named_in_their_own_scripts(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator("#language")).to_be_enabled()
    names = page.locator("#language option").all_text_contents()
    assert names == ["自动 / Auto", "中文", "English", "粤语", "日本語", "한국어"]


# The server, before anything is said


def test_a_refused_request_asks_for_the_token(visit: Visit) -> None:
    visit.page.route("**/v1/models", lambda route: route.fulfill(status=401, body="no"))
    page = visit.open()
    expect(page.locator("#notices")).to_contain_text("This server wants a token")
    page.unroute("**/v1/models")
    page.get_by_label("Token").fill("open-sesame")
    with page.expect_request(re.compile(r"/\?token=open-sesame$")):
        page.get_by_role("button", name="Open").click()
    expect(page.locator("#model")).to_be_enabled()


def test_a_server_that_does_not_answer_can_be_asked_again(visit: Visit) -> None:
    visit.page.route("**/v1/models", lambda route: route.abort())
    page = visit.open()
    expect_state(page, "error")
    expect(page.locator("#notices")).to_contain_text("The server does not answer")
    page.unroute("**/v1/models")
    page.get_by_role("button", name="Try again").click()
    expect_state(page, "idle")
    expect(page.locator(".notice")).to_have_count(0)


@pytest.mark.parametrize("used", [False, True])
def test_start_without_the_server_does_not_blame_the_microphone(browser: Browser, used: bool) -> None:
    with ServerProcess() as server, Visit(browser, server.url) as visit:
        page = visit.open()
        expect(page.locator("#model")).to_be_enabled()
        if used:
            page.click("#toggle")
            expect(segments(page)).to_have_count(1)
            page.click("#toggle")
            expect_state(page, "idle")
        server.process.kill()
        server.process.wait()
        page.click("#toggle")
        expect_state(page, "error")
        expect(page.locator(".notice")).to_have_count(1)
        expect(page.locator(".notice")).to_contain_text("The server does not answer")
        expect(page.locator(".notice")).to_contain_text("Start it there again")
        expect(page.locator("#elapsed")).to_be_empty()
        expect(page.locator("#toggle")).to_have_text("Start")
        with ServerProcess(port=urlsplit(server.url).port or 0):
            page.click("#toggle")
            expect_state(page, "listening")
            expect(page.locator(".notice")).to_have_count(0)


# The client of docs/


def test_the_client_of_forty_lines_captions_as_the_page_does(browser: Browser) -> None:
    documents = Path(__file__).resolve().parents[2] / "docs"
    assert len((documents / "browser-client.html").read_text(encoding="utf-8").splitlines()) <= 40
    with folder_served(documents) as origin, ServerProcess("--allow-origin", origin) as server:
        url = f"{origin}/browser-client.html?server={server.ws_url}"
        with Visit(browser, url, permissions=["microphone"]) as visit:
            page = visit.open()
            page.click("#start")
            expect(page.locator("main p")).to_have_text(["three one four", "one five nine two", "six five"])
            page.click("#stop")
            expect(page.get_by_role("status")).to_have_text("done")
            expect(page.locator("#start")).to_be_enabled()
            assert visit.hosts == {urlsplit(origin).netloc, urlsplit(server.url).netloc}
            assert visit.complaints == []


def test_the_client_of_forty_lines_names_the_origin_that_it_wants_allowed(
    browser: Browser, server: ServerProcess
) -> None:
    with folder_served(Path(__file__).resolve().parents[2] / "docs") as origin:
        url = f"{origin}/browser-client.html?server={server.ws_url}"
        with Visit(browser, url, permissions=["microphone"]) as visit:
            page = visit.open()
            page.click("#start")
            expect(page.get_by_role("status")).to_contain_text(f"--allow-origin {origin}")


@contextmanager
def folder_served(folder: Path) -> Iterator[str]:
    """The origin of a plain web server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

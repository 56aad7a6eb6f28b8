"""The page in Chromium, which hears a recording: with the real server and the built-in model, and, for what a server
seldom does, with one that says what it is told to.
"""

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
from playwright.sync_api import Browser, Playwright, expect

from tests.browser import Visit, chromium
from tests.clients.page import (
    CONTRAST,
    HEARD,
    LISTEN_TO_VOICE,
    PHONE,
    TOO_SMALL,
    Scripted,
    expect_state,
    listen_to_all,
    said,
    segments,
    texts,
)
from tests.proxy import Proxy
from tests.scripted import wait_until
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


# What a server says


def test_committed_and_tentative_text_differ_by_more_than_colour(scripted: Scripted) -> None:
    session = scripted.start()
    session.transcript(0, 1, "The first", " thing to", start_ms=61_000)
    expect(scripted.page.locator(".committed").last).to_have_text("The first")
    tentative = scripted.page.locator("#transcript .tentative")
    expect(tentative).to_have_text("thing to")
    expect(tentative).to_have_css("text-decoration-line", "underline")
    expect(scripted.page.locator("#transcript time")).to_have_text("01:01")
    assert texts(scripted.page) == ["The first thing to"]
    assert said(scripted.page) == []


def test_a_final_replaces_what_was_committed(scripted: Scripted) -> None:
    session = scripted.start()
    session.transcript(0, 1, "the furst", " think")
    session.transcript(0, 2, "the furst think", " to")
    session.final(0, "The first thing to settle.", language="en")
    expect(segments(scripted.page)).to_have_count(1)
    assert texts(scripted.page) == ["The first thing to settle."]
    assert said(scripted.page) == ["The first thing to settle."]


def test_an_empty_final_takes_the_segment_away(scripted: Scripted) -> None:
    session = scripted.start()
    session.transcript(0, 1, "", "hm")
    expect(scripted.page.locator("#transcript li")).to_have_count(1)
    session.final(0, "")
    expect(scripted.page.locator("#transcript li")).to_have_count(0)
    assert said(scripted.page) == []


def test_finals_that_come_late_still_stand_in_order(scripted: Scripted) -> None:
    session = scripted.start()
    session.transcript(1, 1, "", "second", start_ms=2000)
    session.final(0, "first")
    expect(scripted.page.locator("#transcript li")).to_have_count(2)
    assert texts(scripted.page) == ["first", "second"]


def test_chinese_is_marked_as_chinese(scripted: Scripted) -> None:
    session = scripted.start()
    session.final(0, "大家好。", language="zh")
    expect(scripted.page.locator("#transcript p")).to_have_attribute("lang", "zh")


def test_messages_that_nobody_knows_are_ignored(scripted: Scripted) -> None:
    session = scripted.start()
    session.say("weather", sunny=True)
    session.final(0, "still here", colour="green")
    expect(segments(scripted.page)).to_have_text(["00:00still here"])
    assert scripted.visit.complaints == []


def test_stop_sends_stop_and_waits_for_the_last_words(scripted: Scripted) -> None:
    session = scripted.start()
    session.transcript(0, 1, "the last", " words")
    scripted.page.click("#toggle")
    wait_until(scripted.page, lambda: session.stopped)
    expect_state(scripted.page, "finishing")
    numbers = [number for number, _ in session.frames]
    assert numbers == list(range(1, len(numbers) + 1))
    session.final(0, "The last words.")
    session.done()
    expect_state(scripted.page, "idle")
    assert texts(scripted.page) == ["The last words."]
    assert len(scripted.server.sessions) == 1


def test_start_tells_the_choices_and_a_rate_that_the_wire_knows(scripted: Scripted) -> None:
    scripted.page.select_option("#language", "yue")
    start = scripted.start().start
    assert start is not None
    assert (start["model"], start["language"], start["itn"]) == ("digits", "yue", True)
    assert start["audio"]["rate_hz"] in {8000, 16000, 24000, 44100, 48000}


def test_a_lag_is_told(scripted: Scripted) -> None:
    session = scripted.start()
    session.say("lag", lag_ms=2300)
    expect(scripted.page.locator("#lag")).to_have_text("text 2 s behind")
    session.say("overload", lag_ms=9200)
    expect(scripted.page.get_by_text("The text is falling behind")).to_be_visible()
    session.say("lag", lag_ms=200)
    expect(scripted.page.locator("#lag")).to_be_empty()
    expect(scripted.page.locator(".notice")).to_have_count(0)


def test_a_failed_recogniser_ends_the_captions_with_its_message(scripted: Scripted) -> None:
    session = scripted.start()
    session.final(0, "what came before")
    session.fail("engine_failed", "digits: out of memory", 4500)
    expect_state(scripted.page, "error")
    expect(scripted.page.locator("#notices")).to_contain_text("out of memory")
    assert texts(scripted.page) == ["what came before"]
    expect(scripted.page.locator("#toggle")).to_have_text("Start")
    assert len(scripted.server.sessions) == 1


# The microphone


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

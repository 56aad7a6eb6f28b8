"""The page in Chromium, which hears a recording: with the real server and the built-in model, and, for what a server
seldom does, with one that says what it is told to.
"""

import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import srt
from playwright.sync_api import Browser, Locator, Page, Playwright, expect, sync_playwright

from liveasr.clients.subtitles import cues
from liveasr.engines.hotwords import check as check_hotwords
from liveasr.errors import UsageError
from liveasr.types import Transcript, Word
from tests.browser import Visit, chromium
from tests.proxy import Proxy
from tests.scripted import ScriptedServer, ScriptedSession, wait_until
from tests.servers import ServerProcess

HEARD = ["314", "1592", "65"]
PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 740},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
ENGLISH = (
    "The first thing to settle is what happens, when the network goes away; in the middle of a sentence. Because on a "
    'phone it will, won\'t it? (Yes.) And "then" we go on and on and on without any mark at all for a very long time '
    "indeed so that lines must break anywhere"
)
CHINESE = (
    "大家好，今天我们讨论实时字幕的设计，先从麦克风开始，再说到服务器怎样处理每一段声音。"  # noqa: RUF001 - full-width
    "《字幕》是什么？用iPhone 15说明（很简单）。"  # noqa: RUF001 - marks are what Chinese writes
)
KOREAN = "회의를 시작하겠습니다. 자료는 모두 받으셨나요? 그러면 첫 번째 안건부터 천천히 이야기해 보겠습니다"
LISTEN_TO_VOICE = """addEventListener("DOMContentLoaded", () => {
  window.said = [];
  new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) window.said.push(node.textContent);
  }).observe(document.getElementById("voice"), { childList: true, subtree: true, characterData: true });
});"""
"""Keeps what a screen reader is given to say."""
CONTRAST = """(element) => {
  const channels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const light = ([red, green, blue]) => 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  let ground = element;
  while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
  const sides = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor];
  const [dark, bright] = sides.map((colour) => light(channels(colour))).sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}"""
TOO_SMALL = """() => [...document.querySelectorAll("button, select, summary, label.check")]
  .map((element) => [element.id || element.textContent, element.getBoundingClientRect()])
  .filter(([, box]) => box.width > 0 && (box.width < 44 || box.height < 44)).map(([name]) => name)"""


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


@dataclass(frozen=True)
class Scripted:
    """A page that listens to a scripted server."""

    visit: Visit
    page: Page
    server: ScriptedServer

    def start(self) -> ScriptedSession:
        self.page.click("#toggle")
        return self.session(0)

    def session(self, index: int) -> ScriptedSession:
        """The first, second, ... session of the page, once it has begun and sound has come."""
        wait_until(self.page, lambda: len(self.server.sessions) > index and bool(self.server.sessions[index].frames))
        return self.server.sessions[index]


@pytest.fixture
def scripted(visit: Visit) -> Iterator[Scripted]:
    server = ScriptedServer(visit.page)
    page = visit.open()
    expect(page.locator("#model")).to_be_enabled()
    yield Scripted(visit, page, server)
    assert [fault for session in server.sessions for fault in session.faults] == []


def segments(page: Page) -> Locator:
    return page.locator("#transcript li:not(.open)")


def texts(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("#transcript p").all_text_contents()]


def expect_state(page: Page, name: str) -> None:
    expect(page.locator("body")).to_have_attribute("data-state", name)


def said(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.said")
    return found


def listen_to_all(page: Page) -> None:
    page.click("#toggle")
    expect(segments(page)).to_have_count(len(HEARD))
    page.click("#toggle")
    expect_state(page, "idle")


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


# Hot words, where a model takes them

TAKES_HOTWORDS: list[dict[str, Any]] = [
    {"name": "fun-asr-nano", "languages": ["auto", "zh", "en"], "hotwords": True, "max_segment_ms": 15_000},
    {"name": "digits", "languages": ["auto", "en"], "hotwords": False, "max_segment_ms": 20_000},
]


@pytest.fixture
def wordy(visit: Visit) -> Iterator[Scripted]:
    """A page whose server has a model that takes hot words, and one that does not."""
    with wordy_page(visit) as found:
        yield found


@contextmanager
def wordy_page(visit: Visit) -> Iterator[Scripted]:
    visit.page.route("**/v1/models", lambda route: route.fulfill(json={"models": TAKES_HOTWORDS}))
    server = ScriptedServer(visit.page)
    page = visit.open()
    expect(page.locator("#model")).to_be_enabled()
    yield Scripted(visit, page, server)
    assert visit.complaints == []


def test_hot_words_are_offered_by_models_that_take_them_only(wordy: Scripted) -> None:
    field = wordy.page.get_by_label("Hot words")
    expect(field).to_be_visible()
    expect(field).to_have_accessible_description("Names and terms to listen for, with commas between")
    field.fill("Lagrange")
    wordy.page.select_option("#language", "zh")
    wordy.page.select_option("#model", "digits")
    expect(field).to_be_hidden()
    expect(wordy.page.locator("#language option")).to_have_text(["自动 / Auto", "English"])
    start = wordy.start().start
    assert (start["hotwords"], start["language"]) == ([], "auto")


def test_hot_words_are_told_with_the_start_and_stay_while_the_page_is_open(wordy: Scripted) -> None:
    page, field = wordy.page, wordy.page.get_by_label("Hot words")
    field.fill(" Ada Lovelace ,, 通义千问、东京；C++;  ")  # noqa: RUF001 - the marks that Chinese puts between
    page.select_option("#model", "digits")
    page.select_option("#model", "fun-asr-nano")
    session = wordy.start()
    assert (session.start["model"], session.start["hotwords"]) == (
        "fun-asr-nano", ["Ada Lovelace", "通义千问", "东京", "C++"],
    )  # fmt: skip
    expect(field).to_be_disabled()
    page.click("#toggle")
    wait_until(page, lambda: session.stopped)
    session.done()
    expect_state(page, "idle")
    expect(field).to_be_enabled()
    page.click("#toggle")
    assert wordy.session(1).start["hotwords"] == session.start["hotwords"]


def test_hot_words_are_not_kept_for_the_next_visit(wordy: Scripted) -> None:
    wordy.page.get_by_label("Hot words").fill("a secret")
    wordy.page.reload()
    expect(wordy.page.locator("#model")).to_be_enabled()
    expect(wordy.page.get_by_label("Hot words")).to_have_value("")
    assert "secret" not in wordy.page.evaluate("JSON.stringify(localStorage)")


def test_a_hot_word_that_no_server_takes_is_named_before_anything_begins(wordy: Scripted) -> None:
    page, field = wordy.page, wordy.page.get_by_label("Hot words")
    field.fill(f"good, {'x' * 65}")
    page.click("#toggle")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#hotwords-fault")).to_have_text(f"“{'x' * 19}…” has 65 characters; a hot word has at most 64.")
    expect(field).to_have_accessible_description(re.compile("has 65 characters"))
    expect_state(page, "idle")
    assert wordy.server.sessions == []
    field.fill("good, <|im_end|>")
    expect(page.locator("#hotwords-fault")).to_contain_text("holds <|")
    field.fill("good")
    expect(page.locator("#hotwords-fault")).to_be_empty()
    assert field.get_attribute("aria-invalid") is None
    assert wordy.start().start["hotwords"] == ["good"]


def test_the_page_takes_the_hot_words_that_servers_take(visit: Visit) -> None:
    lists: list[list[str]] = [
        [], ["x" * 64], ["x" * 65], ["😀" * 64], ["😀" * 65], ["字"] * 100, ["字"] * 101, ["x" * 50] * 20,
        ["😀" * 50] * 20, [*["x" * 50] * 20, "y"], ["a<|b"], ["a|>b"], ["a|b"], ["<think>"],
        ["a < b"], ["a\u202eb"], ["a\x00"], ["a\x85b"],
        ["a\u2028b"], ["a\u2029b"], ["東京\u3000都"], ["👩\u200d👧"],
    ]  # fmt: skip

    def taken(words: list[str]) -> bool:
        try:
            check_hotwords(words)
        except UsageError:
            return False
        return True

    script = 'async (lists) => { const { faultOf } = await import("/web/hotwords.js"); return lists.map(faultOf); }'
    faults = visit.open().evaluate(script, lists)
    assert [fault == "" for fault in faults] == [taken(words) for words in lists]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [{}, PHONE], ids=["desk", "phone"])
def test_hot_words_fit_and_can_be_read(
    browser: Browser, server: ServerProcess, device: dict[str, Any], scheme: str
) -> None:
    with Visit(browser, server.url, color_scheme=scheme, **device) as visit, wordy_page(visit) as wordy:
        page, field = wordy.page, wordy.page.get_by_label("Hot words")
        field.fill("Lagrange" * 20)
        page.click("#toggle")
        expect(page.locator("#hotwords-fault")).not_to_be_empty()
        for part in ("#hotwords-row label", "#hotwords", "#hotwords-fault"):
            assert page.locator(part).evaluate(CONTRAST) >= 4.5, part
        box, fault = field.bounding_box(), page.locator("#hotwords-fault").bounding_box()
        assert box is not None
        assert fault is not None
        assert box["height"] >= 44
        assert box["width"] > 300
        assert fault["y"] >= box["y"] + box["height"]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hot_words_are_written_and_started_from_the_keyboard(wordy: Scripted) -> None:
    page = wordy.page
    for _ in range(20):
        if page.evaluate("document.activeElement.id") == "hotwords":
            break
        page.keyboard.press("Tab")
    page.keyboard.type("Lagrange, Ada")
    page.keyboard.press("Tab")
    expect(page.locator("#toggle")).to_be_focused()
    page.keyboard.press("Enter")
    assert wordy.session(0).start["hotwords"] == ["Lagrange", "Ada"]


def test_the_empty_page_says_that_nothing_leaves_this_computer(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator("#welcome")).to_contain_text("Nothing leaves this computer")
    expect(page.locator("#toggle")).to_have_text("Start")
    expect(page.locator("#clear")).to_be_disabled()


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


# When a connection breaks


def test_a_session_goes_on_over_another_connection(scripted: Scripted) -> None:
    page, session = scripted.page, scripted.start()
    session.final(0, "before")
    for turn, code in enumerate((1001, 1011, 1012, 1013, 4503)):
        session.ack(0)
        session.transcript(1, 2 * turn + 1, "in" + " the" * turn, " mid")
        expect(page.locator("#transcript .committed").last).to_have_text("in" + " the" * turn)
        session.close(code)
        session.transcript(1, 2 * turn + 2, "in" + " the" * turn, " middle")  # said while the page was away
        page.evaluate("document.querySelector('.notice .action')?.click()")  # to lose no time
        expect(page.locator("#transcript .tentative").last).to_have_text("middle")
    session.close(1012)
    session.final(1, "in the middle")
    session.final(2, "after")
    expect(segments(page)).to_have_count(3)
    expect_state(page, "listening")
    assert texts(page) == said(page) == ["before", "in the middle", "after"]
    assert page.locator(".interrupted").count() == 0
    assert len(scripted.server.sessions) == 1
    assert session.resumed_from == sorted(set(session.resumed_from))
    expect(page.locator(".notice")).to_have_count(0)


def test_sound_that_did_not_arrive_is_sent_again(scripted: Scripted) -> None:
    session = scripted.start()
    wait_until(scripted.page, lambda: sum(any(sound) for _, sound in session.frames) > 15)
    lost = session.lose(8)
    wait_until(scripted.page, lambda: len(session.frames) > lost[-1][0] + 5)
    assert session.frames[lost[0][0] - 1 : lost[-1][0]] == lost
    assert any(any(sound) for _, sound in lost)  # sound, not silence, which is alike everywhere


def test_a_server_that_was_started_anew_gets_what_is_not_settled(scripted: Scripted) -> None:
    page, server, first = scripted.page, scripted.server, scripted.start()
    wait_until(page, lambda: len(first.frames) >= 25)
    first.ack(300)
    first.final(0, "before", start_ms=100, end_ms=537)
    first.transcript(1, 1, "in the", " mid", start_ms=600, end_ms=900)
    expect(page.locator("#transcript .tentative").last).to_have_text("mid")
    server.forget()
    second = scripted.session(1)
    expect_state(page, "listening")
    wait_until(page, lambda: len(second.frames) > 20)
    rest = first.sound[2 * (537 * first.rate_hz // 1000) :]
    assert second.sound.startswith(rest)
    assert any(rest)
    assert texts(page) == ["before", "in the mid"]  # until the words come again
    second.transcript(0, 1, "in", " the middle", start_ms=63, end_ms=800)
    expect(page.locator("#transcript .tentative").last).to_have_text("the middle")
    assert texts(page) == ["before", "in the middle"]
    second.final(0, "in the middle", start_ms=63, end_ms=900)
    second.final(1, "after", start_ms=59_500, end_ms=60_000)
    expect(segments(page)).to_have_count(3)
    assert texts(page) == said(page) == ["before", "in the middle", "after"]
    assert page.locator("#transcript time").all_text_contents() == ["00:00", "00:00", "01:00"]
    assert page.locator(".interrupted").count() == 0


def test_a_word_that_is_not_heard_again_goes(scripted: Scripted) -> None:
    page, first = scripted.page, scripted.start()
    wait_until(page, lambda: len(first.frames) >= 5)
    first.transcript(0, 1, "", "hm", start_ms=100, end_ms=200)
    first.transcript(1, 1, "", "well", start_ms=200, end_ms=5000)
    expect(page.locator("#transcript li")).to_have_count(2)
    scripted.server.forget()
    second = scripted.session(1)
    second.say("ack", number=1, settled_ms=250, heard_ms=250)
    expect(page.locator("#transcript li")).to_have_count(1)
    assert texts(page) == ["well"]
    page.click("#clear")
    second.final(0, "well, then", start_ms=300, end_ms=900)
    expect(page.locator("#transcript li")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".notice")).to_have_count(0)
    assert texts(page) == ["well, then"]


@pytest.mark.parametrize(("code", "error"), [(4411, None), (4413, "session_limit"), (4408, "idle")])
def test_a_session_that_is_over_before_its_time_is_followed_by_another(
    scripted: Scripted, code: int, error: str | None
) -> None:
    page, first = scripted.page, scripted.start()
    first.final(0, "before", start_ms=0, end_ms=100)
    expect(segments(page)).to_have_count(1)
    if error is None:
        first.close(code)
    else:
        first.fail(error, "said the script", code)
    second = scripted.session(1)
    wait_until(page, lambda: len(second.sound) > len(first.sound))
    assert second.sound.startswith(first.sound[2 * (100 * first.rate_hz // 1000) :])
    second.final(0, "after", start_ms=100, end_ms=200)
    expect(segments(page)).to_have_count(2)
    assert texts(page) == ["before", "after"]
    expect(page.locator(".notice")).to_have_count(0)


@pytest.mark.parametrize("code", ["too_many_sessions", "overloaded"])
def test_a_server_that_is_full_is_waited_for_and_the_page_says_so(scripted: Scripted, code: str) -> None:
    page, server = scripted.page, scripted.server
    server.full = code
    page.click("#toggle")
    expect_state(page, "reconnecting")
    expect(page.locator("#notices")).to_contain_text("The server takes no new captions now")
    expect(page.locator("#notices")).to_contain_text(f"said the script: {code}")
    server.full = ""
    page.get_by_role("button", name="Retry now").click()
    session = scripted.session(0)
    server.full = code  # also where a session waits
    session.lose(3)
    wait_until(page, lambda: server.refused > 1)
    server.full = ""
    page.get_by_role("button", name="Retry now").click()
    session.final(0, "all of it")
    expect(segments(page)).to_have_count(1)
    assert len(server.sessions) == 1


def test_a_connection_that_breaks_before_the_session_is_ready_loses_nothing(scripted: Scripted) -> None:
    page, server = scripted.page, scripted.server
    server.mute = True
    page.click("#toggle")
    wait_until(page, lambda: server.refused > 1)
    server.mute = False
    session = scripted.session(0)
    wait_until(page, lambda: len(session.frames) > 20)
    assert session.frames[0][0] == 1
    assert any(session.sound)
    session.transcript(0, 1, "at", " last")
    expect(page.locator("#transcript p")).to_have_text("at last")


def test_a_server_that_shuts_down_well_leaves_nothing_interrupted(scripted: Scripted) -> None:
    page, first = scripted.page, scripted.start()
    wait_until(page, lambda: sum(any(sound) for _, sound in first.frames) > 5)
    first.transcript(0, 1, "almost", " done")
    first.final(0, "almost done")
    first.done("shutdown", 1001)
    heard = {sound for _, sound in first.frames if any(sound)}
    second = scripted.session(1)
    expect_state(page, "listening")
    assert page.locator(".interrupted").count() == 0
    assert heard
    assert heard.isdisjoint(sound for _, sound in second.frames)  # all of it was taken, none is sent again


def test_a_segment_that_a_stopping_server_cuts_short_is_heard_whole_by_the_next(scripted: Scripted) -> None:
    page, first = scripted.page, scripted.start()
    wait_until(page, lambda: len(first.frames) > 25)
    first.final(0, "before", start_ms=0, end_ms=300)
    first.transcript(1, 1, "almost", " do", start_ms=400)
    expect(page.locator("#transcript .tentative").last).to_have_text("do")
    first.shut_down(1, "almost dough", start_ms=400)
    second = scripted.session(1)
    expect_state(page, "listening")
    assert texts(page) == ["before", "almost do"]
    wait_until(page, lambda: len(second.frames) > 30)
    assert second.sound.startswith(first.sound[2 * (300 * first.rate_hz // 1000) :])
    second.final(0, "almost done", start_ms=100)
    expect(segments(page)).to_have_count(2)
    assert texts(page) == said(page) == ["before", "almost done"]
    expect(page.locator(".notice")).to_have_count(0)


def test_a_segment_that_a_stopping_server_cuts_short_stands_if_no_other_comes(scripted: Scripted) -> None:
    page, session = scripted.page, scripted.start()
    wait_until(page, lambda: len(session.frames) > 25)
    session.transcript(0, 1, "almost", " do")
    expect(page.locator("#transcript .tentative")).to_have_text("do")
    scripted.server.down = True
    session.shut_down(0, "almost dough")
    wait_until(page, lambda: scripted.server.refused > 0)
    expect_state(page, "reconnecting")
    assert texts(page) == ["almost do"]
    page.clock.install()
    page.click("#toggle")
    expect_state(page, "finishing")
    page.clock.fast_forward(5_000)
    page.get_by_role("button", name="End now").click()
    expect_state(page, "idle")
    assert texts(page) == said(page) == ["almost dough"]
    assert page.locator(".interrupted").count() == 0


def test_words_in_haste_are_taken_whole_if_their_sound_is_not_kept_whole(scripted: Scripted) -> None:
    page, server = scripted.page, scripted.server
    page.evaluate(DRIVEN)
    page.evaluate("speak(200, 800)")  # 10 s
    wait_until(page, lambda: bool(server.sessions) and len(server.sessions[0].frames) == 200)
    server.down = True
    server.sessions[0].shut_down(0, "in haste")
    page.evaluate("speak(500, 800)")  # 25 s: half of the segment is not kept any more
    server.down = False
    wait_until(page, lambda: len(server.sessions) > 1 and len(server.sessions[1].frames) == 500)
    assert counted(700 * 800).endswith(server.sessions[1].sound)
    assert page.evaluate("[seen.texts, seen.lost]") == [["in haste"], 0]


def test_a_stopping_server_that_has_heard_all_has_the_last_word(scripted: Scripted) -> None:
    page, session = scripted.page, scripted.start()
    page.click("#toggle")
    wait_until(page, lambda: session.stopped)
    session.shut_down(0, "all of it")
    expect_state(page, "idle")
    assert texts(page) == ["all of it"]
    assert len(scripted.server.sessions) == 1


@pytest.mark.parametrize("forgotten", [False, True])
def test_stop_while_reconnecting_still_brings_the_last_words(scripted: Scripted, forgotten: bool) -> None:
    page, server, session = scripted.page, scripted.server, scripted.start()
    session.transcript(0, 1, "the last", " wo")
    expect(page.locator("#transcript p")).to_have_text("the last wo")
    server.down = True
    lost = session.lose(2)
    wait_until(page, lambda: server.refused > 0)
    expect_state(page, "reconnecting")
    page.click("#toggle")
    expect_state(page, "finishing")
    expect(page.get_by_role("button", name="Retry now")).to_be_visible()
    if forgotten:
        server.forget()
    server.down = False
    last = scripted.session(1) if forgotten else session
    wait_until(page, lambda: last.stopped)
    if not forgotten:
        assert last.frames[lost[0][0] - 1 : lost[-1][0]] == lost
    last.final(0, "the last words")
    last.done()
    expect_state(page, "idle")
    assert texts(page) == ["the last words"]
    expect(page.locator(".notice")).to_have_count(0)


def test_a_connection_that_breaks_after_stop_still_brings_the_last_words(scripted: Scripted) -> None:
    page, session = scripted.page, scripted.start()
    page.click("#toggle")
    wait_until(page, lambda: session.stopped)
    session.close(1012)
    session.final(0, "the last words")
    wait_until(page, lambda: len(session.resumed_from) == 1)
    expect_state(page, "finishing")
    session.close(1012)
    session.done()
    expect_state(page, "idle")
    assert texts(page) == ["the last words"]
    assert session.resumed_from == [1, 2]


def test_whoever_does_not_wait_for_the_last_words_is_told_what_is_missing(visit: Visit) -> None:
    scripted = Scripted(visit, visit.page, ScriptedServer(visit.page))
    page = visit.open()
    expect(page.locator("#model")).to_be_enabled()
    session = scripted.start()
    session.final(0, "kept", start_ms=0, end_ms=10)
    session.transcript(1, 1, "in the", " middle", start_ms=10)
    expect(page.locator("#transcript li")).to_have_count(2)
    wait_until(page, lambda: len(session.frames) > 25)
    scripted.server.down = True
    session.close(1012)
    expect_state(page, "reconnecting")
    page.clock.install()
    page.click("#toggle")
    expect_state(page, "finishing")
    expect(page.locator("#toggle")).to_have_attribute("aria-disabled", "true")
    page.clock.fast_forward(5_000)
    page.get_by_role("button", name="End now").click()
    expect_state(page, "idle")
    expect(page.locator("#notices")).to_contain_text("is not complete: there was no connection")
    assert texts(page) == ["kept", "in the middle"]
    expect(page.locator("#transcript li.interrupted")).to_have_count(1)


def test_whoever_does_not_want_to_wait_can_try_at_once(scripted: Scripted) -> None:
    session = scripted.start()
    scripted.server.down = True
    session.close(1012)
    retry = scripted.page.get_by_role("button", name="Retry now")
    expect(retry).to_be_visible()
    while scripted.server.refused < 4:
        retry.click()
        scripted.page.wait_for_timeout(50)
    scripted.server.down = False  # from now on the waits are long
    retry.click()
    wait_until(scripted.page, lambda: bool(session.resumed_from))
    expect_state(scripted.page, "listening")
    expect(retry).to_be_hidden()


DRIVEN = """async () => {
  const { Captioner } = await import("/web/captioner.js");
  const seen = (window.seen = { sessions: [], texts: [], lost: 0, ended: null });
  let sample = 0;
  const handlers = {
    state() {}, lag() {}, settled() {},
    connection: (trouble) => trouble && setTimeout(() => captioner.retry()),
    session: (atMs) => seen.sessions.push(atMs),
    transcript: ({ final, text }) => final && seen.texts.push(text),
    lost: (ms) => (seen.lost += ms),
    ended: (end) => (seen.ended = end),
  };
  window.captioner = new Captioner("/v1/stream", { model: "digits", audio: { rate_hz: 16000 } }, handlers);
  window.speak = (count, length) => {
    for (; count > 0; count -= 1) captioner.take(Int16Array.from({ length }, () => (sample = (sample + 1) % 30011)));
  };
}"""
"""Captions without a microphone: what is said are numbers that count up, so that every sample is told from others."""


def counted(size: int) -> bytes:
    """The first samples that are said."""
    return b"".join((number % 30011).to_bytes(2, "little") for number in range(1, size + 1))


def test_no_sample_is_lost_or_taken_twice_whenever_connections_break(scripted: Scripted) -> None:
    page, server = scripted.page, scripted.server
    for seed in range(8):
        chance = random.Random(seed)  # noqa: S311 - nothing is kept secret by it
        before = len(server.sessions)
        page.evaluate(DRIVEN)
        size = 0
        finals: list[str] = []
        for _ in range(40):
            count, length = chance.randint(1, 9), chance.choice((160, 801, 3_333))
            page.evaluate("([count, length]) => speak(count, length)", [count, length])
            size += count * length
            here = server.sessions[-1] if len(server.sessions) > before else None
            if here is None or not here.connected:
                continue
            settled_ms = chance.randint(here.settled // 16, len(here.sound) // 32)
            match chance.randint(0, 9):
                case 0 | 1:
                    here.ack(settled_ms)
                case 2 | 3:
                    finals.append(f"final {len(finals)}")
                    here.final(len(finals), finals[-1], end_ms=settled_ms)
                case 4 | 5:
                    here.lose(chance.randint(0, here.unsettled))
                case 6:
                    server.forget()
                case 7:
                    here.close(4411)
                case 8:
                    here.shut_down(len(finals), "cut sh")
                case _:
                    server.mute = not server.mute
        server.mute = False
        page.evaluate("captioner.stop()")
        wait_until(page, lambda: server.sessions[-1].stopped and server.sessions[-1].connected)
        server.sessions[-1].done()
        page.wait_for_function("seen.ended !== null")
        sessions = server.sessions[before:]
        assert b"".join(each.sound[: 2 * each.settled] for each in sessions) == counted(size), seed
        seen = page.evaluate("seen")
        assert seen["texts"] == finals, seed
        begins = accumulate((each.settled for each in sessions[:-1]), initial=0)
        assert sorted(set(seen["sessions"])) == sorted({(begin * 2 + 16) // 32 for begin in begins}), seed
        assert (seen["lost"], seen["ended"]) == (0, {"error": None, "lostMs": 0}), seed


def test_sound_of_longer_than_is_kept_is_told_to_be_lost(scripted: Scripted) -> None:
    page, server = scripted.page, scripted.server
    page.evaluate(DRIVEN)
    page.evaluate("speak(100, 800)")  # 5 s
    wait_until(page, lambda: bool(server.sessions) and len(server.sessions[0].frames) == 100)
    server.down = True
    server.sessions[0].close(1012)
    page.evaluate("speak(800, 800)")  # 40 s
    server.down = False
    first = server.sessions[0]
    wait_until(page, lambda: first.stopped)  # it cannot go on: what comes next is not kept
    assert len(first.frames) == 100
    first.final(0, "as far as it goes", end_ms=5000)
    first.done()
    wait_until(page, lambda: len(server.sessions) > 1 and len(server.sessions[1].frames) == 600)
    assert counted(900 * 800).endswith(server.sessions[1].sound)
    assert page.evaluate("[seen.sessions, seen.lost]") == [[0, 15_000], 10_000]


def test_a_longer_segment_is_kept_whole(scripted: Scripted) -> None:
    page, server = scripted.page, scripted.server
    page.evaluate(DRIVEN.replace("audio:", "vad: { max_segment_ms: 60000 }, audio:"))
    page.evaluate("speak(1400, 800)")  # 70 s
    wait_until(page, lambda: bool(server.sessions) and len(server.sessions[0].frames) == 1400)
    server.forget()
    wait_until(page, lambda: len(server.sessions) > 1 and len(server.sessions[1].frames) == 1400)


def test_a_session_without_sound_pings_before_it_is_idle(visit: Visit) -> None:
    server = ScriptedServer(visit.page, idle_s=0.3)
    page = visit.open()
    page.evaluate(
        """async () => {
          const { Session } = await import("/web/session.js");
          window.session = new Session("/v1/stream", { model: "digits" }, { closed: () => (window.over = true) });
        }"""
    )
    wait_until(page, lambda: bool(server.sessions) and server.sessions[0].pings > 5)
    page.evaluate("session.stop()")
    pings = server.sessions[0].pings
    wait_until(page, lambda: server.sessions[0].pings > pings + 2)
    assert page.evaluate("window.over") is None


def test_a_network_that_went_away_without_a_word_is_noticed(scripted: Scripted) -> None:
    page, server = scripted.page, scripted.server
    page.clock.install()
    page.evaluate(DRIVEN)
    page.evaluate("speak(1, 800)")
    wait_until(page, lambda: bool(server.sessions) and bool(server.sessions[0].frames))
    session = server.sessions[0]

    def pass_time_until(condition: Callable[[], bool]) -> None:
        for _ in range(20):
            if condition():
                return
            page.clock.run_for(4_000)
            page.wait_for_timeout(50)
        raise AssertionError("waited in vain")

    pass_time_until(lambda: session.pings > 3)
    assert session.resumed_from == []  # nothing was said for long, but pings were answered
    session.deaf = True
    page.evaluate("speak(2, 800)")
    pass_time_until(lambda: len(session.frames) == 3)
    assert len(session.resumed_from) == 1


def test_waits_double_up_to_eight_seconds_and_differ(visit: Visit) -> None:
    page = visit.open()
    waits = page.evaluate(
        """async () => {
          const { waitMs } = await import("/web/captioner.js");
          return [0, 0.5, 1].map((chance) => [0, 1, 2, 3, 4, 9].map((failures) => waitMs(failures, () => chance)));
        }"""
    )
    assert waits[1] == [500, 1000, 2000, 4000, 8000, 8000]
    assert all(low < middle < high for low, middle, high in zip(*waits, strict=True))


def test_clear_takes_everything_away_and_undo_brings_it_back(scripted: Scripted) -> None:
    session = scripted.start()
    session.final(0, "one")
    session.final(1, "two")
    expect(segments(scripted.page)).to_have_count(2)
    scripted.page.click("#clear")
    expect(scripted.page.locator("#transcript li")).to_have_count(0)
    expect(scripted.page.locator("#copy")).to_be_disabled()
    scripted.page.get_by_role("button", name="Undo").click()
    expect(segments(scripted.page)).to_have_count(2)
    assert texts(scripted.page) == ["one", "two"]


def test_undo_goes_away_by_itself_unless_it_is_about_to_be_pressed(scripted: Scripted) -> None:
    page, session = scripted.page, scripted.start()
    session.final(0, "one")
    expect(segments(page)).to_have_count(1)
    page.clock.install()
    page.click("#clear")
    undo = page.get_by_role("button", name="Undo")
    page.clock.run_for(8_000)
    undo.focus()
    page.clock.run_for(8_000)
    expect(undo).to_be_visible()
    undo.blur()
    page.clock.run_for(8_000)
    expect(undo).to_have_count(0)


def test_a_second_run_goes_on_below_with_later_times(scripted: Scripted) -> None:
    session = scripted.start()
    session.final(0, "first run")
    wait_until(scripted.page, lambda: len(session.frames) > 25)
    scripted.page.click("#toggle")
    wait_until(scripted.page, lambda: session.stopped)
    session.done()
    expect_state(scripted.page, "idle")
    scripted.page.click("#toggle")
    scripted.session(1).final(0, "second run")
    expect(segments(scripted.page)).to_have_count(2)
    assert texts(scripted.page) == ["first run", "second run"]
    expect(scripted.page.locator("#transcript time").last).not_to_have_text("00:00")


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


# How it looks and how it is used


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_words_can_be_read_in_the_light_and_in_the_dark(
    browser: Browser, server: ServerProcess, scheme: str
) -> None:
    with Visit(browser, server.url, color_scheme=scheme) as visit:
        scripted = Scripted(visit, visit.page, ScriptedServer(visit.page))
        page = visit.open()
        expect(page.locator("#model")).to_be_enabled()
        for part in ("h1", "#welcome h2", "#privacy", "#demonstration p", "#demonstration summary", "#verb", "#state"):
            assert page.locator(part).first.evaluate(CONTRAST) >= 4.5, part
        session = scripted.start()
        session.transcript(0, 1, "committed", " tentative")
        session.say("overload", lag_ms=9200)
        expect(page.locator(".notice")).to_be_visible()
        for part in (".committed", ".tentative", "time", "#elapsed", "#lag", ".notice p", "#verb", "#copy"):
            assert page.locator(f"{part} >> visible=true").last.evaluate(CONTRAST) >= 4.5, part
        session.fail("engine_failed", "out of memory", 4500)
        expect_state(page, "error")
        for part in ("#state", ".detail", ".interrupted p"):
            assert page.locator(part).last.evaluate(CONTRAST) >= 4.5, part
        ground = page.locator("html").evaluate("(html) => getComputedStyle(html).backgroundColor")
        assert (int(re.findall(r"\d+", ground)[0]) > 128) == (scheme == "light")


def test_a_phone_never_scrolls_sideways_and_its_buttons_fit_a_thumb(browser: Browser, server: ServerProcess) -> None:
    with Visit(browser, server.url, **PHONE) as visit:
        scripted = Scripted(visit, visit.page, ScriptedServer(visit.page))
        page = visit.open()
        expect(page.locator("#model")).to_be_enabled()
        page.get_by_text("Get a full model").click()

        def check() -> None:
            assert page.evaluate("document.documentElement.scrollWidth") == 360
            assert page.evaluate(TOO_SMALL) == []

        check()
        for name in ("Language", "Model"):
            label = page.locator("header span").get_by_text(name, exact=True).bounding_box()
            select = page.locator(f"#{name.lower()}").bounding_box()
            assert label is not None
            assert select is not None
            assert label["width"] > 30
            assert label["y"] + label["height"] <= select["y"]
        session = scripted.start()
        session.final(0, "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenverordnung" * 2, language="de")
        session.final(1, CHINESE, language="zh")
        session.say("lag", lag_ms=123_456)
        expect(segments(page)).to_have_count(2)
        check()
        session.fail("internal", "x" * 200, 1011)
        expect(page.locator(".notice")).to_be_visible()
        check()
        box = page.locator("#controls").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 740  # in sight, wherever the text is


def test_everything_can_be_done_from_the_keyboard(scripted: Scripted) -> None:
    page = scripted.page

    def tab_to(id_: str) -> None:
        for _ in range(20):
            if page.evaluate("document.activeElement.id") == id_:
                break
            page.keyboard.press("Tab")
        expect(page.locator(f"#{id_}")).to_be_focused()
        assert page.locator(f"#{id_}").evaluate("(element) => getComputedStyle(element).outlineStyle") == "solid"

    tab_to("language")
    tab_to("toggle")
    page.keyboard.press("Space")
    session = scripted.session(0)
    session.final(0, "by hand")
    expect_state(page, "listening")
    page.keyboard.press("Enter")
    wait_until(page, lambda: session.stopped)
    session.done()
    expect_state(page, "idle")
    expect(page.locator("#toggle")).to_be_focused()
    tab_to("save-txt")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert Path(download.value.path()).read_text(encoding="utf-8") == "by hand\n"


def test_the_newest_words_stay_in_sight_until_someone_scrolls_up(scripted: Scripted) -> None:
    page = scripted.page
    session = scripted.start()
    for index in range(60):
        session.final(index, f"segment number {index}", start_ms=index * 1000)
    expect(page.locator("#transcript").get_by_text("segment number 59")).to_be_in_viewport()
    expect(page.locator("#newest")).to_be_hidden()
    page.mouse.move(300, 300)
    page.mouse.wheel(0, -1200)
    expect(page.locator("#newest")).to_be_visible()
    where = page.evaluate("scrollY")
    session.final(60, "segment number 60", start_ms=60_000)
    expect(segments(page)).to_have_count(61)
    assert page.evaluate("scrollY") == where
    page.click("#newest")
    expect(page.locator("#transcript").get_by_text("segment number 60")).to_be_in_viewport()
    expect(page.locator("#newest")).to_be_hidden()


def test_nothing_moves_for_those_who_asked_for_that(browser: Browser, server: ServerProcess) -> None:
    with Visit(browser, server.url, reduced_motion="reduce") as visit:
        scripted = Scripted(visit, visit.page, ScriptedServer(visit.page))
        visit.open()
        scripted.start()
        expect_state(visit.page, "listening")
        assert visit.page.evaluate("document.getAnimations().length") == 0


# Subtitles are those of `liveasr transcribe`


def timed(text: str, tokens: list[str], gaps_ms: tuple[int, ...]) -> Transcript:
    words = []
    at_ms = 500
    for index, token in enumerate(tokens):
        words.append(Word(token, at_ms, at_ms + 60 + 10 * len(token)))
        at_ms = words[-1].end_ms + gaps_ms[index % len(gaps_ms)]
    return Transcript(0, text, tuple(words), 500, at_ms if words else 12_000)


def test_subtitles_are_cut_as_those_of_recordings(visit: Visit) -> None:
    characters = re.findall(r"[《（]?[\u4e00-\u9fff][，。？》）]*|[A-Za-z]+|\d+", CHINESE)  # noqa: RUF001
    spelt = [
        (ENGLISH, ENGLISH.split()),
        (CHINESE, characters),
        (KOREAN, [letter for letter in KOREAN if letter != " "]),
        ("x" * 100 + " yes", ["x" * 100, "yes"]),
        ("hm", ["hm"]),
        ("", []),
    ]
    transcripts = [
        timed(text, tokens, gaps_ms)
        for text, known in spelt
        for tokens in (known, [])
        for gaps_ms in ((0,), (20, 700, 60), (90, 250, 10, 400, 130))
    ]
    plain: list[dict[str, Any]] = [
        {
            "text": each.text,
            "startMs": each.start_ms,
            "endMs": each.end_ms,
            "words": [{"text": word.text, "startMs": word.start_ms, "endMs": word.end_ms} for word in each.words],
        }
        for each in transcripts
    ]
    found = visit.open().evaluate('async (all) => all.map((await import("/web/cues.js")).cues)', plain)
    expected = [
        [{"startMs": cue.start_ms, "endMs": cue.end_ms, "lines": list(cue.lines)} for cue in cues(each)]
        for each in transcripts
    ]
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


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

"""How the page looks and how it is used, and the subtitles that it writes, which are those of `liveasr transcribe`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from liveasr.clients.subtitles import cues
from liveasr.types import Transcript, Word
from tests.browser import Visit
from tests.clients.page import (
    CONTRAST,
    PHONE,
    TOO_SMALL,
    Scripted,
    expect_state,
    segments,
)
from tests.scripted import ScriptedServer, wait_until
from tests.servers import ServerProcess

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

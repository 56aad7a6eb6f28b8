"""Hot words on the page, where a model takes them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from liveasr.engines.hotwords import check as check_hotwords
from liveasr.errors import UsageError
from tests.browser import Visit
from tests.clients.page import CONTRAST, PHONE, Scripted, expect_state
from tests.scripted import ScriptedServer, wait_until
from tests.servers import ServerProcess

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

"""Models that the page has its server fetch: with the real server, and a source that does what a test wants."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from liveasr import store
from tests.browser import Visit
from tests.clients.page import CONTRAST, HEARD, PHONE, TOO_SMALL, expect_state, listen_to_all, segments, texts
from tests.file_server import Served, serving
from tests.models import register
from tests.pulls import let_fetch, pulled
from tests.scripted import wait_until
from tests.servers import ServerProcess

CONTENT = store.built_in("digits").read_bytes()
LISTEN = """addEventListener("DOMContentLoaded", () => {
  window.heard = [];
  for (const region of document.querySelectorAll("[role=status]")) {
    const listening = new MutationObserver(() => window.heard.push(region.textContent));
    listening.observe(region, { childList: true, subtree: true });
  }
});"""
"""Keeps what the live regions say."""


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(CONTENT) as source:
        yield source


@pytest.fixture
def folder(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server installs models; it knows `mine` and `other`, which are the built-in one under other names."""
    models = let_fetch(monkeypatch, tmp_path)
    for name in ("mine", "other"):
        register(f'url = "{served.url}/{name}.gguf", size-bytes = {len(CONTENT)}', name=name)
    return models


@pytest.fixture
def generous(folder: Path) -> Iterator[ServerProcess]:
    """A server that fetches models."""
    assert not folder.exists()
    with ServerProcess("--allow-pull") as process:
        yield process


@pytest.fixture
def visit(browser: Browser, generous: ServerProcess) -> Iterator[Visit]:
    with Visit(browser, generous.url, script=LISTEN) as found:
        yield found


def row(page: Page, name: str = "mine") -> Locator:
    return page.locator("#pull li").filter(has=page.get_by_role("heading", name=name, exact=True))


def button(page: Page, verb: str, name: str = "mine") -> Locator:
    return page.get_by_role("button", name=f"{verb} {name}", exact=True)


def has_come(page: Page) -> None:
    """Wait until the bar shows a part of the file."""
    wait_until(page, lambda: 0 < float(row(page).locator("progress").get_attribute("value") or 0) < len(CONTENT))


def test_a_model_is_fetched_with_a_bar_then_chosen_then_captions_digits(
    visit: Visit, generous: ServerProcess, served: Served
) -> None:
    served.pace_s = 0.1
    page = visit.open()
    expect(page.locator("#pull h2")).to_have_text("Get a full model")
    expect(row(page)).to_contain_text("English")
    expect(row(page)).to_contain_text("3.1 MB · Licence: MIT")
    expect(page.get_by_role("progressbar")).to_have_count(0)
    button(page, "Download").click()
    bar = page.get_by_role("progressbar", name="Download of mine")
    expect(bar).to_be_visible()
    has_come(page)
    assert bar.get_attribute("max") == str(len(CONTENT))
    assert re.match(r"\d\.\d MB of 3\.1 MB", bar.get_attribute("aria-valuetext") or "")
    expect(row(page).locator(".numbers")).to_have_text(
        re.compile(r"^\d\.\d MB of 3\.1 MB · \d[\d.]* [kM]B/s · \d+ s left$")
    )
    expect(page.locator("#model")).to_have_value("digits")
    expect(page.locator("#model")).to_have_value("mine")
    expect(page.locator("#demonstration")).to_be_hidden()
    expect(page.locator("#notices")).to_contain_text("mine is here")
    expect(page.locator("#pull")).to_be_hidden()
    listen_to_all(page)
    assert texts(page) == HEARD
    figures = httpx.get(f"{generous.url}/metrics").text
    assert 'liveasr_sessions_started_total{model="mine"} 1.0' in figures
    assert 'liveasr_sessions_started_total{model="digits"}' not in figures
    assert visit.complaints == []
    assert visit.hosts == {urlsplit(generous.url).netloc}
    page.reload()
    expect(page.locator("#model")).to_have_value("mine")  # kept, as what is chosen by hand


def test_a_failed_fetch_says_why_and_is_tried_again(visit: Visit, served: Served) -> None:
    served.status = 404
    page = visit.open()
    button(page, "Download").click()
    fault = row(page).locator(".fault")
    expect(fault).to_have_text(f"That failed: {served.url.removeprefix('http://')} has no /mine.gguf.")
    assert f"mine: {fault.text_content()}" in page.evaluate("window.heard")
    served.status = None
    button(page, "Try again").click()
    expect(page.locator("#model")).to_have_value("mine")
    assert visit.complaints == []


def test_what_is_stopped_halfway_is_gone_on_with(visit: Visit, served: Served, folder: Path) -> None:
    served.pace_s = 0.2
    page = visit.open()
    button(page, "Download").click()
    has_come(page)
    button(page, "Cancel").click()
    expect(row(page).locator(".facts")).to_have_text(re.compile(r"^[\d.]+ [kM]B of 3\.1 MB are here · Licence: MIT$"))
    expect(page.get_by_role("progressbar")).to_have_count(0)
    page.reload()
    served.pace_s = 0
    button(page, "Resume").click()
    expect(page.locator("#model")).to_have_value("mine")
    assert [start > 0 for _, _, start in served.asked] == [False, True]
    assert (folder / "mine.gguf").read_bytes() == CONTENT


def test_a_model_that_is_on_the_server_already_is_only_taken(visit: Visit, served: Served, folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.gguf").write_bytes(CONTENT)
    page = visit.open()
    expect(row(page)).to_contain_text("On the server already")
    button(page, "Use").click()
    expect(page.locator("#model")).to_have_value("mine")
    assert served.asked == []


def test_another_model_waits_for_the_one_on_its_way_and_says_so(visit: Visit, served: Served) -> None:
    served.pace_s = 0.1
    page = visit.open()
    button(page, "Download").click()
    has_come(page)
    button(page, "Download", "other").click()
    fault = page.locator("#pull-fault")
    expect(fault).to_have_text("The server fetches one model at a time, and mine is on its way; try again later.")
    came = row(page).locator("progress").get_attribute("value")
    wait_until(page, lambda: row(page).locator("progress").get_attribute("value") != came)
    expect(fault).to_contain_text("try again later")  # whatever was told of the other since
    expect(page.locator("#model")).to_have_value("mine")
    page.click("#more")
    expect(fault).to_be_empty()
    served.pace_s = 0
    button(page, "Download", "other").click()
    expect(page.locator("#model")).to_have_value("other")


def test_a_model_that_comes_while_someone_speaks_is_chosen_afterwards(visit: Visit, served: Served) -> None:
    served.pace_s = 0.06
    page = visit.open()
    button(page, "Download").click()
    page.click("#toggle")
    expect(page.get_by_role("progressbar", name="Download of mine")).to_be_visible()
    expect(row(page, "other")).to_be_hidden()
    expect(page.locator("#more")).to_be_disabled()
    expect(page.locator("#notices")).to_contain_text("It is chosen as soon as you stop.")
    expect(page.locator("#model")).to_have_value("digits")
    expect(page.locator("#model")).to_be_disabled()
    expect(segments(page)).to_have_count(len(HEARD))
    page.click("#toggle")
    expect_state(page, "idle")
    assert texts(page) == HEARD
    expect(page.locator("#model")).to_have_value("mine")
    expect(page.locator("#model")).to_be_enabled()


def test_other_pages_see_it_come_and_keep_what_they_have_chosen(
    browser: Browser, visit: Visit, generous: ServerProcess, served: Served
) -> None:
    served.pace_s = 0.1
    page = visit.open()
    button(page, "Download", "other").click()
    expect(page.locator("#model")).to_have_value("other")
    page.click("#more")
    button(page, "Download").click()
    with Visit(browser, generous.url) as fresh, Visit(browser, generous.url) as settled:
        for each in (fresh, settled):
            expect(each.open().get_by_role("progressbar", name="Download of mine")).to_be_visible()
        settled.page.select_option("#model", "other")
        expect(settled.page.get_by_role("progressbar", name="Download of mine")).to_be_visible()
        expect(fresh.page.locator("#model")).to_have_value("mine")
        expect(settled.page.locator("#model option")).to_have_text(["digits", "other", "mine"])
        expect(settled.page.locator("#model")).to_have_value("other")


def test_a_server_that_goes_away_is_told_and_comes_back_by_itself(
    browser: Browser, generous: ServerProcess, served: Served
) -> None:
    served.pace_s = 0.2
    with Visit(browser, generous.url) as visit:
        page = visit.open()
        button(page, "Download").click()
        has_come(page)
        generous.process.kill()
        generous.process.wait()
        expect(page.locator("#pull-fault")).to_have_text("The server does not answer.")
        served.pace_s = 0
        with ServerProcess("--allow-pull", port=urlsplit(generous.url).port or 0):
            expect(button(page, "Resume")).to_be_visible()
            expect(page.locator("#pull-fault")).to_be_empty()
            button(page, "Resume").click()
            expect(page.locator("#model")).to_have_value("mine")
    assert served.asked[-1][2] > 0


# Who may not.


def test_without_leave_the_page_names_the_command_and_copies_it(browser: Browser, server: ServerProcess) -> None:
    with Visit(browser, server.url, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.open()
        expect(page.locator("#model")).to_be_enabled()
        page.get_by_text("Get a full model").click()
        expect(page.locator("#demonstration")).to_contain_text("liveasr serve --allow-pull")
        expect(page.locator("#demonstration pre")).to_have_text(store.download_command())
        page.get_by_role("button", name="Copy the command").click()
        expect(page.locator("#feedback")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == store.download_command()
        expect(page.locator("#more")).to_be_hidden()
        expect(page.locator("#pull")).to_be_hidden()
        assert visit.complaints == []


def test_a_page_of_another_site_cannot_have_anything_fetched(
    browser: Browser, generous: ServerProcess, served: Served
) -> None:
    form = f'<form method="post" action="{generous.url}/v1/pull/mine"><button>win</button></form>'
    with Visit(browser, "http://evil.test/") as visit:
        visit.page.route("http://evil.test/", lambda route: route.fulfill(body=form, content_type="text/html"))
        page = visit.open()
        for policy in ("strict-origin", "no-referrer"):
            page.evaluate(
                """async ([url, referrerPolicy]) => {
                  for (const mode of ["no-cors", "cors"])
                    await fetch(url, { method: "POST", mode, referrerPolicy, credentials: "include" }).catch(() => {});
                }""",
                [f"{generous.url}/v1/pull/mine", policy],
            )
        with page.expect_response(f"{generous.url}/v1/pull/mine") as response:
            page.click("button")
        assert response.value.status == 403
    assert pulled(generous.url, "mine", "available")
    assert served.asked == []


# How it looks, and is used.


def test_everything_can_be_done_from_the_keyboard_and_is_said(visit: Visit, served: Served) -> None:
    served.pace_s = 0.1
    page = visit.open()
    expect(button(page, "Download")).to_be_visible()
    for _ in range(20):
        if button(page, "Download").evaluate("(element) => element === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(button(page, "Cancel")).to_be_focused()  # the same place, for whoever thinks better of it
    has_come(page)
    page.keyboard.press("Enter")
    expect(button(page, "Resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#model")).to_have_value("mine")
    expect(page.locator("#model")).to_be_focused()
    heard = [words for words in page.evaluate("window.heard") if "mine" in words]
    assert heard[:3] == ["mine is being downloaded.", "The download of mine was stopped.", "mine is being downloaded."]
    assert "mine is here" in heard[-1]
    assert len(heard) == 4  # and no numbers
    more = page.get_by_role("button", name="Get another model")
    expect(more).to_have_attribute("aria-expanded", "false")
    more.focus()
    page.keyboard.press("Enter")
    expect(more).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("region", name="Get another model")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#pull")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_and_fits_a_phone(
    browser: Browser, generous: ServerProcess, served: Served, scheme: str
) -> None:
    def check(*parts: str) -> None:
        for part in parts:
            assert page.locator(f"{part} >> visible=true").first.evaluate(CONTRAST) >= 4.5, part
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate(TOO_SMALL) == []

    with Visit(browser, generous.url, color_scheme=scheme, reduced_motion="reduce", **PHONE) as visit:
        page = visit.open()
        expect(button(page, "Download")).to_be_visible()
        check("#pull h2", "#pull-where", "#pull h3", ".languages", ".facts", "#pull button", "#more span")
        served.status = 404
        button(page, "Download").click()
        expect(row(page).locator(".fault")).not_to_be_empty()
        check(".fault")
        served.status, served.stall_at = None, [200_000]
        button(page, "Try again").click()
        has_come(page)
        check(".numbers", "#pull button")
        button(page, "Download", "other").click()
        expect(page.locator("#pull-fault")).not_to_be_empty()
        check("#pull-fault")
        assert page.evaluate("document.getAnimations().length") == 0
        page.click("#toggle")
        expect(segments(page)).not_to_have_count(0)
        check(".numbers")


WORDS = [  # number, files, came, total, speed, left
    ((1, 1, 0, None, None, None), "0.0 MB"),
    ((1, 1, 12_345, 254_000_000, 900, 282_000), "12 kB of 254 MB · 1 kB/s · 78 h 20 min left"),
    ((1, 2, 1_250_000, 254_000_000, 8_200_000, 31), "File 1 of 2 · 1.3 MB of 254 MB · 8.2 MB/s · 31 s left"),
    ((2, 2, 99_900_000, 1_253_000_000, 120_000_000, 61), "File 2 of 2 · 99.9 MB of 1.25 GB · 120 MB/s · 2 min left"),
    ((1, 1, 5_000_000, 9_000_000, 0, None), "5.0 MB of 9.0 MB · 0.0 MB/s"),
    ((1, 1, 9_000_000, 9_000_000, 1_000_000, 0), "Checking it…"),
]


def test_how_far_it_is_stands_there_in_words(visit: Visit) -> None:
    fields = ("number", "files", "came_bytes", "total_bytes", "bytes_per_s", "left_s")
    progress = [None, *(dict(zip(fields, values, strict=True)) for values, _ in WORDS)]
    script = 'async (all) => all.map((await import("/web/offer.js")).numbersOf)'
    assert visit.open().evaluate(script, progress) == ["Waiting for the first bytes…", *(words for _, words in WORDS)]

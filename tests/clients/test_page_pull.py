"""Models that the page has its server fetch: with the real server, and a source that does what a test wants."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, expect

from liveasr import store
from tests.browser import Visit
from tests.clients.page import HEARD, button, expect_state, has_come, listen_to_all, row, segments, texts
from tests.file_server import Served
from tests.pulls import pulled
from tests.scripted import wait_until
from tests.servers import ServerProcess


def test_a_model_is_fetched_with_a_bar_then_chosen_then_captions_digits(
    fetching: Visit, generous: ServerProcess, served: Served
) -> None:
    served.pace_s = 0.1
    page = fetching.open()
    expect(page.locator("#pull h2")).to_have_text("Get a full model")
    expect(row(page)).to_contain_text("English")
    expect(row(page)).to_contain_text("3.1 MB · Licence: MIT")
    expect(page.get_by_role("progressbar")).to_have_count(0)
    button(page, "Download").click()
    bar = page.get_by_role("progressbar", name="Download of mine")
    expect(bar).to_be_visible()
    has_come(page)
    assert bar.get_attribute("max") == str(len(served.content))
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
    assert fetching.complaints == []
    assert fetching.hosts == {urlsplit(generous.url).netloc}
    page.reload()
    expect(page.locator("#model")).to_have_value("mine")  # kept, as what is chosen by hand


def test_a_failed_fetch_says_why_and_is_tried_again(fetching: Visit, served: Served) -> None:
    served.status = 404
    page = fetching.open()
    button(page, "Download").click()
    fault = row(page).locator(".fault")
    expect(fault).to_have_text(f"That failed: {served.url.removeprefix('http://')} has no /mine.gguf.")
    assert f"mine: {fault.text_content()}" in page.evaluate("window.heard")
    served.status = None
    button(page, "Try again").click()
    expect(page.locator("#model")).to_have_value("mine")
    assert fetching.complaints == []


def test_what_is_stopped_halfway_is_gone_on_with(fetching: Visit, served: Served, folder: Path) -> None:
    served.pace_s = 0.2
    page = fetching.open()
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
    assert (folder / "mine.gguf").read_bytes() == served.content


def test_a_model_that_is_on_the_server_already_is_only_taken(fetching: Visit, served: Served, folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.gguf").write_bytes(served.content)
    page = fetching.open()
    expect(row(page)).to_contain_text("On the server already")
    button(page, "Use").click()
    expect(page.locator("#model")).to_have_value("mine")
    assert served.asked == []


def test_another_model_waits_for_the_one_on_its_way_and_says_so(fetching: Visit, served: Served) -> None:
    served.pace_s = 0.1
    page = fetching.open()
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


def test_a_model_that_comes_while_someone_speaks_is_chosen_afterwards(fetching: Visit, served: Served) -> None:
    served.pace_s = 0.06
    page = fetching.open()
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
    browser: Browser, fetching: Visit, generous: ServerProcess, served: Served
) -> None:
    served.pace_s = 0.1
    page = fetching.open()
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

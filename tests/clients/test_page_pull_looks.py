"""How the part of the page looks, and is used, where models are fetched."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import Visit
from tests.clients.page import CONTRAST, PHONE, TOO_SMALL, button, has_come, row, segments
from tests.file_server import Served
from tests.servers import ServerProcess


def test_everything_can_be_done_from_the_keyboard_and_is_said(fetching: Visit, served: Served) -> None:
    served.pace_s = 0.1
    page = fetching.open()
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


def test_how_far_it_is_stands_there_in_words(fetching: Visit) -> None:
    fields = ("number", "files", "came_bytes", "total_bytes", "bytes_per_s", "left_s")
    progress = [None, *(dict(zip(fields, values, strict=True)) for values, _ in WORDS)]
    script = 'async (all) => all.map((await import("/web/offer.js")).numbersOf)'
    assert fetching.open().evaluate(script, progress) == [
        "Waiting for the first bytes…",
        *(words for _, words in WORDS),
    ]

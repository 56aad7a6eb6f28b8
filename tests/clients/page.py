"""What tests of the page share: what it shows, what it says to a screen reader, and what measures how it looks."""

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser import Visit
from tests.scripted import ScriptedServer, ScriptedSession, wait_until

HEARD = ["314", "1592", "65"]
PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 740},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
LISTEN_TO_VOICE = """addEventListener("DOMContentLoaded", () => {
  window.said = [];
  new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) window.said.push(node.textContent);
  }).observe(document.getElementById("voice"), { childList: true, subtree: true, characterData: true });
});"""
"""Keeps what a screen reader is given to say."""
LISTEN_TO_STATUS = """addEventListener("DOMContentLoaded", () => {
  window.heard = [];
  for (const region of document.querySelectorAll("[role=status]")) {
    const listening = new MutationObserver(() => window.heard.push(region.textContent));
    listening.observe(region, { childList: true, subtree: true });
  }
});"""
"""Keeps what the live regions say."""
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


def row(page: Page, name: str = "mine") -> Locator:
    return page.locator("#pull li").filter(has=page.get_by_role("heading", name=name, exact=True))


def button(page: Page, verb: str, name: str = "mine") -> Locator:
    return page.get_by_role("button", name=f"{verb} {name}", exact=True)


def has_come(page: Page) -> None:
    """Wait until the bar shows a part of the file."""
    wait_until(page, lambda: 0 < row(page).locator("progress").evaluate("(bar) => bar.position") < 1)

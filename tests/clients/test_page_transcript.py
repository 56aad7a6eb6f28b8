"""The transcript on the page as a scripted server tells it, and what is done with it afterwards."""

from playwright.sync_api import expect

from tests.clients.page import Scripted, expect_state, said, segments, texts
from tests.scripted import wait_until


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


# Cleared, and gone on with.


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

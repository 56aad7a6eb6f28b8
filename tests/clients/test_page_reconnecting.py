"""The page when a connection breaks: what it keeps, what it sends again, what it says."""

import pytest
from playwright.sync_api import expect

from tests.browser import Visit
from tests.clients.page import Scripted, expect_state, said, segments, texts
from tests.scripted import ScriptedServer, wait_until


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

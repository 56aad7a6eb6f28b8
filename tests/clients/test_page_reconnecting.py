"""The page when a connection breaks: what it keeps, what it sends again, what it says."""

import random
from collections.abc import Callable
from itertools import accumulate

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

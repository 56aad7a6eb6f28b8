"""The page's captioner without a microphone: whatever happens to connections, no sample is lost or taken twice."""

import random
from collections.abc import Callable
from itertools import accumulate

from tests.browser import Visit
from tests.clients.page import Scripted
from tests.scripted import ScriptedServer, wait_until

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

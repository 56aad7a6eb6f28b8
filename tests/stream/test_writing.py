"""Lanes with engines that write token by token: drafts on their way, and an end as soon as nobody wants more."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveasr.engines.base import DecodeOptions
from liveasr.stream.segmenter import Segment
from liveasr.stream.session import DecodeRequest
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.types import Hypothesis
from tests.channels import until
from tests.fakes import FakeAutoregressiveEngine, said
from tests.stream.written import gated, run

OPTIONS = DecodeOptions()
SECOND = 16_000


def final_request(number: int = 0) -> DecodeRequest:
    """For two seconds, which can be cut in two."""
    segment = Segment(number, 0, 2 * SECOND, False, np.zeros((198, 80), np.float32))
    return DecodeRequest(number, True, 0, 2000, np.zeros((33, 560), np.float32), segment)


def test_drafts_come_in_order_before_the_answer() -> None:
    async def work() -> None:
        pool = DecodePool([FakeAutoregressiveEngine([said("one two three")])])
        seen: list[str] = []
        answers: list[Decoded] = []

        def show(_request: DecodeRequest, written: Hypothesis) -> None:
            assert not answers
            seen.append(written.text)

        await pool.submit(pool.new_session(), final_request(), OPTIONS, answers.append, show)
        await until(lambda: bool(answers))
        assert answers[0].result == said("one two three")
        assert seen
        assert seen == sorted(seen, key=len)
        assert seen[-1] == "one two three"
        await pool.close()

    run(work())


def test_drafts_for_a_slow_loop_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        engine = FakeAutoregressiveEngine([said("word " * 500)])
        pool = DecodePool([engine])
        seen: list[int] = []
        answers: list[Decoded] = []
        calls: list[object] = []
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def counted(callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
            calls.append(callback)
            return call(callback, *arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        await pool.submit(
            pool.new_session(),
            final_request(),
            OPTIONS,
            answers.append,
            lambda _request, written: seen.append(len(written.words)),
        )
        while engine.written < 500:
            pass  # the loop has no turn
        await until(lambda: bool(answers))
        assert len(seen) <= 2
        assert len(calls) <= 2 + len(seen)  # that there is room, each draft shown, the answer
        assert seen[-1] == 500
        await pool.close()

    run(work())


def test_a_cancelled_session_stops_within_a_word_and_its_lane_goes_on() -> None:
    async def work() -> None:
        engine = gated(said("one two three four five"), said("six"))
        pool = DecodePool([engine])
        gone, stays = pool.new_session(), pool.new_session()
        never: list[object] = []
        answers: list[Decoded] = []
        await pool.submit(gone, final_request(0), OPTIONS, never.append, lambda _request, _written: None)
        await pool.submit(stays, final_request(1), OPTIONS, answers.append)
        engine.gate.release(2)
        await until(lambda: engine.written == 2)
        pool.cancel(gone)
        engine.gate.release(2)  # one for the word that finds out, one for the other session
        await until(lambda: bool(answers))
        assert answers[0].result == said("six")
        assert engine.written == 2 + 1 + 1
        assert never == []
        await pool.close()

    run(work())


def test_a_draft_on_its_way_to_the_loop_is_not_shown_to_a_cancelled_session() -> None:
    async def work() -> None:
        engine = gated(said("one two"))
        pool = DecodePool([engine])
        session = pool.new_session()
        seen: list[object] = []
        await pool.submit(
            session, final_request(), OPTIONS, seen.append, lambda _request, written: seen.append(written)
        )
        engine.gate.release()
        while engine.written < 1:
            pass  # the loop has no turn
        pool.cancel(session)
        engine.gate.release()
        await until(lambda: pool.decoded == 1)
        assert seen == []
        await pool.close()

    run(work())


def test_a_cancelled_second_look_is_not_begun() -> None:
    async def work() -> None:
        engine = gated(replace(said("one one one"), complete=False), said("never"))
        pool = DecodePool([engine])
        session = pool.new_session()
        request = final_request()
        await pool.submit(session, request, OPTIONS, lambda _answer: None)
        engine.gate.release(2)
        await until(lambda: engine.written == 2)
        pool.cancel(session)
        engine.gate.release(10)
        await until(lambda: pool.decoded == 1)
        assert engine.written == 3
        assert len(engine.heard) == 1
        await pool.close()

    run(work())


def test_closing_does_not_wait_for_what_is_being_written() -> None:
    async def work() -> None:
        engine = gated(said("one two three four"))
        pool = DecodePool([engine])
        answers: list[Decoded] = []
        await pool.submit(pool.new_session(), final_request(), OPTIONS, answers.append)
        engine.gate.release()
        await until(lambda: engine.written == 1)
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        engine.gate.release()
        await closing
        assert engine.written == 2
        assert engine.closed
        assert answers == []

    run(work())

"""Lanes: what comes first, what is dropped, what waits, and what is left afterwards."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from liveasr.engines.base import DecodeOptions
from liveasr.errors import EngineError, LiveasrError
from liveasr.stream.session import DecodeRequest
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.types import Float32Array, Hypothesis
from tests.fakes import FakeEngine, GatedEngine, said

OPTIONS = DecodeOptions()


def request(number: int, *, final: bool) -> DecodeRequest:
    return DecodeRequest(number, final, 0, 1000, np.full((1, 560), number, np.float32))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in threads
        await asyncio.sleep(0.001)


def test_answers_come_back_in_the_event_loop_with_their_times() -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([said("three one")])])
        answers: list[tuple[Decoded, int]] = []
        await pool.submit(
            pool.new_session(),
            request(0, final=True),
            OPTIONS,
            lambda answer: answers.append((answer, threading.get_ident())),
        )
        await until(lambda: answers)
        answer, thread = answers[0]
        assert answer.result == said("three one")
        assert thread == threading.get_ident()
        assert min(answer.waited_ms, answer.took_ms) >= 0
        await pool.close()

    run(work())


def test_finals_go_first_and_overtaken_partials_are_never_decoded() -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine])
        order: list[int] = []

        def note(answer: Decoded) -> None:
            order.append(answer.request.segment_id)

        one, other = pool.new_session(), pool.new_session()
        await pool.submit(one, request(0, final=False), OPTIONS, note)
        await asyncio.to_thread(engine.started.wait, 5)
        for number in (1, 2, 3):
            await pool.submit(one, request(number, final=False), OPTIONS, note)
        await pool.submit(other, request(4, final=True), OPTIONS, note)
        assert (pool.waiting, pool.overtaken) == (2, 2)
        engine.gate.set()
        await until(lambda: len(order) == 3)
        assert order == [0, 4, 3]
        assert [int(features[0, 0]) for features in engine.heard] == [0, 4, 3]
        assert pool.decoded == 3
        await pool.close()

    run(work())


def test_a_final_waits_for_room_and_nothing_grows() -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine], max_finals=2, max_finals_overall=2)
        done: list[int] = []
        session = pool.new_session()

        async def submit_all() -> None:
            for number in range(20):
                await pool.submit(
                    session, request(number, final=True), OPTIONS, lambda answer: done.append(answer.request.segment_id)
                )

        submitting = asyncio.create_task(submit_all())
        await asyncio.to_thread(engine.started.wait, 5)
        await asyncio.sleep(0.05)
        assert pool.waiting == 2
        assert not submitting.done()
        engine.gate.set()
        await submitting
        await until(lambda: len(done) == 20)
        assert done == list(range(20))
        await pool.close()

    run(work())


def test_cancel_drops_what_waits_and_what_runs_and_leaves_others_alone() -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine])
        done: list[int] = []

        def note(answer: Decoded) -> None:
            done.append(answer.request.segment_id)

        gone, stays = pool.new_session(), pool.new_session()
        await pool.submit(gone, request(0, final=True), OPTIONS, note)
        await asyncio.to_thread(engine.started.wait, 5)
        await pool.submit(gone, request(1, final=True), OPTIONS, note)
        await pool.submit(stays, request(2, final=True), OPTIONS, note)
        pool.cancel(gone)
        engine.gate.set()
        await until(lambda: 2 in done)
        assert done == [2]
        assert pool.decoded == 2  # the one that ran, and the one that stays
        await pool.close()

    run(work())


@pytest.mark.parametrize("fault", [EngineError("out of memory"), ValueError("a bug")])
def test_a_lane_outlives_an_engine_that_throws(fault: Exception) -> None:
    class Faulty(FakeEngine):
        def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
            if features[0, 0] == 0:
                raise fault
            return super().decode(features, options)

    async def work() -> None:
        pool = DecodePool([Faulty([said("a")])])
        answers: list[Decoded] = []
        for number in (0, 1):
            await pool.submit(pool.new_session(), request(number, final=True), OPTIONS, answers.append)
        await until(lambda: len(answers) == 2)
        assert isinstance(answers[0].result, LiveasrError)
        assert str(fault) in str(answers[0].result)
        assert answers[1].result == said("a")
        await pool.close()

    run(work())


def test_lanes_work_side_by_side() -> None:
    async def work() -> None:
        engines = [GatedEngine(), GatedEngine()]
        pool = DecodePool(engines)
        answers: list[Decoded] = []
        for number in (0, 1):
            await pool.submit(pool.new_session(), request(number, final=True), OPTIONS, answers.append)
        await until(lambda: all(engine.started.is_set() for engine in engines))
        for engine in engines:
            engine.gate.set()
        await until(lambda: len(answers) == 2)
        await pool.close()

    run(work())


def test_close_ends_the_threads_and_the_engines() -> None:
    async def work() -> None:
        before = threading.active_count()
        engines = [FakeEngine([said("a")]) for _ in range(3)]
        pool = DecodePool(engines)
        assert threading.active_count() == before + 3
        await pool.close()
        assert all(engine.closed for engine in engines)
        assert sum(thread.name.startswith("liveasr-lane") for thread in threading.enumerate()) == 0
        with pytest.raises(EngineError):
            await pool.submit(pool.new_session(), request(0, final=True), OPTIONS, lambda _answer: None)

    run(work())


def test_the_event_loop_goes_on_while_engines_work() -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine])
        answers: list[Decoded] = []
        await pool.submit(pool.new_session(), request(0, final=True), OPTIONS, answers.append)
        await asyncio.to_thread(engine.started.wait, 5)
        begun = time.monotonic()
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert time.monotonic() - begun < 5  # it would hang for the ten seconds of the gate
        assert not answers
        engine.gate.set()
        await until(lambda: answers)
        await pool.close()

    run(work())

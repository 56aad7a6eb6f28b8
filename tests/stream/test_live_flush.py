"""`Flushed` comes behind the finals of all segments before the flush, whatever the engine does, and never hangs."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines.base import DecodeOptions
from liveasr.errors import EngineError
from liveasr.stream.detect import FsmnDetector
from liveasr.stream.live import Flushed, LiveStream, Output, run_loop
from liveasr.stream.partials import WindowStream
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import DecodePool
from liveasr.types import Float32Array, Hypothesis, LiveTranscript, SpeechEnd, SpeechStart
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.chunking import cut_at, pieces
from tests.fakes import FakeEngine, GatedEngine, said
from tests.sounds import load

IN_SPEECH = 20_000
"""A sample in the first sentence."""


@pytest.fixture(scope="module")
def samples(data: Path) -> Float32Array:
    return load(data / "digits-clean.wav")


class UnevenEngine(FakeEngine):
    """Takes another time for every decode."""

    def __init__(self, seed: int) -> None:
        super().__init__([said("a b")])
        self._random = np.random.default_rng(seed)

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        time.sleep(self._random.uniform(0, 0.004))
        return super().decode(features, options)


def new_stream(fsmn: FsmnWeights, pool: DecodePool, *, partials: bool = True) -> LiveStream:
    session = Session(FsmnDetector(fsmn, VadConfig()), FakeEngine.front_end, LiveConfig(partials=partials))
    return LiveStream(session, pool, DecodeOptions())


async def collect(stream: LiveStream, found: list[Output]) -> None:
    async for output in stream.outputs():
        found.append(output)  # noqa: PERF401 - what came before an error counts


async def feed(stream: LiveStream, samples: Float32Array) -> None:
    for piece in pieces(samples, 320):
        await stream.feed(piece)
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 30)

    run_loop(bounded())


def finals_before_each_flushed(found: list[Output]) -> list[int]:
    counts = []
    finals = 0
    for output in found:
        finals += isinstance(output, LiveTranscript) and output.is_final
        if isinstance(output, Flushed):
            counts.append(finals)
    return counts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lanes", [1, 3])
def test_flushed_comes_right_behind_the_last_final_that_it_waits_for(
    samples: Float32Array, fsmn: FsmnWeights, seed: int, lanes: int
) -> None:
    async def work() -> None:
        pool = DecodePool([UnevenEngine(seed + lane) for lane in range(lanes)])
        stream = new_stream(fsmn, pool)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        places = sorted(int(place) for place in np.random.default_rng(seed).integers(0, len(samples), 8))
        expected = []
        for stretch in cut_at(samples, places)[:-1]:
            await feed(stream, stretch)
            await stream.flush()
            expected.append(stream._segments_ended)
        await feed(stream, samples[places[-1] :])
        await stream.finish()
        await watching
        assert finals_before_each_flushed(found) == expected
        finals = [each.segment_id for each in found if isinstance(each, LiveTranscript) and each.is_final]
        assert finals == list(range(len(finals)))
        assert len(finals) == len([each for each in found if isinstance(each, SpeechEnd)]) >= 4
        assert stream.lag_ms == 0
        await pool.close()

    run(work())


def test_flushes_where_nothing_is_open_are_answered_at_once_and_each(fsmn: FsmnWeights) -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([said("never")])])
        stream = new_stream(fsmn, pool)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        await stream.flush()
        await stream.feed(np.zeros(16_000, np.float32))
        await stream.flush()
        await stream.flush()
        await asyncio.sleep(0)
        assert found == [Flushed()] * 3
        await stream.finish()
        await watching
        assert found == [Flushed()] * 3
        assert pool.decoded == 0
        await pool.close()

    run(work())


def test_several_flushes_wait_for_the_same_final_and_end_it_once(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine])
        stream = new_stream(fsmn, pool, partials=False)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        await feed(stream, samples[:IN_SPEECH])
        for _ in range(3):
            await stream.flush()
        assert await asyncio.to_thread(engine.started.wait, 10)
        assert [type(output) for output in found[1:]] == [SpeechEnd]
        engine.gate.set()
        await stream.finish()
        await watching
        assert [type(output) for output in found[1:]] == [SpeechEnd, LiveTranscript, Flushed, Flushed, Flushed]
        await pool.close()

    run(work())


def test_a_later_final_that_is_quicker_does_not_answer_a_flush(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        slow = GatedEngine()
        pool = DecodePool([slow])
        stream = new_stream(fsmn, pool)
        quick = DecodePool([FakeEngine([said("b")])])
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        await feed(stream, samples[:IN_SPEECH])
        await stream.flush()
        assert await asyncio.to_thread(slow.started.wait, 10)
        stream._pool, stream._partials = quick, WindowStream(quick, stream._key)  # as another lane would be
        await feed(stream, samples[IN_SPEECH:])
        while quick.decoded < 5:  # noqa: ASYNC110 - what is waited for happens in threads
            await asyncio.sleep(0.001)
        assert any(isinstance(output, LiveTranscript) for output in found), "partials go on meanwhile"
        assert finals_before_each_flushed(found) == []
        slow.gate.set()
        await stream.finish()
        await watching
        assert finals_before_each_flushed(found) == [1]
        await pool.close()
        await quick.close()

    run(work())


def test_a_flush_waits_for_room_in_the_queue_and_is_answered_in_turn(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine], max_finals=1)
        stream = new_stream(fsmn, pool, partials=False)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        speech = samples[8000:28_000]

        async def talk() -> None:
            for _ in range(4):
                await feed(stream, speech)
                await stream.flush()

        talking = asyncio.create_task(talk())
        assert await asyncio.to_thread(engine.started.wait, 10)
        for _ in range(200):
            await asyncio.sleep(0)
        assert not talking.done(), "one final is decoded, one waits, the third has no room"
        assert finals_before_each_flushed(found) == []
        engine.gate.set()
        await talking
        await stream.finish()
        await watching
        counts = finals_before_each_flushed(found)
        assert len(counts) == 4
        assert counts == sorted(counts)
        assert counts[-1] == stream._segments_ended >= 4
        await pool.close()

    run(work())


@pytest.mark.parametrize("flushes", [1, 3])
@pytest.mark.parametrize("partials", [False, True])
def test_a_flush_with_an_engine_that_fails_ends_with_its_error_and_hangs_nobody(
    samples: Float32Array, fsmn: FsmnWeights, flushes: int, partials: bool
) -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([EngineError("not enough memory")])])
        stream = new_stream(fsmn, pool, partials=partials)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        for start in (0, IN_SPEECH):
            await feed(stream, samples[start : start + IN_SPEECH])
            for _ in range(flushes):
                await stream.flush()
        await stream.finish()
        with pytest.raises(EngineError, match="not enough memory"):
            await watching
        assert not any(isinstance(output, Flushed) for output in found)
        await stream.flush()
        await pool.close()

    run(work())


def test_calls_from_several_tasks_take_turns(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine], max_finals=1)
        stream = new_stream(fsmn, pool, partials=False)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        feeding = asyncio.create_task(stream.feed(np.tile(samples, 2)))
        assert await asyncio.to_thread(engine.started.wait, 10)
        flushing = asyncio.create_task(stream.flush())
        finishing = asyncio.create_task(stream.finish())
        for _ in range(200):
            await asyncio.sleep(0)
        assert not any(task.done() for task in (feeding, flushing, finishing))
        engine.gate.set()
        await asyncio.gather(feeding, flushing, finishing, watching)
        edges = [output for output in found if isinstance(output, SpeechStart | SpeechEnd)]
        assert [type(edge) for edge in edges] == [SpeechStart, SpeechEnd] * 6
        assert [edge.sample for edge in edges] == sorted(edge.sample for edge in edges)
        finals = [output.segment_id for output in found if isinstance(output, LiveTranscript)]
        assert finals == list(range(6))
        assert finals_before_each_flushed(found) == [6]
        await pool.close()

    run(work())


def test_an_engine_that_fails_while_a_flush_waits_for_room_lets_it_go(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = GatedEngine([EngineError("not enough memory")])
        pool = DecodePool([engine], max_finals=1)
        stream = new_stream(fsmn, pool, partials=False)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))

        async def talk() -> None:
            for _ in range(4):
                await feed(stream, samples[8000:28_000])
                await stream.flush()
            await stream.finish()

        talking = asyncio.create_task(talk())
        assert await asyncio.to_thread(engine.started.wait, 10)
        for _ in range(200):
            await asyncio.sleep(0)
        assert not talking.done()
        engine.gate.set()
        await talking
        with pytest.raises(EngineError, match="not enough memory"):
            await watching
        assert finals_before_each_flushed(found) == []
        await pool.close()

    run(work())


def test_a_cancelled_stream_ends_though_a_flush_waits_and_takes_no_more(
    samples: Float32Array, fsmn: FsmnWeights
) -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine, engine])
        stream = new_stream(fsmn, pool, partials=False)
        found: list[Output] = []
        watching = asyncio.create_task(collect(stream, found))
        await feed(stream, samples[:IN_SPEECH])
        await stream.flush()
        assert await asyncio.to_thread(engine.started.wait, 10)
        stream.cancel()
        await watching
        await feed(stream, samples[IN_SPEECH:])
        await stream.flush()
        await stream.finish()
        assert stream.heard_ms == IN_SPEECH // 16
        engine.gate.set()
        await pool.close()
        assert finals_before_each_flushed(found) == []

    run(work())


def test_a_session_that_flushes_does_not_answer_for_another(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine])
        busy, idle = (new_stream(fsmn, pool, partials=False) for _ in range(2))
        found: list[list[Output]] = [[], []]
        watching = [asyncio.create_task(collect(*each)) for each in zip((busy, idle), found, strict=True)]
        await feed(busy, samples[:IN_SPEECH])
        await busy.flush()
        await idle.flush()
        await idle.finish()
        await watching[1]
        assert found[1] == [Flushed()]
        assert finals_before_each_flushed(found[0]) == []
        engine.gate.set()
        await busy.finish()
        await watching[0]
        assert finals_before_each_flushed(found[0]) == [1]
        await pool.close()

    run(work())

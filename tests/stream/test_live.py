"""A stream in motion, over real lanes."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr import store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine
from liveasr.errors import EngineError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import FsmnDetector, WindowDetector
from liveasr.stream.live import LiveStream, Output, run_loop
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import DecodePool
from liveasr.types import Float32Array, LiveTranscript, SpeechEnd, SpeechStart
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.chunking import pieces
from tests.fakes import FakeEngine, GatedEngine, said


@pytest.fixture(scope="module")
def samples() -> Float32Array:
    with AudioFile(Path(__file__).parents[1] / "data" / "digits-clean.wav") as audio:
        return np.concatenate(list(audio.blocks()))


def new_session(fsmn: FsmnWeights) -> Session:
    return Session(FsmnDetector(fsmn, VadConfig()), FakeEngine.front_end, LiveConfig())


async def collect(stream: LiveStream) -> list[Output]:
    return [output async for output in stream.outputs()]


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    run_loop(bounded())


def test_everything_said_comes_out_in_order(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = open_engine(store.find("digits"), threads=1)
        pool = DecodePool([engine, engine.lane()])
        stream = LiveStream(new_session(fsmn), pool, DecodeOptions())
        outputs = asyncio.create_task(collect(stream))
        for block in pieces(samples, 320):
            await stream.feed(block)
        await stream.finish()
        found = await outputs
        finals = [each.final.text for each in found if isinstance(each, LiveTranscript) and each.final]
        assert finals == ["three one four", "one five nine two", "six five"]
        edges = [type(each) for each in found if isinstance(each, SpeechStart | SpeechEnd)]
        assert edges == [SpeechStart, SpeechEnd] * 3
        assert stream.heard_ms == len(samples) // 16
        assert stream.lag_ms == 0
        await pool.close()

    run(work())


def test_an_engine_that_fails_ends_the_stream_with_its_error(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([EngineError("not enough memory for this segment")])])
        stream = LiveStream(new_session(fsmn), pool, DecodeOptions())
        outputs = asyncio.create_task(collect(stream))
        for block in pieces(samples, 3200):
            await stream.feed(block)
        await stream.finish()
        with pytest.raises(EngineError, match="not enough memory"):
            await outputs
        await pool.close()

    run(work())


def test_a_cancelled_stream_ends_at_once_and_another_goes_on(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([said("a b c")])])
        gone = LiveStream(new_session(fsmn), pool, DecodeOptions())
        stays = LiveStream(new_session(fsmn), pool, DecodeOptions())
        watching = [asyncio.create_task(collect(stream)) for stream in (gone, stays)]
        for block in pieces(samples[: len(samples) // 2], 320):
            await gone.feed(block)
            await stays.feed(block)
        gone.cancel()
        await watching[0]
        for block in pieces(samples[len(samples) // 2 :], 320):
            await stays.feed(block)
        await stays.finish()
        finals = [each for each in await watching[1] if isinstance(each, LiveTranscript) and each.final]
        assert len(finals) == 3
        await pool.close()

    run(work())


def test_silence_and_no_audio_give_nothing(fsmn: FsmnWeights) -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([said("never")])])
        for audio in (np.zeros(0, np.float32), np.zeros(5 * 16_000, np.float32)):
            stream = LiveStream(new_session(fsmn), pool, DecodeOptions())
            outputs = asyncio.create_task(collect(stream))
            await stream.feed(audio)
            await stream.finish()
            assert await outputs == []
        assert pool.decoded == 0
        await pool.close()

    run(work())


def test_a_stream_whose_first_final_failed_still_ends(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([EngineError("not enough memory for this segment"), said("a b")])])
        session = Session(FsmnDetector(fsmn, VadConfig()), FakeEngine.front_end, LiveConfig(partials=False))
        stream = LiveStream(session, pool, DecodeOptions())
        outputs = asyncio.create_task(collect(stream))
        for block in pieces(samples, 320):
            await stream.feed(block)
            await asyncio.sleep(0)
        await stream.finish()
        with pytest.raises(EngineError, match="not enough memory"):
            await outputs
        await pool.close()

    run(work())


def spoken() -> Session:
    """All of it one segment, until a flush."""
    return Session(WindowDetector(VadConfig()), FakeEngine.front_end, LiveConfig(partials=False))


def test_nothing_is_settled_before_its_final_was_taken() -> None:
    async def work() -> None:
        pool = DecodePool([FakeEngine([said("a")])])
        stream = LiveStream(spoken(), pool, DecodeOptions())
        for _ in range(2):
            await stream.feed(np.zeros(8_000, np.float32))
            await stream.flush()
        while pool.decoded < 2:  # noqa: ASYNC110 - what is waited for happens in threads
            await asyncio.sleep(0.001)
        settled = [stream.settled_sample]
        await stream.finish()
        async for output in stream.outputs():
            if isinstance(output, LiveTranscript):
                settled.append(stream.settled_sample)  # noqa: PERF401 - each at its time
        assert settled == [0, 8_000, 16_000]
        await pool.close()

    run(work())


def test_a_stream_whose_feed_was_cancelled_ends_all_the_same() -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine], max_finals=1)
        stream = LiveStream(spoken(), pool, DecodeOptions())

        async def speak() -> None:
            for _ in range(5):
                await stream.feed(np.zeros(8_000, np.float32))
                await stream.flush()

        speaking = asyncio.create_task(speak())
        await asyncio.to_thread(engine.started.wait, 5)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not speaking.done()
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
        await stream.finish()
        assert not [each for each in await collect(stream) if isinstance(each, LiveTranscript)]
        engine.gate.set()
        await pool.close()

    run(work())


def test_a_stream_may_be_cancelled_any_number_of_times() -> None:
    async def work() -> None:
        engine = GatedEngine()
        pool = DecodePool([engine])
        stream, other = (LiveStream(spoken(), pool, DecodeOptions()) for _ in range(2))
        for each in (stream, other):
            await each.feed(np.zeros(8_000, np.float32))
            await each.flush()
        await asyncio.to_thread(engine.started.wait, 5)
        stream.cancel()
        stream.cancel()
        engine.gate.set()
        await stream.finish()
        stream.cancel()
        assert not [each for each in await collect(stream) if isinstance(each, LiveTranscript)]
        await other.finish()
        assert len([each for each in await collect(other) if isinstance(each, LiveTranscript)]) == 1
        assert not pool._running
        await pool.close()

    run(work())

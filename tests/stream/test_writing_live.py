"""Streams and sessions whose finals are written token by token: equal to a file's, shown, and stopped in time."""

import asyncio
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.clients.file import transcribe
from liveasr.engines.base import DecodeOptions, Draft
from liveasr.stream.connection import Connection
from liveasr.stream.detect import FsmnDetector, WindowDetector, detector_maker
from liveasr.stream.live_recognizer import LiveRecognizer
from liveasr.stream.messages import Flush, Start, Stop, Transcript, encode
from liveasr.stream.partials import partials_by
from liveasr.stream.recognize import Recognizer
from liveasr.types import Float32Array, Hypothesis, LiveTranscript
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.channels import MemoryChannel, audio, only, serving, until
from tests.chunking import cut_at, pieces
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, said
from tests.sounds import load
from tests.stream.written import assert_sound, gated, run, spread

OPTIONS = DecodeOptions()
SECOND = 16_000


class Listening(FakeAutoregressiveEngine):
    """Writes what depends on each bit of the features, and repeats itself where there are many."""

    def __init__(self, longest_rows: int = 10**9) -> None:
        super().__init__([said("")])
        self.longest_rows = longest_rows

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        return self.write(features, options, lambda _written: True)

    def write(self, features: Float32Array, options: DecodeOptions, draft: Draft) -> Hypothesis:  # noqa: ARG002
        self.heard.append(features)
        texts = [f"w{zlib.crc32(features[start : start + 5].tobytes())}" for start in range(0, len(features), 5)]
        for count in range(1, len(texts) + 1):
            self.written += 1
            if not draft(spread(" ".join(texts[:count]), len(features) * 60)):
                break
        whole = spread(" ".join(texts), len(features) * 60)
        return replace(whole, complete=len(features) <= self.longest_rows)


async def streamed(
    engine: FakeAutoregressiveEngine,
    blocks: Iterable[Float32Array],
    fsmn: FsmnWeights,
    partials: FakeEngine | None = None,
) -> list[LiveTranscript]:
    """All transcripts of a stream."""
    others = partials_by([partials]) if partials else None
    recognizer = LiveRecognizer([engine], lambda vad: FsmnDetector(fsmn, vad), others)
    stream = recognizer.open(OPTIONS, VadConfig())

    async def collect() -> list[LiveTranscript]:
        return [output async for output in stream.outputs() if isinstance(output, LiveTranscript)]

    collecting = asyncio.create_task(collect())
    for block in blocks:
        await stream.feed(block)
        await asyncio.sleep(0)
    await stream.finish()
    found = await collecting
    if others is not None:
        await others.close()
    await recognizer.close()
    return found


@pytest.fixture(scope="module")
def samples() -> Float32Array:
    return load(Path(__file__).parents[1] / "data" / "digits-clean.wav")


@pytest.mark.parametrize("longest_rows", [10**9, 12])
@pytest.mark.parametrize("size", [160, 960, 16_000, 10**9])
def test_live_finals_equal_the_file_transcribers_however_the_audio_is_cut(
    size: int, longest_rows: int, samples: Float32Array, fsmn: FsmnWeights
) -> None:
    engine = Listening(longest_rows)
    expected = list(transcribe([samples], Recognizer(engine, OPTIONS), FsmnDetector(fsmn, VadConfig())))
    offline_heard = len(engine.heard)
    assert len(expected) == 3
    assert (offline_heard > 3) == (longest_rows == 12)  # some were looked at again

    async def work() -> None:
        live = Listening(longest_rows)
        found = await streamed(live, pieces(samples, size), fsmn)
        assert [each.final for each in found if each.final] == expected
        assert len(live.heard) == offline_heard  # it was never asked for a partial
        for number in range(3):
            own = [each for each in found if each.segment_id == number]
            assert_sound(own)
            assert len(own) > 1

    run(work())


@settings(max_examples=5)
@given(st.lists(st.integers(0, 110_000), max_size=6))
def test_any_split_gives_the_same_finals(places: list[int]) -> None:
    recording = load(Path(__file__).parents[1] / "data" / "digits-clean.wav")
    finals: list[list[str]] = []

    async def work() -> None:
        for blocks in ([recording], cut_at(recording, places)):
            recognizer = LiveRecognizer([Listening(12)], detector_maker("fsmn"))
            stream = recognizer.open(OPTIONS, VadConfig())
            for block in blocks:
                await stream.feed(block)
            await stream.finish()
            finals.append(
                [each.final.text async for each in stream.outputs() if isinstance(each, LiveTranscript) and each.final]
            )
            await recognizer.close()

    run(work())
    assert finals[0] == finals[1]
    assert len(finals[0]) == 3


@pytest.mark.parametrize("longest_rows", [10**9, 12])
def test_another_engine_gives_the_partials_by_decoding_windows(
    longest_rows: int, samples: Float32Array, fsmn: FsmnWeights
) -> None:
    async def work() -> None:
        engine = Listening(longest_rows)
        quick = FakeEngine([said("alpha beta gamma")])
        found = await streamed(engine, pieces(samples, 320), fsmn, quick)
        assert (len(engine.heard) == 3) == (longest_rows > 12)  # the others were looked at again
        assert len(quick.heard) >= 3
        for number in range(3):
            own = [each for each in found if each.segment_id == number]
            assert_sound(own)
            assert own[0].tentative.startswith("alpha")
            assert any("w" in each.tentative and not each.is_final for each in own)

    run(work())


def test_a_final_that_collapsed_is_as_the_partials_have_it(samples: Float32Array, fsmn: FsmnWeights) -> None:
    spoken = "three one four one five nine two six"

    async def work() -> None:
        engine = FakeAutoregressiveEngine([said("oh")])
        found = await streamed(engine, pieces(samples, 320), fsmn, FakeEngine([said(spoken)]))
        finals = [each.final for each in found if each.final]
        assert [final.text for final in finals] == [spoken] * 3
        for final in finals:
            assert all(final.start_ms <= word.start_ms <= word.end_ms <= final.end_ms for word in final.words)
        assert len(engine.heard) == 9

    run(work())


def test_a_stream_that_is_cancelled_stops_the_writing() -> None:
    async def work() -> None:
        engine = gated(said("one two three four"), said("five"))
        recognizer = LiveRecognizer([engine], WindowDetector)
        gone, stays = (recognizer.open(OPTIONS, VadConfig()) for _ in range(2))
        for stream in (gone, stays):
            await stream.feed(np.zeros(SECOND, np.float32))
            await stream.flush()
        engine.gate.release()
        await until(lambda: engine.written == 1)
        gone.cancel()
        engine.gate.release(2)
        await stays.finish()
        found = [each async for each in stays.outputs() if isinstance(each, LiveTranscript)]
        assert found[-1].committed == "five"
        assert engine.written == 3
        await recognizer.close()

    run(work())


START = encode(Start(partials=False))


@pytest.mark.parametrize("end", ["vanished", "failed", "closed"])
def test_however_a_session_ends_its_writing_does(end: str) -> None:
    async def work() -> None:
        engine = gated(said("one two three four five six"))
        async with serving(engine, resume_s=0.01) as service:
            channel = MemoryChannel()
            channel.say(START, *audio(10), encode(Flush()))
            connection = asyncio.create_task(Connection(channel, service).run())
            engine.gate.release()
            await until(lambda: engine.written == 1)
            (recognizer,) = service._recognizers.values()
            (running,) = next(iter(recognizer.pool._running.values()))
            closing: list[asyncio.Task[None]] = []
            if end == "closed":
                closing.append(asyncio.create_task(service.close()))
            else:
                channel.say(None if end == "vanished" else "nonsense")
            await until(lambda: running.stopped)
            engine.gate.release()
            await until(lambda: not recognizer.pool._running)
            channel.say(None)
            await asyncio.gather(connection, *closing)
        assert engine.written == 2

    run(work())


def test_a_client_sees_what_is_written() -> None:
    async def work() -> None:
        engine = gated(said("one two three"))
        async with serving(engine) as service:
            channel = MemoryChannel()
            channel.say(encode(Start()), *audio(10), encode(Stop()))
            connection = asyncio.create_task(Connection(channel, service).run())
            for count in (1, 2, 3):
                engine.gate.release()
                while len(only(channel, Transcript)) < count:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.001)
            await connection
        told = [each for each in channel.sent if isinstance(each, Transcript)]
        texts = [each.committed + each.tentative for each in told]
        assert texts == ["one", "one two", "one two three", "one two three"]
        assert [each.final for each in told] == [False, False, False, True]

    run(work())

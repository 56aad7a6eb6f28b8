"""Two passes: one engine gives the partials, another gives the finals."""

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines.base import DecodeOptions, FrontEnd
from liveasr.errors import EngineError
from liveasr.stream import lfr
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import FsmnDetector
from liveasr.stream.live import LiveStream, Output
from liveasr.stream.live_recognizer import LiveRecognizer
from liveasr.stream.partials import Partials, StreamingPartials, WindowPartials, partials_by
from liveasr.stream.segmenter import Segmenter
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.stabilize import Stabilizer
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.types import Float32Array, Hypothesis, LiveTranscript, SpeechStart, Word
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.chunking import pieces
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, FakeEngineStream, FakeStreamingEngine, GatedEngine, said

FRONT = FakeEngine.front_end
WORDS = ["one", "two", "three", "four", "five", "six"]


@pytest.fixture(scope="module")
def samples() -> Float32Array:
    with AudioFile(Path(__file__).parents[1] / "data" / "digits-clean.wav") as audio:
        return np.concatenate(list(audio.blocks()))


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(bounded())


async def outputs_of(stream: LiveStream, blocks: Iterable[Float32Array]) -> list[Output]:
    async def collect() -> list[Output]:
        return [output async for output in stream.outputs()]

    collecting = asyncio.create_task(collect())
    for block in blocks:
        await stream.feed(block)
        await asyncio.sleep(0)
    await stream.finish()
    return await collecting


def two_pass(fsmn: FsmnWeights, pool: DecodePool, lanes: Partials, config: LiveConfig | None = None) -> LiveStream:
    session = Session(FsmnDetector(fsmn, VadConfig()), FRONT, config or LiveConfig(), lanes.takes)
    return LiveStream(session, pool, DecodeOptions(), lanes.open())


@pytest.mark.parametrize("size", [160, 320, 1600, 16_000])
def test_the_streaming_engine_hears_each_row_of_a_segment_once_and_in_order(
    size: int, samples: Float32Array, fsmn: FsmnWeights
) -> None:
    async def work() -> None:
        engine = FakeStreamingEngine(WORDS, rows=5)
        lanes, pool = StreamingPartials([engine]), DecodePool([FakeEngine([said("the final")])])
        await outputs_of(two_pass(fsmn, pool, lanes), pieces(samples, size))
        await lanes.close()
        await pool.close()
        segmenter = Segmenter(FsmnDetector(fsmn, VadConfig()))
        segments = segmenter.accept(samples) + segmenter.finish()
        assert len(engine.streams) <= len(segments) == 3
        whole = {len(each.frames): lfr.stack(each.frames, FRONT.lfr_m, FRONT.lfr_n) for each in segments}
        for stream in engine.streams:
            rows = np.concatenate(stream.pieces)
            assert any(np.array_equal(rows[: len(each)], each[: len(rows)]) for each in whole.values())

    run(work())


def test_partials_are_the_streaming_engines_and_finals_the_others(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        lanes = StreamingPartials([FakeStreamingEngine(WORDS, rows=5)])
        pool = DecodePool([FakeEngine([said("what was said")])])
        found = [
            each
            for each in await outputs_of(two_pass(fsmn, pool, lanes), pieces(samples, 320))
            if isinstance(each, LiveTranscript)
        ]
        await lanes.close()
        await pool.close()
        finals = [each.final.text for each in found if each.final]
        assert finals == ["what was said"] * 3
        shown = [each.committed + each.tentative for each in found if not each.is_final]
        assert shown
        assert all(" ".join(WORDS * 3).startswith(text) for text in shown)
        for before, after in pairwise(found):
            if before.segment_id == after.segment_id:
                assert after.committed.startswith(before.committed)
                assert after.revision > before.revision

    run(work())


def test_a_slow_engine_gets_what_waited_as_one_piece(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engine = FakeStreamingEngine(WORDS, rows=5)
        lanes, pool = StreamingPartials([engine]), DecodePool([FakeEngine([said("the final")])])
        stream = two_pass(fsmn, pool, lanes)
        collecting = asyncio.create_task(outputs_of(stream, []))
        collecting.cancel()
        for block in pieces(samples[: 16_000 * 2], 320):
            await stream.feed(block)  # the loop has no turn, so no answer comes back
        stream.cancel()
        await lanes.close()
        await pool.close()
        assert len(engine.streams) == 1
        assert len(engine.streams[0].pieces) <= 1

    run(work())


def test_an_engine_that_fails_at_a_partial_ends_the_stream(samples: Float32Array, fsmn: FsmnWeights) -> None:
    class FailingStream(FakeEngineStream):
        def accept(self, features: Float32Array) -> Hypothesis:  # noqa: ARG002 - the contract
            raise EngineError("no memory")

    class Failing(FakeStreamingEngine):
        def stream(self, options: DecodeOptions) -> FakeEngineStream:  # noqa: ARG002 - the contract
            return FailingStream(self)

    async def work() -> None:
        lanes, pool = StreamingPartials([Failing(WORDS, rows=5)]), DecodePool([FakeEngine([said("the final")])])
        with pytest.raises(EngineError, match="no memory"):
            await outputs_of(two_pass(fsmn, pool, lanes), pieces(samples, 320))
        await lanes.close()
        await pool.close()

    run(work())


def test_sessions_are_spread_over_the_lanes_and_do_not_mix(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        engines = [FakeStreamingEngine(WORDS, rows=5), FakeStreamingEngine(WORDS, rows=5)]
        lanes, pool = StreamingPartials(engines), DecodePool([FakeEngine([said("the final")])])
        streams = [two_pass(fsmn, pool, lanes) for _ in range(4)]
        results = await asyncio.gather(*(outputs_of(stream, pieces(samples, 320)) for stream in streams))
        assert [len(engine.streams) for engine in engines] == [6, 6]
        for stream in streams:
            stream.cancel()
        assert lanes._sessions == [0, 0]
        await lanes.close()
        await pool.close()
        finals = [
            [each.final for each in result if isinstance(each, LiveTranscript) and each.final] for result in results
        ]
        assert all(each == finals[0] for each in finals)

    run(work())


def words(text: str, step_ms: int = 300) -> list[Word]:
    return [
        Word(" " + word if index else word, index * step_ms, (index + 1) * step_ms)
        for index, word in enumerate(text.split())
    ]


def test_what_a_streaming_engine_said_stands_but_for_a_last_word_that_may_go_on() -> None:
    stabilizer = Stabilizer()
    stabilizer.follow(words("one tw"), 20_000)
    assert (stabilizer.committed, stabilizer.tentative) == ("one", " tw")
    stabilizer.follow(words("one two three"), 20_000)
    assert (stabilizer.committed, stabilizer.tentative) == ("one two", " three")


def test_a_character_cannot_go_on() -> None:
    stabilizer = Stabilizer()
    stabilizer.follow([Word("今", 0, 100), Word("天", 100, 200)], 20_000)
    assert (stabilizer.committed, stabilizer.tentative) == ("今天", "")


def test_nothing_is_committed_that_a_cut_may_still_move() -> None:
    stabilizer = Stabilizer()
    stabilizer.follow(words("one two three four"), 700)
    assert (stabilizer.committed, stabilizer.tentative) == ("one two", " three four")


def test_the_pieces_of_a_segment_are_asked_for_with_their_own_times(samples: Float32Array, fsmn: FsmnWeights) -> None:
    """So that the figures count every second of audio once, however it was cut."""

    async def work() -> None:
        answers: list[Decoded] = []
        lanes = StreamingPartials([FakeStreamingEngine(WORDS, rows=5)], answers.append)
        pool = DecodePool([FakeEngine([said("the final")])])
        await outputs_of(two_pass(fsmn, pool, lanes), pieces(samples, 320))
        await lanes.close()
        await pool.close()
        assert len(answers) > 3
        for before, after in pairwise(answer.request for answer in answers):
            if before.segment_id == after.segment_id:
                assert before.start_ms < before.end_ms == after.start_ms < after.end_ms
                assert abs(len(after.features) * 60 - (after.end_ms - after.start_ms)) <= 60

    run(work())


def test_an_engine_hears_partials_as_its_kind_can() -> None:
    async def work() -> None:
        for engine, kind in (
            (FakeStreamingEngine(WORDS, rows=5), StreamingPartials),
            (FakeEngine([said("a")]), WindowPartials),
        ):
            partials = partials_by([engine])
            assert isinstance(partials, kind)
            assert partials.takes.streaming == (kind is StreamingPartials)
            await partials.close()
            assert engine.closed

    run(work())


def test_windows_are_stacked_as_their_own_engine_takes_them(samples: Float32Array, fsmn: FsmnWeights) -> None:
    class Other(FakeEngine):
        front_end = FrontEnd(mel_bins=80, lfr_m=5, lfr_n=1)

    async def work() -> None:
        quick, slow = Other([said("one two")]), FakeEngine([said("the final")])
        lanes, pool = WindowPartials([quick]), DecodePool([slow])
        found = await outputs_of(two_pass(fsmn, pool, lanes), pieces(samples, 320))
        await lanes.close()
        await pool.close()
        assert len(slow.heard) == 3
        assert {features.shape[1] for features in slow.heard} == {560}
        assert quick.heard
        assert {features.shape[1] for features in quick.heard} == {400}
        shown = [each for each in found if isinstance(each, LiveTranscript)]
        assert {each.committed + each.tentative for each in shown if not each.is_final} == {"one two"}
        assert [each.final.text for each in shown if each.final] == ["the final"] * 3

    run(work())


def test_partials_that_a_newer_one_overtook_are_not_decoded(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def work() -> None:
        quick = GatedEngine([said("one two")])
        lanes, pool = WindowPartials([quick]), DecodePool([FakeEngine([said("the final")])])
        stream = two_pass(fsmn, pool, lanes)
        for block in pieces(samples, 320):
            await stream.feed(block)
        assert lanes.waiting <= 1
        assert lanes.overtaken > 5
        stream.cancel()
        assert lanes.waiting == 0
        quick.gate.set()
        await lanes.close()
        await pool.close()
        assert len(quick.heard) <= 1

    run(work())


@pytest.mark.parametrize("streams", [True, False])
def test_the_engine_of_the_partials_is_asked_only_for_what_it_knows(
    streams: bool, samples: Float32Array, fsmn: FsmnWeights
) -> None:
    asked = DecodeOptions(language="ko", itn=True, hotwords=("liveasr",))

    async def work() -> None:
        engine = FakeStreamingEngine(WORDS, rows=5) if streams else FakeEngine([said("one")])
        partials = partials_by([engine])
        slow = FakeAutoregressiveEngine([said("the final")])
        recognizer = LiveRecognizer([slow], lambda vad: FsmnDetector(fsmn, vad), partials)
        await outputs_of(recognizer.open(asked, VadConfig()), pieces(samples, 320))
        await partials.close()
        await recognizer.close()
        assert set(engine.options) == {DecodeOptions(language="auto", itn=True)}
        assert set(slow.options) == {asked}

    run(work())


def test_an_engine_without_another_for_partials_does_as_its_kind_can(samples: Float32Array, fsmn: FsmnWeights) -> None:
    async def shown(engine: FakeEngine, *, partials: bool = True) -> tuple[int, int]:
        """Transcripts before the ends of segments, and behind these before their finals."""
        recognizer = LiveRecognizer([engine], lambda vad: FsmnDetector(fsmn, vad))
        found = await outputs_of(recognizer.open(DecodeOptions(), VadConfig(), partials=partials), pieces(samples, 320))
        await recognizer.close()
        during = behind = 0
        is_open = False
        for each in found:
            if isinstance(each, LiveTranscript):
                during += is_open and not each.is_final
                behind += not is_open and not each.is_final
            else:
                is_open = isinstance(each, SpeechStart)
        return during, behind

    async def work() -> None:
        assert (await shown(FakeStreamingEngine(WORDS, rows=5)))[0] > 0
        assert (await shown(FakeEngine([said("one")])))[0] > 0
        writing = FakeAutoregressiveEngine([said("one two")])
        during, behind = await shown(writing)
        assert (during, behind >= 3) == (0, True)
        assert len(writing.heard) == 3
        for engine in (FakeEngine([said("one")]), FakeAutoregressiveEngine([said("one two")])):
            assert await shown(engine, partials=False) == (0, 0)

    run(work())

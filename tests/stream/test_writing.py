"""Engines that write their finals token by token: drafts on the screen, and an end as soon as nobody wants more."""

import asyncio
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from liveasr.stream.segmenter import Segment
from liveasr.stream.session import DecodeRequest, LiveConfig, Session
from liveasr.stream.worker import Decoded, DecodePool
from liveasr.types import Float32Array, Hypothesis, LiveTranscript, Word
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.channels import MemoryChannel, audio, only, serving, until
from tests.chunking import cut_at, pieces
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, said
from tests.sounds import load

OPTIONS = DecodeOptions()
FRONT = FakeEngine.front_end
SECOND = 16_000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def final_request(number: int = 0) -> DecodeRequest:
    """For two seconds, which can be cut in two."""
    segment = Segment(number, 0, 2 * SECOND, False, np.zeros((198, 80), np.float32))
    return DecodeRequest(number, True, 0, 2000, np.zeros((33, 560), np.float32), segment)


def gated(*answers: Hypothesis) -> FakeAutoregressiveEngine:
    """It writes a word only when its gate is released."""
    engine = FakeAutoregressiveEngine(answers)
    engine.gate = threading.Semaphore(0)
    return engine


# The session: what is shown.


class Talk:
    """One segment of two seconds in a session, with its final asked for."""

    def __init__(self, config: LiveConfig | None = None, partials: Sequence[str] = ()) -> None:
        self.session = Session(WindowDetector(VadConfig()), FRONT, config or LiveConfig())
        self.shown: list[LiveTranscript] = []
        heard = list(partials)
        for block in pieces(np.zeros(2 * SECOND, np.float32), 320):
            for step in self.session.accept(block):
                if isinstance(step, DecodeRequest) and heard:
                    self.shown += self.session.decoded(step, spread(heard.pop(0), step.end_ms), 1)
        assert not heard
        self.final = next(step for step in self.session.flush() if isinstance(step, DecodeRequest))

    def draft(self, text: str) -> list[LiveTranscript]:
        found = self.session.drafted(self.final, spread(text, 2000))
        self.shown += found
        return found

    def end(self, text: str) -> LiveTranscript:
        (found,) = self.session.decoded(self.final, spread(text, 2000), 1)
        self.shown.append(found)
        return found


def spread(text: str, length_ms: int) -> Hypothesis:
    """Words evenly over the time, as an engine gives them that knows none."""
    texts = text.split()
    words = [
        Word(word, length_ms * index // len(texts), length_ms * (index + 1) // len(texts))
        for index, word in enumerate(texts)
    ]
    return Hypothesis((), text, tuple(words))


def assert_sound(shown: Iterable[LiveTranscript]) -> None:
    """Of one segment: revisions rise, committed text only grows, nothing is said twice, the final comes last."""
    revisions = list(shown)
    assert [each.revision for each in revisions] == list(range(1, len(revisions) + 1))
    assert [each.is_final for each in revisions] == [False] * (len(revisions) - 1) + [True]
    for before, after in pairwise(revisions):
        assert after.committed.startswith(before.committed)
        assert after.is_final or (before.committed, before.tentative) != (after.committed, after.tentative)
        assert after.is_final or after.end_ms >= before.end_ms


def test_drafts_are_tentative_and_the_final_has_the_last_word() -> None:
    talk = Talk(LiveConfig(partials=False))
    for text in ("one", "one two", "one two three"):
        (each,) = talk.draft(text)
        assert (each.committed, each.tentative, each.is_final) == ("", text, False)
        assert (each.start_ms, each.end_ms) == (0, 2000)
    assert talk.end("one two three").committed == "one two three"
    assert_sound(talk.shown)


def test_a_draft_overwrites_the_partials_from_the_left_and_keeps_the_rest() -> None:
    talk = Talk(partials=["one too", "one too free", "one too free for"])
    before = talk.shown[-1]
    assert (before.committed, before.tentative) == ("one too", " free for")
    assert talk.draft("one") == []
    assert talk.draft("won two") == []
    assert talk.draft("won two three")[0].tentative == " three for"
    assert talk.draft("won two three four five")[0].tentative == " three four five"
    final = talk.end("won two three four five")
    assert final.committed == "one too three four five"
    assert final.final is not None
    assert final.final.text == "won two three four five"
    assert_sound(talk.shown)


def test_a_draft_that_shows_nothing_new_makes_no_revision() -> None:
    talk = Talk(LiveConfig(partials=False))
    assert talk.draft("") == []
    assert talk.draft("one")
    assert talk.draft("one") == []


def test_a_partial_that_comes_during_the_drafts_lies_under_them() -> None:
    session = Session(WindowDetector(VadConfig()), FRONT, LiveConfig())
    requests = [
        step
        for block in pieces(np.zeros(2 * SECOND, np.float32), 320)
        for step in session.accept(block)
        if isinstance(step, DecodeRequest)
    ]
    final = next(step for step in session.flush() if isinstance(step, DecodeRequest))
    session.drafted(final, spread("won", 2000))
    (late,) = session.decoded(requests[-1], spread("one two three", 1900), 1)
    assert late.tentative == "won two three"
    assert late.end_ms == 2000


def test_a_draft_after_the_final_shows_nothing() -> None:
    talk = Talk()
    talk.end("one")
    assert talk.draft("one two") == []


def test_who_wants_only_finals_sees_no_drafts() -> None:
    talk = Talk(LiveConfig(partials=False, drafts=False))
    assert talk.draft("one") == []
    assert talk.end("one two").revision == 1


def test_the_request_for_a_final_says_what_the_partials_agreed_on() -> None:
    heard = Talk(partials=["one too", "one too free", "one too free for"]).final.heard
    assert heard is not None
    assert heard.text == "one too free"
    assert [word.text for word in heard.words] == ["one", "too", "free"]
    assert Talk(LiveConfig(partials=False)).final.heard is None
    assert Talk(partials=["one two"]).final.heard is None


def test_what_was_heard_behind_a_forced_cut_is_not_of_the_segment() -> None:
    session = Session(WindowDetector(VadConfig(max_segment_ms=1000)), FRONT, LiveConfig(max_segment_ms=1000))
    (request,) = [step for step in session.accept(np.zeros(SECOND, np.float32)) if isinstance(step, DecodeRequest)]
    for end_ms in (1400, 1500):  # as if it had been made before the cut was known
        session.decoded(replace(request, end_ms=end_ms), said("a b c d e f g h i j k l m"), 1)
    final = next(step for step in session.accept(np.zeros(SECOND, np.float32)) if isinstance(step, DecodeRequest))
    assert final.is_final
    assert final.heard is not None
    assert final.heard.text == "a b c d e f g h i j"


@settings(max_examples=60)
@given(
    partials=st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=6), max_size=5),
    drafts=st.lists(st.lists(st.sampled_from(["a", "b", "x"]), max_size=8), max_size=6),
    final=st.lists(st.sampled_from(["a", "b", "x"]), max_size=8),
    late=st.lists(st.integers(0, 5), max_size=3),
)
def test_whatever_is_heard_and_written_committed_text_only_grows(
    partials: list[list[str]], drafts: list[list[str]], final: list[str], late: list[int]
) -> None:
    session = Session(WindowDetector(VadConfig()), FRONT, LiveConfig())
    shown: list[LiveTranscript] = []
    kept: list[tuple[DecodeRequest, Hypothesis]] = []
    heard = [" ".join(each) for each in partials]
    for block in pieces(np.zeros(3 * SECOND, np.float32), 320):
        for step in session.accept(block):
            if isinstance(step, DecodeRequest) and heard:
                answer = spread(heard.pop(0), step.end_ms)
                if len(heard) in late:
                    kept.append((step, answer))
                else:
                    shown += session.decoded(step, answer, 1)
    request = next(step for step in session.flush() if isinstance(step, DecodeRequest))
    for texts in drafts:
        before = shown[-1].committed if shown else ""
        found = session.drafted(request, spread(" ".join(texts), 3000))
        assert all(each.committed == before for each in found)
        shown += found
        if kept:
            shown += session.decoded(*kept.pop(0), 1)
    shown += session.decoded(request, spread(" ".join(final), 3000), 1)
    for each in kept:
        assert session.decoded(*each, 1) == []
    assert_sound(shown)


# The lanes.


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


# A stream in motion.


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

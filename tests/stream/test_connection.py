"""A conversation over a channel of memory: real protocol, real session, real lanes; only the ears are a stand-in."""

import asyncio
import itertools
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from liveasr.errors import EngineError, UsageError
from liveasr.stream.connection import Connection
from liveasr.stream.detect import FsmnDetector, WindowDetector
from liveasr.stream.mailbox import MAX_WAITING_MESSAGES
from liveasr.stream.messages import (
    Ack,
    Audio,
    Done,
    Error,
    Flush,
    Flushed,
    Ping,
    Pong,
    Ready,
    SpeechEnded,
    SpeechStarted,
    Start,
    Stop,
    Transcript,
    VadSettings,
    encode,
    encode_audio,
)
from liveasr.stream.service import OfferedModel, Service, ServiceConfig
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.channels import MemoryChannel, serving, until
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, FakeStreamingEngine, said
from tests.wire import tag

SECOND = bytes(2 * 16_000)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 30)

    asyncio.run(bounded())


def converse(engine: FakeEngine, *frames: str | bytes | None, **settings: Any) -> MemoryChannel:
    """The channel after a whole conversation."""
    channels: list[MemoryChannel] = []

    async def work() -> None:
        async with serving(engine, **settings) as service:
            channels.append(MemoryChannel())
            channels[0].say(*frames)
            await Connection(channels[0], service).run()

    run(work())
    return channels[0]


def audio(*seconds: float) -> list[bytes]:
    return [encode_audio(Audio(index + 1, bytes(2 * int(length * 16_000)))) for index, length in enumerate(seconds)]


START = encode(Start(partials=False))
STOP = encode(Stop())


def test_a_session_from_start_to_done() -> None:
    channel = converse(FakeEngine([said("one two")]), START, *audio(0.5, 0.5), STOP)
    assert [type(message) for message in channel.sent if not isinstance(message, Ack)] == [
        Ready, SpeechStarted, SpeechEnded, Transcript, Done,
    ]  # fmt: skip
    assert channel.sent[-1] == Done(reason="stop", number=2, heard_ms=1000, speech_ms=1000, segments=1)
    transcript = next(message for message in channel.sent if isinstance(message, Transcript))
    assert (transcript.text, transcript.start_ms, transcript.end_ms) == ("one two", 0, 1000)
    assert [word.start_ms for word in transcript.words] == [0, 100]
    assert channel.closed == (1000, "")


def test_a_session_without_audio_is_done_at_once() -> None:
    channel = converse(FakeEngine([said("never")]), START, STOP)
    assert channel.sent[-1] == Done(reason="stop", number=0, heard_ms=0, speech_ms=0, segments=0)
    assert channel.closed == (1000, "")


def test_acks_come_every_200_ms_and_settle_nothing_that_has_no_final() -> None:
    channel = converse(FakeEngine([said("one")]), START, *audio(*[0.1] * 20), STOP)
    acks = [message for message in channel.sent if isinstance(message, Ack)]
    assert sorted({ack.heard_ms for ack in acks}) == list(range(200, 2001, 200))
    assert {ack.number for ack in acks} == {0}  # all of it belongs to a segment that has no final yet


def test_a_flush_brings_the_final_and_then_flushed_and_the_session_goes_on() -> None:
    frames = audio(1, 0.5, 0.5)
    channel = converse(FakeEngine([said("one"), said("two")]), START, frames[0], encode(Flush()), *frames[1:], STOP)
    kinds = [type(message) for message in channel.sent if isinstance(message, Transcript | Flushed | Done)]
    assert kinds == [Transcript, Flushed, Transcript, Done]
    finals = [message for message in channel.sent if isinstance(message, Transcript)]
    assert [(final.text, final.start_ms, final.end_ms) for final in finals] == [("one", 0, 1000), ("two", 1000, 2000)]


def test_partials_come_unless_they_are_off() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channel = MemoryChannel()
            channel.say(encode(Start()), *audio(*[0.1] * 10))
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Transcript)
            channel.say(STOP)
            await running
            finals = [message.final for message in channel.sent if isinstance(message, Transcript)]
            assert (finals[0], finals[-1], sum(finals)) == (False, True, 1)

    run(work())
    channel = converse(FakeEngine([said("one")]), START, *audio(*[0.1] * 10), STOP)
    assert [message.final for message in channel.sent if isinstance(message, Transcript)] == [True]


@pytest.mark.parametrize(
    ("frames", "code", "close"),
    [
        (["nonsense"], "bad_message", 4400),
        ([b"abc"], "bad_message", 4400),
        (audio(1), "wrong_order", 4409),
        ([STOP], "wrong_order", 4409),
        ([START, START], "wrong_order", 4409),
        ([START, *audio(1), STOP, *audio(1)], "wrong_order", 4409),
        ([START, audio(1, 1)[1]], "misnumbered", 4416),
        ([START, *audio(1), *audio(1)], "misnumbered", 4416),
        ([START, encode_audio(Audio(1, b"odd"))], "bad_message", 4400),
        ([encode(Start(model="parrot"))], "unsupported", 4404),
        ([encode(Start(model="鹦鹉" * 50))], "unsupported", 4404),
        ([encode(Start(language="zh"))], "unsupported", 4404),
        ([encode(Start(hotwords=("liveasr",)))], "unsupported", 4404),
        ([encode(Start(hotwords=("<|im_end|>",)))], "bad_message", 4400),
    ],
)
def test_a_client_that_breaks_the_rules_is_told_so_and_closed(frames: list[str | bytes], code: str, close: int) -> None:
    # The stopping session has a segment to finish, so that the broken rule comes first.
    channel = converse(FakeEngine([said("one")]), *frames)
    error = channel.sent[-1]
    assert isinstance(error, Error)
    assert (error.code, error.fatal) == (code, True)
    assert channel.closed is not None
    assert channel.closed[0] == close
    assert len(channel.closed[1].encode()) <= 123


def test_a_message_of_an_unknown_type_is_told_and_ignored() -> None:
    channel = converse(FakeEngine([said("one")]), '{"type": "sing"}', START, '{"type": "sing"}', *audio(1), STOP)
    errors = [message for message in channel.sent if isinstance(message, Error)]
    assert [(error.code, error.fatal) for error in errors] == [("unknown_type", False)] * 2
    assert isinstance(channel.sent[-1], Done)


def test_pings_are_answered_before_and_after_start() -> None:
    channel = converse(FakeEngine([said("one")]), encode(Ping(id=1)), START, encode(Ping(id=2)), STOP)
    assert [message.id for message in channel.sent if isinstance(message, Pong)] == [1, 2]


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    channel = converse(FakeEngine([said("one")]), START, *audio(1), None)
    assert channel.closed is None


def test_a_client_that_says_nothing_is_closed() -> None:
    for frames in ([], [START]):
        channel = converse(FakeEngine([said("one")]), *frames, idle_s=0.05)
        error = channel.sent[-1]
        assert isinstance(error, Error)
        assert error.code == "idle"
        assert channel.closed is not None
        assert channel.closed[0] == 4408


def test_an_engine_that_fails_ends_the_session_with_its_words() -> None:
    channel = converse(FakeEngine([EngineError("not enough memory")]), START, *audio(1), STOP)
    error = channel.sent[-1]
    assert error == Error(code="engine_failed", message="not enough memory", fatal=True)
    assert channel.closed == (4500, "not enough memory")


def test_a_fault_of_the_server_is_told_without_its_details(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("a secret")

    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            monkeypatch.setattr(service, "start", broken)
            channel = MemoryChannel()
            channel.say(START)
            await Connection(channel, service).run()
            error = channel.sent[-1]
            assert isinstance(error, Error)
            assert error.code == "internal"
            assert "secret" not in error.message
            assert channel.closed is not None
            assert channel.closed[0] == 1011

    run(work())


def test_more_sessions_than_allowed_are_refused_and_room_comes_back() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")]), max_sessions=1) as service:
            first, second, third = MemoryChannel(), MemoryChannel(), MemoryChannel()
            first.say(START)
            running = asyncio.create_task(Connection(first, service).run())
            await first.until(Ready)
            second.say(START)
            await Connection(second, service).run()
            assert isinstance(second.sent[-1], Error)
            assert second.sent[-1].code == "too_many_sessions"
            assert second.closed is not None
            assert second.closed[0] == 4503
            first.say(STOP)
            await running
            third.say(START, STOP)
            await Connection(third, service).run()
            assert isinstance(third.sent[-1], Done)

    run(work())


def test_a_shutdown_finishes_the_open_segment_and_refuses_newcomers() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one two")])) as service:
            talking, silent, late = MemoryChannel(), MemoryChannel(), MemoryChannel()
            talking.say(START, *audio(1))
            tasks = [asyncio.create_task(Connection(each, service).run()) for each in (talking, silent)]
            await talking.until(Ack)
            await service.drain(within_s=10)
            await asyncio.gather(*tasks)
            assert talking.sent[-1] == Done(reason="shutdown", number=1, heard_ms=1000, speech_ms=1000, segments=1)
            assert talking.closed == (1001, "")
            announced = next(index for index, message in enumerate(talking.sent) if isinstance(message, Error))
            assert talking.sent[announced] == Error(code="shutdown", message="the server is stopping", fatal=False)
            assert not any(isinstance(message, Transcript) for message in talking.sent[:announced])
            assert [message.text for message in talking.sent if isinstance(message, Transcript)] == ["one two"]
            assert silent.closed is not None
            assert silent.closed[0] == 1001
            await Connection(late, service).run()
            assert isinstance(late.sent[-1], Error)
            assert late.sent[-1].code == "shutdown"

    run(work())


def test_a_shutdown_does_not_wait_for_ever() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channel = MemoryChannel()
            channel.say(START)
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Ready)
            channel.readable.clear()
            await service.drain(within_s=0.05)
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(work())


def test_a_client_that_does_not_read_is_cut_off_and_holds_nobody_up() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            deaf, other = MemoryChannel(), MemoryChannel()
            deaf.readable.clear()
            deaf.say(START, *(encode(Ping(id=number)) for number in range(MAX_WAITING_MESSAGES + 5)))
            cut_off = asyncio.create_task(Connection(deaf, service).run())
            other.say(START, *audio(1), STOP)
            await Connection(other, service).run()
            assert isinstance(other.sent[-1], Done)
            await cut_off
            assert deaf.closed is not None
            assert deaf.closed[0] == 4429
            assert deaf.sent == []

    run(work())


def test_a_newer_revision_replaces_one_that_a_slow_reader_has_not_read(fsmn: FsmnWeights) -> None:
    def detector(config: VadConfig) -> FsmnDetector:
        return FsmnDetector(fsmn, config)

    async def work() -> None:
        engine = FakeEngine([said("one"), said("one two"), said("one two three"), said("one two three four")])
        async with serving(engine) as service:
            assert callable(detector)
            channel = MemoryChannel()
            channel.say(encode(Start()))
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Ready)
            channel.readable.clear()
            for frame in audio(*[0.1] * 40):
                channel.say(frame)
                await asyncio.sleep(0.005)
            channel.say(STOP)
            await asyncio.sleep(0.05)
            channel.readable.set()
            await running
            partials = [each for each in channel.sent if isinstance(each, Transcript) and not each.final]
            assert len(partials) <= 1  # the one that was on its way when the reader stopped
            assert isinstance(channel.sent[-1], Done)

    run(work())


def test_two_sessions_do_not_mix() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channels = [MemoryChannel(), MemoryChannel()]
            lengths = (1.0, 2.0)
            for channel, length in zip(channels, lengths, strict=True):
                channel.say(START, *audio(length), STOP)
            await asyncio.gather(*(Connection(channel, service).run() for channel in channels))
            for channel, length in zip(channels, lengths, strict=True):
                done = channel.sent[-1]
                assert isinstance(done, Done)
                assert (done.heard_ms, done.segments) == (int(length * 1000), 1)
            ids = {message.session for each in channels for message in each.sent if isinstance(message, Ready)}
            assert len(ids) == 2

    run(work())


def test_the_settings_of_the_voice_activity_detection_reach_it() -> None:
    heard: list[VadConfig] = []

    def detector(config: VadConfig) -> WindowDetector:
        heard.append(config)
        return WindowDetector(config)

    async def work() -> None:
        engine = FakeEngine([said("one")])
        service = Service([OfferedModel("fake", [engine])], detector, ServiceConfig())
        channel = MemoryChannel()
        vad = VadSettings(end_silence_ms=None, max_segment_ms=3000, min_speech_ms=10, pad_before_ms=20, pad_after_ms=30)
        channel.say(encode(Start(vad=vad, itn=True, language="en")), *audio(1), STOP)
        await Connection(channel, service).run()
        await service.close()
        assert heard == [
            VadConfig(end_silence_ms=None, max_segment_ms=3000, min_speech_ms=10, pad_before_ms=20, pad_after_ms=30)
        ]
        assert {(options.language, options.itn) for options in engine.options} == {("en", True)}

    run(work())


@pytest.mark.parametrize(("asked_ms", "heard_ms"), [(None, 15_000), (20_000, 20_000)])
def test_hot_words_and_the_longest_segment_are_as_the_model_has_them(asked_ms: int | None, heard_ms: int) -> None:
    heard: list[VadConfig] = []

    def detector(config: VadConfig) -> WindowDetector:
        heard.append(config)
        return WindowDetector(config)

    async def work() -> None:
        plain, writer = FakeEngine([said("one")]), FakeAutoregressiveEngine([said("two")])
        offered = [OfferedModel("plain", [plain]), OfferedModel("writer", [writer])]
        service = Service(offered, detector, ServiceConfig())
        channel, refused = MemoryChannel(), MemoryChannel()
        start = Start(model="writer", hotwords=("Ada Lovelace", "字"), vad=VadSettings(max_segment_ms=asked_ms))
        channel.say(encode(start), *audio(1), STOP)
        await Connection(channel, service).run()
        refused.say(encode(Start(hotwords=("Ada Lovelace",))))
        await Connection(refused, service).run()
        await service.close()
        ready = next(message for message in channel.sent if isinstance(message, Ready))
        assert [(each.hotwords, each.max_segment_ms) for each in ready.models] == [(False, 20_000), (True, 15_000)]
        assert [config.max_segment_ms for config in heard] == [heard_ms]
        assert {options.hotwords for options in writer.options} == {("Ada Lovelace", "字")}
        error = refused.sent[-1]
        assert isinstance(error, Error)
        assert (error.code, error.message) == ("unsupported", "plain takes no hot words; these do: writer")

    run(work())


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [(None, "one-q8"), ("one", "one-q8"), ("one:q8", "one-q8"), ("two", "two"), ("one-q8", "one-q8")],
)
def test_a_model_may_be_called_by_its_other_names_but_its_own_come_first(asked: str | None, chosen: str) -> None:
    async def work() -> None:
        offered = [
            OfferedModel("one-q8", [FakeEngine([said("one")])], also=("one", "one:q8", "two")),
            OfferedModel("two", [FakeEngine([said("two")])], also=("one",)),
        ]
        service = Service(offered, WindowDetector, ServiceConfig())
        channel = MemoryChannel()
        channel.say(encode(Start(model=asked)), *audio(1), STOP)
        await Connection(channel, service).run()
        await service.close()
        assert [message.model for message in channel.sent if isinstance(message, Ready)] == [chosen]

    run(work())


def test_while_the_event_loop_is_late_partials_wait_and_finals_do_not() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one two")])) as service:
            service._watching.cancel()  # how late the loop is, is told here

            async def finals_of(*, late: bool) -> list[bool]:
                service.metrics.recent_loop_lag_s = 0.1 if late else 0.0
                channel = MemoryChannel()
                channel.say(encode(Start()), *audio(*[0.1] * 30))
                running = asyncio.create_task(Connection(channel, service).run())
                await until(lambda: any(isinstance(each, Ack) and each.heard_ms >= 2800 for each in channel.sent))
                if not late:
                    await channel.until(Transcript)  # a final would take the place of a partial that waits
                channel.say(STOP)
                await running
                return [message.final for message in channel.sent if isinstance(message, Transcript)]

            assert await finals_of(late=True) == [True]
            assert (await finals_of(late=False))[0] is False
            assert await finals_of(late=True) == [True]

    run(work())


def test_an_event_loop_that_is_late_takes_no_new_session_until_it_is_in_time_again() -> None:
    async def work() -> None:
        service = Service([OfferedModel("fake", [FakeEngine([said("one")])])], WindowDetector, ServiceConfig())

        async def answer() -> str:
            channel = MemoryChannel()
            channel.say(START, STOP)
            await Connection(channel, service).run()
            last = channel.sent[-1]
            return last.code if isinstance(last, Error) else tag(last)

        assert await answer() == "done"
        for _ in range(3):
            await asyncio.sleep(0.11)
            time.sleep(1.0)  # noqa: ASYNC251 - the fault itself: something keeps the event loop
        assert service.overloaded
        assert await answer() == "overloaded"
        async with asyncio.timeout(20):
            while service.overloaded:  # noqa: ASYNC110 - an average over time, which tells nobody
                await asyncio.sleep(0.1)
        assert await answer() == "done"
        await service.close()

    run(work())


def test_a_language_is_refused_with_those_that_the_model_knows() -> None:
    channel = converse(FakeEngine([said("one")]), encode(Start(language="zh")))
    error = channel.sent[-1]
    assert isinstance(error, Error)
    assert (error.code, error.message) == ("unsupported", "fake knows no language zh; it knows auto, en")


@pytest.mark.parametrize("two_pass", [True, False])
def test_another_model_gives_the_partials_of_those_that_want_it(two_pass: bool) -> None:
    async def work() -> None:
        engine, streaming = FakeEngine([said("one")]), FakeStreamingEngine(["uno", "due"], 5)
        offered = [OfferedModel("fake", [engine], two_pass=two_pass)]
        service = Service(offered, WindowDetector, ServiceConfig(), ("streaming", [streaming]))
        channel = MemoryChannel()
        channel.say(encode(Start()), *audio(1, 1), STOP)
        await Connection(channel, service).run()
        await service.close()
        assert bool(streaming.streams) == two_pass

    run(work())


def test_a_clock_that_is_set_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(start=1_800_000_000, step=-3600)
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    monkeypatch.setattr(time, "time_ns", lambda: next(hours) * 10**9)
    channel = converse(FakeEngine([said("one two")]), START, *audio(*[0.1] * 20), STOP)
    assert channel.sent[-1] == Done(reason="stop", number=20, heard_ms=2000, speech_ms=2000, segments=1)


def test_a_huge_frame_is_taken_in_small_pieces() -> None:
    loud = (np.ones(16_000 * 30, np.float32) * 1000).astype("<i2").tobytes()
    channel = converse(
        FakeEngine([said("one")]), START, encode_audio(Audio(1, loud)), encode_audio(Audio(2, SECOND)), STOP
    )
    acks = [message.heard_ms for message in channel.sent if isinstance(message, Ack)]
    assert sorted(set(acks)) == list(range(200, 31_001, 200))
    assert isinstance(channel.sent[-1], Done)
    assert (channel.sent[-1].number, channel.sent[-1].heard_ms) == (2, 31_000)


def test_pings_keep_no_place_for_a_session_that_does_not_start() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")]), idle_s=0.3) as service:
            channel = MemoryChannel()
            running = asyncio.create_task(Connection(channel, service).run())
            while not running.done():
                channel.say(encode(Ping(id=1)))
                await asyncio.sleep(0.02)
            error = channel.sent[-1]
            assert isinstance(error, Error)
            assert (error.code, channel.closed and channel.closed[0]) == ("idle", 4408)

    run(work())


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["idle_s", "resume_s", "session_s"])
def test_times_that_are_none_are_refused(name: str, seconds: float) -> None:
    with pytest.raises(UsageError, match=name.removesuffix("_s")):
        ServiceConfig(**{name: seconds})  # type: ignore[arg-type]


def test_a_service_knows_when_it_is_full() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")]), max_sessions=1) as service:
            channel = MemoryChannel()
            channel.say(START)
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Ready)
            assert service.full
            channel.say(STOP)
            await running
            assert not service.full

    run(work())

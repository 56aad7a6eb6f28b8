"""What a client may heap up is bounded, and no client pays for what another one does."""

import asyncio

from liveasr.stream.mailbox import MAX_WAITING_MESSAGES
from liveasr.stream.messages import (
    Ack,
    Done,
    Flush,
    Flushed,
    Ping,
    Pong,
    Ready,
    Start,
    Stop,
    Transcript,
    encode,
)
from tests.channels import MemoryChannel, audio, connect, only, resume, run, serving, until
from tests.fakes import FakeEngine, GatedEngine, said

START = encode(Start(partials=False))
STOP = encode(Stop())


def test_many_messages_at_once_do_not_make_a_slow_reader_of_who_reads() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            channel = MemoryChannel()
            count = 3 * MAX_WAITING_MESSAGES
            channel.say(START, *(encode(Ping(id=number)) for number in range(count)), STOP)
            await connect(service, channel)
            assert only(channel, Pong) == [Pong(id=number) for number in range(count)]
            assert isinstance(channel.sent[-1], Done)

    run(work)


def test_empty_audio_is_not_kept() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            channel = MemoryChannel()
            channel.say(START, *audio(5), *audio(5_000, 6, b""))
            running = connect(service, channel)
            await channel.until(Ready)
            (entry,) = service._entries.values()
            await until(lambda: entry.conversation._number == 5_005)
            assert len(entry.conversation._ends) < 110  # half a second, twice every 10 ms
            channel.say(STOP)
            await running
            assert only(channel, Done) == [Done(reason="stop", number=5_005, heard_ms=500, speech_ms=500, segments=1)]

    run(work)


def test_flushes_wait_for_the_engine_as_audio_does_and_each_is_answered() -> None:
    async def work() -> None:
        engine = GatedEngine([said("a")])
        async with serving(engine) as service:
            channel = MemoryChannel()
            count = 5 * MAX_WAITING_MESSAGES
            channel.say(START, *audio(5), *[encode(Flush())] * count, STOP)
            running = connect(service, channel)
            await channel.until(Ready)
            (entry,) = service._entries.values()
            await until(lambda: entry.conversation.protocol.state == "stopping")
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(entry.conversation._stream._flushes) <= 1_000
            engine.gate.set()
            await running
            assert len(only(channel, Flushed)) == count
            assert isinstance(channel.sent[-1], Done)

    run(work)


def test_sessions_that_are_over_are_kept_only_as_far_as_there_is_room() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")]), max_sessions=4) as service:
            channels = [MemoryChannel() for _ in range(20)]
            for channel in channels:
                channel.say(START, STOP)
                await connect(service, channel)
                assert len(service._entries) <= 4
            back = MemoryChannel()
            back.say(resume(channels[-1], 1))
            await connect(service, back)
            assert isinstance(back.sent[-1], Done)

    run(work)


def test_an_ack_tells_only_of_finals_that_were_told_before() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            channel = MemoryChannel()
            channel.say(START)
            for number in range(1, 300):
                channel.say(*audio(1, number), encode(Flush()))
            channel.say(STOP)
            await connect(service, channel)
            told_ms = 0
            for message in channel.sent:
                if isinstance(message, Transcript) and message.final:
                    told_ms = message.end_ms
                elif isinstance(message, Ack):
                    assert message.settled_ms <= told_ms

    run(work)


def test_the_figures_tell_who_never_came_back() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")]), resume_s=0.01) as service:
            channel = MemoryChannel()
            channel.say(START, None)
            await connect(service, channel)
            await until(lambda: b'liveasr_sessions_ended_total{reason="gone"} 1.0' in service.measured())

    run(work)

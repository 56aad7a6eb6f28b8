"""What happens at the same time: a client comes back while its old connection, or the server, is at something."""

import asyncio
from typing import TypeAlias

import pytest

from liveasr.errors import EngineError
from liveasr.stream.mailbox import MAX_WAITING_BYTES
from liveasr.stream.messages import (
    Ack,
    Done,
    Error,
    Flush,
    Flushed,
    Ready,
    Resumed,
    Start,
    Stop,
    encode,
)
from liveasr.stream.service import Service
from tests.channels import MemoryChannel, audio, connect, only, resume, run, serving, until
from tests.fakes import FakeEngine, GatedEngine, said

START = encode(Start(partials=False))
STOP = encode(Stop())
Services: TypeAlias = list[Service]


def last_code(channel: MemoryChannel) -> str:
    error = channel.sent[-1]
    assert isinstance(error, Error)
    return error.code


class BreakingChannel(MemoryChannel):
    """Breaks after so many messages."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    async def send(self, frame: str) -> None:
        if self._left == 0:
            raise ConnectionResetError
        self._left -= 1
        await super().send(frame)


def test_a_client_comes_back_while_its_old_connection_waits_for_room() -> None:
    async def work() -> None:
        engine = GatedEngine([said("a")])
        async with serving(engine, max_sessions=2) as service:
            old, new = MemoryChannel(), MemoryChannel()
            # The lane stands still, finals wait for it, audio for them, and the reader for room.
            old.say(START)
            for number in range(1, 20):
                old.say(*audio(1, number), encode(Flush()))
            big = bytes(1 << 19)
            old.say(*audio(6, 20, big))
            running = connect(service, old)
            await asyncio.to_thread(engine.started.wait, 10)
            (entry,) = service._entries.values()
            await until(lambda: entry.conversation.inbox.waiting_bytes >= MAX_WAITING_BYTES)
            came = entry.conversation.protocol.last_number
            assert came < 25
            new.say(resume(old))
            going_on = connect(service, new)
            await running
            assert old.closed is not None
            assert old.closed[0] == 4411
            await new.until(Resumed)
            assert new.sent[0] == Resumed(
                session=entry.conversation.session_id, number=came, flushes=19, stopping=False
            )
            new.say(*audio(25 - came, came + 1, big), STOP)
            engine.gate.set()
            await going_on
            done = new.sent[-1]
            assert isinstance(done, Done)
            assert (done.number, done.heard_ms) == (25, 19 * 100 + 6 * (1 << 18) // 16)
            assert len(only(old, Flushed)) + len(only(new, Flushed)) == 19

    run(work)


@pytest.mark.parametrize("after", range(8))
def test_a_client_that_goes_while_messages_are_repeated_gets_each_once(after: int) -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            first = MemoryChannel()
            first.say(START, *audio(10), encode(Flush()), *audio(10, 11), STOP)
            await connect(service, first)
            heard, seq = [], 1
            for attempt in range(30):
                channel = BreakingChannel(after) if attempt < 3 else MemoryChannel()
                channel.say(resume(first, seq))
                await connect(service, channel)
                heard += [number for number in channel.seqs if number]
                seq = max([seq, *channel.seqs])
                if isinstance(channel.sent[-1] if channel.sent else None, Done):
                    break
            assert heard == first.seqs[1:]

    run(work)


def test_the_patience_of_a_connection_that_was_replaced_ends_nothing() -> None:
    class Slow(MemoryChannel):
        """Another connection takes over just when this one's patience is at its end."""

        async def receive(self) -> str | bytes | None:
            try:
                return await super().receive()
            except asyncio.CancelledError:
                if not going_on:
                    going_on.append(connect(services[0], new))
                    services[0].resume(next(iter(services[0]._entries)), Guest())
                raise

    class Guest:
        def turn_away(self, _error: object) -> None:
            return

    going_on: list[asyncio.Task[None]] = []
    services: Services = []
    new = MemoryChannel()

    async def work() -> None:
        async with serving(FakeEngine([said("a")]), idle_s=0.2) as service:
            services.append(service)
            old = Slow()
            old.say(START)
            running = connect(service, old)
            await old.until(Ready)
            new.say(resume(old), STOP)
            await running
            await asyncio.gather(*going_on)
            assert isinstance(new.sent[-1], Done)

    run(work)


def test_a_session_that_comes_to_its_end_without_its_client_is_gone() -> None:
    async def work() -> None:
        for engine in (FakeEngine([EngineError("broken")]), FakeEngine([said("a")])):
            async with serving(engine, session_s=0.5) as service:
                old, new = MemoryChannel(), MemoryChannel()
                old.say(START, *audio(5), encode(Flush()), None)
                await connect(service, old)
                (entry,) = service._entries.values()
                await entry.conversation.ended.wait()
                assert service.sessions == 0
                new.say(resume(old))
                await connect(service, new)
                assert last_code(new) == "gone"

    run(work)


def test_nobody_is_forgotten_who_is_just_coming_back() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")]), resume_s=0) as service:
            old, new = MemoryChannel(), MemoryChannel()
            old.say(START, *audio(5))
            running = connect(service, old)
            await old.until(Ack)
            new.say(resume(old), STOP)
            going_on = connect(service, new)
            old.say(None)
            await running
            await going_on
            # Either the session was there still, or it was not; it is never cut off once the client has it.
            assert isinstance(new.sent[-1], Done) or last_code(new) == "gone"

    run(work)


def test_a_shutdown_finishes_who_is_there_and_drops_who_is_not() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            gone, there, coming = MemoryChannel(), MemoryChannel(), MemoryChannel()
            gone.say(START, *audio(5), None)
            await connect(service, gone)
            there.say(START, *audio(5))
            running = [connect(service, there), connect(service, coming)]
            await there.until(Ack)
            coming.say(resume(gone))  # in the same moment
            await service.drain(within_s=10)
            await asyncio.gather(*running)
            assert service.sessions == 0
            assert isinstance(there.sent[-1], Done)
            assert coming.closed is not None
            assert coming.closed[0] == 1001

    run(work)


def test_a_shutdown_while_a_client_takes_over_finishes_its_session() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            old, new = MemoryChannel(), MemoryChannel()
            old.say(START, *audio(5))
            running = [connect(service, old)]
            await old.until(Ack)
            new.say(resume(old))
            running.append(connect(service, new))
            await new.until(Resumed)
            await service.drain(within_s=10)
            await asyncio.gather(*running)
            assert new.sent[-1] == Done(reason="shutdown", number=5, heard_ms=500, speech_ms=500, segments=1)

    run(work)


def test_who_is_turned_away_while_closing_is_left_to_it() -> None:
    class Stubborn(MemoryChannel):
        async def close(self, code: int, reason: str) -> None:
            await services[0].drain(within_s=0)
            await super().close(code, reason)

    services: Services = []

    async def work() -> None:
        async with serving(FakeEngine([said("a")])) as service:
            services.append(service)
            channel = Stubborn()
            channel.say("nonsense")
            await connect(service, channel)
            assert channel.closed is not None
            assert channel.closed[0] == 4400

    run(work)


def test_a_closed_service_leaves_no_task_of_any_session() -> None:
    async def work() -> None:
        engine = GatedEngine([said("a")])
        async with serving(engine, max_sessions=3) as service:
            for _ in range(5):  # two of them go to make room
                channel = MemoryChannel()
                channel.say(START, *audio(5), encode(Flush()), None)
                await connect(service, channel)
            engine.gate.set()
        # run() sees what is left

    run(work)

"""What waits between a connection and its session is in order and bounded."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.stream.mailbox import MAX_WAITING_ITEMS, Inbox, Mark, Outbox, Stretch
from liveasr.stream.messages import Ack, Audio, Done, Error, Lag, Overload, Pong, ServerMessage, Transcript


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 30)

    asyncio.run(bounded())


def partial(segment_id: int, revision: int) -> Transcript:
    return Transcript(
        segment_id=segment_id, revision=revision, final=False, committed="", tentative="", start_ms=0, end_ms=0
    )


def final(segment_id: int, revision: int) -> Transcript:
    return Transcript(
        segment_id=segment_id, revision=revision, final=True, committed="", tentative="", start_ms=0, end_ms=0, text=""
    )


items = st.lists(
    st.one_of(st.binary(max_size=300).map(lambda b: b * 2), st.sampled_from(["flush", "end"])), max_size=20
)


@settings(deadline=None, max_examples=60)
@given(items, st.integers(1, 200).map(lambda n: n * 2))
def test_audio_comes_out_as_it_went_in_however_it_was_cut(given_items: list[bytes | Mark], stretch_bytes: int) -> None:
    async def work() -> None:
        inbox = Inbox(stretch_bytes)
        expected: list[bytes | str] = [b""]
        number = 0
        for item in given_items:
            if isinstance(item, bytes):
                number += 1
                inbox.put(Audio(number, item))
                expected[-1:] = [expected[-1] + item] if isinstance(expected[-1], bytes) else [expected[-1], item]
            else:
                inbox.mark(item)
                expected.append(item)
        inbox.mark("end")
        found: list[bytes | str] = [b""]
        numbers = []
        while True:
            taken = await inbox.take()
            if isinstance(taken, Stretch):
                assert len(taken.payload) <= stretch_bytes
                found[-1:] = [found[-1] + taken.payload] if isinstance(found[-1], bytes) else [found[-1], taken.payload]
                numbers += [] if taken.number is None else [taken.number]
            else:
                found.append(taken)
                if (
                    len([each for each in found if isinstance(each, str)])
                    == sum(isinstance(each, str) for each in given_items) + 1
                ):
                    break
        assert [each for each in found if each] == [*(each for each in expected if each), "end"]
        assert numbers == sorted(numbers)
        assert not number or numbers[-1] == number
        assert inbox.waiting_bytes == 0

    run(work())


def test_who_sends_faster_than_is_taken_has_to_wait() -> None:
    async def work() -> None:
        inbox = Inbox(stretch_bytes=10, max_bytes=20)
        inbox.put(Audio(1, bytes(30)))
        waiting = asyncio.create_task(inbox.room())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        assert inbox.waiting_bytes == 30
        await inbox.take()
        await inbox.take()
        await waiting
        assert inbox.waiting_bytes == 10

    run(work())


def test_a_mark_has_room_in_a_full_inbox() -> None:
    async def work() -> None:
        inbox = Inbox(stretch_bytes=10, max_bytes=10)
        inbox.put(Audio(1, bytes(10)))
        inbox.mark("end")
        assert await inbox.take() == Stretch(bytes(10), 1)
        assert await inbox.take() == "end"

    run(work())


@pytest.mark.parametrize("item", ["flush", Audio(1, b"")])
def test_what_holds_no_sound_takes_room_as_well(item: Mark | Audio) -> None:
    async def work() -> None:
        inbox = Inbox(stretch_bytes=10)
        for _ in range(MAX_WAITING_ITEMS):
            await inbox.room()
            inbox.put(item) if isinstance(item, Audio) else inbox.mark(item)
        waiting = asyncio.create_task(inbox.room())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        await inbox.take()
        await waiting

    run(work())


async def drained(outbox: Outbox) -> list[ServerMessage]:
    found = []
    while len(outbox):
        await outbox.wait()
        found.append(outbox.take())
    return found


def test_messages_come_out_in_order() -> None:
    async def work() -> None:
        outbox = Outbox()
        for number in range(5):
            outbox.put(Pong(id=number))
        assert await drained(outbox) == [Pong(id=number) for number in range(5)]

    run(work())


def test_what_a_newer_message_makes_useless_is_left_out() -> None:
    async def work() -> None:
        outbox = Outbox()
        sent: list[ServerMessage] = [
            partial(0, 1), Ack(number=1, settled_ms=0, heard_ms=20), Pong(id=0), partial(0, 2), Lag(lag_ms=1000),
            partial(1, 1), Ack(number=2, settled_ms=0, heard_ms=40), final(0, 3), Overload(lag_ms=6000), partial(1, 2),
        ]  # fmt: skip
        for message in sent:
            outbox.put(message)
        assert await drained(outbox) == [
            Pong(id=0), Overload(lag_ms=6000), partial(1, 2), Ack(number=2, settled_ms=0, heard_ms=40), final(0, 3),
        ]  # fmt: skip

    run(work())


def test_an_ack_never_overtakes_the_final_that_it_tells_of() -> None:
    async def work() -> None:
        outbox = Outbox()
        for message in (
            Ack(number=0, settled_ms=0, heard_ms=900),
            final(0, 1),
            Ack(number=9, settled_ms=900, heard_ms=900),
        ):
            outbox.put(message)
        assert await drained(outbox) == [final(0, 1), Ack(number=9, settled_ms=900, heard_ms=900)]

    run(work())


def test_an_end_has_room_in_a_full_outbox() -> None:
    async def work() -> None:
        outbox = Outbox(max_messages=1)
        outbox.put(Pong(id=1))
        error = Error(code="engine_failed", message="", fatal=True)
        done = Done(reason="stop", number=0, heard_ms=0, speech_ms=0, segments=0)
        outbox.put(done)
        outbox.put(error)
        assert await drained(outbox) == [Pong(id=1), error]

    run(work())


def test_finals_are_never_left_out() -> None:
    async def work() -> None:
        outbox = Outbox()
        for segment in range(10):
            outbox.put(final(segment, 1))
        assert await drained(outbox) == [final(segment, 1) for segment in range(10)]

    run(work())


def test_a_reader_that_reads_nothing_overflows() -> None:
    async def work() -> None:
        outbox = Outbox(max_messages=3)
        for revision in range(100):
            outbox.put(partial(0, revision))  # one place, whatever comes
        outbox.put(Pong(id=1))
        outbox.put(Pong(id=2))
        with pytest.raises(OverflowError):
            outbox.put(Pong(id=3))

    run(work())

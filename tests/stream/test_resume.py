"""A connection that breaks loses nothing, neither audio nor text, and doubles nothing."""

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.stream.connection import Connection, Goodbye
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import Detector, FsmnDetector
from liveasr.stream.messages import (
    Ack,
    Audio,
    Done,
    Error,
    Flush,
    Flushed,
    Ready,
    Resume,
    Resumed,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Stop,
    Transcript,
    decode_server,
    encode,
    encode_audio,
)
from liveasr.stream.pcm import encode_pcm
from liveasr.types import Float32Array
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.channels import MemoryChannel, serving
from tests.fakes import FakeEngine, said

START = encode(Start(partials=False))
STOP = encode(Stop())


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(bounded())


def audio(count: int, first: int = 1) -> list[bytes]:
    """Frames of 100 ms."""
    return [encode_audio(Audio(number, bytes(3200))) for number in range(first, first + count)]


def session_of(channel: MemoryChannel) -> str:
    return next(message.session for message in channel.sent if isinstance(message, Ready))


def resumed(channel: MemoryChannel) -> Resumed:
    return next(message for message in channel.sent if isinstance(message, Resumed))


def test_a_session_goes_on_where_its_connection_broke() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one two")])) as service:
            first, second = MemoryChannel(), MemoryChannel()
            first.say(START, *audio(5))
            running = asyncio.create_task(Connection(first, service).run())
            await first.until(Ack)
            first.say(None)
            await running
            assert service.sessions == 1
            second.say(encode(Resume(session=session_of(first), seq=max(first.seqs))), *audio(5, first=6), STOP)
            await Connection(second, service).run()
            assert second.sent[0] == Resumed(session=session_of(first), number=5, flushes=0, stopping=False)
            assert second.sent[-1] == Done(reason="stop", number=10, heard_ms=1000, speech_ms=1000, segments=1)
            assert first.seqs + second.seqs[1:] == list(range(1, len(first.seqs) + len(second.seqs)))

    run(work())


def test_what_the_client_did_not_hear_is_repeated() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            first, second = MemoryChannel(), MemoryChannel()
            first.say(START, *audio(10), STOP)
            await Connection(first, service).run()
            assert first.closed == (1000, "")
            heard = 2  # and everything after it got lost on the way
            second.say(encode(Resume(session=session_of(first), seq=heard)))
            await Connection(second, service).run()
            assert second.sent[1:] == first.sent[heard:]
            assert second.closed == (1000, "")
            assert resumed(second).stopping

    run(work())


@pytest.mark.parametrize(("session", "seq"), [("nobody", 0), (None, 10_000), (None, 3)])
def test_what_cannot_be_resumed_is_gone(session: str | None, seq: int) -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            first, second = MemoryChannel(), MemoryChannel()
            first.say(START, None)
            await Connection(first, service).run()
            second.say(encode(Resume(session=session or session_of(first), seq=seq)))
            await Connection(second, service).run()
            error = second.sent[-1]
            assert isinstance(error, Error)
            assert error.code == "gone"
            assert second.closed is not None
            assert second.closed[0] == 4410

    run(work())


def test_a_session_is_not_kept_for_ever() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")]), resume_s=0.05) as service:
            first, second = MemoryChannel(), MemoryChannel()
            first.say(START, None)
            await Connection(first, service).run()
            for _ in range(1000):
                if service.sessions == 0:
                    break
                await asyncio.sleep(0.01)
            second.say(encode(Resume(session=session_of(first), seq=1)))
            await Connection(second, service).run()
            assert isinstance(second.sent[-1], Error)

    run(work())


def test_a_new_connection_takes_the_place_of_one_that_only_seems_alive() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            half_open, second = MemoryChannel(), MemoryChannel()
            half_open.say(START, *audio(5))
            running = asyncio.create_task(Connection(half_open, service).run())
            await half_open.until(Ack)
            second.say(encode(Resume(session=session_of(half_open), seq=max(half_open.seqs))))
            going_on = asyncio.create_task(Connection(second, service).run())
            await second.until(Resumed)
            half_open.say(*audio(5, first=6))  # what was still on its way has been sent again
            await running
            assert half_open.closed is not None
            assert half_open.closed[0] == 4411
            second.say(*audio(5, first=6), STOP)
            await going_on
            assert isinstance(second.sent[-1], Done)
            assert second.sent[-1].heard_ms == 1000

    run(work())


def test_a_failed_session_cannot_be_resumed() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            first, second = MemoryChannel(), MemoryChannel()
            first.say(START, "nonsense")
            await Connection(first, service).run()
            assert service.sessions == 0
            second.say(encode(Resume(session=session_of(first), seq=1)))
            await Connection(second, service).run()
            assert isinstance(second.sent[-1], Error)

    run(work())


def test_who_is_gone_makes_room_for_who_is_there() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")]), max_sessions=2) as service:
            channels = [MemoryChannel() for _ in range(5)]
            for channel in channels[:4]:
                channel.say(START, None)
                await Connection(channel, service).run()
                assert service.sessions <= 2
            channels[4].say(START, STOP)
            await Connection(channels[4], service).run()
            assert isinstance(channels[4].sent[-1], Done)

    run(work())


def test_a_session_has_a_longest_length() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")]), session_s=0.5) as service:
            channel = MemoryChannel()
            channel.say(START)
            await Connection(channel, service).run()
            error = channel.sent[-1]
            assert isinstance(error, Error)
            assert error.code == "session_limit"
            assert channel.closed is not None
            assert channel.closed[0] == 4413

    run(work())


def assert_nothing_is_lost_or_said_twice(heard: list[ServerMessage]) -> None:
    counts = {kind: sum(isinstance(each, kind) for each in heard) for kind in (SpeechStarted, SpeechEnded, Flushed)}
    assert counts == {SpeechStarted: 3, SpeechEnded: 3, Flushed: 2}
    finals = [each for each in heard if isinstance(each, Transcript)]
    assert [(each.text, each.start_ms, each.end_ms) for each in finals] == [
        ("one", 0, 1200),
        ("two", 1200, 2000),
        ("three", 2000, 3000),
    ]
    flushed = [index for index, each in enumerate(heard) if isinstance(each, Flushed)]
    assert [
        sum(isinstance(each, Transcript) for each in heard[:index]) >= count + 1 for count, index in enumerate(flushed)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_breaks_anywhere_lose_nothing_and_double_nothing(seed: int) -> None:  # noqa: C901 - one client, one line
    """A client as it should be, over a line that breaks at random in both directions."""
    chance = random.Random(seed)  # noqa: S311 - to break things, not to hide them
    script: list[bytes | str] = [
        *audio(12),
        encode(Flush()),
        *audio(8, first=13),
        encode(Flush()),
        *audio(10, first=21),
        STOP,
    ]

    async def work() -> None:
        async with serving(FakeEngine([said("one"), said("two"), said("three")])) as service:
            heard: list[ServerMessage] = []
            session, seq, sent = None, 0, 0
            for _attempt in range(200):
                channel = MemoryChannel()
                running = asyncio.create_task(Connection(channel, service).run())
                channel.say(START if session is None else encode(Resume(session=session, seq=seq)))
                await channel.until(Ready if session is None else Resumed)
                if session is not None:
                    progress = resumed(channel)
                    sent = progress.number + progress.flushes + progress.stopping
                count = len(script) - sent if chance.random() < 0.3 else chance.randint(0, 6)
                channel.say(*script[sent : sent + count])
                for _ in range(chance.randint(0, 40)):
                    await asyncio.sleep(0)
                if count == len(script) - sent and chance.random() < 0.7:
                    await running
                else:
                    channel.say(None)
                    await running
                arrived = chance.randint(1, len(channel.sent)) if chance.random() < 0.5 else len(channel.sent)
                for message, number in list(zip(channel.sent, channel.seqs, strict=True))[:arrived]:
                    if isinstance(message, Ready):
                        session = message.session
                    if number:
                        assert number == seq + 1
                        seq = number
                        heard.append(message)
                if session is None:
                    session, seq = session_of(channel), 0  # it heard nothing, not even that it began
                if any(isinstance(message, Done) for message in heard):
                    break
            assert_nothing_is_lost_or_said_twice(heard)
            assert heard[-1] == Done(reason="stop", number=30, heard_ms=3000, speech_ms=3000, segments=3)

    run(work())


@pytest.fixture(scope="module")
def samples() -> Float32Array:
    with AudioFile(Path(__file__).parents[1] / "data" / "digits-clean.wav") as recording:
        return np.concatenate(list(recording.blocks()))


def test_a_new_session_from_what_is_not_settled_says_the_rest_and_nothing_twice(
    samples: Float32Array, fsmn: FsmnWeights
) -> None:
    """What a client does when the server has been started anew, at whatever moment that was."""

    def detector(config: VadConfig) -> Detector:
        return FsmnDetector(fsmn, config)

    async def segments(first_sample: int, count: int) -> tuple[list[tuple[int, int]], int]:
        """Finals on the clock of the recording, and up to where everything is settled."""
        async with serving(FakeEngine([said("word")]), detector) as service:
            channel = MemoryChannel()
            payload = encode_pcm(samples[first_sample:], "s16le")
            frames = [payload[start : start + 640] for start in range(0, len(payload), 640)][:count]
            channel.say(START)
            running = asyncio.create_task(Connection(channel, service).run())
            for index, frame in enumerate(frames):
                channel.say(encode_audio(Audio(index + 1, frame)))
                if index % 25 == 0:
                    await asyncio.sleep(0.002)
            if count < len(payload) // 640:
                await asyncio.sleep(0.05)
                channel.say(None)
            else:
                channel.say(STOP)
            await running
            offset_ms = first_sample // 16
            transcripts = [each for each in channel.sent if isinstance(each, Transcript)]
            finals = [(each.start_ms + offset_ms, each.end_ms + offset_ms) for each in transcripts]
            acks = [each.settled_ms for each in channel.sent if isinstance(each, Ack)]
            return finals, max([0, *acks, *(each.end_ms for each in transcripts)])

    async def work() -> None:
        whole, _settled = await segments(0, 10_000)
        assert len(whole) == 3
        for cut in (20, 60, 120, 150, 200, 270, 290, 350, 400, 425):
            before, settled_ms = await segments(0, cut)
            after, _settled = await segments(settled_ms * 16, 10_000)
            found = before + after
            assert len(found) == 3, (cut, settled_ms, before, after)
            for (start, end), (true_start, true_end) in zip(found, whole, strict=True):
                assert abs(end - true_end) <= 20
                assert abs(start - true_start) <= 20

    run(work())


def test_settled_numbers_are_those_of_frames_before_the_open_segment(samples: Float32Array, fsmn: FsmnWeights) -> None:
    def detector(config: VadConfig) -> Detector:
        return FsmnDetector(fsmn, config)

    async def work() -> None:
        async with serving(FakeEngine([said("word")]), detector) as service:
            channel = MemoryChannel()
            payload = encode_pcm(samples, "s16le")
            channel.say(START)
            running = asyncio.create_task(Connection(channel, service).run())
            for index, start in enumerate(range(0, len(payload), 640)):
                channel.say(encode_audio(Audio(index + 1, payload[start : start + 640])))
                await asyncio.sleep(0.001 if index % 10 == 0 else 0)
            channel.say(STOP)
            await running
            acks = [message for message in channel.sent if isinstance(message, Ack)]
            assert acks == sorted(acks, key=lambda ack: (ack.number, ack.settled_ms))
            assert all(ack.number * 20 <= ack.settled_ms <= ack.heard_ms for ack in acks)
            assert all(ack.settled_ms - ack.number * 20 < 300 for ack in acks)  # a stretch of audio and a frame
            assert acks[-1].number > 0

    run(work())


def test_the_text_frames_of_a_session_carry_their_numbers() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channel = MemoryChannel()
            channel.say(START, *audio(5), STOP)
            await Connection(channel, service).run()
            assert channel.seqs == list(range(1, len(channel.seqs) + 1))
            assert decode_server('{"type":"flushed","seq":7}') == Flushed(seq=7)

    run(work())


class LeavingChannel(MemoryChannel):
    """A client that closes its connection where others break it."""

    async def receive(self) -> str | bytes | None:
        frame = await super().receive()
        if frame is None:
            raise Goodbye
        return frame


def test_who_leaves_by_itself_does_not_come_back() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channel = LeavingChannel()
            channel.say(START, *audio(5), None)
            await Connection(channel, service).run()
            assert service.sessions == 0

    run(work())

"""Connections that break and servers that are started anew under a client that goes on: nothing lost, nothing twice."""

import asyncio
import random
import signal
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Self

import numpy as np
import pytest

from liveasr.clients.ws import Disconnected, Output, Reconnected, RemoteStream, connect
from liveasr.errors import LinkError
from liveasr.stream.live import Flushed
from liveasr.stream.messages import Done, Start, VadSettings
from liveasr.types import Float32Array, LiveTranscript, SpeechEnd, SpeechStart, Transcript
from tests.chunking import pieces
from tests.clients.faulty import CUTS, Proxy, proxy
from tests.clients.talking import EXACT, SPOKEN, finals, heard, run
from tests.servers import ServerProcess

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ServerProcess() as process:
        yield process.url


@pytest.fixture(scope="module")
def undisturbed(server: str, clean: Float32Array) -> list[Transcript]:
    found: list[Transcript] = []

    async def work() -> None:
        async with connect(server, EXACT) as stream:
            _, outputs = await asyncio.gather(speak(stream, clean), heard(stream))
            found.extend(finals(outputs))

    run(work)
    assert [final.text for final in found] == SPOKEN
    return found


async def speak(stream: RemoteStream, samples: Float32Array, pace: float = 0) -> None:
    """Say everything, so many times as fast as speech; 0 for as fast as it goes."""
    for block in pieces(samples, 320):
        await stream.feed(block)
        await asyncio.sleep(0.02 / pace if pace else 0)
    await stream.finish()


def assert_told_as_one_stream(outputs: list[Output]) -> None:
    """Ids rise by one, revisions rise, what is committed stays, beginnings and ends come once and in their turn."""
    for segment_id in range(max((o.segment_id for o in outputs if isinstance(o, LiveTranscript)), default=-1) + 1):
        revisions = [o for o in outputs if isinstance(o, LiveTranscript) and o.segment_id == segment_id]
        for before, after in pairwise(revisions):
            assert after.revision > before.revision
            assert after.committed.startswith(before.committed)
            assert not before.is_final
        assert revisions[-1].is_final
        assert revisions[-1].final is not None
        assert revisions[-1].final.segment_id == segment_id
    events = [type(o) for o in outputs if isinstance(o, SpeechStart | SpeechEnd)]
    assert events == [SpeechStart, SpeechEnd] * (len(events) // 2)
    assert len(events) == 2 * len(finals(outputs))
    link = [type(o) for o in outputs if isinstance(o, Disconnected | Reconnected)]
    assert link == [Disconnected, Reconnected] * (len(link) // 2)


def assert_same(found: list[Transcript], expected: list[Transcript], within_ms: int) -> None:
    assert [final.text for final in found] == [final.text for final in expected]
    assert [final.segment_id for final in found] == list(range(len(expected)))
    for final, true in zip(found, expected, strict=True):
        times = [(word.start_ms, word.end_ms) for word in final.words] + [(final.start_ms, final.end_ms)]
        truth = [(word.start_ms, word.end_ms) for word in true.words] + [(true.start_ms, true.end_ms)]
        for (start, end), (true_start, true_end) in zip(times, truth, strict=True):
            assert abs(start - true_start) <= within_ms
            assert abs(end - true_end) <= within_ms


# The connection breaks; the server lives.


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pace", [0, 4])
def test_a_connection_that_breaks_at_any_moment_changes_nothing(
    seed: int, pace: float, server: str, clean: Float32Array, undisturbed: list[Transcript]
) -> None:
    """Cut by bytes, in the middle of frames and of handshakes, so that a test cuts where it did before."""
    chance = random.Random(seed)  # noqa: S311 - to break things, not to hide them

    async def work() -> None:
        async with proxy(server) as broken:
            broken.plan.append((chance.randint(2_000, 100_000), chance.choice(CUTS)))
            broken.plan += [(int(10 ** chance.uniform(2, 5)), chance.choice(CUTS)) for _ in range(chance.randint(3, 8))]
            async with connect(broken.url, EXACT) as stream:
                _, outputs = await asyncio.gather(speak(stream, clean, pace), heard(stream))
            assert not broken.plan
        assert finals(outputs) == undisturbed
        assert_told_as_one_stream(outputs)
        assert stream.summary == Done(reason="stop", number=87, heard_ms=8628, speech_ms=5940, segments=3)

    run(work)


def test_a_connection_that_only_seems_alive_is_noticed(
    server: str, clean: Float32Array, undisturbed: list[Transcript]
) -> None:
    async def work() -> None:
        async with proxy(server) as broken, connect(broken.url, EXACT) as stream:
            listening = asyncio.create_task(heard(stream))
            await stream.feed(clean[:40_000])
            broken.cut("silence")
            await stream.feed(clean[40_000:])
            await stream.finish()
            outputs = await listening
            assert [o.reason.partition(": ")[2] for o in outputs if isinstance(o, Disconnected)] == [
                "nothing is heard of it; is the network up?"
            ]
            assert finals(outputs) == undisturbed

    run(work)


def test_what_is_said_while_there_is_no_connection_is_said_afterwards(server: str, clean: Float32Array) -> None:
    def told(outputs: list[Output]) -> list[Transcript | Flushed]:
        both = [output.final if isinstance(output, LiveTranscript) else output for output in outputs]
        return [output for output in both if isinstance(output, Transcript | Flushed)]

    async def use(stream: RemoteStream, broken: Proxy, *, breaks: bool) -> list[Output]:
        await stream.feed(clean[:16_000])
        if breaks:
            broken.refusing = True
            broken.cut("reset")
        await stream.feed(clean[16_000:32_000])
        await stream.flush()
        await stream.feed(clean[32_000:50_000])
        await stream.flush()
        await stream.flush()
        await stream.feed(clean[50_000:])
        finishing = asyncio.create_task(stream.finish())
        if breaks:
            await asyncio.sleep(0.3)
            assert broken.connections > 2
            broken.refusing = False
        await finishing
        return await heard(stream)

    async def work() -> None:
        async with proxy(server) as broken:
            async with connect(broken.url, EXACT) as stream:
                expected = await use(stream, broken, breaks=False)
            async with connect(broken.url, EXACT) as stream:
                outputs = await use(stream, broken, breaks=True)
        assert [type(output) for output in outputs].count(Flushed) == 3
        assert told(outputs) == told(expected)
        assert_told_as_one_stream(outputs)

    run(work)


# The server dies, and another takes its place.


class Mortal:
    """A server that is ended, and started anew on the same port."""

    def __init__(self) -> None:
        self._process = ServerProcess()
        self.url = self._process.url

    async def die(self, number: signal.Signals) -> None:
        await asyncio.to_thread(self._process.stop, number)

    def freeze(self) -> None:
        self._process.process.send_signal(signal.SIGSTOP)

    async def rise(self) -> None:
        self._process = await asyncio.to_thread(ServerProcess, port=int(self.url.rpartition(":")[2]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.__exit__(None, None, None)


async def speak_to_mortal(
    stream: RemoteStream, server: Mortal, samples: Float32Array, ends_ms: Sequence[int], number: signal.Signals
) -> None:
    """Three times as fast as speech, to a server that dies at these moments."""
    for index, block in enumerate(pieces(samples, 320)):
        for _ in range(ends_ms.count(index * 20)):
            await server.die(number)
            await server.rise()
        await stream.feed(block)
        await asyncio.sleep(0.02 / 3)
    await stream.finish()


KILLS = [(0, 8600), (100, 2300), (400, 2800), (900, 4200), (1500, 5500), (3300, 6400), (7200, 8000), (3800, 3800)]
STOPS = [(0, 2300), (900, 4200), (1500, 6400), (7200, 8600)]


@pytest.mark.parametrize(
    ("number", "ends_ms"),
    [*((signal.SIGKILL, ends_ms) for ends_ms in KILLS), *((signal.SIGTERM, ends_ms) for ends_ms in STOPS)],
)
def test_a_server_that_ends_and_is_started_anew_hears_every_word_once(
    number: signal.Signals, ends_ms: Sequence[int], clean: Float32Array, undisturbed: list[Transcript]
) -> None:
    """In silence, within words, between them, in the pause that ends a segment, and twice in a row."""

    async def work() -> None:
        with Mortal() as server:
            async with connect(server.url, EXACT) as stream:
                speaking = asyncio.create_task(speak_to_mortal(stream, server, clean, ends_ms, number))
                outputs = await heard(stream)
                await speaking
        assert_told_as_one_stream(outputs)
        assert_same(finals(outputs), undisturbed, 20)
        assert stream.summary is not None
        assert (stream.summary.number, stream.summary.heard_ms, stream.summary.segments) == (87, 8628, 3)

    run(work)


def test_a_server_that_is_killed_after_the_stop_is_told_the_rest_again(
    clean: Float32Array, undisturbed: list[Transcript]
) -> None:
    async def work() -> None:
        with Mortal() as server:
            async with connect(server.url, EXACT) as stream:
                await stream.feed(clean[:64_000])
                server.freeze()  # so that it cannot be done before it is killed
                await stream.feed(clean[64_000:])
                finishing = asyncio.create_task(stream.finish())
                await asyncio.sleep(0.1)
                await server.die(signal.SIGKILL)
                await server.rise()
                await finishing
                outputs = await heard(stream)
        assert_told_as_one_stream(outputs)
        assert_same(finals(outputs), undisturbed, 20)

    run(work)


def test_a_server_that_is_gone_for_good_is_an_error_after_a_while(clean: Float32Array) -> None:
    async def work() -> None:
        with Mortal() as server:
            async with connect(server.url, reconnect_s=0.5) as stream:
                await stream.feed(clean[:64_000])
                await server.die(signal.SIGKILL)
                outputs: list[Output] = []
                with pytest.raises(
                    LinkError, match=r"^http://.*: nobody listens there; .* \(tried again for 0\.5 s\)$"
                ):
                    await heard(stream, outputs)
                assert [type(output) for output in outputs].count(Disconnected) == 1
                await stream.feed(clean)  # taken no more, and no error either
                await stream.finish()
                assert stream.summary is None

    run(work)


def test_a_server_that_is_stopped_for_good_has_said_what_it_heard(clean: Float32Array) -> None:
    async def work() -> None:
        with Mortal() as server:
            async with connect(server.url, reconnect_s=0.5) as stream:
                for block in pieces(clean[: 2 * 16_000], 320):
                    await stream.feed(block)
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.5)
                await server.die(signal.SIGTERM)
                outputs: list[Output] = []
                with pytest.raises(LinkError, match="nobody listens there"):
                    await heard(stream, outputs)
                assert [final.text for final in finals(outputs)] == SPOKEN[:1]

    run(work)


def test_leaving_while_there_is_no_connection_takes_no_time(clean: Float32Array) -> None:
    async def work() -> None:
        with Mortal() as server:
            async with connect(server.url) as stream:
                await stream.feed(clean[:64_000])
                await server.die(signal.SIGKILL)
                finishing = asyncio.create_task(stream.finish())
                async for output in stream.outputs():
                    if isinstance(output, Disconnected):
                        stream.cancel()
                await finishing

    run(work)


# How much is kept.


@pytest.mark.parametrize(
    "vad",
    [
        VadSettings(max_segment_ms=1000),
        VadSettings(max_segment_ms=5000, end_silence_ms=10_000, pad_before_ms=5000, pad_after_ms=5000),
        VadSettings(end_silence_ms=None),
    ],
)
def test_a_stream_never_keeps_more_than_it_may_and_never_waits_for_ever(
    vad: VadSettings, server: str, clean: Float32Array
) -> None:
    talk = np.concatenate([clean] * 8)
    kept_ms = []

    async def use(stream: RemoteStream) -> None:
        for block in pieces(talk, 4800):
            await stream.feed(block)
            kept_ms.append(stream.heard_ms - stream._unsettled.settled_ms)
        await stream.finish()

    async def work() -> None:
        async with connect(server, Start(vad=vad), keep_ms=0) as stream:
            await asyncio.gather(use(stream), heard(stream))
            assert max(kept_ms) <= stream._unsettled.keep_ms + 400  # a block and what is too short for a frame
            assert max(kept_ms) >= stream._unsettled.keep_ms - 400  # it did have to wait

    run(work)


def test_callers_take_turns_while_one_waits_for_room(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server, Start(vad=VadSettings(max_segment_ms=1000)), keep_ms=0) as stream:
            feeding = asyncio.create_task(stream.feed(np.concatenate([clean] * 4)))
            flushing = asyncio.create_task(stream.flush())
            finishing = asyncio.create_task(stream.finish())
            outputs = await heard(stream)
            await asyncio.gather(feeding, flushing, finishing)
            last = next(index for index, output in enumerate(outputs) if isinstance(output, Flushed))
            assert finals(outputs[last:]) == []
            assert " ".join(final.text for final in finals(outputs)).split().count("nine") == 4

    run(work)

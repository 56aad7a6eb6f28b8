"""What the client says over the wire, and what it makes of what it is told, with scripted servers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from liveasr.clients.ws import RemoteStream, connect
from liveasr.stream.messages import Audio, AudioFormat, Done, Error, Flush, Lag, Overload, Ping, Pong, Start, Stop
from liveasr.stream.pcm import encode_pcm
from liveasr.types import Float32Array, LiveTranscript, SpeechEnd, SpeechStart, Transcript
from tests.chunking import pieces
from tests.clients.scripted import TOLD, Client, received, scripted
from tests.clients.talking import fails, heard, run
from tests.sounds import silence

# What is sent, as a scripted server sees it.


def sent_by(use: Callable[[RemoteStream], Awaitable[None]], start: Start | None = None, **limits: Any) -> list[Any]:
    """What a server gets of a session in which a stream is used so, and then finished."""
    said: list[Any] = []

    async def script(client: Client) -> None:
        said.extend(await received(client, **limits))

    async def work() -> None:
        async with scripted(script) as url, connect(url, start) as stream:
            await use(stream)
            await stream.finish()

    run(work)
    return said


def test_small_blocks_are_sent_together_and_large_ones_apart(clean: Float32Array) -> None:
    async def use(stream: RemoteStream) -> None:
        for block in (*pieces(clean[:8010], 20), clean[8010:20_000]):
            await stream.feed(block)

    *audio, stop = sent_by(use)
    assert stop == Stop()
    assert [len(each.payload) for each in audio] == [3200] * 12 + [1600]
    assert b"".join(each.payload for each in audio) == encode_pcm(clean[:20_000], "s16le")


def test_no_message_is_longer_than_the_server_takes(clean: Float32Array) -> None:
    async def use(stream: RemoteStream) -> None:
        await stream.feed(clean[:1000])

    *audio, _ = sent_by(use, Start(audio=AudioFormat(encoding="f32le")), message_bytes=107)
    assert [len(each.payload) for each in audio] == [100] * 40  # 4 more are the number, 3 are half a sample
    assert b"".join(each.payload for each in audio) == encode_pcm(clean[:1000], "f32le")


def test_a_flush_sends_what_was_held_back_first(clean: Float32Array) -> None:
    async def use(stream: RemoteStream) -> None:
        await stream.feed(clean[:100])
        await stream.flush()
        await stream.feed(clean[100:200])

    payloads = [encode_pcm(clean[:100], "s16le"), encode_pcm(clean[100:200], "s16le")]
    assert sent_by(use) == [Audio(1, payloads[0]), Flush(), Audio(2, payloads[1]), Stop()]


def test_blocks_may_be_used_again_by_the_caller() -> None:
    async def use(stream: RemoteStream) -> None:
        block = np.full(10, 0.5, np.float32)
        await stream.feed(block)
        block[:] = 0

    assert sent_by(use)[0] == Audio(1, encode_pcm(np.full(10, 0.5, np.float32), "s16le"))


def test_a_stream_without_audio_is_kept_alive() -> None:
    async def script(client: Client) -> None:
        await client.welcome(idle_s=0.5)
        for _ in range(3):
            *_, ping = await client.until(Ping)
            assert isinstance(ping, Ping)
            await client.tell(Pong(id=ping.id))
        await client.tell(Error(code="engine_failed", message="three pings came", fatal=True))

    run(lambda: fails(script, "three pings came"))


def test_a_feed_waits_while_the_server_does_not_read_until_it_is_cancelled() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.connection.wait_closed()

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            feeding = asyncio.create_task(stream.feed(silence(1800)))  # more than is kept
            await asyncio.wait({feeding}, timeout=1)
            assert not feeding.done()
            stream.cancel()
            await feeding
            await stream.finish()
            assert await heard(stream) == []

    run(work)


def test_a_server_that_does_not_read_cannot_keep_a_client() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.connection.wait_closed()

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            feeding = asyncio.create_task(stream.feed(silence(1800)))
            await asyncio.wait({feeding}, timeout=0.2)
        await feeding

    run(work)


# What is received.


def test_events_and_transcripts_are_those_of_the_server() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.next()
        await client.tell(*TOLD, Overload(lag_ms=5200), Lag(lag_ms=1200))
        await client.until(Stop)
        await client.tell(Lag(lag_ms=400), Done(reason="stop", number=1, heard_ms=100, speech_ms=650, segments=1))

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            await stream.feed(silence(0.1))
            outputs = stream.outputs()
            told = [await anext(outputs) for _ in TOLD]
            assert told == [
                SpeechStart(4000, 450 * 16),
                LiveTranscript(0, 1, "one", " t", 250, 700),
                SpeechEnd(14_400, 1700 * 16, forced_cut=False),
                LiveTranscript(0, 2, "one", "", 250, 900, Transcript(0, "1", (), 250, 900)),
            ]
            while stream.lag_ms != 1200:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            await stream.finish()
            assert [output async for output in outputs] == []
            assert stream.lag_ms == 0
            assert stream.summary == Done(reason="stop", number=1, heard_ms=100, speech_ms=650, segments=1)

    run(work)


def test_what_a_later_version_says_is_ignored_and_a_small_error_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.connection.send('{"type": "applause", "volume": 11}')
        await client.tell(Error(code="unknown_type", message="what is that?", fatal=False))
        await client.connection.send('{"type": "ack", "number": 0, "settled_ms": 0, "heard_ms": 0, "mood": "fine"}')
        await client.until(Stop)
        await client.tell(Done(reason="stop", number=0, heard_ms=0, speech_ms=0, segments=0))

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            await stream.finish()
            assert await heard(stream) == []

    with caplog.at_level(logging.WARNING, "liveasr"):
        run(work)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["what is that?"]

"""What servers never do in one's own tests, but do in the world, to a client that wants to go on."""

from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from liveasr.clients.ws import Disconnected, Reconnected, connect
from liveasr.errors import LiveasrError, WireError
from liveasr.stream import messages
from liveasr.stream.live import Flushed
from liveasr.stream.messages import (
    CLOSE_CODES,
    Ack,
    Done,
    Error,
    Flush,
    SpeechEnded,
    SpeechStarted,
    Stop,
    WireWord,
    encode,
)
from liveasr.stream.messages import Transcript as WireTranscript
from liveasr.types import LiveTranscript, SpeechEnd, SpeechStart, Transcript, Word
from tests.clients.scripted import Client, Script, scripted
from tests.clients.talking import EXACT, heard, run
from tests.sounds import silence

pytestmark = pytest.mark.usefixtures("impatient")


def in_turn(*scripts: Script) -> Script:
    """A server that treats its first client so, and so on."""
    left = iter(scripts)

    async def script(client: Client) -> None:
        await next(left)(client)

    return script


async def vanish(client: Client) -> None:
    client.connection.transport.abort()


async def greet_and_vanish(client: Client) -> None:
    await client.welcome()
    await client.next()
    await vanish(client)


def failing(code: Any) -> Script:
    async def script(client: Client) -> None:
        await client.next()
        await client.connection.send(encode(Error(code=code, message="so it is", fatal=True)))
        await client.connection.close(CLOSE_CODES[code])

    return script


async def finish_well(client: Client) -> None:
    """Serve a new session to its end."""
    start = await client.welcome()
    assert start.model == "digits"  # as the first session had it, though it asked for none
    await client.until(Stop)
    await client.tell(Done(reason="stop", number=client.protocol.last_number, heard_ms=200, speech_ms=0, segments=0))


@pytest.mark.parametrize(
    "scripts",
    [
        [vanish, finish_well],
        [failing("gone"), finish_well],
        [failing("gone"), vanish, failing("overloaded"), failing("too_many_sessions"), finish_well],
        [failing("shutdown"), failing("gone"), finish_well],
    ],
)
def test_a_session_is_begun_anew_however_often_that_fails(scripts: list[Script]) -> None:
    async def work() -> None:
        turns = in_turn(greet_and_vanish, *scripts[:-1], failing("gone"), scripts[-1])
        async with scripted(turns) as url, connect(url) as stream:
            await stream.feed(silence(0.2))
            await stream.finish()
            assert [type(output) for output in await heard(stream)] == [Disconnected, Reconnected]
            assert stream.summary == Done(reason="stop", number=2, heard_ms=200, speech_ms=0, segments=0)

    run(work)


@pytest.mark.parametrize("code", ["unsupported", "bad_message", "engine_failed"])
def test_what_will_not_change_is_not_tried_again(code: Any) -> None:
    async def work() -> None:
        async with scripted(in_turn(greet_and_vanish, failing(code))) as url, connect(url) as stream:
            await stream.feed(silence(0.2))
            with pytest.raises(WireError, match=r"so it is$") as caught:
                await heard(stream)
            assert caught.value.code == code

    run(work)


@pytest.mark.parametrize(("status", "words"), [(401, "wants a token"), (403, "refuses"), (404, "there is nothing")])
def test_a_server_that_does_not_let_one_in_any_more_is_told(status: int, words: str) -> None:
    statuses = iter([None, 503, 429, status])

    def answer(connection: ServerConnection, _request: Request) -> Response | None:
        code = next(statuses)
        return None if code is None else connection.respond(HTTPStatus(code), "")

    async def work() -> None:
        async with scripted(greet_and_vanish, process_request=answer) as url, connect(url) as stream:
            await stream.feed(silence(0.2))
            with pytest.raises(LiveasrError, match=words):
                await heard(stream)
            assert list(statuses) == []

    run(work)


def test_audio_that_ends_every_session_is_not_sent_for_ever() -> None:
    async def poisoned(client: Client) -> None:
        await client.welcome()
        await client.next()
        await client.tell(Error(code="internal", message="it hurts", fatal=True))

    async def work() -> None:
        async with scripted(poisoned) as url, connect(url) as stream:
            await stream.feed(silence(0.2))
            with pytest.raises(WireError, match="it hurts"):
                await heard(stream)

    run(work)


def test_a_new_session_begins_where_the_audio_is_not_settled_and_is_told_as_the_same() -> None:
    said = np.linspace(-0.5, 0.5, 16_000, dtype=np.float32)
    begun: list[Any] = []

    def partial(number: int, committed: str, tentative: str) -> WireTranscript:
        return WireTranscript(
            segment_id=0, revision=number, final=False, committed=committed, tentative=tentative, start_ms=0, end_ms=300
        )

    async def first(client: Client) -> None:
        await client.welcome()
        for _ in range(10):
            await client.next()
        await client.tell(
            Ack(number=2, settled_ms=250, heard_ms=1000),
            SpeechStarted(segment_id=0, start_ms=300, heard_ms=500),
            msgspec.structs.replace(partial(1, "one", " two"), start_ms=300, end_ms=600),
        )
        await vanish(client)

    async def second(client: Client) -> None:
        await client.welcome()
        begun.extend(await client.until(Flush))
        await client.tell(
            SpeechStarted(segment_id=0, start_ms=40, heard_ms=240),
            partial(1, "", "won"),
            partial(2, "", "one too"),
            partial(3, "one", " two"),
            SpeechEnded(segment_id=0, end_ms=600, heard_ms=1400, forced_cut=False),
            WireTranscript(segment_id=0, revision=4, final=True, committed="one two", tentative="", start_ms=40,
                           end_ms=600, text="one two", words=(WireWord(text="one", start_ms=50, end_ms=100),)),
            messages.Flushed(),
        )  # fmt: skip
        await client.until(Stop)
        await client.tell(Done(reason="stop", number=8, heard_ms=750, speech_ms=560, segments=1))

    async def work() -> None:
        async with scripted(in_turn(first, failing("gone"), second)) as url, connect(url, EXACT) as stream:
            await stream.feed(said)
            await stream.flush()
            await stream.finish()
            outputs = [output for output in await heard(stream) if not isinstance(output, Disconnected | Reconnected)]
        *frames, _flush = begun
        assert b"".join(frame.payload for frame in frames) == said[250 * 16 :].tobytes()
        assert [frame.number for frame in frames] == list(range(1, 9))
        assert outputs == [
            SpeechStart(4800, 8000),
            LiveTranscript(0, 1, "one", " two", 300, 600),
            LiveTranscript(0, 2, "one", "", 250, 550),
            LiveTranscript(0, 3, "one", " too", 250, 550),
            LiveTranscript(0, 4, "one", " two", 250, 550),
            SpeechEnd(850 * 16, 1650 * 16),
            LiveTranscript(0, 5, "one two", "", 290, 850, Transcript(0, "one two", (Word("one", 300, 350),), 290, 850)),
            Flushed(),
        ]
        assert stream.summary == Done(reason="stop", number=10, heard_ms=1000, speech_ms=560, segments=1)

    run(work)

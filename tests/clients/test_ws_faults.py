"""Servers that fail in the middle of a session, and how a client ends: what came before stands."""

import asyncio
from typing import Any

import pytest

from liveasr.clients import line
from liveasr.clients.ws import connect
from liveasr.errors import LiveasrError, WireError
from liveasr.stream import messages
from liveasr.stream.messages import Done, Error, Flush, Limits, Ready, Stop, encode
from tests.clients.scripted import TOLD, Client, scripted
from tests.clients.talking import fails, heard, run, say
from tests.sounds import silence

LIMITS = Limits(message_bytes=9, idle_s=9, resume_s=9, session_s=9)


NOT_PASSING = ["bad_message", "wrong_order", "misnumbered", "unsupported", "engine_failed", "replaced"]
PASSING = [
    "gone", "idle", "internal", "overloaded", "session_limit", "shutdown", "slow_reader", "too_many_sessions"
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "reconnect_s"), [*((code, 60) for code in NOT_PASSING), *((code, 0) for code in PASSING)]
)
def test_a_fatal_error_of_the_server_ends_the_outputs(code: Any, reconnect_s: float) -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD, Error(code=code, message="so it is", fatal=True))
        await client.connection.close(4500, "so it is")

    async def work() -> None:
        error = await fails(script, r"\d: so it is$", len(TOLD), reconnect_s=reconnect_s)
        assert isinstance(error, WireError)
        assert error.code == code

    run(work)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("{", "does not speak liveasr's protocol: a text frame is a JSON object"),
        ('{"type": "lag", "lag_ms": "much"}', "does not speak liveasr's protocol: lag: Expected `int`"),
        (b"\x00\x01", "does not speak liveasr's protocol: the server sent a binary frame"),
        (encode(Ready(session="s", model="m", limits=LIMITS, models=())),
         "does not speak liveasr's protocol: the server said ready"),
        ("x" * (1 << 21), "the server sent what is no WebSocket message: 1009"),
    ],
)  # fmt: skip
def test_a_server_that_breaks_the_protocol_ends_the_outputs(frame: str | bytes, words: str) -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD)
        await client.connection.send(frame)
        await client.gone()

    run(lambda: fails(script, words, len(TOLD)))


def test_a_final_that_comes_twice_breaks_the_protocol() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD, TOLD[-1])
        await client.gone()

    run(lambda: fails(script, "does not speak liveasr's protocol: transcript of segment 0, revision 2", len(TOLD)))


@pytest.mark.parametrize(("code", "reconnect_s"), [(1000, 60), (1003, 60), (1001, 0), (1011, 0), (4503, 0)])
def test_a_server_that_closes_in_the_middle_is_told(code: int, reconnect_s: float) -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD)
        await client.connection.close(code, "enough")

    run(
        lambda: fails(script, f"the server closed the connection: {code} .* enough", len(TOLD), reconnect_s=reconnect_s)
    )


def test_a_server_that_vanishes_is_told() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD)
        await client.next()
        client.connection.transport.close()

    run(lambda: fails(script, r"the connection was lost; is the server still running\?", len(TOLD), reconnect_s=0))


def test_a_server_that_falls_silent_is_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD)
        await client.gone()

    monkeypatch.setattr(line, "SILENCE_S", 0.3)
    run(lambda: fails(script, r"nothing is heard of it; is the network up\?", len(TOLD), reconnect_s=0))


def test_a_server_that_is_stopped_has_not_heard_all() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(*TOLD, Done(reason="shutdown", number=0, heard_ms=900, speech_ms=650, segments=1))
        await client.connection.close(1001)

    run(lambda: fails(script, "the server was stopped; what it had heard is complete", len(TOLD), reconnect_s=0))


def test_a_server_that_is_stopped_after_it_heard_all_is_no_fault() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.until(Stop)
        await client.tell(*TOLD, Done(reason="shutdown", number=1, heard_ms=100, speech_ms=650, segments=1))
        await client.connection.close(1001)

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            assert len(await say(stream, iter([silence(0.1)]))) == len(TOLD)

    run(work)


def test_what_a_stopping_server_says_is_told_once_it_has_heard_all() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.tell(Error(code="shutdown", message="the server is stopping", fatal=False))
        await client.until(Flush)
        await client.until(Stop)
        ended = Done(reason="shutdown", number=1, heard_ms=100, speech_ms=650, segments=1)
        await client.tell(*TOLD, messages.Flushed(), ended)
        await client.connection.close(1001)

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            await stream.feed(silence(0.1))
            await stream.flush()
            await stream.finish()
            assert len(await heard(stream)) == len(TOLD) + 1
            assert stream.summary == Done(reason="shutdown", number=1, heard_ms=100, speech_ms=650, segments=1)

    run(work)


def test_a_server_that_stops_while_a_feed_waits_for_it_ends_the_feed() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await asyncio.sleep(0.3)  # until everything on the way is full
        client.connection.transport.abort()

    async def work() -> None:
        async with scripted(script) as url, connect(url, reconnect_s=0) as stream:
            await stream.feed(silence(1800))
            with pytest.raises(LiveasrError, match="the connection was lost"):
                await heard(stream)

    run(work)


def test_a_cancelled_stream_ends_at_once() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.gone()

    async def work() -> None:
        async with scripted(script) as url, connect(url) as stream:
            finishing = asyncio.create_task(stream.finish())
            await asyncio.sleep(0.05)
            assert not finishing.done()
            stream.cancel()
            stream.cancel()
            await finishing
            assert await heard(stream) == []

    run(work)

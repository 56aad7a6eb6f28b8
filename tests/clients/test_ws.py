"""The client over the wire: what it hears of a real server, and what it makes of the faults of scripted ones."""

import asyncio
import contextlib
import itertools
import logging
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import soxr

from liveasr import store
from liveasr.clients import line
from liveasr.clients.dial import parse_address
from liveasr.clients.file import transcribe
from liveasr.clients.live import Stream
from liveasr.clients.ws import Output, RemoteStream, connect
from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine
from liveasr.errors import LiveasrError, UsageError, WireError
from liveasr.stream import messages
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import detectors
from liveasr.stream.live import Flushed, LiveStream
from liveasr.stream.messages import (
    Audio,
    AudioFormat,
    Done,
    Encoding,
    Error,
    Flush,
    Lag,
    Limits,
    Overload,
    Ping,
    Pong,
    Ready,
    Start,
    Stop,
    encode,
)
from liveasr.stream.pcm import encode_pcm
from liveasr.stream.recognize import Recognizer
from liveasr.stream.session import LiveConfig, Session
from liveasr.stream.worker import DecodePool
from liveasr.types import Float32Array, LiveTranscript, SpeechEnd, SpeechStart, Transcript
from liveasr.vad.config import VadConfig
from tests.chunking import pieces
from tests.clients.scripted import TOLD, Client, Script, answering, scripted
from tests.servers import ServerProcess
from tests.sounds import load, silence

SPOKEN = ["three one four", "one five nine two", "six five"]
LIMIT_S = 60
LIMITS = Limits(message_bytes=9, idle_s=9, resume_s=9, session_s=9)
TOKEN = "sesame"  # noqa: S105 - of a server that the tests start


def run(work: Callable[[], Awaitable[Any]]) -> None:
    """Run it, within a bound; nothing that it began may outlast it."""

    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await work()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    threads = threading.active_count()
    asyncio.run(bounded())
    assert threading.active_count() <= threads


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ServerProcess() as process:
        yield process.url


@pytest.fixture(scope="module")
def clean(data: Path) -> Float32Array:
    return load(data / "digits-clean.wav")


def transcripts_of(path: Path) -> list[Transcript]:
    """What `liveasr transcribe` hears in a recording."""
    engine = open_engine(store.find("digits"))
    with AudioFile(path) as audio, contextlib.closing(engine):
        recognizer = Recognizer(engine, DecodeOptions())
        return list(transcribe(audio.blocks(), recognizer, detectors("fsmn", VadConfig())()))


async def heard(stream: Stream) -> list[Output]:
    return [output async for output in stream.outputs()]


def finals(outputs: Sequence[Output]) -> list[Transcript]:
    return [output.final for output in outputs if isinstance(output, LiveTranscript) and output.final]


async def say(stream: Stream, blocks: Iterator[Float32Array]) -> list[Output]:
    for block in blocks:
        await stream.feed(block)
    await stream.finish()
    return await heard(stream)


# A real server.


@pytest.mark.parametrize("size", [37, 320, 1600, 50_000, 1_000_000])
def test_finals_over_the_wire_are_the_file_transcribers_in_pieces_of_any_size(
    size: int, server: str, data: Path, clean: Float32Array
) -> None:
    async def work() -> None:
        async with connect(server, Start(model="digits")) as stream:
            outputs = await say(stream, pieces(clean, size))
            assert finals(outputs) == transcripts_of(data / "digits-clean.wav")
            assert stream.heard_ms == 8628
            assert stream.summary == Done(reason="stop", number=87, heard_ms=8628, speech_ms=5940, segments=3)

    run(work)


@pytest.mark.parametrize("rate_hz", [8000, 44100])
def test_finals_over_the_wire_are_the_file_transcribers_at_any_rate(
    rate_hz: int, server: str, clean: Float32Array, tmp_path: Path
) -> None:
    path = tmp_path / "talk.wav"
    soundfile.write(path, soxr.resample(clean, 16_000, rate_hz), rate_hz)

    async def heard_as(encoding: Encoding) -> list[Transcript]:
        with AudioFile(path) as audio:
            async with connect(server, Start(audio=AudioFormat(encoding=encoding))) as stream:
                return finals(await say(stream, audio.blocks()))

    async def work() -> None:
        expected = transcripts_of(path)
        assert await heard_as("f32le") == expected
        # 16 bits round what was resampled, which moves a time by a few frames.
        assert [final.text for final in await heard_as("s16le")] == [final.text for final in expected]

    run(work)


def test_a_remote_stream_gives_what_a_live_stream_gives(server: str, clean: Float32Array) -> None:
    async def in_process() -> list[Output]:
        engine = open_engine(store.find("digits"))
        pool = DecodePool([engine])
        try:
            session = Session(detectors("fsmn", VadConfig())(), engine.front_end, LiveConfig())
            return await say(LiveStream(session, pool, DecodeOptions()), pieces(clean, 320))
        finally:
            await pool.close()

    def events(outputs: Sequence[Output]) -> list[tuple[object, ...]]:
        return [
            (type(output), output.sample, getattr(output, "forced_cut", None))
            for output in outputs
            if isinstance(output, SpeechStart | SpeechEnd)
        ]

    async def work() -> None:
        async with connect(server) as stream:
            remote = await say(stream, pieces(clean, 320))
        here = await in_process()
        assert finals(remote) == finals(here)
        assert events(remote) == events(here)

    run(work)


def test_text_comes_before_a_segment_ends_and_what_is_committed_grows(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            outputs = asyncio.create_task(heard(stream))
            for block in pieces(clean, 1600):
                await stream.feed(block)
                await asyncio.sleep(0.01)  # ten times the speed of speech, so that there is time for partials
            await stream.finish()
        live = [output for output in await outputs if isinstance(output, LiveTranscript)]
        assert sum(not transcript.is_final for transcript in live) >= 3
        for before, after in itertools.pairwise(live):
            if before.segment_id == after.segment_id:
                assert after.revision > before.revision
                assert after.committed.startswith(before.committed)

    run(work)


def test_a_flush_ends_the_open_segment_and_is_answered(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            await stream.feed(clean[: 2 * 16_000])  # in the middle of the pause that would end the segment
            await stream.flush()
            outputs: list[Output] = []
            async for output in stream.outputs():
                outputs.append(output)
                if isinstance(output, Flushed):
                    break
            assert [final.text for final in finals(outputs)] == SPOKEN[:1]
            await stream.feed(clean[2 * 16_000 :])
            await stream.finish()
            assert [final.text for final in finals(await heard(stream))] == SPOKEN[1:]

    run(work)


def test_a_stream_knows_its_session(server: str) -> None:
    async def work() -> None:
        async with connect(server) as stream, connect(server) as other:
            assert stream.ready.model == "digits"
            assert [(offer.name, offer.demonstration) for offer in stream.ready.models] == [("digits", True)]
            assert stream.ready.session != other.ready.session
            assert (stream.heard_ms, stream.lag_ms, stream.summary) == (0, 0, None)
            assert await say(other, pieces(silence(0.5), 320)) == []

    run(work)


def test_leaving_early_ends_the_session_and_the_outputs(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            outputs = asyncio.create_task(heard(stream))
            await stream.feed(clean[:40_000])
        assert finals(await outputs) == []
        async with httpx.AsyncClient() as client:
            while (await client.get(f"{server}/ready")).json()["sessions"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    run(work)


def test_an_error_of_the_caller_leaves_nothing_open(server: str, clean: Float32Array) -> None:
    async def work() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
            async with connect(server) as stream:
                await stream.feed(clean[:40_000])
                raise ZeroDivisionError

    run(work)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (Start(model="parrot"), r"^http://127\.0\.0\.1:\d+: no model named parrot; there is: digits$"),
        (Start(hotwords=("liveasr",)), "digits takes no hot words"),
    ],
)
def test_what_the_server_refuses_is_told_in_its_words(start: Start, words: str, server: str) -> None:
    async def work() -> None:
        with pytest.raises(WireError, match=words) as caught:
            async with connect(server, start):
                pass
        assert caught.value.code == "unsupported"

    run(work)


def test_a_token_opens_a_server_that_wants_one(clean: Float32Array) -> None:
    async def work(url: str) -> None:
        async with connect(url, token=TOKEN) as stream:
            assert [final.text for final in finals(await say(stream, pieces(clean, 1600)))] == SPOKEN
        with pytest.raises(LiveasrError, match="wants a token; give it with --token or LIVEASR_TOKEN"):
            async with connect(url):
                pass
        with pytest.raises(LiveasrError, match="does not take this token; check --token or LIVEASR_TOKEN"):
            async with connect(url, token=TOKEN[1:]):
                pass

    with ServerProcess(token=TOKEN) as process:
        run(lambda: work(process.url))


# What is sent, as a scripted server sees it.


async def received(client: Client, **limits: Any) -> list[Any]:
    """Everything of a session that ends with stop."""
    await client.welcome(**limits)
    said = [await client.next()]
    while said[-1] != Stop():
        if said[-1] == Flush():
            await client.tell(messages.Flushed())
        said.append(await client.next())
    number = client.protocol.last_number
    await client.tell(Done(reason="stop", number=number, heard_ms=0, speech_ms=0, segments=0))
    return said


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
                SpeechStart(4000, 1600),
                LiveTranscript(0, 1, "one", " t", 250, 700),
                SpeechEnd(14_400, 1600, forced_cut=False),
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


# Faults before a session.


async def refused(url: str, words: str) -> LiveasrError:
    with pytest.raises(LiveasrError, match=words) as caught:
        async with connect(url):
            pass
    assert "\n" not in str(caught.value)
    return caught.value


@contextlib.asynccontextmanager
async def listening(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Something that is no WebSocket server."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handler(reader, writer)
        writer.close()
        over.set()

    over = asyncio.Event()
    tcp = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with tcp:
        yield f"http://127.0.0.1:{tcp.sockets[0].getsockname()[1]}"
        await over.wait()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_where_nobody_listens_it_is_told_how_to_start_a_server(host: str) -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        run(lambda: refused(f"{host}:{port}", f"^http://{host}:{port}: nobody listens there; .* liveasr serve$"))


def test_a_name_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: object, **_settings: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    run(lambda: refused("https://captions.example", "captions.example: no computer of that name is known"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (answering(200, "a page"), r"something listens there, but /v1/stream is no liveasr server \(it answered 200\)"),
        (answering(404), r"there is nothing at /v1/stream \(404\)"),
        (answering(401), "wants a token; give it with --token or LIVEASR_TOKEN"),
        (answering(403, "not for you\n"), r"refuses the connection \(403\): not for you$"),
        (answering(403, "<html>\n<p>no</p>"), r"\(403\): it, or what stands in front of it, does not allow"),
        (answering(302, Location="http://example.org/"), "has moved to http://example.org/; give that address"),
        (answering(503), r"cannot take a session now \(it answered 503\); try again later"),
    ],
)
def test_an_answer_that_opens_no_session_is_told_with_the_way_out(settings: dict[str, Any], words: str) -> None:
    async def work() -> None:
        async with scripted(Client.gone, **settings) as url:
            error = await refused(url, words)
            assert str(error).startswith(f"{url}: ")

    run(work)


@pytest.mark.parametrize("greeting", [b"", b"220 mail.example.org ESMTP\r\n"])
def test_something_else_that_listens_is_no_liveasr_server(greeting: bytes) -> None:
    async def smtp(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()

    async def work() -> None:
        async with listening(smtp) as url:
            await refused(url, "something listens there, but it is no liveasr server")

    run(work)


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def work() -> None:
        async with listening(silent) as url:
            await refused(url, r"no answer within 0\.3 s; is the address right, and no firewall in between\?")

    monkeypatch.setattr(line, "CONNECT_S", 0.3)
    run(work)


@pytest.mark.parametrize("frames", [0, 1000])
def test_a_server_that_never_says_ready_is_given_up(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(client: Client) -> None:
        for _ in range(frames):
            await client.connection.send('{"type": "patience"}')
            await asyncio.sleep(0.01)
        await client.gone()

    async def work() -> None:
        async with scripted(script) as url:
            await refused(url, r"it does not begin a session; is it a liveasr server\?")

    monkeypatch.setattr(line, "CONNECT_S", 0.3)
    run(work)


def test_a_websocket_that_says_something_else_is_no_liveasr_server() -> None:
    async def script(client: Client) -> None:
        await client.connection.send("hello")
        await client.gone()

    async def work() -> None:
        async with scripted(script) as url:
            assert isinstance(await refused(url, "does not speak liveasr's protocol: a text frame is"), WireError)

    run(work)


def test_a_server_that_takes_no_sound_is_refused() -> None:
    async def script(client: Client) -> None:
        await client.welcome(message_bytes=5)
        await client.gone()

    async def work() -> None:
        async with scripted(script) as url:
            await refused(url, "takes messages of 5 bytes only")

    run(work)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For 127.0.0.1, signed by itself; with its key."""
    if not shutil.which("openssl"):
        pytest.skip("makes a certificate with: apt-get install openssl")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "chain.pem"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    path = folder / "both.pem"
    path.write_text((folder / "key.pem").read_text() + (folder / "chain.pem").read_text())
    return path


def test_a_secure_server_is_used_if_its_certificate_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(client: Client) -> None:
        await received(client)

    async def work() -> None:
        async with scripted(script, ssl=secure) as url:
            await refused(url, r"its certificate is not trusted \(.*\); .* SSL_CERT_FILE")
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            async with connect(url) as stream:
                await stream.finish()

    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(certificate)
    run(work)


def test_a_server_without_tls_is_told_by_its_address() -> None:
    async def work() -> None:
        async with scripted(Client.gone) as url:
            await refused(url.replace("http", "https"), "no secure connection .*; a server without TLS has .* http://")

    run(work)


# Faults in a session: what came before stands.


async def fails(script: Script, words: str, told: int = 0, **settings: Any) -> LiveasrError:
    """The error of a session whose outputs end with it, after so many of them."""
    async with scripted(script) as url, connect(url, **settings) as stream:
        await stream.feed(silence(0.2))
        outputs = stream.outputs()
        for _ in range(told):
            await anext(outputs)
        with pytest.raises(LiveasrError, match=words) as caught:
            await anext(outputs)
        assert str(caught.value).startswith(f"{url}: ")
        await stream.feed(silence(0.2))  # taken no more, and no error either, as LiveStream has it
        await stream.flush()
        await stream.finish()
        return caught.value


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


# Slips of the caller.


def test_a_finished_stream_takes_nothing(server: str) -> None:
    async def work() -> None:
        async with connect(server) as stream:
            await stream.finish()
            await stream.finish()
            with pytest.raises(UsageError, match="feed: the stream is finished"):
                await stream.feed(silence(0.01))
            with pytest.raises(UsageError, match="flush: the stream is finished"):
                await stream.flush()

    run(work)


@pytest.mark.parametrize("audio", [AudioFormat(rate_hz=8000), AudioFormat(channels=2)])
def test_a_stream_is_fed_in_one_format_only(audio: AudioFormat) -> None:
    async def work() -> None:
        with pytest.raises(UsageError, match="16 kHz, mono; leave rate_hz and channels as they are"):
            async with connect("localhost", Start(audio=audio)):
                pass

    run(work)


@pytest.mark.parametrize("token", ["two words", "zwölf", "line\nbreak"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_told(token: str) -> None:
    async def work() -> None:
        with pytest.raises(UsageError, match=r"the token .* is none") as caught:
            async with connect("localhost", token=token):
                pass
        assert token not in str(caught.value)

    run(work)


@pytest.mark.parametrize(
    ("server", "url", "name"),
    [
        ("localhost", "ws://localhost:8765/v1/stream", "http://localhost:8765"),
        ("127.0.0.1:9000", "ws://127.0.0.1:9000/v1/stream", "http://127.0.0.1:9000"),
        ("http://host", "ws://host/v1/stream", "http://host"),
        ("http://host:8765/", "ws://host:8765/v1/stream", "http://host:8765"),
        ("https://host/asr/stream", "wss://host/asr/stream", "https://host"),
        ("ws://host:1/v1/stream?token=secret", "ws://host:1/v1/stream?token=secret", "http://host:1"),
        ("wss://host?token=secret", "wss://host/v1/stream?token=secret", "https://host"),
        ("[::1]:9000", "ws://[::1]:9000/v1/stream", "http://[::1]:9000"),
        (" HTTP://Host ", "ws://host/v1/stream", "http://host"),
    ],
)
def test_an_address_may_leave_out_what_goes_without_saying(server: str, url: str, name: str) -> None:
    address = parse_address(server)
    assert (address.url, address.name) == (url, name)


@pytest.mark.parametrize(
    "server",
    [
        "",
        "http://",
        "ftp://host",
        "http://host:port",
        "http://host:99999",
        "::1",
        "two words",
        "http://a..b",
        "x" * 70,
        "http://user:word@host",
    ],
)
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(server)
    assert "word@" not in str(caught.value)

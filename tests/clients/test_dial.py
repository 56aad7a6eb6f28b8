"""How a server is reached: addresses, and every way in which no session begins is told with the way out."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from liveasr.clients import line
from liveasr.clients.dial import parse_address
from liveasr.clients.ws import connect
from liveasr.errors import LiveasrError, UsageError, WireError
from liveasr.stream.messages import AudioFormat, Start
from tests.clients.scripted import Client, answering, received, scripted
from tests.clients.talking import run

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


# Slips of the caller.


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

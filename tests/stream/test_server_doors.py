"""Who is let in by a server over real sockets, and what it says besides sessions."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from websockets.exceptions import InvalidStatus

from liveasr.stream import server as listening
from liveasr.stream.messages import (
    Ready,
    Start,
    encode,
)
from tests.servers import ServerProcess, captions, dial, heard

SAID = ["three one four", "one five nine two", "six five"]
TOKEN = "s3cret"  # noqa: S105 - of servers that live for one test


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process
        code, _out, err = process.stop()
    assert code == 0, err
    assert "Traceback" not in err, err


def test_the_subprotocol_is_chosen_when_it_is_offered(server: ServerProcess) -> None:
    with dial(server.ws_url, subprotocols=["liveasr.v1"]) as socket_:
        assert socket_.subprotocol == "liveasr.v1"
    with dial(server.ws_url) as socket_:
        assert socket_.subprotocol is None


def test_a_websocket_to_another_path_is_told_where_sessions_are(server: ServerProcess) -> None:
    with pytest.raises(InvalidStatus) as refused, dial(server.ws_url.replace("/v1/stream", "/asr")):
        pass
    assert refused.value.response.status_code == 404
    assert b"/v1/stream" in refused.value.response.body


def test_what_is_told_besides_the_websocket(server: ServerProcess) -> None:
    assert httpx.get(f"{server.url}/health").text == "ok\n"
    assert httpx.get(f"{server.url}/ready").json() == {"ready": True, "sessions": 0, "lag_ms": 0}
    models = httpx.get(f"{server.url}/v1/models").json()["models"]
    assert [(model["name"], model["demonstration"]) for model in models] == [("digits", True)]
    page = httpx.get(f"{server.url}/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "default-src 'self'" in httpx.get(f"{server.url}/web/index.html").headers["content-security-policy"]
    for path in ("/nothing", "/web/../pyproject.toml", "/web/%2e%2e/ws.py", "/web/nothing.js"):
        assert httpx.get(f"{server.url}{path}").status_code == 404


def test_pages_of_other_origins_and_names_made_to_point_here_are_refused(server: ServerProcess) -> None:
    assert httpx.get(f"{server.url}/v1/models", headers={"Origin": "http://evil.example"}).status_code == 403
    assert httpx.get(f"{server.url}/v1/models", headers={"Host": "evil.example"}).status_code == 403
    with pytest.raises(InvalidStatus) as refused, dial(server.ws_url, origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    own = urlsplit(server.url).netloc
    with dial(server.ws_url, origin=f"http://{own}") as socket_:
        socket_.send(encode(Start()))
        assert isinstance(next(heard(socket_)), Ready)


def test_a_stranger_without_the_token_reaches_nothing_but_health() -> None:
    with ServerProcess("--allow-origin", "https://app.example", token=TOKEN) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
        for path in (
            "/",
            "/ready",
            "/metrics",
            "/v1/models",
            "/web/index.html",
            "/web/",
            "/nothing",
            "/health/",
            "/v1/stream",
        ):
            assert httpx.get(f"{server.url}{path}").status_code == 401, path
            assert httpx.get(f"{server.url}{path}?token=wrong").status_code == 401, path
        for options in ({}, {"additional_headers": {"Authorization": "Bearer wrong"}}):
            with pytest.raises(InvalidStatus) as refused, dial(server.ws_url, **options):
                pass
            assert refused.value.response.status_code == 401
        accepted: list[tuple[str, dict[str, Any]]] = [
            (server.ws_url, {"additional_headers": {"Authorization": f"Bearer {TOKEN}"}}),
            (f"{server.ws_url}?token={TOKEN}", {}),
            (
                server.ws_url,
                {"subprotocols": ["liveasr.v1", f"liveasr.token.{TOKEN}"], "origin": "https://app.example"},
            ),
            (server.ws_url, {"additional_headers": {"Cookie": f"liveasr_token_{urlsplit(server.url).port}={TOKEN}"}}),
        ]
        for url, options in accepted:
            with dial(url, **options) as socket_:
                socket_.send(encode(Start()))
                assert isinstance(next(heard(socket_)), Ready)
        allowed = httpx.get(
            f"{server.url}/v1/models", headers={"Origin": "https://app.example", "Authorization": f"Bearer {TOKEN}"}
        )
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"


def test_the_page_moves_the_token_from_the_address_into_a_cookie() -> None:
    with ServerProcess(token=TOKEN) as server, httpx.Client(base_url=server.url) as browser:
        asked = browser.get("/")
        assert asked.status_code == 401
        assert "<form" in asked.text
        moved = browser.get("/", params={"token": TOKEN})
        assert (moved.status_code, moved.headers["location"]) == (303, "/")
        cookie = moved.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/").status_code == 200
        assert browser.get("/v1/models").status_code == 200


def test_tls_serves_https_and_wss(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(__file__).parents[1] / "data"
    folder = data / "tls"
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
    arguments = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    trust = ssl.create_default_context(cafile=folder / "cert.pem")
    with ServerProcess(*arguments) as server:
        assert server.url.startswith("https://")
        assert httpx.get(f"{server.url}/health", verify=trust).text == "ok\n"
        # Not by `talk`: threads that read and write one TLS connection at once break it (CPython's issue 134698).
        found = asyncio.run(captions(server.url, data / "digits-clean.wav"))
        assert [each.final.text for each in found if each.final is not None] == SAID


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        (b"GET / HTTP/1.1\r\nHost: a", 0),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT", 1),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\na", 1),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 1),
    ],
    ids=["nothing", "a request and a half", "half a body", "a chunk"],
)
def test_who_does_not_finish_a_request_has_to_go(monkeypatch: pytest.MonkeyPatch, said: bytes, answers: int) -> None:
    monkeypatch.setattr(listening, "_HEADERS_S", 0.2)

    async def work() -> None:
        app = Starlette(routes=[Route("/", lambda _request: PlainTextResponse("here"))])
        app.state.service = SimpleNamespace(drain=lambda _within_s: asyncio.sleep(0))
        started = asyncio.Event()
        listeners = listening.listen("127.0.0.1", 0)
        server = listening.Server(app, started.set, None)
        serving = asyncio.create_task(server.serve(listeners))
        await started.wait()
        host, port = listeners[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(said)
        heard = bytearray()
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(10):
                while more := await reader.read(1000):
                    heard += more
                    writer.write(b"a")  # which is no end
        assert heard.count(b"HTTP/1.1 ") == answers
        writer.close()
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://{host}:{port}/")).text == "here"
        server.handle_exit(signal.SIGTERM, None)
        await serving

    asyncio.run(work())

"""The server: Starlette's routes on uvicorn, around a Service. All that touches sockets on this side is here.

The page is at /, its parts below /web; /v1/stream is a session over a WebSocket (docs/protocol.md), /v1/models lists
what may be chosen, /health says that the program runs, /ready that new sessions are taken, /metrics how things are.
"""

import asyncio
import base64
import contextlib
import hashlib
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame

from liveasr.errors import LiveasrError
from liveasr.stream.access import COOKIE, Access, Asked, token_of
from liveasr.stream.connection import Connection, Goodbye
from liveasr.stream.messages import MAX_MESSAGE_BYTES, SUBPROTOCOL
from liveasr.stream.metrics import CONTENT_TYPE
from liveasr.stream.service import Service

DRAIN_S = 10.0
"""How long open segments may take to finish once the server was told to stop."""
_FORCE_CHECK_S = 0.1
_UNREAD_BYTES = 1 << 18  # that the system keeps for a client; by itself it would grow to many MB
_DEAD_PEER_MS = 30_000  # a client that acknowledges nothing for so long is gone, or does not read
_MAX_FRAGMENTS = 4_096  # of a message
_PAGE_HEADERS = {
    # The page needs nothing from anywhere else, so nothing else is allowed.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_STYLE = re.compile("<style>(.*?)</style>", re.DOTALL)
_WRONG = re.compile('(?<=class="wrong" role="alert") hidden')


class WebSocketChannel:
    """A Channel over Starlette's WebSocket."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> str | bytes | None:
        """The next frame; None once the client is gone.

        Raises:
            Goodbye: it closed the connection, or the page that had it was left.
        """
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            if message.get("code") in (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY):
                raise Goodbye
            return None
        text: str | None = message.get("text")
        frame: bytes = message.get("bytes") or b""
        return frame if text is None else text

    async def send(self, frame: str) -> None:
        """Send a frame.

        Raises:
            ConnectionError: the client is gone.
        """
        try:
            await self._websocket.send_text(frame)
        except (WebSocketDisconnect, RuntimeError) as error:  # Starlette's words for the same, by who noticed it first
            raise ConnectionError(str(error)) from error

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it is closed
            await self._websocket.close(code, reason)


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's, where it lets a client have more than its due, or trips over its own feet."""

    async def run_asgi(self) -> None:
        """As uvicorn's, which would wait for ever for a client that does not read to take what was said to it."""
        await super().run_asgi()
        if not self.writable.is_set():
            self.transport.abort()

    def handle_ping(self) -> None:
        """As uvicorn's, but who does not read gets no more pongs: they would heap up."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Frame) -> None:
        """As uvicorn's, but for messages in more pieces than anybody needs: empty ones would heap up."""
        if len(self.frames) < _MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            with contextlib.suppress(InvalidState):
                self.conn.send_close(CloseCode.MESSAGE_TOO_BIG, "too many fragments")
                self.handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, which cannot refuse a message where the client's own close has come right behind it."""
        with contextlib.suppress(InvalidState):
            super().send_receive_event_to_app()

    def send_500_response(self) -> None:
        """As uvicorn's, which answers a handshake twice that is under way when the server stops."""
        if not self.conn.eof_sent:
            super().send_500_response()


class _NoTraceOfClients(logging.Filter):
    """What a client sends is no reason for a traceback in the log: one line says it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
            record.exc_info = None
        return True


_NO_TRACE = _NoTraceOfClients()


def create_app(service: Callable[[], Service], access: Access, page: Path) -> Starlette:
    """The application. The service is made, and its models are freed, inside the event loop that serves.

    Args:
        service: makes it.
        access: who may connect.
        page: the folder of the page.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = service()
        try:
            yield
        finally:
            await app.state.service.close()

    def served(connection: HTTPConnection) -> Service:
        found: Service = connection.app.state.service
        return found

    async def index(_request: Request) -> Response:
        return FileResponse(page / "index.html", headers=_PAGE_HEADERS)

    async def health(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        service = served(request)
        is_ready = not (service.draining or service.overloaded)
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        content = {"ready": is_ready, "sessions": service.sessions, "lag_ms": service.lag_ms}
        return JSONResponse(content, status)

    async def models(request: Request) -> Response:
        return JSONResponse({"models": msgspec.to_builtins(served(request).models)})

    async def metrics(request: Request) -> Response:
        return Response(served(request).measured(), media_type=CONTENT_TYPE)

    async def stream(websocket: WebSocket) -> None:
        chosen = SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None
        await websocket.accept(subprotocol=chosen)
        peer = f"{websocket.client.host}:{websocket.client.port}" if websocket.client else ""
        await Connection(WebSocketChannel(websocket), served(websocket), peer).run()

    async def nowhere(websocket: WebSocket) -> None:
        await websocket.send_denial_response(PlainTextResponse("sessions are at /v1/stream\n", HTTPStatus.NOT_FOUND))

    routes = [
        Route("/", index),
        Mount("/web", _PageFiles(directory=page)),
        Route("/health", health),
        Route("/ready", ready),
        Route("/v1/models", models),
        Route("/metrics", metrics),
        WebSocketRoute("/v1/stream", stream),
        WebSocketRoute("/{path:path}", nowhere),
    ]
    middleware = [
        Middleware(CORSMiddleware, allow_origins=access.origins, allow_headers=["Authorization"]),
        Middleware(_Gate, access=access, page=page),
    ]
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


class _PageFiles(StaticFiles):
    """The files of the page, with its headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_PAGE_HEADERS)
        return response


def _ask_for_token(file: Path, *, wrong: bool) -> Response:
    """The form for a token. Who has none may load nothing else, so its style is within, and allowed by its hash.

    Args:
        file: token.html.
        wrong: whether it is to say that the token was wrong.
    """
    text = file.read_text(encoding="utf-8")
    style = hashlib.sha256("".join(_STYLE.findall(text)).encode()).digest()
    headers = _PAGE_HEADERS | {
        "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{base64.b64encode(style).decode()}'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    }
    return HTMLResponse(_WRONG.sub("", text) if wrong else text, HTTPStatus.UNAUTHORIZED, headers=headers)


class _Gate:
    """Lets in who may come in; /health is for everyone."""

    def __init__(self, app: ASGIApp, access: Access, page: Path) -> None:
        self._app = app
        self._access = access
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] == "/health":
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        token = token_of(asked.headers, asked.query_params, asked.cookies, scope.get("subprotocols", ()))
        refusal = self._access.refusal(Asked(asked.headers.get("host", ""), asked.headers.get("origin"), token))
        answer = self._answer(asked, refusal)
        if answer is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(answer)
        else:
            await answer(scope, receive, send)

    def _answer(self, asked: HTTPConnection, refusal: HTTPStatus | None) -> Response | None:
        """What to answer in the application's place, if anything."""
        is_page = asked.scope["type"] == "http" and asked.url.path == "/"
        if refusal is HTTPStatus.UNAUTHORIZED:
            if is_page:
                return _ask_for_token(self._page / "token.html", wrong="token" in asked.query_params)
            return PlainTextResponse("this server wants a token; docs/protocol.md says where\n", refusal)
        if refusal is not None:
            return PlainTextResponse("this server does not serve that host or origin (--allow-origin)\n", refusal)
        if is_page and "token" in asked.query_params and self._access.token is not None:
            # From the address into a cookie: addresses are seen by others, stay in histories, and are passed on.
            answer = RedirectResponse("/", HTTPStatus.SEE_OTHER, headers=_PAGE_HEADERS)
            secure = asked.url.scheme == "https"
            answer.set_cookie(COOKIE, self._access.token, httponly=True, samesite="strict", secure=secure)
            return answer
        return None


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host; port 0 takes any free one.

    Raises:
        LiveasrError: the address cannot be had.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise LiveasrError(f"{host}: no such host name or address: {error.strerror}") from error
    listeners: list[socket.socket] = []
    try:
        for family, _kind, _protocol, _name, address in addresses:
            # For port 0, the other families get the port that the first one got.
            actual_port = listeners[0].getsockname()[1] if listeners else port
            listener = socket.create_server((str(address[0]), actual_port), family=family)
            _notice_dead_peers(listener)
            listeners.append(listener)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise LiveasrError(
            f"{host}:{port}: cannot listen there: {error.strerror}; choose another with --host or --port"
        ) from error
    return listeners


def _notice_dead_peers(listener: socket.socket) -> None:
    """What the connections of a listener inherit, where the system can."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_MS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_PEER_MS // 1000)


class Server(uvicorn.Server):
    """Serves until SIGINT or SIGTERM, then lets the open sessions finish, within a bound.

    Args:
        app: made by `create_app`.
        started: called once connections are taken.
        tls: files of the certificate chain and of its key, to serve https and wss.
        drain_s: the bound.

    Raises:
        LiveasrError: the certificate or its key cannot be used.
    """

    def __init__(
        self, app: Starlette, started: Callable[[], None], tls: tuple[Path, Path] | None, drain_s: float = DRAIN_S
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws=_WebSocketProtocol,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,  # audio does not get smaller
            ws_ping_interval=None,  # a busy reader must not be taken for a dead one; sessions have their idle time
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
        )
        for file in tls or ():
            try:
                file.open("rb").close()
            except OSError as error:
                raise LiveasrError(f"{file}: cannot be read: {error.strerror}") from error
        try:
            config.load()
        except OSError as error:  # ssl's errors are such
            files = " and ".join(map(str, tls or ()))
            raise LiveasrError(f"{files}: are no certificate and its key, in PEM: {error}") from error
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(_NO_TRACE)
        self._app = app
        self._started = started
        self._drain_s = drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which would cut off every session, once they are over."""
        service: Service = self._app.state.service
        drained = asyncio.create_task(service.drain(self._drain_s))
        while not drained.done() and not self.force_exit:
            await asyncio.wait({drained}, timeout=_FORCE_CHECK_S)
        drained.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, with SIGHUP; that a signal ended the program is no error."""
        with super().capture_signals():
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)
                self._captured_signals.clear()


def addresses(listeners: Sequence[socket.socket], *, tls: bool) -> list[str]:
    """Where a browser finds what listens there."""
    found = []
    for listener in listeners:
        host, port = listener.getsockname()[:2]
        found.append(f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}")
    return found

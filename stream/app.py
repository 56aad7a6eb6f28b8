"""What the server answers: Starlette's routes around a Service, and the gate before them.

The page is at /, its parts below /web; /v1/stream is a session over a WebSocket (docs/protocol.md), /v1/models lists
what may be chosen, /v1/pull what may be fetched, /health says that the program runs, /ready that new sessions are
taken, /metrics how things are.
"""

import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.frames import CloseCode

from liveasr.stream.access import Access, Asked, cookie_of, token_of
from liveasr.stream.connection import Connection, Goodbye
from liveasr.stream.journal import note
from liveasr.stream.messages import SUBPROTOCOL
from liveasr.stream.metrics import CONTENT_TYPE
from liveasr.stream.pull_routes import PULL_METHODS, pull_routes
from liveasr.stream.pulls import PullMeans, Pulls
from liveasr.stream.service import Service

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


def create_app(
    service: Callable[[], Service], access: Access, page: Path, pull_means: PullMeans | None = None
) -> Starlette:
    """The application. The service is made, and its models are freed, inside the event loop that serves.

    Args:
        service: makes it.
        access: who may connect.
        page: the folder of the page.
        pull_means: how clients may have models fetched, where they may.
    """

    def served(connection: HTTPConnection) -> Service:
        found: Service = connection.app.state.service
        return found

    async def index(_request: Request) -> Response:
        return FileResponse(page / "index.html", headers=_PAGE_HEADERS)

    async def health(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        service = served(request)
        is_ready = not (service.draining or service.overloaded or service.full)
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        content = {"ready": is_ready, "sessions": service.sessions, "lag_ms": service.lag_ms}
        return JSONResponse(content, status)

    async def models(request: Request) -> Response:
        content = {"models": msgspec.to_builtins(served(request).models), "allow_pull": pull_means is not None}
        return JSONResponse(content)

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
        *pull_routes(),
        Route("/metrics", metrics),
        WebSocketRoute("/v1/stream", stream),
        WebSocketRoute("/{path:path}", nowhere),
    ]
    middleware = [
        Middleware(
            CORSMiddleware, allow_origins=access.origins, allow_methods=PULL_METHODS, allow_headers=["Authorization"]
        ),
        Middleware(_Gate, access=access, page=page),
    ]
    return Starlette(routes=routes, middleware=middleware, lifespan=_lifespan(service, pull_means))


def _lifespan(
    service: Callable[[], Service], pull_means: PullMeans | None
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = service()
        app.state.pulls = None if pull_means is None else Pulls(app.state.service, pull_means)
        try:
            yield
        finally:
            if app.state.pulls is not None:  # what it is about to add has to be closed as well
                await app.state.pulls.close()
            await app.state.service.close()

    return lifespan


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
            return
        if refusal is not None:
            service: Service = scope["app"].state.service
            service.refused(str(refusal.value))
            peer = f"{asked.client.host}:{asked.client.port}" if asked.client else None
            note("connection refused", code=refusal.value, peer=peer, path=asked.url.path)
        if scope["type"] == "websocket":
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
            secure = asked.url.scheme == "https" or f"https://{asked.headers.get('host', '')}" in self._access.origins
            answer.set_cookie(
                cookie_of(asked.headers.get("host", "")),
                self._access.token,
                httponly=True,
                samesite="strict",
                secure=secure,
            )
            return answer
        return None

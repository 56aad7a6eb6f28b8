"""The server's sockets: uvicorn, told to let sessions finish, and held to what a client may cost.

All that touches sockets on this side is here; what is answered is in app.py.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame

from liveasr.errors import LiveasrError
from liveasr.stream.messages import MAX_MESSAGE_BYTES

DRAIN_S = 10.0
"""How long open segments may take to finish once the server was told to stop."""
_FORCE_CHECK_S = 0.1
_HEADERS_S = 10.0  # that a request may take to come
_UNREAD_BYTES = 1 << 18  # that the system keeps for a client; by itself it would grow to many MB
_DEAD_PEER_MS = 30_000  # a client that acknowledges nothing for so long is gone, or does not read
_MAX_FRAGMENTS = 4_096  # of a message


class _HttpProtocol(H11Protocol):
    """uvicorn's, with an end of its patience."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's; who asks for nothing has to leave the place to others."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(_HEADERS_S, self._give_up)

    def on_response_complete(self) -> None:
        """As uvicorn's, which waits for ever for the rest of a body, or of a next request that has begun."""
        self._patience.cancel()
        self._patience = self.loop.call_later(_HEADERS_S, self._give_up)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn's."""
        self._patience.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, which trips over what is no request behind one that has no answer yet, or has had its last."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what its answer would have been is not said any more
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _give_up(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and self.transport.get_protocol() is self:
            self.transport.abort()


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

    def handle_parser_exception(self) -> None:
        """As uvicorn's, which takes it that the handshake was answered before the frame that is none."""
        if self.handshake_complete:
            super().handle_parser_exception()
        else:
            self._drop()

    def handle_close(self, event: Frame) -> None:
        """As uvicorn's, which would still answer the handshake."""
        if self.handshake_complete:
            super().handle_close(event)
        else:
            self._drop()

    def _drop(self) -> None:
        self.disconnected = True  # what its answer would have been is not said any more
        self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, which cannot refuse a message where the client's own close has come right behind it."""
        with contextlib.suppress(InvalidState):
            super().send_receive_event_to_app()

    def send_500_response(self) -> None:
        """As uvicorn's, which answers a handshake twice that is under way when the server stops."""
        if not self.conn.eof_sent:
            super().send_500_response()


class _NoTraceOfClients(logging.Filter):
    """What a client sends is no reason for a traceback in the log, nor is a handshake that we refuse a fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == "ASGI callable returned without completing handshake.":
            return False
        if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
            record.exc_info = None
        return True


_NO_TRACE = _NoTraceOfClients()


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
        why = os.strerror(error.errno) if error.errno else error  # its own text has the address once more
        raise LiveasrError(
            f"{host}:{port}: cannot listen there: {why}; choose another with --host or --port"
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
            http=_HttpProtocol,
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
        drained = asyncio.create_task(self._app.state.service.drain(self._drain_s))
        while not drained.done() and not self.force_exit:
            await asyncio.wait({drained}, timeout=_FORCE_CHECK_S)
        drained.cancel()
        self.force_exit = False  # uvicorn would leave the models as they are, and say so with a traceback
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, with SIGHUP; that a signal ended the program is no error."""
        with super().capture_signals():
            before = signal.getsignal(signal.SIGHUP)
            if before is not signal.SIG_IGN:  # nohup
                signal.signal(signal.SIGHUP, self.handle_exit)
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
        if ipaddress.ip_address(host).is_unspecified:  # no browser finds that
            host = socket.gethostname()
        found.append(f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}")
    return found

"""A road to a server that can be cut, for tests of what happens then."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: no waiting, no goodbye


class Proxy:
    """Passes every connection on, until the end of a `with` block.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self._server = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        """As the server's, by this road."""
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break all connections, whatever is on the way."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                each.shutdown(socket.SHUT_RD)  # wakes its thread, which closes it
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._server)
                with self._lock:
                    self._sockets += [here, there]
                for pair in ((here, there), (there, here)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=pair))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):  # cut, here or elsewhere
            while piece := source.recv(65536):
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

"""A TCP proxy that stands between a client and a server, and breaks."""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from typing import Literal, TypeAlias

Cut: TypeAlias = Literal["reset", "end", "silence"]
CUTS: tuple[Cut, ...] = ("reset", "end", "silence")


class Proxy:
    """A line between two, which can be cut. Make it with `proxy`."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.connections = 0
        self.refusing = False
        """New connections are reset."""
        self.plan: deque[tuple[int, Cut]] = deque()
        """For the next connections: how many bytes they carry, both ways together, and how they are cut then."""
        self._port = port
        self._open: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self, how: Cut) -> None:
        """Cut what is open: by RST, by FIN, or by taking everything and passing on nothing."""
        for pair in tuple(self._open):
            pair.cut(how)

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cut everything, and wait until it is gone."""
        self.cut("reset")
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            _reset(writer)
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            _reset(writer)
            return
        pair = _Pair((reader, writer), there, *(self.plan.popleft() if self.plan else (None, "end")))
        self._open.add(pair)
        await pair.run()
        self._open.discard(pair)


class _Pair:
    """Two connections that are one."""

    def __init__(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        left: int | None,
        how: Cut,
    ) -> None:
        self._left = left  # bytes until it is cut
        self._how: Cut = how
        self._writers = (near[1], far[1])
        self._silent = False
        self._pumps = [
            asyncio.create_task(self._pump(near[0], far[1])),
            asyncio.create_task(self._pump(far[0], near[1])),
        ]

    async def run(self) -> None:
        await asyncio.wait(self._pumps, return_when=asyncio.ALL_COMPLETED if self._silent else asyncio.FIRST_COMPLETED)
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def cut(self, how: Cut) -> None:
        if how == "silence":
            self._silent = True
            return
        for writer in self._writers:
            if how == "reset":
                _reset(writer)
            else:
                writer.close()
        for pump in self._pumps:
            pump.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._left is not None:
                    data = data[: self._left]
                    self._left -= len(data)
                if not self._silent:
                    writer.write(data)
                    await writer.drain()
                if self._left == 0 and not self._silent:
                    self.cut(self._how)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close by RST, which loses what is on its way."""
    socket_ = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Proxy]:
    """A line to the server at an address http://127.0.0.1:PORT."""
    line = Proxy(int(url.rpartition(":")[2]))
    async with await asyncio.start_server(line.take, "127.0.0.1", 0) as server:
        line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield line
        finally:
            await line.close()

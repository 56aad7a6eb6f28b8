"""Mutated conversations, and bytes that are none, against a server process over real sockets."""

import asyncio
import contextlib
import random
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from liveasr.stream.messages import Done, Ready, ServerMessage, Start, Stop, decode_server, encode
from liveasr.stream.pcm import encode_pcm
from tests.fuzz_frames import Frame, conversation, handshake, mutated, raw_bytes
from tests.fuzz_wire import CODES, HANG_S, Tally, filled, parts
from tests.servers import ServerProcess, finals, talk
from tests.sounds import load

SAID = ["three one four", "one five nine two", "six five"]
_AT_ONCE = 24
_WS_CODES = {1002, 1003, 1005, 1006, 1007, 1009, 1012}  # of WebSocket itself
_KEPT_S = 45.0  # a session waits 30 s for its client
_WARM_UP = 1_200  # sequences, until as many sessions as are kept have been kept
_MORE_MIB = 25
_MORE_FILES = 3
_MORE_THREADS = 8  # they read the files of the page, and stay a while


class _Health:
    """What a process holds."""

    def __init__(self, process_id: int) -> None:
        folder = Path(f"/proc/{process_id}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text(encoding="ascii").splitlines())
        self.mib = int(status["VmRSS"].split()[0]) / 1024
        self.threads = int(status["Threads"])
        self.files = len(list((folder / "fd").iterdir()))

    def __str__(self) -> str:
        return f"{self.mib:.0f} MiB, {self.threads} threads, {self.files} files"


def fuzz_server(sequences: int, seed: int) -> str:
    """The server ends as it began, and has nothing to report; the steady client notices nothing."""
    tally = Tally()
    with ServerProcess() as server:
        log: list[str] = []
        assert server.process.stderr is not None
        reading = threading.Thread(target=log.extend, args=(server.process.stderr,))
        reading.start()
        steady = _Steady(server, tally)
        try:
            fuzz(server, _WARM_UP, seed + 1)
            steady.start()
            before = _calm(server)
            fuzz(server, sequences, seed, tally)
        finally:
            steady.stop()
        after = _calm(server)
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert httpx.get(f"{server.url}/ready").json()["ready"]
        server.process.terminate()
        assert server.process.wait(30) == 0
        reading.join()
    traced = [index for index, line in enumerate(log) if "Traceback" in line]
    assert not traced, f"{len(traced)} tracebacks, the first:\n{''.join(log[traced[0] - 5 : traced[0] + 60])}"
    assert after.threads <= before.threads + _MORE_THREADS, (str(before), str(after))
    assert after.files <= before.files + _MORE_FILES, (str(before), str(after))
    assert after.mib <= before.mib + _MORE_MIB, (str(before), str(after))
    return f"{tally}; before: {before}; after: {after}"


def _calm(server: ServerProcess) -> _Health:
    """The health of a server once nobody but the steady client is there."""
    deadline = time.monotonic() + _KEPT_S
    while httpx.get(f"{server.url}/ready").json()["sessions"] > 1:
        assert time.monotonic() < deadline, "sessions are left"
        time.sleep(0.2)
    return _Health(server.process.pid)


class _Steady:
    """A client that follows the rules, one session after the other."""

    def __init__(self, server: ServerProcess, tally: Tally) -> None:
        self._server = server
        self._tally = tally
        self._over = threading.Event()
        self._wrong: list[object] = []
        self._payload = encode_pcm(load(Path(__file__).parent / "data" / "digits-clean.wav"), "s16le")
        self._thread = threading.Thread(target=self._talk)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Once the session it has is over.

        Raises:
            AssertionError: one of them was not as it has to be.
        """
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        assert not self._wrong, self._wrong
        assert self._tally.steady or self._thread.ident is None

    def _talk(self) -> None:
        while not self._over.is_set() and not self._wrong:
            try:
                messages = talk(self._server.ws_url, Start(), self._payload, 6400, open_timeout=HANG_S)
            except (OSError, WebSocketException) as error:
                self._wrong.append(error)
                return
            if [each.text for each in finals(messages)] != SAID or not isinstance(messages[-1], Done):
                self._wrong += messages
            self._tally.steady += 1


def fuzz(server: ServerProcess, sequences: int, seed: int, tally: Tally | None = None) -> Tally:
    """The sequences of a seed; what came of them."""
    found = tally or Tally()
    asyncio.run(_fuzz(server, sequences, seed, found))
    return found


async def _fuzz(server: ServerProcess, sequences: int, seed: int, tally: Tally) -> None:
    indices = iter(range(sequences))

    async def some() -> None:
        for index in indices:
            chance = random.Random(f"server {seed} {index}")  # noqa: S311 - to break things, not to hide them
            try:
                async with asyncio.timeout(HANG_S):
                    await (_raw if chance.random() < 0.4 else _sequence)(server, chance, tally)
            except Exception as error:
                raise AssertionError(f"sequence {index} of seed {seed}") from error

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(some())


async def _sequence(server: ServerProcess, chance: random.Random, tally: Tally) -> None:
    tally.sequences += 1
    session, seq = "nobody", 0
    for part in parts(mutated(conversation(chance), chance)):
        heard: list[ServerMessage] = []
        async with connect(server.ws_url, open_timeout=HANG_S, close_timeout=1, compression=None) as socket_:
            listening = asyncio.create_task(_listen(socket_, heard))
            await _speak(socket_, [filled(frame, session, seq) for frame in part], chance, tally)
            if encode(Stop()) in part and chance.random() < 0.8:
                with contextlib.suppress(TimeoutError):  # the stop came at a time when it means something else
                    await asyncio.wait_for(asyncio.shield(listening), 1)
            if chance.random() < 0.5:
                socket_.transport.abort()
        await listening
        assert socket_.close_code in CODES | _WS_CODES, socket_.close_code
        tally.heard(heard)
        session = next((each.session for each in heard if isinstance(each, Ready)), session)
        seq = max([seq, *(each.seq for each in heard)])


async def _speak(socket_: ClientConnection, frames: list[Frame], chance: random.Random, tally: Tally) -> None:
    with contextlib.suppress(ConnectionClosed):
        for frame in frames:
            tally.messages += 1
            await socket_.send(frame)
            if chance.random() < 0.1:
                await asyncio.sleep(0.001)
        await asyncio.sleep(chance.choice([0, 0, 0.01]))


async def _listen(socket_: ClientConnection, heard: list[ServerMessage]) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for frame in socket_:
            assert isinstance(frame, str)
            message = decode_server(frame)
            assert message is not None
            heard.append(message)


async def _raw(server: ServerProcess, chance: random.Random, tally: Tally) -> None:
    """Bytes below WebSocket; the server answers or not, and lets go."""
    tally.sequences += 1
    host, port = urlsplit(server.url).netloc.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionError):
        writer.write(handshake(chance))
        if chance.random() < 0.9:  # an answer has to be waited for, or what follows is lost
            with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 0.2)
        data = raw_bytes(chance)
        while data:
            size = chance.choice([1, 2, 7, 100, len(data)])
            writer.write(data[:size])
            data = data[size:]
            tally.messages += 1
            await writer.drain()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):  # it waits for more, which is right
            async with asyncio.timeout(chance.choice([0.01, 0.1])):
                while await reader.read(1 << 16):
                    pass
    if chance.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()

"""How many clients a server can serve: many at once, each of them speaking at the speed of speech, over and over."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from liveasr.clients.bench_live import LiveFigures, measure, watch_loop
from liveasr.clients.live import Stream
from liveasr.clients.playback import paced
from liveasr.clients.stability import percentile
from liveasr.clients.ws import connect
from liveasr.errors import LiveasrError
from liveasr.stream.messages import AudioFormat, Start
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Transcript

SLOW_MS = 1000.0
"""A server whose finals come later than this after their segment, p95, has too many clients."""
_BLOCK_MS = 100  # as long as a frame of the wire: shorter ones would only cost time here, where many clients share it
_ADDRESS = re.compile(r"the page is at (\S+) ")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What clients say, and what is to be heard."""

    samples: Float32Array
    expected: list[Transcript] | None
    """As `transcribe` has it; None where that is not known."""

    @property
    def duration_s(self) -> float:
        """How long it takes to say."""
        return self.samples.size / SAMPLE_RATE_HZ


@dataclass(slots=True)
class LoadFigures:
    """What was seen of so many clients."""

    clients: int
    live: LiveFigures = field(default_factory=LiveFigures)
    lags_ms: list[float] = field(default_factory=list)
    """Of every session, the largest that the server told of."""
    plays: int = 0
    compared: int = 0
    """Plays of recordings of which it is known what `transcribe` hears."""
    differing: int = 0
    """Plays whose finals are not those of `transcribe`, in text or times."""
    errors: list[str] = field(default_factory=list)
    server_cores: float | None = None
    """Processor seconds of the server, a second."""

    @property
    def final_p95_ms(self) -> float:
        """How long after its segment a final came."""
        delays_ms = self.live.delays["final_after_segment"]
        return percentile(delays_ms, 0.95) if delays_ms else float("inf")

    @property
    def holds(self) -> bool:
        """Whether the server could serve that many."""
        return not self.errors and self.final_p95_ms <= SLOW_MS

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.clients} clients: finals {self.final_p95_ms:.0f} ms after their segment (p95), "
            f"{len(self.errors)} errors"
        )

    def summary(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "clients": self.clients,
            "plays": self.plays,
            "errors": len(self.errors),
            "first_errors": self.errors[:3],
            "plays_unlike_transcribe": self.differing if self.compared else None,
            "lag_ms": {"p95": percentile(self.lags_ms, 0.95), "max": max(self.lags_ms)} if self.lags_ms else {},
            "server_cores": None if self.server_cores is None else round(self.server_cores, 2),
            **self.live.summary(),
        }


class Load:
    """So many clients of one server. Call `run` for every number of clients.

    Args:
        server: its address.
        token: that it wants to see.
        model: one of its models; None for its first.
        recordings: that the clients say, each another one.
        seconds: how long clients begin anew; what they have begun they finish.
        cpu_s: how long the server has computed so far; None where that cannot be known.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        model: str | None,
        recordings: Sequence[Recording],
        seconds: float,
        cpu_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._server = server
        self._token = token
        self._start = Start(model=model, audio=AudioFormat(encoding="f32le"))  # exactly what transcribe hears
        self._recordings = recordings
        self._seconds = seconds
        self._cpu_s = cpu_s

    async def run(self, clients: int) -> LoadFigures:
        """Measure."""
        figures = LoadFigures(clients)
        begun, cpu_begun_s = time.monotonic(), self._cpu_s()
        watching = asyncio.create_task(watch_loop(figures.live.delays["loop_lag"]))
        async with asyncio.TaskGroup() as group:
            for index in range(clients):
                group.create_task(self._client(index, figures))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        cpu_s = self._cpu_s()
        if cpu_s is not None and cpu_begun_s is not None:
            figures.server_cores = (cpu_s - cpu_begun_s) / (time.monotonic() - begun)
        return figures

    async def _client(self, index: int, figures: LoadFigures) -> None:
        recording = self._recordings[index % len(self._recordings)]
        deadline_s = time.monotonic() + self._seconds
        # Spread over the recording, or all would end their segments at the same moment.
        await asyncio.sleep(min(recording.duration_s, self._seconds) * index / figures.clients)
        while True:
            await self._play(recording, figures)
            if time.monotonic() >= deadline_s:
                return

    async def _play(self, recording: Recording, figures: LoadFigures) -> None:
        figures.plays += 1
        lag = [0.0]
        try:
            # Not reconnecting: a connection that is lost is a fault here.
            async with connect(self._server, self._start, token=self._token, reconnect_s=0) as stream:
                source = _listened_to(stream, recording.samples, lag)
                finals = await measure(stream, source, figures.live, loop_lag=False)
        except LiveasrError as error:
            figures.errors.append(str(error))
            await asyncio.sleep(1.0)  # a server that refuses is not to be asked all the time
        else:
            figures.compared += recording.expected is not None
            figures.differing += recording.expected is not None and finals != recording.expected
        figures.lags_ms.append(lag[0])


async def _listened_to(stream: Stream, samples: Float32Array, lag: list[float]) -> AsyncIterator[Float32Array]:
    """The samples at the speed of speech, while the lag that the stream tells is noted."""
    async for block in paced([samples], realtime=True, block_ms=_BLOCK_MS):
        yield block
        lag[0] = max(lag[0], stream.lag_ms)


async def find_most(holds: Callable[[int], Awaitable[bool]], first: int) -> int:
    """The most clients that hold, within a tenth: the number is doubled until it is too much, then halved in between.

    Args:
        holds: whether so many do.
        first: to try.

    Returns:
        0 if not even one does.
    """
    most, too_many = 0, 0
    while too_many == 0:
        tried = first if most == 0 else 2 * most
        if await holds(tried):
            most = tried
        else:
            too_many = tried
    while too_many - most > max(1, most // 10):
        tried = (most + too_many) // 2
        if await holds(tried):
            most = tried
        else:
            too_many = tried
    return most


@contextlib.contextmanager
def own_server(model: str | None, threads: int | None) -> Iterator[tuple[str, Callable[[], float | None]]]:
    """A server of its own process on this computer: its address, and how to know its processor seconds.

    Raises:
        LiveasrError: it does not start.
    """
    command = [sys.executable, "-m", "liveasr", "serve", "--port", "0", "--max-sessions", "100000"]
    command += [] if model is None else ["--model", model]
    command += [] if threads is None else ["--threads", str(threads)]
    environment = {name: value for name, value in os.environ.items() if name != "LIVEASR_TOKEN"}
    process = subprocess.Popen(  # noqa: S603 - this program
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        found = _ADDRESS.search(process.stdout.readline())
        if found is None:
            raise LiveasrError("the server did not start; `liveasr serve` tells why")
        yield found[1], lambda: _cpu_s(process.pid)
    finally:
        process.terminate()
        process.communicate()


def _cpu_s(pid: int) -> float | None:
    """Processor seconds of a process, where the system tells them as Linux does."""
    try:
        # Behind the name, which may hold anything, in brackets: user and system time are the 12th and 13th field.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(summary: dict[str, Any]) -> list[str]:
    """Lines of a table."""
    lines = [f"{'delay, ms':<22} {'p50':>9} {'p95':>9} {'max':>9} {'n':>7}"]
    for name, row in summary["delays_ms"].items():
        lines.append(f"{name:<22} {row['p50']:>9.0f} {row['p95']:>9.0f} {row['max']:>9.0f} {row['n']:>7}")
    told = ("clients", "plays", "errors", "first_errors", "plays_unlike_transcribe", "lag_ms", "server_cores")
    for key in told:
        value = summary[key]
        if isinstance(value, dict):
            value = ", ".join(f"{name} {number:.0f}" for name, number in value.items())
        if value not in ([], None, ""):
            lines.append(f"{key}: {value}")
    return lines

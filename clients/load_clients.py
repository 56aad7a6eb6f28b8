"""The clients of `liveasr bench load`: they speak at the speed of speech, over and over, and note what they saw.

One process of Python plays some hundreds of them; more are shared out to processes, which this module runs as well.
"""

import asyncio
import pickle
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from liveasr.clients.bench_live import LiveFigures, measure, watch_loop
from liveasr.clients.live import Stream
from liveasr.clients.playback import paced
from liveasr.clients.stability import percentile
from liveasr.clients.ws import connect
from liveasr.errors import LiveasrError
from liveasr.stream.live import run_loop
from liveasr.stream.messages import AudioFormat, Start
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Transcript

SLOW_MS = 1000.0
"""A server whose finals come later than this after their segment, p95, has too many clients."""
CLIENTS_A_PROCESS = 150
"""Half of what one was seen to play before it was late itself."""
_BLOCK_MS = 100  # as long as a frame of the wire: shorter ones would only cost time here, where many clients share it


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

    def add(self, others: "LoadFigures") -> None:
        """What other clients of the same server saw meanwhile."""
        self.clients += others.clients
        self.live.add(others.live)
        self.lags_ms += others.lags_ms
        self.plays += others.plays
        self.compared += others.compared
        self.differing += others.differing
        self.errors += others.errors

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


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """So many clients of one server, or a part of them."""

    server: str
    """Its address."""
    token: str | None
    """That it wants to see."""
    model: str | None
    """One of its models; None for its first."""
    recordings: Sequence[Recording]
    """That the clients say, each another one."""
    seconds: float
    """How long clients begin anew; what they have begun they finish."""
    count: int
    """Of all clients."""
    indices: range
    """Of those that are played here."""

    async def play(self) -> LoadFigures:
        """Let them speak, in this process."""
        figures = LoadFigures(len(self.indices))
        watching = asyncio.create_task(watch_loop(figures.live.delays["loop_lag"]))
        async with asyncio.TaskGroup() as group:
            for index in self.indices:
                group.create_task(self._client(index, figures))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return figures

    async def _client(self, index: int, figures: LoadFigures) -> None:
        recording = self.recordings[index % len(self.recordings)]
        deadline_s = time.monotonic() + self.seconds
        # Spread over the recording, or all would end their segments at the same moment.
        await asyncio.sleep(min(recording.duration_s, self.seconds) * index / self.count)
        while True:
            await self._play(recording, figures)
            if time.monotonic() >= deadline_s:
                return

    async def _play(self, recording: Recording, figures: LoadFigures) -> None:
        figures.plays += 1
        lag = [0.0]
        start = Start(model=self.model, audio=AudioFormat(encoding="f32le"))  # exactly what transcribe hears
        try:
            # Not reconnecting: a connection that is lost is a fault here.
            async with connect(self.server, start, token=self.token, reconnect_s=0) as stream:
                source = _listened_to(stream, recording.samples, lag)
                finals = await measure(stream, source, figures.live, loop_lag=False)
                finals = [final for final in finals if final.text]  # transcribe leaves out what it hears no words in
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


async def played_elsewhere(clients: Clients) -> LoadFigures:
    """Let them speak, in a process of their own, which ends with this call however that ends.

    Raises:
        LiveasrError: the process failed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the process that started it
    )  # fmt: skip
    try:
        told, _ = await process.communicate(pickle.dumps(clients))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LiveasrError(f"a process of clients failed, with exit code {process.returncode}")
    return cast("LoadFigures", pickle.loads(told))  # noqa: S301 - it is ours


def _main() -> None:
    clients: Clients = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one

    async def work() -> None:
        sys.stdout.buffer.write(pickle.dumps(await clients.play()))

    run_loop(work())


if __name__ == "__main__":
    _main()

"""Models that join a service while it runs: one fetch at a time, whatever it and those who ask for it do."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from liveasr import store
from liveasr.errors import FetchError, ModelFileError, WireError
from liveasr.model_registry import RegisteredFile, RegisteredModel
from liveasr.stream import pulls as pulling
from liveasr.stream.connection import Connection
from liveasr.stream.detect import WindowDetector
from liveasr.stream.messages import Start, Stop, encode
from liveasr.stream.pulls import PullMeans, Pulls, Report
from liveasr.stream.service import OfferedModel, PartialLanes, Service, ServiceConfig
from tests.channels import MemoryChannel, audio, run, until
from tests.fakes import FakeEngine, FakeStreamingEngine, said

MODELS = {
    name: RegisteredModel(name, ("en",), "MIT", {"f32": (RegisteredFile(f"{name}.gguf", {"url": "https://x.test/"}),)})
    for name in ("one", "two")
}


class Source:
    """Fetches and opens models as a test wants it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = threading.Event()
        """Nothing comes before it is open, also for who was told to stop: as a network that hangs."""
        self.gate.set()
        self.fault: Exception | None = None
        self.open_fault: Exception | None = None
        self.opening = threading.Event()
        """What opening waits for."""
        self.opening.set()
        self.fetched: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.engines: list[FakeEngine] = []
        self.partials: PartialLanes | None = None

    def install(self, model: RegisteredModel, begin: Callable[[str], Report], stop: threading.Event) -> Path:
        self.fetched.append(model.name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        report = begin(f"{model.name}.gguf")
        report(10, 100)
        self.gate.wait(30)
        self.at_once -= 1
        if stop.is_set():
            raise FetchError("the fetch was stopped")
        if self.fault is not None:
            raise self.fault
        path = self.folder / f"{model.name}.gguf"
        path.write_bytes(b"")
        return path

    def open(self, path: Path) -> tuple[OfferedModel, PartialLanes | None]:
        self.opening.wait(30)
        if self.open_fault is not None:
            raise self.open_fault
        self.engines.append(FakeEngine([said("joined")]))
        return OfferedModel(path.stem, [self.engines[-1]]), self.partials


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    return Source(tmp_path)


@asynccontextmanager
async def served(source: Source) -> AsyncIterator[tuple[Service, Pulls]]:
    """A service with one model, which others can join."""
    service = Service([OfferedModel("fake", [FakeEngine([said("first")])])], WindowDetector, ServiceConfig())
    pulls = Pulls(service, PullMeans(MODELS, source.install, source.open))
    try:
        yield service, pulls
    finally:
        await pulls.close()
        await service.close()


async def state(pulls: Pulls, name: str = "one") -> str:
    return (await pulls.described(name)).state


async def until_state(pulls: Pulls, wanted: str, name: str = "one") -> None:
    while await state(pulls, name) != wanted:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.001)


async def finals(service: Service, model: str) -> list[str | None]:
    channel = MemoryChannel()
    channel.say(encode(Start(model=model)), *audio(10), encode(Stop()))
    await Connection(channel, service).run()
    return [text for message in channel.sent if (text := getattr(message, "text", None)) is not None]


def test_a_model_joins_and_is_closed_with_the_others(source: Source) -> None:
    async def work() -> None:
        async with served(source) as (service, pulls):
            assert [await state(pulls, name) for name in MODELS] == ["available", "available"]
            source.gate.clear()
            source.opening.clear()
            pulls.start("one")
            await until(lambda: source.fetched == ["one"])
            found = await pulls.described("one")
            assert found.progress is not None
            assert (found.state, found.progress.file, found.progress.came_bytes) == ("fetching", "one.gguf", 10)
            source.gate.set()
            await until_state(pulls, "opening")
            pulls.cancel("one")  # too late
            assert await state(pulls) == "opening"
            source.opening.set()
            await until_state(pulls, "served")
            assert [info.name for info in service.models] == ["fake", "one"]
            assert await finals(service, "one") == ["joined"]
            assert await finals(service, "fake") == ["first"]
            assert 'liveasr_decodes_waiting{model="one"}' in service.measured().decode()
        assert [engine.closed for engine in source.engines] == [True]

    run(work)


def test_a_model_that_joins_brings_its_partials_where_there_are_none(source: Source) -> None:
    async def work() -> None:
        streaming = FakeStreamingEngine(["uno"], 5)
        source.partials = ("streaming", [streaming])
        async with served(source) as (service, pulls):
            pulls.start("one")
            await until_state(pulls, "served")
            await finals(service, "fake")
            assert streaming.streams == []
            await finals(service, "one")
            assert len(streaming.streams) == 1
        assert streaming.closed

    run(work)


def test_who_cancels_need_not_wait_for_a_network_that_hangs_and_there_are_never_two_fetches(source: Source) -> None:
    async def work() -> None:
        async with served(source) as (_service, pulls):
            source.gate.clear()
            pulls.start("one")
            await until(lambda: source.at_once == 1)
            for _ in range(100):
                pulls.cancel("one")
                assert await state(pulls) == "available"
                pulls.start("one")
                assert await state(pulls) == "fetching"
            assert len(pulls._tasks) <= 3  # what ends, what waits, and perhaps the last that was taken back
            pulls.cancel("one")
            pulls.start("two")
            assert source.fetched == ["one"]
            source.gate.set()
            await until_state(pulls, "served", "two")
            assert (source.fetched, source.most_at_once) == (["one", "two"], 1)
            assert await state(pulls) == "available"

    run(work)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (FetchError("the network is down", "--from names another source"), "the network is down"),
        (OSError(13, "Permission denied", "/models"), "[Errno 13] Permission denied: '/models'"),
        (RuntimeError("a bug"), "a fault of the server; its log says more"),
    ],
)
def test_what_goes_wrong_is_told_until_it_is_tried_again(source: Source, fault: Exception, told: str) -> None:
    async def work() -> None:
        async with served(source) as (_service, pulls):
            source.fault = fault
            pulls.start("one")
            await until_state(pulls, "failed")
            assert (await pulls.described("one")).error == told
            pulls.cancel("one")  # of somebody who does not want it any more
            assert await state(pulls) == "available"
            pulls.start("one")
            await until_state(pulls, "failed")
            source.fault = None
            pulls.start("two")
            await until_state(pulls, "served", "two")
            assert await state(pulls) == "failed"
            pulls.start("one")
            assert await state(pulls) != "failed"
            await until_state(pulls, "served")

    run(work)


def test_a_file_that_cannot_be_opened_is_a_failure_too(source: Source) -> None:
    async def work() -> None:
        async with served(source) as (service, pulls):
            source.open_fault = ModelFileError("one.gguf", "is a llama model")
            pulls.start("one")
            await until_state(pulls, "failed")
            assert (await pulls.described("one")).error == "one.gguf: is a llama model"
            assert len(service.models) == 1

    run(work)


def test_a_server_that_stops_begins_nothing_and_opens_nothing_any_more(source: Source) -> None:
    async def work() -> None:
        async with served(source) as (service, pulls):
            source.gate.clear()
            pulls.start("one")
            await until(lambda: source.at_once == 1)
            await service.drain(0.1)
            with pytest.raises(WireError, match="the server is stopping") as refused:
                pulls.start("two")
            assert refused.value.code == "shutdown"
            source.gate.set()
            await until_state(pulls, "installed")
            assert len(service.models) == 1

    run(work)


@pytest.mark.parametrize("hangs", ["fetching", "opening"])
def test_the_end_of_the_server_waits_no_longer_than_a_moment(
    source: Source, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    monkeypatch.setattr(pulling, "_OPENING_END_S", 0.05)

    async def work() -> None:
        async with served(source) as (_service, pulls):
            (source.gate if hangs == "fetching" else source.opening).clear()
            pulls.start("one")
            await until_state(pulls, hangs)
            if hangs == "fetching":
                await until(lambda: source.at_once == 1)
        assert source.engines == []

    run(work)
    source.gate.set()
    source.opening.set()

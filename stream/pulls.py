"""Models that join a server while it runs: one at a time is fetched, in a thread, then opened, then offered.

What is known of one on its way is in pull_state.py; how files are fetched and models opened is handed in.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from liveasr import store
from liveasr.errors import FetchError, LiveasrError, WireError
from liveasr.model_registry import RegisteredModel
from liveasr.stream.journal import note
from liveasr.stream.pull_state import OnDisk, Pull, PullInfo, describe
from liveasr.stream.service import OfferedModel, PartialLanes, Service

_TOLD_EVERY_S = 0.1
_FETCH_END_S = 0.5
"""How long the end of the server waits for a fetch to end, which it does with the next piece; what came is kept."""
_OPENING_END_S = 5.0
"""The same for a model that is being opened: it is in native code, under which the process had better not end."""
_Result = TypeVar("_Result")

Report: TypeAlias = Callable[[int, int | None], None]
"""Takes how many bytes of a file have come, and how many there are, if that is known."""


class Install(Protocol):
    """Fetches a model in a thread of its own, and returns its file, or raises a LiveasrError.

    `begin` is called with the name of each file that is fetched, and what it returns with all that comes. Once `stop`
    is set, it ends as soon as it can, and keeps what came.
    """

    def __call__(self, model: RegisteredModel, begin: Callable[[str], Report], stop: threading.Event) -> Path:
        """Do it."""
        ...


@dataclass(frozen=True, slots=True)
class PullMeans:
    """What it takes to fetch models."""

    models: Mapping[str, RegisteredModel]
    """That can be fetched and run here, by name."""
    install: Install
    open: Callable[[Path], tuple[OfferedModel, PartialLanes | None]]
    """Takes its time, in a thread; raises a LiveasrError if the file cannot be run."""


@dataclass(slots=True)
class _Going:
    """A fetch that was asked for. Of those that were stopped since, one may still be ending."""

    pull: Pull
    stop: threading.Event = field(default_factory=threading.Event)
    running: asyncio.Task[None] | None = None
    begun: bool = False


class Pulls:
    """The fetches of one server. Make it inside the event loop of its service, and `close` it before that.

    Args:
        service: that models join.
        means: how they are fetched and opened.
    """

    def __init__(self, service: Service, means: PullMeans) -> None:
        self._service = service
        self._means = means
        self._going: _Going | None = None
        self._errors: dict[str, str] = {}  # of the last fetch of a model, by its name
        self._turn = asyncio.Lock()  # one thread at a time, even where one that was stopped takes its time to end
        self._tasks: set[asyncio.Task[None]] = set()

    async def listed(self) -> list[PullInfo]:
        """All models that can be fetched, and how far they are."""
        on_disk = await _in_thread(self._look)
        going = self._going.pull if self._going else None
        now_s = time.monotonic()
        return [
            describe(
                model,
                on_disk[name],
                served_as=self._served_as(model),
                pull=going,
                error=self._errors.get(name),
                now_s=now_s,
            )
            for name, model in self._means.models.items()
        ]

    async def described(self, name: str) -> PullInfo:
        """One of them.

        Raises:
            WireError: there is no such model.
        """
        self._model(name)
        return next(info for info in await self.listed() if info.name == name)

    def start(self, name: str, peer: str | None = None) -> None:
        """Fetch a model, unless it is on its way or served already.

        Args:
            name: in the registry.
            peer: who asks, for the log.

        Raises:
            WireError: there is no such model, another is on its way, or the server is stopping.
        """
        model = self._model(name)
        if self._service.draining:
            raise WireError("shutdown", "the server is stopping")
        if self._served_as(model) is not None:
            return
        if self._going is not None:
            other = self._going.pull.model
            if other != name:
                raise WireError(
                    "busy", f"the server fetches one model at a time, and {other} is on its way; try again later"
                )
            return
        self._errors.pop(name, None)
        files = next(iter(model.variants.values()))
        going = self._going = _Going(Pull(name, [file.name for file in files]))
        going.running = asyncio.create_task(self._run(going, model))
        self._tasks.add(going.running)
        going.running.add_done_callback(self._tasks.discard)
        note("pull started", model=name, peer=peer)

    def cancel(self, name: str) -> None:
        """Stop fetching a model, if that is what goes on; what came is kept. What came whole is opened all the same.

        Raises:
            WireError: there is no such model.
        """
        self._model(name)
        self._errors.pop(name, None)
        going = self._going
        if going is not None and going.pull.model == name and not going.pull.opening:
            self._stop(going)

    async def close(self) -> None:
        """Stop what goes on, and wait a moment for its end."""
        patience_s = _FETCH_END_S
        if self._going is not None:
            patience_s = _OPENING_END_S if self._going.pull.opening else _FETCH_END_S
            self._stop(self._going)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_s)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _model(self, name: str) -> RegisteredModel:
        model = self._means.models.get(name)
        if model is None:
            known = ", ".join(self._means.models) or "none"
            raise WireError("unknown_model", f"no model named {name[:60]} can be fetched here; these can: {known}")
        return model

    def _served_as(self, model: RegisteredModel) -> str | None:
        """What clients call it, whichever variant is served."""
        names = (store.name_of(store.installed_path(files[0])) for files in model.variants.values())
        served = {info.name for info in self._service.models}
        return next((name for name in names if name in served), None)

    def _look(self) -> dict[str, OnDisk]:
        """What is there of each model. It waits for the disk."""
        found = {}
        for name, model in self._means.models.items():
            files = next(iter(model.variants.values()))
            begun_bytes = sum(store.begun_bytes(store.installed_path(file)) for file in files)
            found[name] = OnDisk(any(map(store.is_installed, model.variants.values())), begun_bytes)
        return found

    def _stop(self, going: _Going) -> None:
        going.stop.set()
        self._going = None
        note("pull stopped", model=going.pull.model)
        if going.running is not None and not going.begun:
            going.running.cancel()

    async def _run(self, going: _Going, model: RegisteredModel) -> None:
        async with self._turn:
            going.begun = True
            try:
                offer = await self._fetch_and_open(going, model)
            except (LiveasrError, OSError) as error:
                self._failed(going, error)
            except Exception as error:
                note("pull failed", model=model.name, error=error)
                self._errors[model.name] = "a fault of the server; its log says more"
            else:
                if offer is not None:
                    self._service.join(*offer)
                    note("model joined", model=offer[0].name)
            finally:
                if self._going is going:
                    self._going = None

    async def _fetch_and_open(
        self, going: _Going, model: RegisteredModel
    ) -> tuple[OfferedModel, PartialLanes | None] | None:
        """What is to join; None if it was stopped before."""
        begin = partial(_begin, asyncio.get_running_loop(), going.pull)
        path = await _in_thread(partial(self._means.install, model, begin, going.stop))
        if going.stop.is_set() or self._service.draining:
            return None
        going.pull.open()
        return await _in_thread(partial(self._means.open, path))

    def _failed(self, going: _Going, error: LiveasrError | OSError) -> None:
        if going.stop.is_set():
            return
        note("pull failed", model=going.pull.model, reason=error)
        # What helps on the command line does not on a page, which has its own way to try again.
        self._errors[going.pull.model] = error.reason if isinstance(error, FetchError) else str(error)


def _begin(loop: asyncio.AbstractEventLoop, pull: Pull, file: str) -> Report:
    """Tell, in the event loop, that a file is fetched; the function returned tells how much has come."""
    loop.call_soon_threadsafe(pull.begin, file)
    told_s = 0.0

    def came(came_bytes: int, total_bytes: int | None) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= _TOLD_EVERY_S or came_bytes == total_bytes:
            told_s = now_s
            loop.call_soon_threadsafe(pull.came, came_bytes, total_bytes, now_s)

    return came


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    """Do what waits for disks and networks. The loop's own threads would be waited for when the server ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            tell = partial(_settle, done, partial(done.set_exception, error))
        else:
            tell = partial(_settle, done, partial(done.set_result, result))
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits any more
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=run, name="liveasr-pull", daemon=True).start()
    return await done


def _settle(done: "asyncio.Future[_Result]", set_: Callable[[], None]) -> None:
    if not done.done():
        set_()

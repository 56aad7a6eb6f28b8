"""What `liveasr serve` does, from its options to its end."""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from liveasr import first_use, store
from liveasr.engines.lanes import more_lanes
from liveasr.engines.registry import open_engine
from liveasr.errors import ModelNotFoundError, UsageError
from liveasr.options import best_installed, notice_demonstration, open_partials, partials_for
from liveasr.stream import journal
from liveasr.stream.access import Access, is_loopback
from liveasr.stream.app import create_app
from liveasr.stream.detect import DetectorKind, detector_maker
from liveasr.stream.live import run_loop
from liveasr.stream.server import Server, addresses, listen
from liveasr.stream.service import OfferedModel, Service, ServiceConfig


def serve(
    models: Sequence[str],
    host: str,
    port: int,
    token: str | None,
    no_auth: bool,
    origins: Sequence[str],
    tls_cert: Path | None,
    tls_key: Path | None,
    partials: str | None,
    threads: int | None,
    vad: DetectorKind,
    max_sessions: int,
    idle_s: float,
    resume_s: float,
    session_s: float,
) -> int:
    """`liveasr serve`."""
    local = is_loopback(host)
    if not local and token is None and not no_auth:
        raise UsageError(
            f"--host {host} lets other computers in: give clients a token by LIVEASR_TOKEN, or say --no-auth"
        )
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    tls = (tls_cert, tls_key) if tls_cert and tls_key else None
    access = Access(token, tuple(origins), local_only=not no_auth)
    new_detector = detector_maker(vad)
    listeners = listen(host, port)
    offered = [_offer(path, threads) for path in _chosen(models)]
    offered, partials_path = with_partials(offered, partials)
    hearing = open_partials(partials_path, threads)
    partial_lanes = None
    if partials_path is not None and hearing is not None:
        partial_lanes = store.name_of(partials_path), [*more_lanes(hearing), hearing]
    page = Path(str(resources.files("liveasr.clients"))) / "web"
    config = ServiceConfig(max_sessions=max_sessions, idle_s=idle_s, resume_s=resume_s, session_s=session_s)
    app = create_app(lambda: Service(offered, new_detector, config, partial_lanes), access, page)

    def started() -> None:
        with contextlib.suppress(OSError):  # nobody is there to be told
            announce()

    def announce() -> None:
        for address in addresses(listeners, tls=tls is not None):
            sys.stdout.write(f"liveasr: the page is at {address} and the WebSocket below it at /v1/stream\n")
        names = ", ".join(model.name for model in offered)
        sys.stdout.write(f"liveasr: serving {names}; Ctrl-C ends\n")
        sys.stdout.flush()

    journal.to_stderr()
    run_loop(Server(app, started, tls).serve(listeners))
    return 0


def _chosen(models: Sequence[str]) -> list[Path]:
    """The files of the models to offer. Where nothing is installed, the page still has something to show."""
    if models:
        paths = list(dict.fromkeys(first_use.find(model) for model in models))
        names = [store.name_of(path) for path in paths]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two models are called {twice[0]}; clients choose by name, so rename one of the files")
        return paths
    try:
        return [best_installed()]
    except ModelNotFoundError:
        return [store.built_in(store.DEMONSTRATION_MODEL)]


def _offer(path: Path, threads: int | None) -> OfferedModel:
    """A model with as many lanes as the machine has cores for."""
    demonstration = store.is_demonstration(path)
    if demonstration:
        notice_demonstration(store.name_of(path), f"A full model: {store.download_command()}")
    engine = open_engine(path, threads)
    return OfferedModel(store.name_of(path), [*more_lanes(engine), engine], demonstration)


def with_partials(offered: Sequence[OfferedModel], wanted: str | None) -> tuple[list[OfferedModel], Path | None]:
    """The models, each told whether another gives its partials, and the file of that one.

    There is one at most. Where models would have different ones by default, the first of them decides.
    """
    chosen = [partials_for(offer.engines[-1], offer.name, wanted) for offer in offered]
    path = next((each for each in chosen if each is not None), None)
    return [replace(offer, two_pass=each == path) for offer, each in zip(offered, chosen, strict=True)], path

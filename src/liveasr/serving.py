"""What `liveasr serve` does, from its options to its end."""

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from liveasr import first_use, store
from liveasr.engines import nano_files
from liveasr.errors import ModelNotFoundError, UsageError
from liveasr.model_registry import RegisteredModel
from liveasr.offering import Offers
from liveasr.options import best_installed, notice_demonstration
from liveasr.stream import journal
from liveasr.stream.access import Access, is_loopback
from liveasr.stream.app import create_app
from liveasr.stream.detect import DetectorKind, detector_maker
from liveasr.stream.live import run_loop
from liveasr.stream.pulls import PullMeans, Report
from liveasr.stream.server import Server, addresses, listen
from liveasr.stream.service import Service, ServiceConfig


def serve(
    models: Sequence[str],
    host: str,
    port: int,
    token: str | None,
    no_auth: bool,
    origins: Sequence[str],
    tls_cert: Path | None,
    tls_key: Path | None,
    allow_pull: bool,
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
    if allow_pull and first_use.is_forbidden():
        raise UsageError(
            f"--allow-pull lets clients fetch models, which --offline or {first_use.OFFLINE_VARIABLE} forbids"
        )
    tls = (tls_cert, tls_key) if tls_cert and tls_key else None
    access = Access(token, tuple(origins), local_only=not no_auth)
    new_detector = detector_maker(vad)
    offers = Offers(threads, partials)
    pull_means = _pull_means(offers) if allow_pull else None
    listeners = listen(host, port)
    paths = _chosen(models)
    for path in filter(store.is_demonstration, paths):
        notice_demonstration(store.name_of(path), _where_to_get_more(allow_pull))
    offered, partial_lanes = offers.open(paths)
    page = Path(str(resources.files("liveasr.clients"))) / "web"
    config = ServiceConfig(max_sessions=max_sessions, idle_s=idle_s, resume_s=resume_s, session_s=session_s)
    app = create_app(lambda: Service(offered, new_detector, config, partial_lanes), access, page, pull_means)

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


def _where_to_get_more(allow_pull: bool) -> str:
    """What to say where only ten words are known."""
    if allow_pull:
        return "The page fetches a full model"
    by_hand = f"{store.download_command()}, then liveasr serve"
    return f"A full model: {by_hand}; or let the page fetch it: liveasr serve --allow-pull"


def _pull_means(offers: Offers) -> PullMeans:
    """How clients have models fetched.

    Raises:
        RegistryError: the user's registry is malformed.
    """
    from liveasr.clients.pull import pull  # noqa: PLC0415 - half a second, for nothing where nobody may

    def install(model: RegisteredModel, begin: Callable[[str], Report], stop: threading.Event) -> Path:
        variants = model.variants.values()
        files = next(filter(store.is_installed, variants), next(iter(variants)))
        return pull(files, None, begin, stop)[0]

    models = {
        name: model
        for name, model in store.registry().items()
        if model.variants and (name != store.NANO or nano_files.can_run())
    }
    return PullMeans(models, install, offers.open_another)

"""How many clients a server can serve: many at once, each of them speaking at the speed of speech, over and over."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from liveasr.clients.load_clients import CLIENTS_A_PROCESS, Clients, LoadFigures, played_elsewhere
from liveasr.errors import LiveasrError

_ADDRESS = re.compile(r"the page is at (\S+) ")


async def load(clients: Clients, cpu_s: Callable[[], float | None] = lambda: None) -> LoadFigures:
    """Let so many clients speak to a server, in as many processes as that takes.

    Args:
        clients: all of them.
        cpu_s: how long the server has computed so far; None where that cannot be known.

    Raises:
        LiveasrError: a process of clients failed.
    """
    begun, cpu_begun_s = time.monotonic(), cpu_s()
    processes = -(-clients.count // CLIENTS_A_PROCESS)
    if processes == 1:
        figures = await clients.play()
    else:
        shares = [replace(clients, indices=clients.indices[first::processes]) for first in range(processes)]
        figures = LoadFigures(0)
        try:
            async with asyncio.TaskGroup() as group:
                parts = [group.create_task(played_elsewhere(share)) for share in shares]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        for part in parts:
            figures.add(part.result())
    cpu_ended_s = cpu_s()
    if cpu_ended_s is not None and cpu_begun_s is not None:
        figures.server_cores = (cpu_ended_s - cpu_begun_s) / (time.monotonic() - begun)
    return figures


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

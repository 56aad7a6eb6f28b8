"""The server as its users have it: a process of its own on a free port."""

import os
import re
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

_ADDRESS = re.compile(r"the page is at (\S+) ")


class ServerProcess:
    """`liveasr serve` until the end of a `with` block.

    Args:
        arguments: besides --port and --model.
        port: to listen on; 0 takes any free one.
        token: what clients must know.
    """

    def __init__(self, *arguments: str, port: int = 0, token: str | None = None) -> None:
        model = () if "--model" in arguments else ("--model", "digits")
        environment = {name: value for name, value in os.environ.items() if name != "LIVEASR_TOKEN"}
        if token is not None:
            environment["LIVEASR_TOKEN"] = token
        self.process = subprocess.Popen(
            [sys.executable, "-m", "liveasr", "serve", "--port", str(port), *model, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = _ADDRESS.search(line)
        if found is None:
            self.process.kill()
            raise AssertionError(f"the server did not start: {line}{self.process.communicate()[1]}")
        self.url = found[1]
        """As in http://127.0.0.1:41234."""

    @property
    def ws_url(self) -> str:
        """Of a session."""
        return "ws" + self.url.removeprefix("http") + "/v1/stream"

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait; the exit code and what was printed since the address."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

"""The command line: called in this process, which takes no time to start, or in one of its own."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from liveasr import cli

NOTICE = "liveasr: 'digits' is a demonstration"
DIGITS = ("transcribe", "--model", "digits")
# What that hears in digits-clean.wav, and how it is printed.
CLEAN = ("three one four", "one five nine two", "six five")
CLEAN_TEXT = """\
[00:00.250 --> 00:02.150]  three one four
[00:02.790 --> 00:05.150]  one five nine two
[00:05.830 --> 00:07.510]  six five
"""


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr that is not the notice about the demonstration model."""
        lines = [line for line in self.err.splitlines() if line and not line.startswith(NOTICE)]
        assert len(lines) == 1, self.err
        return lines[0]


Run: TypeAlias = Callable[..., Result]


def runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """What calls the command line with arguments, and puts the log back at the end."""
    log = logging.getLogger("liveasr")
    handlers = list(log.handlers)

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["liveasr", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        log.handlers[:] = handlers
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Result(int(caught.value.code or 0), out, err)

    yield call
    log.handlers[:] = handlers


def run_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with more variables in its environment; whatever its exit code is."""
    command = [sys.executable, "-m", "liveasr", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment}
    )

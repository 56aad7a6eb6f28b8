"""The server's log can be read by people and by programs."""

import logging
import re
import subprocess
import sys

import pytest

from liveasr.stream.journal import LogfmtFormatter, note


def line(caplog: pytest.LogCaptureFixture) -> str:
    return LogfmtFormatter().format(caplog.records[-1])


def test_an_event_is_one_line_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    note("session over", session="hT0rP2l9_-", reason="stop", heard_ms=8628, model=None)
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO event="session over" '
        r"session=hT0rP2l9_- reason=stop heard_ms=8628",
        line(caplog),
    )


@pytest.mark.parametrize("value", ["", "two words", "a=b", 'a "b"', "line\nline", "\u2028", "模型", "\x1b[31m"])
def test_what_came_from_outside_cannot_make_lines_or_facts_of_its_own(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    note("session started", model=value)
    found = line(caplog)
    assert len(found.splitlines()) == 1
    assert found.isascii()
    assert found.isprintable()
    assert re.search(r'model="[^"\\]*(\\.[^"\\]*)*"$', found)


def test_a_fault_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ZeroDivisionError("why")
    except ZeroDivisionError as error:
        note("session failed", error=error, session="x")
    assert "ERROR" in line(caplog).splitlines()[0]
    assert line(caplog).endswith("ZeroDivisionError: why")


def test_a_log_that_nobody_reads_holds_nobody_up() -> None:
    """More is noted than a pipe and the queue before it hold; the program goes on and ends all the same."""
    code = (
        "from liveasr.stream.journal import note, to_stderr\n"
        "to_stderr()\n"
        "for index in range(40_000):\n"
        "    note('event', index=index)\n"
        "print('done', flush=True)\n"
        "import os; os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"  # while its stderr is not read
        process.kill()

"""The server's log can be read by people and by programs."""

import logging
import re

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

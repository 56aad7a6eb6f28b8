import errno
import io
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from rich.cells import cell_len

from liveasr.clients.progress import FetchBar, ProgressBar

ERASE_LINE = "\x1b[2K"
LIMIT_S = 120


class Terminal(io.StringIO):
    """A screen, as a stream."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation

    @property
    def shown(self) -> str:
        """Everything that ever stood on it, without colours and movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


AnyBar = TypeVar("AnyBar", ProgressBar, FetchBar)


@contextmanager
def bar_on(terminal: Terminal) -> Iterator[ProgressBar]:
    """A bar where stderr is a terminal and stdout is none; both are what they were when it is gone."""
    with on(terminal, ProgressBar()) as bar:
        yield bar


@contextmanager
def on(terminal: Terminal, new: AnyBar) -> Iterator[AnyBar]:
    stdout = sys.stdout
    with pytest.MonkeyPatch.context() as patch:  # here, since pytest sets both anew after it has made the fixtures
        patch.setattr(sys, "stderr", terminal)
        try:
            with new as bar:
                assert sys.stdout is stdout
                yield bar
        finally:
            assert sys.stderr is terminal
            assert sys.stdout is stdout


@pytest.fixture
def log(terminal: Terminal) -> Iterator[logging.Logger]:
    """The log, written to the terminal as the command line does."""
    logger = logging.getLogger("liveasr")
    handler = logging.StreamHandler(terminal)
    logger.addHandler(handler)
    yield logger
    assert handler.stream is terminal
    logger.removeHandler(handler)


def test_where_nobody_watches_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, stdout = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(sys, "stdout", stdout)
    with ProgressBar() as bar:
        heard = bar.begin(Path("talk.wav"), 60_000)
        heard(30_000)
        assert sys.stderr is stderr
        assert sys.stdout is stdout
    assert stderr.getvalue() == stdout.getvalue() == ""


def test_it_tells_what_is_read_and_how_far_and_how_fast(terminal: Terminal) -> None:
    with bar_on(terminal) as bar:
        heard = bar.begin(Path("folder/talk.wav"), 3_725_000)
        heard(61_000)
    assert re.search(r"talk\.wav [━╺╸]+ 01:01/01:02:05 \d+x ", terminal.shown)
    assert "folder" not in terminal.shown
    assert all(cell_len(picture) <= 80 for picture in re.split("[\r\n]", terminal.shown))


def test_on_a_narrow_screen_the_numbers_are_whole(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with on(terminal, FetchBar()) as bar:
        came = bar.begin("sensevoice-small-q8.gguf")
        came(1_000_000, 242_000_000)
        came(123_400_000, 242_000_000)
    assert "123.4/242.0 MB" in terminal.shown
    assert all(cell_len(picture) <= 40 for picture in re.split("[\r\n]", terminal.shown))


def test_of_an_unknown_length_only_the_position_is_told(terminal: Terminal) -> None:
    with bar_on(terminal) as bar:
        heard = bar.begin(Path("-"), None)
        heard(61_000)
    assert "01:01 " in terminal.shown
    assert "01:01/" not in terminal.shown


def test_the_next_recording_takes_the_place_of_the_last(terminal: Terminal) -> None:
    with bar_on(terminal) as bar:
        bar.begin(Path("first.wav"), 1000)(1000)
        before = len(terminal.getvalue())
        bar.begin(Path("second.wav"), 1000)(500)
    assert "second.wav" in terminal.getvalue()[before:]
    assert "first.wav" not in terminal.getvalue()[before:].rpartition("second.wav")[2]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("talk [bold] of [monday].wav", "talk [bold] of [monday]…"),
        ("a recording with a name of its own.wav", "a recording with a name…"),
        ("今天天气很好我们一起去公园散步吧.wav", "今天天气很好我们一起"),
        ("5:30 :smile:.wav", "5:30 :smile:.wav"),
    ],
)
def test_names_stand_as_they_are_as_far_as_there_is_room(name: str, shown: str, terminal: Terminal) -> None:
    with bar_on(terminal) as bar:
        bar.begin(Path(name), 1000)(500)
    assert shown in terminal.shown
    assert all(cell_len(picture) <= 80 for picture in re.split("[\r\n]", terminal.shown))


def test_what_is_logged_stands_above_it_on_a_line_of_its_own(terminal: Terminal, log: logging.Logger) -> None:
    with bar_on(terminal) as bar:
        bar.begin(Path("talk.wav"), 60_000)(30_000)
        log.error("x.wav: is damaged")
    assert f"{ERASE_LINE}x.wav: is damaged\n" in terminal.getvalue()


def test_it_is_gone_at_the_end(terminal: Terminal, log: logging.Logger) -> None:
    with bar_on(terminal) as bar:
        bar.begin(Path("talk.wav"), 60_000)(30_000)
    assert terminal.getvalue().endswith(ERASE_LINE)
    log.error("later")
    assert terminal.getvalue().endswith("later\n")


def test_it_is_gone_after_an_error_too(terminal: Terminal) -> None:
    def interrupted() -> None:
        with bar_on(terminal) as bar:
            bar.begin(Path("talk.wav"), 60_000)(30_000)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith(ERASE_LINE)


def test_on_a_terminal_results_and_errors_stand_on_lines_of_their_own(data: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("nobody speaks here\n" * 50, encoding="utf-8")
    command = [sys.executable, "-m", "liveasr", "transcribe", "--model", "digits"]
    command += [str(data / "digits-clean.wav"), str(bad)]
    controller, screen = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=screen, stderr=screen, env=environment)
    os.close(screen)
    shown = b""
    try:
        while piece := os.read(controller, 4096):
            shown += piece
    except OSError as error:  # how Linux tells that the other end has closed
        if error.errno != errno.EIO:
            raise
    os.close(controller)
    assert process.wait(LIMIT_S) == 1
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown.decode())
    lines = [line.rpartition("━ ")[2] for line in text.split("\n")]
    for line in ("[00:00.250 --> 00:02.150]  three one four", "[00:05.830 --> 00:07.510]  six five"):
        assert line in "\n".join(lines)
    erased = shown.decode().replace("\r", "")
    assert f"{ERASE_LINE}[00:02.790 --> 00:05.150]  one five nine two" in erased
    assert f"{ERASE_LINE}liveasr: {bad}: is not a recording that can be decoded" in erased
    assert erased.rstrip("\n").endswith(("\x1b[?25h", ERASE_LINE))

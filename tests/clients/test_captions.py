"""What a person sees while speaking."""

import io

import numpy as np
import pytest
from rich.console import Console

from liveasr.clients.captions import CaptionLines, CaptionScreen, final_line, level_db, open_line, status_line
from liveasr.types import LiveTranscript, Transcript, Word

FINAL = Transcript(0, "three one four", (Word("three", 640, 700),), 250, 2150)


def revision(number: int, committed: str, tentative: str, final: Transcript | None = None) -> LiveTranscript:
    return LiveTranscript(0, number, committed, tentative, 250, 2150, final)


def test_a_pipe_gets_a_line_for_each_final_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    lines = CaptionLines()
    lines.show(revision(1, "", "three"))
    lines.status(1000, -20.0, 0, 0)
    lines.show(revision(2, "three", " one"))
    lines.show(revision(3, "three one four", "", FINAL))
    lines.show(LiveTranscript(1, 1, "", "", 3000, 4000, Transcript(1, "", (), 3000, 4000)))
    lines.close()
    assert capsys.readouterr().out == "[00:00.250 --> 00:02.150]  three one four\n"


def test_committed_text_stands_out_from_tentative() -> None:
    line = open_line(revision(2, "three one", " for"))
    assert line.plain == "00:00  three one for"
    styles = {line.plain[span.start : span.end]: str(span.style) for span in line.spans}
    assert styles[" for"] == "dim italic"
    assert "three one" not in styles


def test_a_final_has_its_time_and_its_own_text() -> None:
    assert final_line(FINAL).plain == "00:00  three one four"


@pytest.mark.parametrize("heard_ms", [0, 59_000, 36_000_000])
@pytest.mark.parametrize("level", [-60.0, -20.0, 0.0, 3.0])
@pytest.mark.parametrize(("lag_ms", "lost"), [(0, 0), (99, 0), (12_345, 3)])
def test_the_status_fits_80_columns(heard_ms: int, level: float, lag_ms: int, lost: int) -> None:
    line = status_line(heard_ms, level, lag_ms, lost)
    assert line.cell_len <= 80
    assert ("behind" in line.plain) == (lag_ms > 100)
    assert ("lost" in line.plain) == (lost > 0)


def test_the_status_tells_that_there_is_no_connection() -> None:
    line = status_line(36_000_000, 0.0, 12_345, 3, connected=False)
    assert "reconnecting" in line.plain
    assert "behind" not in line.plain
    assert line.cell_len <= 80


def test_a_pipe_gets_a_line_on_stderr_when_the_connection_breaks_and_one_when_it_is_back(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = CaptionLines()
    lines.connection("http://host: the connection was lost")
    lines.connection(None)
    assert [record.getMessage() for record in caplog.records] == [
        "http://host: the connection was lost; trying again",
        "connected again",
    ]
    assert capsys.readouterr().out == ""


def test_the_screen_shows_that_there_is_no_connection_while_there_is_none() -> None:
    output = io.StringIO()
    screen = CaptionScreen(Console(file=output, force_terminal=True, width=80, color_system=None))
    screen.connection("lost")
    assert "reconnecting" in screen._picture().renderables[-1].plain  # type: ignore[union-attr]
    screen.connection(None)
    assert "up to date" in screen._picture().renderables[-1].plain  # type: ignore[union-attr]
    screen.close()


def test_the_level_is_in_decibels_of_full_scale() -> None:
    sine = np.sin(np.arange(16_000) * 0.1).astype(np.float32)
    assert level_db(sine) == pytest.approx(-3.0, abs=0.1)
    assert level_db(np.ones(10, np.float32)) == pytest.approx(0.0, abs=1e-6)
    assert level_db(np.zeros(10, np.float32)) == level_db(np.zeros(0, np.float32)) == -60.0


def test_the_screen_leaves_only_finals_behind() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, color_system=None)
    screen = CaptionScreen(console)
    screen.show(revision(1, "", "three"))
    screen.status(500, -20.0, 0, 0)
    screen.show(revision(2, "three one four", "", FINAL))
    screen.close()
    assert output.getvalue().count("three one four") == 1

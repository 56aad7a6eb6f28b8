import importlib
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from liveasr.clients import plot
from liveasr.clients.plot import Envelope, Span, draw
from liveasr.errors import MissingExtraError, OutputError
from liveasr.types import Float32Array
from tests.chunking import PIECES, assert_same_for_any_split
from tests.sounds import white

BLUE, RED = (0, 2), (2, 0)
"""(channel that is low, channel that is high) of the shade of segments and of the edge of a cut."""


def picture(path: Path) -> Float32Array:
    """(height, width, 3) of a PNG."""
    pixels: Float32Array = matplotlib.image.imread(path)[:, :, :3]
    return pixels


def columns_of(seconds: float) -> Float32Array:
    """An envelope: louder and louder."""
    high = np.linspace(0, 1, round(seconds * 100), dtype=np.float32)
    return np.stack((-high, high), axis=1)


def drawn(folder: Path, seconds: float, spans: list[Span]) -> Float32Array:
    path = folder / "x.png"
    columns = columns_of(seconds)
    draw(path, "talk.wav", columns, np.full(max(0, len(columns) - 2), 0.5, np.float32), spans)
    return picture(path)


def share_of(pixels: Float32Array, low: int, high: int) -> float:
    """How much of the picture is clearly of a colour."""
    return float((pixels[:, :, high] - pixels[:, :, low] > 0.1).mean())


def test_a_picture_is_a_png_of_a_size_that_fits_a_screen(tmp_path: Path) -> None:
    height, width, _ = drawn(tmp_path, 8, [Span(1000, 3000, forced_cut=False)]).shape
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert width == 1400
    assert 150 <= height <= 400


@pytest.mark.parametrize(("seconds", "rows"), [(0.0, 1), (0.01, 1), (30, 1), (31, 2), (95, 4), (7200, 24)])
def test_every_30_s_are_a_row_and_an_hour_is_no_poster(seconds: float, rows: int, tmp_path: Path) -> None:
    height, _, _ = drawn(tmp_path, seconds, []).shape
    assert height == pytest.approx(80 + 160 * rows, abs=2)


def test_segments_are_blue_where_they_lie(tmp_path: Path) -> None:
    assert share_of(drawn(tmp_path, 8, []), *BLUE) < 0.01
    pixels = drawn(tmp_path, 8, [Span(0, 4000, forced_cut=False)])
    assert share_of(pixels, *BLUE) > 0.2
    assert share_of(pixels[:, :650], *BLUE) > 10 * share_of(pixels[:, 750:], *BLUE)


def test_the_edge_of_a_forced_cut_is_red(tmp_path: Path) -> None:
    without = share_of(drawn(tmp_path, 8, [Span(0, 4000, forced_cut=False)]), *RED)
    assert share_of(drawn(tmp_path, 8, [Span(0, 4000, forced_cut=True)]), *RED) > without


def test_a_segment_goes_on_in_the_next_row(tmp_path: Path) -> None:
    pixels = drawn(tmp_path, 60, [Span(20_000, 40_000, forced_cut=False)])
    middle = len(pixels) // 2
    assert share_of(pixels[:middle], *BLUE) > 0.1
    assert share_of(pixels[middle:], *BLUE) > 0.1


@pytest.mark.parametrize("ending", ["svg", "pdf", "jpg"])
def test_the_ending_names_the_format(ending: str, tmp_path: Path) -> None:
    draw(tmp_path / f"x.{ending}", "x", columns_of(1), np.zeros(98, np.float32), [])
    begins = {"svg": b"<?xml", "pdf": b"%PDF", "jpg": b"\xff\xd8"}
    assert (tmp_path / f"x.{ending}").read_bytes().startswith(begins[ending])


@pytest.mark.parametrize("title", ["你好.wav", "$x^$.wav", "a_b^c.wav", "x" * 300])
def test_any_name_can_stand_above_it(title: str, tmp_path: Path) -> None:
    draw(tmp_path / "x.png", title, columns_of(1), np.zeros(98, np.float32), [])
    assert picture(tmp_path / "x.png").shape[1] == 1400


@pytest.mark.parametrize(
    ("name", "reason"), [("x.docx", "Format 'docx' is not supported"), ("no/x.png", "No such file")]
)
def test_a_picture_that_cannot_be_written_is_one_line(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=reason) as caught:
        draw(tmp_path / name, "x", columns_of(1), np.zeros(98, np.float32), [])
    assert str(caught.value).startswith(f"{tmp_path / name}: cannot be written: ")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_old_picture_stands_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"old")
    figure = importlib.import_module("matplotlib.figure").Figure

    def full_disk(_figure: object, target: Path, **_options: object) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", full_disk)
    with pytest.raises(OutputError, match="cannot be written: No space left on device"):
        draw(path, "x", columns_of(1), np.zeros(98, np.float32), [])
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.png"]


def test_without_matplotlib_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError) as caught:
        draw(tmp_path / "x.png", "x", columns_of(1), np.zeros(98, np.float32), [])
    assert str(caught.value) == (
        "matplotlib, which draws the picture, is not installed; install it with: pip install 'liveasr[plot]'"
    )
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_is_not_needed_until_something_is_drawn() -> None:
    assert "matplotlib" not in vars(plot)


# The envelope.


def envelope_of(samples: Float32Array) -> Float32Array:
    envelope = Envelope()
    envelope.accept(samples)
    return envelope.columns()


def test_the_envelope_has_the_lowest_and_highest_sample_of_every_10_ms() -> None:
    samples = white(0.05, 0.1)
    rows = samples.reshape(5, 160)
    assert np.array_equal(envelope_of(samples), np.stack((rows.min(axis=1), rows.max(axis=1)), axis=1))


@pytest.mark.parametrize("size", [0, 1, 159])
def test_less_than_10_ms_has_no_column(size: int) -> None:
    assert envelope_of(white(1, 0.1)[:size]).shape == (0, 2)


def test_the_envelope_is_the_same_in_any_pieces() -> None:
    def run(feed: object) -> bytes:
        envelope = Envelope()
        for piece in feed:  # type: ignore[attr-defined]
            envelope.accept(piece)
        return envelope.columns().tobytes()

    assert_same_for_any_split(white(1, 0.1), run, [1, 7, *PIECES])

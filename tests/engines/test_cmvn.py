"""Which normalisation is used: a good one is applied, a broken one is left out with one warning."""

import logging
from pathlib import Path

import numpy as np
import pytest

from liveasr.engines import cmvn
from liveasr.engines.registry import open_engine
from liveasr.engines.sensevoice import SenseVoice
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted
from tests.helpers import edited, write_gguf

DIMS = 6
SHIFT = np.arange(-3, 3, dtype=np.float32)
SCALE = np.linspace(0.1, 2, DIMS, dtype=np.float32)
KALDI = """<Nnet>
<Splice> {n} {n}
[ 0 ]
<AddShift> {n} {n}
<LearnRateCoef> 0 [ {shift} ]
<Rescale> {n} {n}
<LearnRateCoef> 0 [ {scale} ]
</Nnet>
"""


def kaldi(path: Path, shift: Float32Array, scale: Float32Array) -> Path:
    numbers = [" ".join(f"{value:.9g}" for value in values) for values in (shift, scale)]
    path.write_text(KALDI.format(n=shift.size, shift=numbers[0], scale=numbers[1]), encoding="utf-8")
    return path


def gguf_with(path: Path, tensors: dict[str, Float32Array]) -> GgufFile:
    return GgufFile(write_gguf(path, "sensevoice-small", {}, tensors))


def without(value: float, place: int, values: Float32Array) -> Float32Array:
    """A copy with one value in a place."""
    changed = values.copy()
    changed[place] = value
    return changed


# What a GGUF file holds.


def test_good_vectors_are_used_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with gguf_with(tmp_path / "m.gguf", {"cmvn.shift": SHIFT, "cmvn.scale": SCALE}) as file:
        found = cmvn.from_gguf(file, DIMS)
    assert found is not None
    np.testing.assert_array_equal(found.shift, SHIFT)
    np.testing.assert_array_equal(found.scale, SCALE)
    assert not caplog.records


def test_applying_adds_then_multiplies() -> None:
    features = np.array([[1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]], np.float32)
    normalised = cmvn.Cmvn(SHIFT, SCALE).apply(features)
    assert normalised.dtype == np.float32
    np.testing.assert_array_equal(normalised, (features + SHIFT) * SCALE)
    assert cmvn.Cmvn(SHIFT, SCALE).apply(features[:0]).shape == (0, DIMS)


BROKEN: dict[str, dict[str, Float32Array]] = {
    "as upstream writes it": {"cmvn.shift": np.zeros(1, np.float32), "cmvn.scale": SHIFT},
    "nothing": {},
    "no scale": {"cmvn.shift": SHIFT},
    "no shift": {"cmvn.scale": SCALE},
    "both for another front end": {"cmvn.shift": SHIFT[:5], "cmvn.scale": SCALE[:5]},
    "both of two dimensions": {"cmvn.shift": SHIFT[None], "cmvn.scale": SCALE[None]},
    "scale of zero": {"cmvn.shift": SHIFT, "cmvn.scale": without(0, 3, SCALE)},
    "scale below zero": {"cmvn.shift": SHIFT, "cmvn.scale": without(-0.1, 0, SCALE)},
    "scale that is no number": {"cmvn.shift": SHIFT, "cmvn.scale": without(np.nan, 5, SCALE)},
    "scale without end": {"cmvn.shift": SHIFT, "cmvn.scale": without(np.inf, 5, SCALE)},
    "shift that is no number": {"cmvn.shift": without(np.nan, 2, SHIFT), "cmvn.scale": SCALE},
}


@pytest.mark.parametrize("tensors", BROKEN.values(), ids=BROKEN)
def test_broken_vectors_are_left_out_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tensors: dict[str, Float32Array]
) -> None:
    tensors = {"other": SHIFT, **tensors}
    with gguf_with(tmp_path / "m.gguf", tensors) as file:
        assert cmvn.from_gguf(file, DIMS) is None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("liveasr", logging.WARNING)
    message = record.getMessage()
    assert message.startswith(str(tmp_path / "m.gguf"))
    assert "--cmvn am.mvn" in message
    assert "liveasr models convert" in message
    assert "\n" not in message


def test_published_file_opens_and_runs_without_normalisation(
    tiny: Converted, golden: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"cmvn.shift": np.zeros(1, np.float32), "cmvn.scale": np.full(560, -8, np.float32)}
    published = edited(tiny(), tmp_path / "published.gguf", tensors=broken)
    engine = open_engine(published, threads=1)
    assert isinstance(engine, SenseVoice)
    assert engine.model.cmvn is None
    assert len(caplog.records) == 1
    engine.close()
    caplog.clear()
    engine = open_engine(published, threads=1, cmvn_path=golden / "sensevoice-tiny" / "am.mvn")
    assert isinstance(engine, SenseVoice)
    assert engine.model.cmvn is not None
    engine.close()
    assert not caplog.records


# What an am.mvn holds.


def test_kaldi_blocks_are_found_by_their_names(tmp_path: Path) -> None:
    """The first bracketed block is <Splice>: to count blocks is upstream's mistake."""
    found = cmvn.from_kaldi(kaldi(tmp_path / "am.mvn", SHIFT, SCALE), DIMS)
    np.testing.assert_array_equal(found.shift, SHIFT)
    np.testing.assert_array_equal(found.scale, SCALE)


def test_kaldi_blocks_may_come_in_any_order(tmp_path: Path) -> None:
    text = "<Nnet> <Rescale> 2 2 <LearnRateCoef> 0 [ 3 4 ] <Splice> 2 2 [ 0 ] <AddShift> 2 2 <LearnRateCoef> 0 [ 1 2 ]"
    (tmp_path / "am.mvn").write_text(text, encoding="utf-8")
    found = cmvn.from_kaldi(tmp_path / "am.mvn", 2)
    assert (found.shift.tolist(), found.scale.tolist()) == ([1, 2], [3, 4])


def test_kaldi_numbers_may_run_over_lines_and_have_exponents(tmp_path: Path) -> None:
    text = "<AddShift> 2 2\n<LearnRateCoef> 0 [\n -1.5e1\n+2\n]\n<Rescale> 2 2 <LearnRateCoef> 0 [1e-2 .5]\n"
    (tmp_path / "am.mvn").write_text(text, encoding="utf-8")
    shift, scale = cmvn.read_kaldi(tmp_path / "am.mvn")
    np.testing.assert_array_equal(shift, np.array([-15, 2], np.float32))
    np.testing.assert_array_equal(scale, np.array([0.01, 0.5], np.float32))


def test_released_vad_file_is_read(shared: Path) -> None:
    found = cmvn.from_kaldi(shared / "models" / "fsmn-vad" / "am.mvn", 400)
    assert found.shift[:2].tolist() == np.array([-8.311879, -8.600912], np.float32).tolist()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read: "),
        ("", "has no <AddShift> block"),
        ("<Rescale> 1 1 [ 1 ]", "has no <AddShift> block"),
        ("<AddShift> 1 1 [ 1 ]", "has no <Rescale> block"),
        ("<AddShift> 1 1 [ 1 ] <Rescale> 1 1 [ 1", "has no <Rescale> block"),
        ("<AddShift> 1 1 [ one ] <Rescale> 1 1 [ 1 ]", "its <AddShift> block is not a list of numbers"),
        ("<AddShift> 1 1 [ 1 ] <Rescale> 1 1 [ 0x1 ]", "its <Rescale> block is not a list of numbers"),
        ("<AddShift> 2 2 [ 1 2 ] <Rescale> 1 1 [ 1 ]", "shift has 2 values, scale has 1"),
        ("<AddShift> 0 0 [ ] <Rescale> 0 0 [ ]", "has 0 values; the model takes 1"),
        ("<AddShift> 2 2 [ 1 1 ] <Rescale> 2 2 [ 1 1 ]", "has 2 values; the model takes 1"),
        ("<AddShift> 1 1 [ nan ] <Rescale> 1 1 [ 1 ]", "not finite"),
        ("<AddShift> 1 1 [ 1 ] <Rescale> 1 1 [ inf ]", "not finite"),
        ("<AddShift> 1 1 [ 1 ] <Rescale> 1 1 [ 0 ]", "scale that is not positive"),
        ("<AddShift> 1 1 [ 1 ] <Rescale> 1 1 [ -1 ]", "scale that is not positive"),
        ("\udcff", "cannot be read: "),
    ],
)
def test_broken_kaldi_file_is_named_with_the_reason(tmp_path: Path, text: str | None, reason: str) -> None:
    path = tmp_path / "am.mvn"
    if text is not None:
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ModelFileError) as caught:
        cmvn.from_kaldi(path, 1)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert message.isprintable()

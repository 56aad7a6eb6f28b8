"""The predictor of tokens against the reference, and against a loop that adds up step by step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines import cif
from liveasr.engines.cif import CifPredictor, Fired, integrate
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted
from tests.helpers import edited

STEMS = ("digits-clean", "digits-noisy")
REAL_STEMS = ("zh", "jfk")
TAIL = 0.45
SIZE = 32


@pytest.fixture
def predictor(tiny_paraformer: Converted) -> CifPredictor:
    with GgufFile(tiny_paraformer()) as file:
        return cif.load(file, "predictor.", SIZE)


def hidden(steps: int, size: int = 4) -> Float32Array:
    return np.random.default_rng(steps).standard_normal((steps, size)).astype(np.float32)


def fired(*alphas: float) -> Fired:
    return integrate(hidden(len(alphas)), np.array(alphas, np.float32), TAIL)


# Against the reference.


def assert_fires_match(predictor: CifPredictor, reference: Any, stem: str, tolerances: dict[str, Any]) -> None:
    """From the reference's own output of the encoder."""
    rows = reference[f"{stem}/encoder_out"]
    found = integrate(rows, predictor.alphas(rows), TAIL)
    limits = tolerances["engines"]
    assert len(found.embeddings) == reference[f"{stem}/token_count"]
    np.testing.assert_array_equal(np.flatnonzero(found.peaks >= 1), reference[f"{stem}/fires"])
    pairs = (("alphas", found.alphas), ("cif_peaks", found.peaks), ("acoustic_embeds", found.embeddings))
    for name, values in pairs:
        expected = reference[f"{stem}/{name}"]
        assert values.shape == expected.shape
        assert values.dtype == np.float32
        assert np.abs(values - expected).max() <= limits[name]["value"], name


@pytest.mark.parametrize("stem", STEMS)
def test_weights_fires_and_embeddings_are_the_references(
    predictor: CifPredictor, golden: Path, stem: str, tolerances: dict[str, Any]
) -> None:
    assert_fires_match(predictor, np.load(golden / "paraformer-tiny.npz"), stem, tolerances)


@pytest.mark.parametrize("stem", REAL_STEMS)
def test_weights_of_real_recordings_are_the_references(
    predictor: CifPredictor, shared: Path, stem: str, tolerances: dict[str, Any]
) -> None:
    assert_fires_match(predictor, np.load(shared / "golden" / "paraformer-tiny.npz"), stem, tolerances)


# Against the definition.


def step_by_step(rows: Float32Array, alphas: Float32Array) -> list[Float32Array]:
    """The embeddings as the definition has them: add up, and share the step that fires."""
    embeddings = []
    total, mean = 0.0, np.zeros(rows.shape[1])
    for row, alpha in zip(rows.astype(np.float64), alphas.tolist(), strict=True):
        if total + alpha < 1:
            total, mean = total + alpha, mean + alpha * row
        else:
            embeddings.append((mean + (1 - total) * row).astype(np.float32))
            total += alpha - 1
            mean = total * row
    return embeddings


@given(st.lists(st.integers(0, 64), max_size=60))
def test_embeddings_are_those_of_a_loop(sixty_fourths: list[int]) -> None:
    """Weights that float32 adds up without rounding, so that both must fire in the same steps."""
    alphas = np.array(sixty_fourths, np.float32) / np.float32(64)
    rows = hidden(len(alphas))
    found = integrate(rows, alphas, 0.5)
    expected = step_by_step(np.pad(rows, ((0, 1), (0, 0))), np.append(alphas, np.float32(0.5)))
    assert len(found.embeddings) == len(expected) == int(alphas.sum() + 0.5)
    for ours, theirs in zip(found.embeddings, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@given(st.lists(st.floats(0, 1, width=32), max_size=300))
def test_every_token_that_is_counted_has_an_embedding(weights: list[float]) -> None:
    alphas = np.array(weights, np.float32)
    found = integrate(hidden(len(alphas)), alphas, TAIL)
    assert found.embeddings.shape == (int(np.append(alphas, np.float32(TAIL)).sum()), 4)
    assert found.peaks.shape == found.alphas.shape == (len(alphas) + 1,)
    assert np.isfinite(found.embeddings).all()
    assert (found.peaks >= 0).all()


def test_tail_lets_a_token_fire_that_is_almost_whole() -> None:
    assert len(fired(0.3, 0.24).embeddings) == 0
    assert len(fired(0.3, 0.26).embeddings) == 1
    assert np.flatnonzero(fired(0.3, 0.26).peaks >= 1).tolist() == [2]
    assert np.flatnonzero(fired(0.5, 0.6, 0.0).peaks >= 1).tolist() == [1]


@pytest.mark.parametrize("alphas", [(), (0.0,), (0.54,)])
def test_too_little_weight_is_no_token(alphas: tuple[float, ...]) -> None:
    found = fired(*alphas)
    assert found.embeddings.shape == (0, 4)
    assert found.alphas.tolist() == pytest.approx([*alphas, TAIL])


def test_fires_come_from_sums_that_do_not_drift() -> None:
    """Ten times 0.1 is 1.0000001 in float32 but 1 in float64 that is rounded once: the step that fires is the same."""
    found = fired(*[0.1] * 100)
    assert np.flatnonzero(found.peaks >= 1).tolist() == list(range(9, 100, 10))


def test_sum_that_float32_rounds_up_to_1_fires() -> None:
    """0.9 and 0.1 are 2e-8 short of 1 as float32 has them; the reference rounds the sum before it looks."""
    assert np.flatnonzero(fired(0.9, 0.1, 0.5).peaks >= 1).tolist() == [1]


def test_steps_outside_count_as_zeros() -> None:
    rng = np.random.default_rng(0)
    conv = rng.standard_normal((3, 2, 2)).astype(np.float32)
    predictor = CifPredictor(
        conv.reshape(6, 2), np.zeros(2, np.float32), np.ones(2, np.float32), np.zeros(1, np.float32)
    )
    row = np.array([[1, 2]], np.float32)
    expected = 1 / (1 + np.exp(-np.maximum(row @ conv[1], 0).sum()))
    assert predictor.alphas(row) == pytest.approx([expected], abs=1e-6)
    behind = 1 / (1 + np.exp(-np.maximum(row @ conv[0], 0).sum()))
    assert predictor.alphas(np.concatenate((row, 0 * row)))[1] == pytest.approx(behind, abs=1e-6)
    assert predictor.alphas(np.zeros((0, 2), np.float32)).shape == (0,)


@pytest.mark.parametrize("value", [1e30, -1e30])
def test_weights_stay_between_0_and_1_and_warn_of_nothing(value: float) -> None:
    predictor = CifPredictor(
        np.ones((6, 2), np.float32), np.zeros(2, np.float32), np.full(2, value, np.float32), np.zeros(1, np.float32)
    )
    assert predictor.alphas(np.ones((3, 2), np.float32)).tolist() == [float(value > 0)] * 3


def test_where_no_number_is_computed_nothing_fires(predictor: CifPredictor) -> None:
    rows = np.full((9, SIZE), np.nan, np.float32)
    alphas = predictor.alphas(rows)
    assert alphas.tolist() == [0] * 9
    assert len(integrate(rows, alphas, TAIL).embeddings) == 0


# What is refused.


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("cif_conv1d.weight", np.zeros((32, 32, 5)), "has the shape (32, 32, 5); (32, 32, 3) was expected"),
        ("cif_conv1d.weight", None, "is missing"),
        ("cif_conv1d.bias", np.zeros(31), "has the shape (31,)"),
        ("cif_output.weight", np.zeros((2, 32)), "has the shape (2, 32); (1, 32) was expected"),
        ("cif_output.bias", np.full(1, np.nan), "has a value that is not finite"),
        ("cif_conv1d.weight", np.full((32, 32, 3), np.inf), "has a value that is not finite"),
    ],
)
def test_predictor_of_another_kind_is_refused(
    tiny_paraformer: Converted, tmp_path: Path, name: str, values: Any, reason: str
) -> None:
    changed = None if values is None else values.astype(np.float32)
    path = edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={f"predictor.{name}": changed})
    with GgufFile(path) as file, pytest.raises(ModelFileError) as caught:
        cif.load(file, "predictor.", SIZE)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)

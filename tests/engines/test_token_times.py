"""When tokens were spoken: the reference's times, and times for segments that it gives up on."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.cif import integrate
from liveasr.engines.token_times import token_spans
from liveasr.types import Float32Array

STEP_MS = 60
STEMS = ("digits-clean", "digits-noisy")
SEGMENTS = tuple(f"{stem}/seg{index}" for stem in STEMS for index in range(3))


def assert_times_match(reference: Any, stem: str, tolerances: dict[str, Any]) -> None:
    expected = reference[f"{stem}/timestamp_raw"]
    found = token_spans(reference[f"{stem}/cif_peaks"], len(reference[f"{stem}/tokens"])) * STEP_MS
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerances["engines"]["token_times"]["value"]


@pytest.mark.parametrize("stem", STEMS)
def test_times_of_random_weights_are_the_references(golden: Path, stem: str, tolerances: dict[str, Any]) -> None:
    assert_times_match(np.load(golden / "paraformer-tiny.npz"), stem, tolerances)


@pytest.mark.parametrize("stem", SEGMENTS)
def test_times_of_spoken_digits_are_the_references(golden: Path, stem: str, tolerances: dict[str, Any]) -> None:
    assert_times_match(np.load(golden / "digits-paraformer.npz"), stem, tolerances)


@pytest.mark.parametrize("stem", ["zh", "jfk"])
def test_times_of_real_recordings_are_the_references(shared: Path, stem: str, tolerances: dict[str, Any]) -> None:
    assert_times_match(np.load(shared / "golden" / "paraformer-tiny.npz"), stem, tolerances)


def curve(*alphas: float) -> Float32Array:
    values = np.array(alphas, np.float32)
    return integrate(np.zeros((len(values), 1), np.float32), values, 0.45).peaks


def test_no_tokens_have_no_times() -> None:
    assert token_spans(curve(0.1), 0).shape == (0, 2)


def test_token_after_a_long_pause_is_cut() -> None:
    """Ends are those of the next token, but for 12 steps at most."""
    alphas = [0.5] * 4 + [0.0] * 40 + [0.5] * 4
    spans = token_spans(curve(*alphas), 4)
    assert (spans[:, 1] - spans[:, 0]).max() == 12
    assert spans[-1, 1] <= len(alphas) + 1


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=120), st.integers(1, 40))
def test_times_rise_for_any_weights_and_any_count(alphas: list[float], count: int) -> None:
    spans = token_spans(curve(*alphas), count)
    assert spans.shape == (count, 2)
    assert (spans[:, 0] <= spans[:, 1]).all()
    assert all(before[1] <= after[0] for before, after in pairwise(spans.tolist()))
    assert spans.min() >= -1.5
    assert spans.max() <= len(alphas) + 1


def test_tokens_that_cannot_fire_share_what_is_left() -> None:
    """Two steps for three tokens: a step fires once, and the reference has no times for such a segment."""
    spans = token_spans(curve(0.99, 0.99), 3)
    assert spans[-1, 1] == 3
    assert (np.diff(spans[:, 0]) > 0).all()

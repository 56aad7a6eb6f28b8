from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array
from liveasr.vad.fsmn import SILENCE, FsmnScorer
from liveasr.vad.weights import FsmnWeights
from tests.chunking import assert_same_for_any_split, ways
from tests.memory import held_bytes
from tests.sounds import RECORDINGS, SHARED_RECORDINGS, load

PIECES = (1, 2, 6, 9, 10, 11, 20, 100)
"""Frames. From 10 on the arithmetic takes another way."""
PAST_FRAMES = 4 * 19
"""How far back the scores look: four layers, 20 taps each."""


def features_of(samples: Float32Array) -> Float32Array:
    return stack(OnlineFbank().accept(samples).data, 5, 1)


def all_scores(feed: Iterable[Float32Array], fsmn: FsmnWeights) -> Float32Array:
    scorer = FsmnScorer(fsmn)
    return np.concatenate([scorer.accept(piece) for piece in feed])


@pytest.fixture(scope="module")
def features(data: Path) -> Float32Array:
    return features_of(load(data / "digits-noisy.wav"))


@pytest.mark.parametrize("stem", RECORDINGS)
def test_silence_scores_are_those_of_the_reference(
    stem: str, fsmn: FsmnWeights, data: Path, golden: Path, tolerances: dict[str, Any]
) -> None:
    scores = FsmnScorer(fsmn).accept(features_of(load(data / f"{stem}.wav")))
    expected = np.load(golden / "vad.npz")[f"{stem}/silence"]
    assert len(scores) == len(expected)
    assert np.abs(scores[:, SILENCE] - expected).max() <= tolerances["vad"]["scores"]["value"]


@pytest.mark.parametrize("stem", SHARED_RECORDINGS)
def test_silence_scores_of_real_recordings_are_those_of_the_reference(
    stem: str, fsmn: FsmnWeights, shared: Path, tolerances: dict[str, Any]
) -> None:
    scores = FsmnScorer(fsmn).accept(features_of(load(shared / "audio" / f"{stem}.wav")))
    expected = np.load(shared / "golden" / "fsmn-vad.npz")[f"{stem}/silence"]
    assert len(scores) == len(expected)
    assert np.abs(scores[:, SILENCE] - expected).max() <= tolerances["vad"]["scores"]["value"]


def test_every_column_is_that_of_the_reference(fsmn: FsmnWeights, shared: Path, tolerances: dict[str, Any]) -> None:
    arrays = np.load(shared / "golden" / "fsmn-vad-sample-full.npz")
    stacked = features_of(load(shared / "audio" / "sample.wav"))
    normalised = (stacked + fsmn.shift) * fsmn.scale
    assert np.abs(normalised - arrays["sample/features"]).max() <= tolerances["stream"]["fbank"]["value"]
    scores = FsmnScorer(fsmn).accept(stacked)
    assert scores.shape == arrays["sample/scores"].shape == (598, 248)
    assert np.abs(scores - arrays["sample/scores"]).max() <= tolerances["vad"]["scores"]["value"]


def test_any_split_gives_the_same_silence_scores_to_the_bit(features: Float32Array, fsmn: FsmnWeights) -> None:
    assert_same_for_any_split(features, lambda feed: all_scores(feed, fsmn)[:, SILENCE].tobytes(), PIECES)


def test_any_split_gives_the_same_scores_in_every_column(features: Float32Array, fsmn: FsmnWeights) -> None:
    # Nobody uses the other 247 columns; of 200,000 numbers one may fall on the border between two float32.
    whole = all_scores([features], fsmn)
    for _name, cut in ways(features, PIECES):
        np.testing.assert_array_max_ulp(all_scores(cut, fsmn), whole, maxulp=1)


def test_scores_of_a_frame_sum_to_one(features: Float32Array, fsmn: FsmnWeights) -> None:
    scores = FsmnScorer(fsmn).accept(features)
    assert scores.dtype == np.float32
    assert scores.min() >= 0
    assert np.allclose(scores.sum(axis=1), 1, atol=1e-6)


def test_later_frames_do_not_change_earlier_scores(features: Float32Array, fsmn: FsmnWeights) -> None:
    changed = features.copy()
    changed[300:] = 0
    before, after = (FsmnScorer(fsmn).accept(each)[:, SILENCE] for each in (features, changed))
    assert np.array_equal(before[:300], after[:300])
    assert not np.array_equal(before[300:], after[300:])


def test_only_so_many_frames_back_count(features: Float32Array, fsmn: FsmnWeights) -> None:
    late = FsmnScorer(fsmn).accept(features[100:])[:, SILENCE]
    whole = FsmnScorer(fsmn).accept(features)[100:, SILENCE]
    assert np.array_equal(late[PAST_FRAMES:], whole[PAST_FRAMES:])
    assert not np.array_equal(late[:PAST_FRAMES], whole[:PAST_FRAMES])


def test_no_frame_gives_no_score_and_changes_nothing(features: Float32Array, fsmn: FsmnWeights) -> None:
    scorer = FsmnScorer(fsmn)
    first = scorer.accept(features[:50])
    assert scorer.accept(features[:0]).shape == (0, 248)
    assert np.array_equal(np.concatenate((first, scorer.accept(features[50:]))), FsmnScorer(fsmn).accept(features))


def test_reset_makes_it_new(features: Float32Array, fsmn: FsmnWeights) -> None:
    scorer = FsmnScorer(fsmn)
    scorer.accept(features[:70])
    scorer.reset()
    assert np.array_equal(scorer.accept(features), FsmnScorer(fsmn).accept(features))


def test_scorers_of_the_same_weights_do_not_touch_each_other(features: Float32Array, fsmn: FsmnWeights) -> None:
    one, other = FsmnScorer(fsmn), FsmnScorer(fsmn)
    other.accept(features[200:])
    assert np.array_equal(one.accept(features), FsmnScorer(fsmn).accept(features))


def test_what_is_kept_does_not_grow(features: Float32Array, fsmn: FsmnWeights) -> None:
    scorer = FsmnScorer(fsmn)
    scorer.accept(features[:20])
    kept = held_bytes(scorer)
    for _ in range(5):
        scorer.accept(features)
        assert held_bytes(scorer) == kept


def test_features_are_left_as_they_were(features: Float32Array, fsmn: FsmnWeights) -> None:
    before = features.copy()
    FsmnScorer(fsmn).accept(features)
    assert np.array_equal(features, before)

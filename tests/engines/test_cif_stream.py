"""Integrate-and-fire over a stream: the reference's embeddings, any split, and times that rise."""

from dataclasses import astuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liveasr.engines.chunks import Chunks
from liveasr.engines.cif_stream import CifState, Fire, integrate, integrate_tail
from liveasr.types import Float32Array
from tests.engines.streamed import STEMS, WAYS, name_of, run_of

D = 3


def fresh(size: int = D, row: int = 0) -> CifState:
    return CifState(row, np.zeros(size, np.float32))


def fed(alphas: list[float], sizes: list[int] | None = None) -> tuple[Float32Array, list[Fire], CifState]:
    """Rows of the numbers 1, 2, ... with these weights, in pieces."""
    state = fresh()
    hidden = np.repeat(np.arange(1, len(alphas) + 1, dtype=np.float32)[:, None], D, axis=1)
    weights = np.array(alphas, np.float32)
    embeddings, fires, at = [], [], 0
    for size in sizes or [len(alphas)]:
        found, times = integrate(hidden[at : at + size], weights[at : at + size], state)
        embeddings.append(found)
        fires += times
        at += size
    assert at == len(alphas)
    return np.concatenate(embeddings), fires, state


def near(found: list[Fire], expected: list[Fire]) -> bool:
    return np.allclose([astuple(fire) for fire in found], [astuple(fire) for fire in expected])


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("chunks", WAYS, ids=name_of)
def test_what_fires_in_a_chunk_is_what_fires_in_the_reference(
    golden: Path, stem: str, chunks: Chunks, tolerances: dict[str, Any]
) -> None:
    run = run_of(golden, stem, chunks)
    state = fresh(32, -chunks.ahead)
    limit = tolerances["engines"]["streamed_embeds"]["value"]
    for index, (hidden, alphas) in enumerate(zip(run.encoder_out, run.alphas, strict=True)):
        last = index == len(run.alphas) - 1
        centre = slice(chunks.past, None if last else chunks.past + chunks.now)
        embeddings, _ = integrate(hidden[centre], alphas[centre], state)
        if last:
            embeddings = np.concatenate((embeddings, integrate_tail(state, 0.45)[0]))
        assert embeddings.shape == run.acoustic_embeds[index].shape
        assert np.abs(embeddings - run.acoustic_embeds[index]).max(initial=0) < limit
        assert abs(float(state.weight) - run.integrator[index]) < limit


@given(st.lists(st.floats(0, 1, width=32), max_size=40), st.data())
def test_any_split_fires_the_same(alphas: list[float], data: st.DataObject) -> None:
    whole = fed(alphas)
    places = sorted(data.draw(st.lists(st.integers(0, len(alphas)), max_size=6)))
    sizes = np.diff([0, *places, len(alphas)]).tolist()
    split = fed(alphas, sizes)
    np.testing.assert_array_equal(split[0], whole[0])
    assert split[1] == whole[1]
    assert split[2].weight == whole[2].weight
    np.testing.assert_array_equal(split[2].mixed, whole[2].mixed)


@given(st.lists(st.floats(0, 1, width=32), max_size=60))
@example([np.float32(0.99999), np.float32(1e-05), 1.0])  # the sum is rounded up
def test_tokens_follow_each_other_and_stay_among_their_rows(alphas: list[float]) -> None:
    embeddings, fires, state = fed(alphas)
    assert len(embeddings) == len(fires)
    assert 0 <= state.weight < 1
    assert abs(sum(alphas) - len(fires) - float(state.weight)) < 1e-3
    assert all(0 <= fire.start < fire.end <= len(alphas) for fire in fires)
    assert all(a.end <= b.start for a, b in pairwise(fires))


def test_row_that_fires_is_shared() -> None:
    embeddings, fires, state = fed([0.5, 0.75, 0.75])
    np.testing.assert_array_equal(embeddings[:, 0], [0.5 * 1 + 0.5 * 2, 0.25 * 2 + 0.75 * 3])
    assert near(fires, [Fire(0.0, 1 + 2 / 3), Fire(1 + 2 / 3, 3.0)])
    assert state.weight == 0


def test_silence_before_a_token_is_no_part_of_it() -> None:
    _, fires, _ = fed([1.0, 0.01, 0.01, 0.01, 0.5, 0.5])
    assert near(fires, [Fire(0.0, 1.0), Fire(4.0, 5.94)])


def test_rest_of_a_row_that_is_hardly_anything_does_not_begin_a_token() -> None:
    _, fires, _ = fed([0.5, 0.52, 0.0, 0.0, 0.99])
    assert fires[1].start == 4.0


def test_token_of_whispers_alone_lasts_for_the_row_that_completes_it() -> None:
    _, fires, _ = fed([0.03125] * 32)
    assert fires == [Fire(31.0, 32.0)]


def test_rows_may_be_counted_from_before_the_segment() -> None:
    state = fresh(row=-5)
    _, fires = integrate(np.ones((3, D), np.float32), np.full(3, 0.5, np.float32), state)
    assert fires == [Fire(-5.0, -3.0)]
    assert state.row == -2


@pytest.mark.parametrize(("weight", "count"), [(0.5, 0), (0.5625, 1), (0.9375, 1)])
def test_tail_completes_what_is_almost_complete(weight: float, count: int) -> None:
    _, _, state = fed([weight])
    embeddings, fires = integrate_tail(state, 0.45)
    assert len(embeddings) == len(fires) == count
    if count:
        np.testing.assert_array_equal(embeddings[0], np.full(D, weight, np.float32))
        assert 1 < fires[0].end <= 2


def test_no_rows_fire_nothing() -> None:
    embeddings, fires, state = fed([])
    assert embeddings.shape == (0, D)
    assert fires == []
    assert state.weight == 0

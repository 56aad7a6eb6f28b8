"""The tokens of a stream through the decoder: the reference's logits for its own windows and embeddings."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines.chunk_decoder import ChunkDecoder, DecoderState
from liveasr.engines.chunks import Chunks
from liveasr.engines.convert import WeightType
from liveasr.engines.native import ComputeContext, Weights
from liveasr.engines.sanm_decoder import SanmDecoder
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted
from tests.engines.streamed import STEMS, WAYS, Run, name_of, run_of
from tests.helpers import lowest_cosine

DECODER = SanmDecoder("decoder.", 32, 2, 2, 11, 256, 1e-12)


@pytest.fixture(params=["f32", "f16", "q8_0"])
def weight_type(request: pytest.FixtureRequest) -> WeightType:
    kind: WeightType = request.param
    return kind


@pytest.fixture
def weights(tiny_streaming: Converted, weight_type: WeightType) -> Iterator[Weights]:
    file = GgufFile(tiny_streaming(weight_type))
    DECODER.check(file)
    made = Weights(file, DECODER.derived_weights(file))
    yield made
    made.close()


@pytest.fixture
def exact(tiny_streaming: Converted) -> Iterator[Weights]:
    file = GgufFile(tiny_streaming())
    made = Weights(file, DECODER.derived_weights(file))
    yield made
    made.close()


def decoded(weights: Weights, run: Run, chunks: Chunks) -> Iterator[tuple[Float32Array, DecoderState]]:
    """(logits, state behind it) of each chunk that has tokens."""
    decoder = ChunkDecoder(DECODER, chunks.decoder_rows)
    context = ComputeContext(weights, 1)
    state = decoder.new_state()
    for window, embeddings in zip(run.encoder_out, run.acoustic_embeds, strict=True):
        decoder.enter(window, state)
        if len(embeddings):
            yield decoder.decode(embeddings, state, context, weights), replace(state)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("chunks", WAYS, ids=name_of)
def test_tokens_of_every_chunk_are_named_as_by_the_reference(
    weights: Weights, golden: Path, stem: str, chunks: Chunks, weight_type: WeightType, tolerances: dict[str, Any]
) -> None:
    run = run_of(golden, stem, chunks)
    expected = [logits for logits in run.logits if len(logits)]
    found = [logits for logits, _ in decoded(weights, run, chunks)]
    assert [logits.shape for logits in found] == [logits.shape for logits in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert lowest_cosine(ours, theirs) >= tolerances["engines"][f"cosine_{weight_type}"]["value"]
        if weight_type == "f32":
            np.testing.assert_array_equal(ours.argmax(axis=1), theirs.argmax(axis=1))


@pytest.mark.parametrize("chunks", WAYS, ids=name_of)
def test_state_is_bounded(exact: Weights, golden: Path, chunks: Chunks) -> None:
    for _, state in decoded(exact, run_of(golden, STEMS[0], chunks), chunks):
        assert len(state.earlier) <= chunks.decoder_rows
        assert len(state.window) <= chunks.window
        assert state.remembered.shape == (2, 10, 32)


def test_tokens_of_a_window_may_come_in_two_parts(exact: Weights, golden: Path, tolerances: dict[str, Any]) -> None:
    chunks = Chunks()
    run = run_of(golden, STEMS[0], chunks)
    decoder = ChunkDecoder(DECODER, chunks.decoder_rows)
    context = ComputeContext(exact, 1)
    whole, parts = decoder.new_state(), decoder.new_state()
    for window, embeddings in zip(run.encoder_out, run.acoustic_embeds, strict=True):
        decoder.enter(window, whole)
        decoder.enter(window, parts)
        expected = decoder.decode(embeddings, whole, context, exact)
        found = [decoder.decode(row[None], parts, context, exact) for row in embeddings]
        assert lowest_cosine(np.concatenate(found), expected) >= tolerances["engines"]["cosine_f32"]["value"]


def test_window_without_tokens_leaves_no_trace(exact: Weights, golden: Path) -> None:
    run = run_of(golden, STEMS[0], Chunks())
    decoder = ChunkDecoder(DECODER, 10)
    context = ComputeContext(exact, 1)
    first, second = decoder.new_state(), decoder.new_state()
    for state in (first, second):
        decoder.enter(run.encoder_out[0], state)
        decoder.decode(run.acoustic_embeds[0], state, context, exact)
    decoder.enter(run.encoder_out[2], second)
    for state in (first, second):
        decoder.enter(run.encoder_out[1], state)
    np.testing.assert_array_equal(first.earlier, second.earlier)
    np.testing.assert_array_equal(
        decoder.decode(run.acoustic_embeds[1], first, context, exact),
        decoder.decode(run.acoustic_embeds[1], second, context, exact),
    )


def test_arrays_that_a_state_held_are_never_written_to(exact: Weights, golden: Path) -> None:
    chunks = Chunks()
    states = [state for _, state in decoded(exact, run_of(golden, STEMS[0], chunks), chunks)]
    again = [state for _, state in decoded(exact, run_of(golden, STEMS[0], chunks), chunks)]
    assert len(states) > 2
    for ours, theirs in zip(states, again, strict=True):
        np.testing.assert_array_equal(ours.remembered, theirs.remembered)
        np.testing.assert_array_equal(ours.earlier, theirs.earlier)

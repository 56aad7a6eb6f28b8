"""Windows of a stream through the encoder: the reference's output, and a state that belongs to one stream."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines import cmvn
from liveasr.engines.chunk_encoder import ChunkEncoder, EncoderState
from liveasr.engines.chunks import Chunks, from_gguf
from liveasr.engines.convert import WeightType
from liveasr.engines.encoder import SanmEncoder, positions
from liveasr.engines.native import ComputeContext, Weights
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted
from tests.engines.streamed import STEMS, WAYS, frames, name_of, run_of
from tests.helpers import edited, lowest_cosine

ENCODER = SanmEncoder("encoder.", 560, 32, 2, 3, 0, 11, 1e-12)


@dataclass(frozen=True, slots=True)
class Opened:
    weights: Weights
    context: ComputeContext
    cmvn: cmvn.Cmvn

    def windows(self, chunks: Chunks, features: Float32Array, state: EncoderState | None = None) -> list[Float32Array]:
        encoder = ChunkEncoder(ENCODER, chunks)
        carried = state or encoder.new_state()
        rows = self.cmvn.apply(features)
        return [
            encoder.encode(rows[at : at + chunks.now], carried, self.context, self.weights)
            for at in range(0, len(rows), chunks.now)
        ]


def opened(path: Path) -> Opened:
    file = GgufFile(path)
    ENCODER.check(file)
    normalisation = cmvn.from_gguf(file, 560)
    assert normalisation is not None
    weights = Weights(file, ENCODER.derived_weights(file))
    return Opened(weights, ComputeContext(weights, 1), normalisation)


@pytest.fixture
def model(tiny_streaming: Converted) -> Iterator[Opened]:
    made = opened(tiny_streaming())
    yield made
    made.weights.close()


@pytest.mark.parametrize("weight_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("chunks", WAYS, ids=name_of)
def test_every_window_is_encoded_as_by_the_reference(
    tiny_streaming: Converted, golden: Path, chunks: Chunks, weight_type: WeightType, tolerances: dict[str, Any]
) -> None:
    made = opened(tiny_streaming(weight_type))
    for stem in STEMS:
        expected = run_of(golden, stem, chunks).encoder_out
        found = made.windows(chunks, frames(golden, stem))
        assert [window.shape for window in found] == [window.shape for window in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert lowest_cosine(ours, theirs) >= tolerances["engines"][f"cosine_{weight_type}"]["value"]
    made.weights.close()


@pytest.mark.parametrize("chunks", WAYS, ids=name_of)
def test_state_stops_growing(model: Opened, golden: Path, chunks: Chunks) -> None:
    features = np.concatenate([frames(golden, stem) for stem in STEMS])
    encoder = ChunkEncoder(ENCODER, chunks)
    state = encoder.new_state()
    sizes = []
    for at in range(0, len(features), chunks.now):
        model.windows(chunks, features[at : at + chunks.now], state)
        sizes.append((state.kept.shape, state.keys_values.shape))
    assert state.frames == len(features)
    assert sizes[-1] == ((chunks.kept, 560), (3, chunks.encoder_rows, 64))
    assert len(set(sizes[chunks.encoder_look_back :])) == 1


def test_looking_back_changes_what_comes_later_and_not_the_first_window(model: Opened, golden: Path) -> None:
    features = frames(golden, STEMS[0])
    alone = model.windows(Chunks(encoder_look_back=0), features)
    back = model.windows(Chunks(encoder_look_back=4), features)
    np.testing.assert_array_equal(alone[0], back[0])
    assert all(lowest_cosine(a, b) < 0.999 for a, b in zip(alone[1:], back[1:], strict=True))


def test_what_is_looked_back_at_are_the_last_rows(model: Opened, golden: Path) -> None:
    """Of one window with a past there are more than of one chunk."""
    features = frames(golden, STEMS[0])
    one, many = (ChunkEncoder(ENCODER, Chunks(5, 10, 5, back)).new_state() for back in (1, 4))
    model.windows(Chunks(5, 10, 5, 1), features[:10], one)
    model.windows(Chunks(5, 10, 5, 4), features[:10], many)
    assert many.keys_values.shape[1] == 15
    np.testing.assert_array_equal(one.keys_values, many.keys_values[:, -10:])


def test_two_streams_through_one_encoder_never_mix(model: Opened, golden: Path) -> None:
    chunks = Chunks()
    first, second = (frames(golden, stem) for stem in STEMS)
    expected = [model.windows(chunks, features) for features in (first, second[:27])]
    encoder = ChunkEncoder(ENCODER, chunks)
    states = [encoder.new_state(), encoder.new_state()]
    found: list[list[Float32Array]] = [[], []]
    for at in range(0, len(first), chunks.now):
        for index, features in enumerate((first, second[:27])):
            found[index] += model.windows(chunks, features[at : at + chunks.now], states[index])
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip_longest(ours, theirs):
            np.testing.assert_array_equal(a, b)


def test_arrays_that_a_state_held_are_never_written_to(model: Opened, golden: Path) -> None:
    state = ChunkEncoder(ENCODER, Chunks()).new_state()
    features = frames(golden, STEMS[0])
    model.windows(Chunks(), features[:20], state)
    kept, keys_values = state.kept.copy(), state.keys_values.copy()
    before = replace(state)
    model.windows(Chunks(), features[20:], state)
    np.testing.assert_array_equal(before.kept, kept)
    np.testing.assert_array_equal(before.keys_values, keys_values)


def test_positions_go_on() -> None:
    np.testing.assert_array_equal(positions(7, 560, 4), positions(10, 560)[3:])


# The numbers of a file.


def test_sizes_of_a_file_are_read(tiny_streaming: Converted) -> None:
    with GgufFile(tiny_streaming()) as file:
        assert from_gguf(file, "pfs.") == Chunks(0, 10, 5, 4, 1)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("chunk.now", 0, "pfs.chunk.now is 0; at least 1"),
        ("chunk.ahead", 0, "pfs.chunk.ahead is 0; at least 1"),
        ("chunk.past", None, "no whole number pfs.chunk.past"),
        ("chunk.past", 2**31, "rows, of more than 1024"),
        ("chunk.now", 1010, "rows, of more than 1024"),
        ("encoder_look_back", 103, "rows, of more than 1024"),
        ("decoder_look_back", 2**32 - 1, "rows, of more than 1024"),
        ("decoder_look_back", None, "no whole number pfs.decoder_look_back"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(
    tiny_streaming: Converted, tmp_path: Path, key: str, value: int | None, reason: str
) -> None:
    path = edited(tiny_streaming(), tmp_path / "m.gguf", metadata={f"pfs.{key}": value})
    with GgufFile(path) as file, pytest.raises(ModelFileError, match=reason):
        from_gguf(file, "pfs.")


@pytest.mark.parametrize(
    "numbers",
    [{"now": 0}, {"ahead": 0}, {"past": -1}, {"encoder_look_back": -1}, {"decoder_look_back": -1}, {"now": 1010},
     {"encoder_look_back": 103}],
)  # fmt: skip
def test_way_to_cut_that_makes_no_sense_is_the_callers_mistake(numbers: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"Chunks\("):
        Chunks(**numbers)

"""Plain arithmetic against ggml's, over every family and type of weights: each is written without the other."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr import store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.gguf_output import WeightType
from liveasr.engines.plain import plain_lane
from liveasr.engines.quantize import QuantizedType, quantize
from liveasr.engines.registry import open_engine
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted, ConvertedNano
from tests.helpers import edited, lowest_cosine


@pytest.fixture(scope="module")
def least(tolerances: dict[str, Any]) -> dict[str, float]:
    """Cosine by the type of weights."""
    found: dict[str, float] = tolerances["engines"]["plain"]["value"]
    return found


@pytest.fixture(scope="module")
def features() -> Float32Array:
    return np.random.default_rng(5).normal(12, 3, (37, 560)).astype(np.float32)


def nearness(path: Path, features: Float32Array) -> float:
    engine = open_engine(path, 2)
    try:
        plain = plain_lane(engine)
        return lowest_cosine(engine.encode(features, DecodeOptions()), plain.encode(features, DecodeOptions()))
    finally:
        engine.close()


@pytest.mark.parametrize("weight_type", ["f32", "f16", "q8_0"])
def test_every_family_computes_what_is_written_plainly(
    tiny: Converted,
    tiny_paraformer: Converted,
    tiny_streaming: Converted,
    features: Float32Array,
    least: dict[str, float],
    weight_type: WeightType,
) -> None:
    for family in (tiny, tiny_paraformer, tiny_streaming):
        assert nearness(family(weight_type), features) >= least[weight_type], family.checkpoint


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make nano")
def test_the_encoder_of_nano_does_too(
    tiny_nano: ConvertedNano, features: Float32Array, least: dict[str, float]
) -> None:
    assert nearness(tiny_nano("f16"), features) >= least["f16"]


@pytest.mark.parametrize("weight_type", ["q6_K", "q5_K", "q4_K"])
def test_blocks_of_few_bits_are_read_alike(
    tmp_path: Path, features: Float32Array, least: dict[str, float], weight_type: QuantizedType
) -> None:
    for name in store.DEMONSTRATION_MODELS:
        path = tmp_path / f"{name}.gguf"
        quantize(store.built_in(name), path, weight_type)
        assert nearness(path, features) >= least[weight_type]


@pytest.mark.parametrize("name", store.DEMONSTRATION_MODELS)
def test_whole_decodes_agree(name: str, golden: Path) -> None:
    frontend = np.load(golden / "frontend.npz")
    engine = open_engine(store.built_in(name))
    try:
        plain = plain_lane(engine)
        for stem in ("digits-clean", "digits-noisy"):
            features = frontend[f"{stem}/lfr7_6"]
            ours, theirs = (lane.decode(features, DecodeOptions()) for lane in (engine, plain))
            assert ours.token_ids == theirs.token_ids
            assert ours.text == theirs.text != ""
    finally:
        engine.close()


def test_values_that_are_no_numbers_are_told(tiny: Converted, features: Float32Array, tmp_path: Path) -> None:
    name = "encoder.encoders.0.feed_forward.w_1.weight"
    with GgufFile(tiny()) as file:
        spoiled = file.array(name)
    spoiled[0, 0] = np.nan
    engine = open_engine(edited(tiny(), tmp_path / "nan.gguf", tensors={name: spoiled}))
    try:
        with pytest.raises(ModelFileError, match=r"w_1\.weight has values that are no numbers"):
            plain_lane(engine).encode(features, DecodeOptions())
    finally:
        engine.close()

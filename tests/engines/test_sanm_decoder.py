"""The SAN-M decoder against the reference, stage by stage, and the files that it refuses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines._library import ggml
from liveasr.engines.convert import WeightType
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import ComputeContext, Weights
from liveasr.engines.sanm_decoder import SanmDecoder
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted
from tests.helpers import edited, lowest_cosine

STEMS = ("digits-clean", "digits-noisy")
REAL_STEMS = ("zh", "jfk")
DECODER = SanmDecoder("decoder.", size=32, heads=2, blocks=2, kernel_size=11, vocab_size=256, eps=1e-12)
FIRST = "decoder.decoders.0"


@pytest.fixture(params=["f32", "f16", "q8_0"])
def weight_type(request: pytest.FixtureRequest) -> WeightType:
    kind: WeightType = request.param
    return kind


@pytest.fixture
def weights(tiny_paraformer: Converted, weight_type: WeightType) -> Iterator[Weights]:
    file = GgufFile(tiny_paraformer(weight_type))
    made = Weights(file, DECODER.derived_weights(file))
    yield made
    made.close()


def run(weights: Weights, embeddings: Float32Array, memory: Float32Array, threads: int = 1) -> dict[str, Any]:
    """The stages that a golden file has, and the ids."""

    def build(graph: Graph) -> dict[str, Tensor]:
        x, rows = graph.inputs["x"], graph.inputs["memory"]
        out = DECODER.build(graph, x, rows, weights)
        logits = DECODER.logits(graph, out, weights)
        first = DECODER.block(graph, x, rows, weights, FIRST)
        return {"decoder_first": first, "decoder_out": out, "logits": logits, "ids": graph.argmax(logits)}

    context = ComputeContext(weights, threads)
    result = context.run(build, {"x": embeddings, "memory": memory}, 2 * DECODER.max_nodes)
    context.close()
    return result


# What comes out.


def assert_stages_match(
    weights: Weights, reference: Any, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    """From the reference's own embeddings and output of the encoder."""
    found = run(weights, reference[f"{stem}/acoustic_embeds"], reference[f"{stem}/encoder_out"])
    limits = tolerances["engines"]
    for name in ("decoder_first", "decoder_out"):
        expected: Float32Array = reference[f"{stem}/{name}"]
        assert found[name].shape == expected.shape
        assert lowest_cosine(found[name], expected) >= limits[f"cosine_{weight_type}"]["value"], name
    clear = reference[f"{stem}/margin"] >= limits[f"margin_{weight_type}"]["value"]
    np.testing.assert_array_equal(found["ids"][clear], reference[f"{stem}/argmax"][clear])
    assert (~clear).sum() <= clear.size * limits[f"unclear_tokens_{weight_type}"]["value"]


@pytest.mark.parametrize("stem", STEMS)
def test_every_stage_matches_the_reference(
    weights: Weights, golden: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    assert_stages_match(weights, np.load(golden / "paraformer-tiny.npz"), stem, tolerances, weight_type)


@pytest.mark.parametrize("stem", REAL_STEMS)
def test_every_stage_of_real_recordings_matches_the_reference(
    weights: Weights, shared: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    assert_stages_match(weights, np.load(shared / "golden" / "paraformer-tiny.npz"), stem, tolerances, weight_type)


def test_threads_change_nothing_and_logits_name_the_ids(weights: Weights, golden: Path) -> None:
    reference = np.load(golden / "paraformer-tiny.npz")
    embeddings, memory = (reference[f"digits-clean/{name}"] for name in ("acoustic_embeds", "encoder_out"))
    one, two = run(weights, embeddings, memory), run(weights, embeddings, memory, threads=2)
    np.testing.assert_array_equal(one["logits"], two["logits"])
    np.testing.assert_array_equal(one["ids"], one["logits"].argmax(axis=1))


@pytest.mark.parametrize("tokens", [1, 2, 40])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_any_number_of_tokens_and_steps_will_do(weights: Weights, tokens: int, steps: int) -> None:
    """One of either is a tensor whose leading dimension ggml forgets."""
    rng = np.random.default_rng(0)
    found = run(
        weights,
        rng.standard_normal((tokens, 32)).astype(np.float32),
        rng.standard_normal((steps, 32)).astype(np.float32),
    )
    assert found["decoder_out"].shape == (tokens, 32)
    assert found["logits"].shape == (tokens, 256)
    assert found["ids"].shape == (tokens,)
    assert np.isfinite(found["logits"]).all()


@pytest.mark.parametrize("blocks", [1, 2])
def test_bound_on_the_operations_holds(tiny_paraformer: Converted, blocks: int) -> None:
    """Past it ggml would end the process. Both sides grow by the same for every block."""
    file = GgufFile(tiny_paraformer())
    decoder = replace(DECODER, blocks=blocks)
    made = Weights(file, decoder.derived_weights(file))
    lib = ggml()
    used = []

    def build(graph: Graph) -> dict[str, Tensor]:
        out = decoder.build(graph, graph.inputs["x"], graph.inputs["memory"], made)
        ids = graph.argmax(decoder.logits(graph, out, made))
        used.append(lib.ggml_used_mem(graph._context) // lib.ggml_tensor_overhead())
        return {"ids": ids}

    rows = {"x": np.zeros((3, 32), np.float32), "memory": np.zeros((5, 32), np.float32)}
    ComputeContext(made, 1).run(build, rows, decoder.max_nodes)
    made.close()
    assert 30 * blocks < used[0] <= decoder.max_nodes


# What is refused.


def refused(path: Path, decoder: SanmDecoder = DECODER) -> str:
    with GgufFile(path) as file, pytest.raises(ModelFileError) as caught:
        decoder.check(file)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def test_good_file_passes(tiny_paraformer: Converted, weight_type: WeightType) -> None:
    with GgufFile(tiny_paraformer(weight_type)) as file:
        DECODER.check(file)


def test_any_missing_tensor_is_named(tiny_paraformer: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny_paraformer()) as file:
        names = [name for name in file.tensors if name.startswith("decoder.")]
    assert len(names) == 2 * 18 + 7 + 4
    for name in names:
        path = edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={name: None})
        assert f"tensor {name} is missing" in refused(path)


def test_any_tensor_of_another_shape_is_named(tiny_paraformer: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny_paraformer()) as file:
        arrays = {name: file.array(name) for name in file.tensors if name.startswith("decoder.")}
    for name, values in arrays.items():
        path = edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={name: np.concatenate((values, values[:1]))})
        message = refused(path)
        if not name.endswith("w_1.weight"):  # which decides how many hidden units there are
            assert f"tensor {name} has the shape" in message
        assert "was expected" in message


@pytest.mark.parametrize(
    "part", ["norm1.weight", "feed_forward.norm.bias", "src_attn.linear_k_v.bias", "self_attn.fsmn_block.weight"]
)
def test_vector_or_kernel_of_half_precision_is_refused(tiny_paraformer: Converted, tmp_path: Path, part: str) -> None:
    """They meet float32 arithmetic, and ggml would end the process."""
    name = f"{FIRST}.{part}"
    with GgufFile(tiny_paraformer()) as file:
        half = file.array(name).astype(np.float16)
    message = refused(edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={name: half}))
    assert f"tensor {name} is f16; f32 was expected" in message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"heads": 3}, "a decoder of width 32 cannot have 3 heads"),
        ({"heads": 4_000_000_000}, "cannot have 4000000000 heads"),
        ({"blocks": 3}, "decoder.decoders.2.feed_forward.w_1.weight is missing"),
        ({"blocks": 4_000_000_000}, "4000000000 decoder blocks were expected, more than tensors"),
        ({"size": 64}, "was expected"),
        ({"size": 2**63}, "was expected"),
        ({"kernel_size": 13}, "fsmn_block.weight has the shape (11, 32); (13, 32) was expected"),
        ({"vocab_size": 255}, "output_layer.weight has the shape (256, 32); (255, 32) was expected"),
        ({"prefix": "x."}, "tensor x.decoders.0.feed_forward.w_1.weight is missing"),
    ],
)
def test_sizes_that_do_not_fit_the_tensors_are_refused(
    tiny_paraformer: Converted, change: dict[str, Any], reason: str
) -> None:
    assert reason in refused(tiny_paraformer(), replace(DECODER, **change))

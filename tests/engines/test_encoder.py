"""The SAN-M encoder against the reference, stage by stage, and the files that it refuses."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines import sensevoice
from liveasr.engines._library import ggml
from liveasr.engines.convert import WeightType
from liveasr.engines.encoder import SanmEncoder, check_tensor, positions
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import ComputeContext
from liveasr.engines.sensevoice import SenseVoiceModel
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.conftest import Converted
from tests.helpers import edited, lowest_cosine

STEMS = ("digits-clean", "digits-noisy")
REAL_STEMS = ("zh", "jfk")
FIRST = "encoder.encoders0.0"


@pytest.fixture(params=["f32", "f16", "q8_0"])
def weight_type(request: pytest.FixtureRequest) -> WeightType:
    kind: WeightType = request.param
    return kind


@pytest.fixture
def model(tiny: Converted, weight_type: WeightType) -> Iterator[SenseVoiceModel]:
    made = sensevoice.load(GgufFile(tiny(weight_type)), None)
    yield made
    made.close()


@pytest.fixture
def encoder(tiny: Converted) -> SanmEncoder:
    made = sensevoice.load(GgufFile(tiny()), None)
    made.close()
    return made.encoder


def run(
    model: SenseVoiceModel, rows: Float32Array, build: Callable[[SanmEncoder, Graph, Tensor], Tensor]
) -> Float32Array:
    context = ComputeContext(model.weights, 1)
    result = context.run(
        lambda graph: {"y": build(model.encoder, graph, graph.inputs["x"])}, {"x": rows}, model.encoder.max_nodes
    )
    context.close()
    return result["y"]


# What goes in.


def test_positions_are_sines_then_cosines_counted_from_1() -> None:
    table = positions(300, 560)
    rates = np.exp(np.arange(280) * -(math.log(10_000) / 279))
    angles = np.arange(1, 301)[:, None] * rates
    assert table.shape == (300, 560)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table[:, :280], np.sin(angles), atol=5e-5)  # float32 angles, as in the reference
    np.testing.assert_allclose(table[:, 280:], np.cos(angles), atol=5e-5)


def test_positions_do_not_depend_on_the_count_and_cannot_be_overwritten() -> None:
    np.testing.assert_array_equal(positions(7, 560), positions(300, 560)[:7])
    with pytest.raises(ValueError, match="read-only"):
        positions(7, 560)[0, 0] = 1
    assert positions(0, 560).shape == (0, 560)


def test_rows_are_scaled_by_the_root_of_the_width_before_positions_are_added(encoder: SanmEncoder) -> None:
    rows = np.random.default_rng(0).standard_normal((9, 560)).astype(np.float32)
    before = rows.copy()
    prepared = encoder.prepare(rows)
    np.testing.assert_allclose(prepared, rows * math.sqrt(32) + positions(9, 560), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(rows, before)
    assert prepared.dtype == np.float32


def test_blocks_are_named_in_the_order_of_their_tiers(encoder: SanmEncoder) -> None:
    assert list(encoder.block_names()) == [
        "encoder.encoders0.0",
        "encoder.encoders.0",
        "encoder.encoders.1",
        "encoder.tp_encoders.0",
        "encoder.tp_encoders.1",
    ]
    assert list(replace(encoder, blocks=1, tp_blocks=0, prefix="x.").block_names()) == ["x.encoders0.0"]


# What comes out.


def assert_stages_match(
    model: SenseVoiceModel, reference: Any, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    """The stages that a golden file has, from the reference's own input of the first block."""
    rows = reference[f"{stem}/encoder_input"]
    stages: dict[str, Callable[[SanmEncoder, Graph, Tensor], Tensor]] = {
        "block_first": lambda encoder, graph, x: encoder._block(graph, x, model.weights, FIRST, residual=False),
        "after_norm": lambda encoder, graph, x: replace(encoder, tp_blocks=0).build(graph, x, model.weights),
        "encoder_out": lambda encoder, graph, x: encoder.build(graph, x, model.weights),
    }
    least = tolerances["engines"][f"cosine_{weight_type}"]["value"]
    for name, build in stages.items():
        expected: Float32Array = reference[f"{stem}/{name}"]
        found = run(model, rows, build)
        assert found.shape == expected.shape
        assert lowest_cosine(found, expected) >= least, name


@pytest.mark.parametrize("stem", STEMS)
def test_every_stage_matches_the_reference(
    model: SenseVoiceModel, golden: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    assert_stages_match(model, np.load(golden / "sensevoice-tiny.npz"), stem, tolerances, weight_type)


@pytest.mark.parametrize("stem", REAL_STEMS)
def test_every_stage_of_real_recordings_matches_the_reference(
    model: SenseVoiceModel, shared: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    assert_stages_match(model, np.load(shared / "golden" / "sensevoice-tiny.npz"), stem, tolerances, weight_type)


def test_threads_and_earlier_inputs_change_nothing(tiny: Converted, golden: Path) -> None:
    rows = np.load(golden / "sensevoice-tiny.npz")["digits-clean/encoder_input"]
    made = sensevoice.load(GgufFile(tiny()), None)
    one, two = ComputeContext(made.weights, 1), ComputeContext(made.weights, 2)

    def build(graph: Graph) -> dict[str, Tensor]:
        return {"y": made.encoder.build(graph, graph.inputs["x"], made.weights)}

    expected = one.run(build, {"x": rows}, made.encoder.max_nodes)["y"]
    two.run(build, {"x": rows[:9]}, made.encoder.max_nodes)
    np.testing.assert_array_equal(two.run(build, {"x": rows}, made.encoder.max_nodes)["y"], expected)
    made.close()


@pytest.mark.parametrize(("blocks", "tp_blocks"), [(1, 0), (2, 0), (3, 0), (3, 2)])
def test_bound_on_the_operations_holds(tiny: Converted, blocks: int, tp_blocks: int) -> None:
    """Past it ggml would end the process. Both sides grow by the same for every block."""
    made = sensevoice.load(GgufFile(tiny()), None)
    encoder = replace(made.encoder, blocks=blocks, tp_blocks=tp_blocks)
    lib = ggml()
    used = []

    def build(graph: Graph) -> dict[str, Tensor]:
        y = encoder.build(graph, graph.inputs["x"], made.weights)
        used.append(lib.ggml_used_mem(graph._context) // lib.ggml_tensor_overhead())
        return {"y": y}

    ComputeContext(made.weights, 1).run(build, {"x": np.zeros((5, 560), np.float32)}, encoder.max_nodes)
    made.close()
    assert 20 * (blocks + tp_blocks) < used[0] <= encoder.max_nodes


# What is refused.


def refused(encoder: SanmEncoder, path: Path) -> str:
    with GgufFile(path) as file, pytest.raises(ModelFileError) as caught:
        encoder.check(file)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def test_good_file_passes(encoder: SanmEncoder, tiny: Converted, weight_type: WeightType) -> None:
    with GgufFile(tiny(weight_type)) as file:
        encoder.check(file)


def test_any_missing_tensor_is_named(encoder: SanmEncoder, tiny: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny()) as file:
        names = [name for name in file.tensors if name.startswith("encoder.")]
    assert len(names) == 5 * 13 + 4
    for name in names:
        path = edited(tiny(), tmp_path / "m.gguf", tensors={name: None})
        assert f"tensor {name} is missing" in refused(encoder, path)


def test_any_tensor_of_another_shape_is_named(encoder: SanmEncoder, tiny: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny()) as file:
        arrays = {name: file.array(name) for name in file.tensors if name.startswith("encoder.")}
    for name, values in arrays.items():
        path = edited(tiny(), tmp_path / "m.gguf", tensors={name: np.concatenate((values, values[:1]))})
        message = refused(encoder, path)
        if not name.endswith("w_1.weight"):  # which decides how many hidden units there are
            assert f"tensor {name} has the shape" in message
        assert "was expected" in message


@pytest.mark.parametrize("shape", [(32, 11), (32, 1, 11)], ids=["taps last", "as in the checkpoint"])
def test_kernel_in_another_order_is_refused(
    encoder: SanmEncoder, tiny: Converted, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    name = "encoder.encoders.0.self_attn.fsmn_block.weight"
    turned = np.zeros(shape, np.float32)
    message = refused(encoder, edited(tiny(), tmp_path / "m.gguf", tensors={name: turned}))
    assert f"tensor {name} has the shape" in message


@pytest.mark.parametrize("part", ["norm1.weight", "self_attn.linear_out.bias", "self_attn.fsmn_block.weight"])
def test_vector_or_kernel_of_half_precision_is_refused(
    encoder: SanmEncoder, tiny: Converted, tmp_path: Path, part: str
) -> None:
    """They meet float32 arithmetic, and ggml would end the process."""
    name = f"encoder.encoders.0.{part}"
    with GgufFile(tiny()) as file:
        half = file.array(name).astype(np.float16)
    message = refused(encoder, edited(tiny(), tmp_path / "m.gguf", tensors={name: half}))
    assert f"tensor {name} is f16; f32 was expected" in message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"heads": 3}, "width 32 cannot have 3 heads"),
        ({"heads": 64}, "width 32 cannot have 64 heads"),
        ({"heads": 4_000_000_000}, "cannot have 4000000000 heads"),
        ({"blocks": 4}, "encoder.encoders.2.feed_forward.w_1.weight is missing"),
        ({"blocks": 4_000_000_000}, "4000000000 [+] 2 blocks were expected, more than tensors"),
        ({"tp_blocks": 3}, "encoder.tp_encoders.2.feed_forward.w_1.weight is missing"),
        ({"tp_blocks": 4_000_000_000}, "3 [+] 4000000000 blocks were expected, more than tensors"),
        ({"output_size": 64}, r"was expected"),
        ({"output_size": 2**63}, r"was expected"),
        ({"input_size": 400}, r"norm1.weight has the shape \(560,\); \(400,\) was expected"),
        ({"kernel_size": 13}, r"fsmn_block.weight has the shape \(11, 32\); \(13, 32\) was expected"),
        ({"prefix": "audio_encoder."}, "tensor audio_encoder.encoders0.0.feed_forward.w_1.weight is missing"),
    ],
)
def test_sizes_that_do_not_fit_the_tensors_are_refused(
    encoder: SanmEncoder, tiny: Converted, change: dict[str, Any], reason: str
) -> None:
    with GgufFile(tiny()) as file, pytest.raises(ModelFileError, match=reason):
        replace(encoder, **change).check(file)


def test_encoder_of_one_tier_needs_no_second_norm(encoder: SanmEncoder, tiny: Converted, tmp_path: Path) -> None:
    path = edited(tiny(), tmp_path / "m.gguf", tensors={"encoder.tp_norm.weight": None, "encoder.tp_norm.bias": None})
    with GgufFile(path) as file:
        replace(encoder, tp_blocks=0).check(file)
    assert "encoder.tp_norm.weight is missing" in refused(encoder, path)


def test_check_tensor_lets_matrices_have_any_type(tiny: Converted) -> None:
    with GgufFile(tiny("q8_0")) as file:
        check_tensor(file, f"{FIRST}.self_attn.linear_out.weight", (32, 32))
        assert file.tensor(f"{FIRST}.self_attn.linear_out.weight").type_name == "q8_0"


def test_derived_kernels_have_their_taps_last(encoder: SanmEncoder, tiny: Converted) -> None:
    with GgufFile(tiny()) as file:
        derived = encoder.derived_weights(file)
        for block in encoder.block_names():
            kernel = file.array(f"{block}.self_attn.fsmn_block.weight")
            np.testing.assert_array_equal(derived[f"{block}.fsmn_taps"], kernel.T)
    assert len(derived) == 5
    assert all(values.flags.c_contiguous for values in derived.values())

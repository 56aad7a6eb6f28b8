"""What the operations of graphs compute: ggml's, and our kernels built for each kind of processor that this one is."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liveasr.engines import native
from liveasr.engines.graph import Graph, Norm, Tensor
from liveasr.engines.kernels import Kernels
from liveasr.engines.native import Weights
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.operations import (
    HEADS,
    KERNEL,
    OUT,
    ROWS,
    WIDTH,
    build,
    builds,
    compute,
    dequantized,
    near,
    values,
    write_matrices,
)


@pytest.fixture(scope="module", params=builds())
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels | None:
    """Kernels; None where ggml's own operations are to be used."""
    if request.param == "ggml":
        return None
    found = Kernels(str(build(request.param, tmp_path_factory.mktemp("kernels"))))
    assert found.fits
    return found


@pytest.fixture(autouse=True)
def _in_use(library: Kernels | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernels", lambda: library)


@pytest.fixture
def weights(library: Kernels | None, _in_use: None, tmp_path: Path) -> Iterator[Weights]:
    """Matrices, a bias, a norm, and kernels of depthwise convolutions."""
    matrices: dict[str, NDArray[Any]] = {
        "matrix": values(OUT, WIDTH),
        "half": values(OUT, WIDTH).astype(np.float16),
        "bias": values(OUT),
        "scale": values(WIDTH),
        "shift": values(WIDTH, seed=1),
        **{f"taps{kernel}": values(WIDTH, kernel) for kernel in (1, 2, 3, KERNEL)},
    }
    blocks = {"blocks": values(OUT, WIDTH, seed=9)}
    made = Weights(GgufFile(write_matrices(tmp_path / "model.gguf", matrices, blocks)))
    assert len(made.packed) == (0 if library is None else 1)
    yield made
    made.close()


def normalised(x: Float32Array, eps: float) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
    found: NDArray[np.float64] = normed * values(WIDTH) + values(WIDTH, seed=1)
    return found


@pytest.mark.parametrize("rows", [1, 2, 7, 33])
@pytest.mark.parametrize("threads", [1, 2])
def test_linear_is_a_matrix_product_and_a_bias(
    weights: Weights, tolerances: dict[str, Any], rows: int, threads: int
) -> None:
    x = values(rows, WIDTH)
    y = compute(weights, lambda g: g.linear(g.inputs["x"], weights["matrix"], weights["bias"]), {"x": x}, threads)
    near(y, x.astype(np.float64) @ values(OUT, WIDTH).T + values(OUT), tolerances)
    y = compute(weights, lambda g: g.linear(g.inputs["x"], weights["matrix"]), {"x": x})
    near(y, x.astype(np.float64) @ values(OUT, WIDTH).T, tolerances)


def test_linear_takes_half_precision_weights(weights: Weights, tolerances: dict[str, Any]) -> None:
    x = values(ROWS, WIDTH)
    y = compute(weights, lambda g: g.linear(g.inputs["x"], weights["half"]), {"x": x})
    near(y, x @ values(OUT, WIDTH).astype(np.float16).astype(np.float64).T, tolerances, "operation_f16")


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 33])
@pytest.mark.parametrize("threads", [1, 3])
def test_linear_takes_quantised_weights(weights: Weights, tolerances: dict[str, Any], rows: int, threads: int) -> None:
    x = values(rows, WIDTH)
    y = compute(weights, lambda g: g.linear(g.inputs["x"], weights["blocks"], weights["bias"]), {"x": x}, threads)
    near(y, x @ dequantized(values(OUT, WIDTH, seed=9)).T + values(OUT), tolerances, "operation_q8_0")


@pytest.mark.parametrize("name", ["matrix", "blocks"])
def test_all_that_stands_around_a_product_is_done_in_order(
    weights: Weights, tolerances: dict[str, Any], name: str
) -> None:
    x, first, second = values(ROWS, WIDTH) * 3 + 5, values(ROWS, OUT, seed=1), values(ROWS, OUT, seed=2)

    def build(graph: Graph) -> Tensor:
        norm = Norm(weights["scale"], weights["shift"], 1e-5)
        plus = (graph.inputs["first"], graph.inputs["second"])
        return graph.linear(graph.inputs["x"], weights[name], weights["bias"], norm=norm, relu=True, plus=plus)

    y = compute(weights, build, {"x": x, "first": first, "second": second})
    matrix = values(OUT, WIDTH) if name == "matrix" else dequantized(values(OUT, WIDTH, seed=9))
    product = normalised(x, 1e-5) @ matrix.T + values(OUT)
    near(y, np.maximum(product, 0) + first + second, tolerances, "operation" if name == "matrix" else "operation_q8_0")


@pytest.mark.parametrize("eps", [1e-5, 1e-12, 1.0])
def test_layer_norm_normalises_every_row(weights: Weights, tolerances: dict[str, Any], eps: float) -> None:
    x = values(ROWS, WIDTH) * 3 + 5
    norm = Norm(weights["scale"], weights["shift"], eps)
    near(compute(weights, lambda g: g.layer_norm(g.inputs["x"], norm), {"x": x}), normalised(x, eps), tolerances)


def softmax(scores: NDArray[Any]) -> NDArray[Any]:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: NDArray[Any] = raised / raised.sum(axis=-1, keepdims=True)
    return shares


@pytest.mark.parametrize("heads", [1, 2, 4, WIDTH])
@pytest.mark.parametrize("keys", [ROWS, 1, 2, 19, 65])
def test_attention_weighs_the_values_of_each_head(
    weights: Weights, tolerances: dict[str, Any], heads: int, keys: int
) -> None:
    q, k, v = values(ROWS, WIDTH), values(keys, WIDTH, seed=1), values(keys, WIDTH, seed=2)
    y = compute(
        weights, lambda g: g.attention(g.inputs["q"], g.inputs["k"], g.inputs["v"], heads), {"q": q, "k": k, "v": v}
    )
    split = [np.swapaxes(x.astype(np.float64).reshape(len(x), heads, -1), 0, 1) for x in (q, k, v)]
    shares = softmax(split[0] @ np.swapaxes(split[1], 1, 2) / math.sqrt(WIDTH // heads))
    near(y, np.swapaxes(shares @ split[2], 0, 1).reshape(ROWS, WIDTH), tolerances)


def test_attention_takes_columns_of_a_wider_matrix(weights: Weights) -> None:
    qkv = values(ROWS, 3 * WIDTH)
    parts = [np.ascontiguousarray(qkv[:, part * WIDTH :][:, :WIDTH]) for part in range(3)]

    def over_views(graph: Graph) -> Tensor:
        q, k, v = (graph.columns(graph.inputs["x"], part * WIDTH, WIDTH) for part in range(3))
        return graph.attention(q, k, v, HEADS)

    def over_inputs(graph: Graph) -> Tensor:
        return graph.attention(graph.inputs["q"], graph.inputs["k"], graph.inputs["v"], HEADS)

    apart = compute(weights, over_inputs, dict(zip("qkv", parts, strict=True)))
    np.testing.assert_array_equal(compute(weights, over_views, {"x": qkv}), apart)


def convolved(v: Float32Array, taps: Float32Array) -> NDArray[np.float64]:
    """Each column with its own kernel, centred, zeros around (an even kernel reaches further ahead)."""
    kernel = taps.shape[1]
    before = (kernel - 1) // 2
    padded = np.pad(v.astype(np.float64), ((before, kernel - 1 - before), (0, 0)))
    return np.stack([(padded[row : row + kernel] * taps.T).sum(axis=0) for row in range(len(v))])


@pytest.mark.parametrize("kernel", [1, 2, 3, KERNEL])
@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_memory_is_the_values_and_their_convolution_over_time(
    weights: Weights, tolerances: dict[str, Any], kernel: int, rows: int
) -> None:
    v = values(rows, WIDTH)
    y = compute(weights, lambda g: g.memory(g.inputs["v"], weights[f"taps{kernel}"]), {"v": v})
    near(y, convolved(v, values(WIDTH, kernel)) + v, tolerances)


def test_memory_takes_columns_of_a_wider_matrix(weights: Weights, tolerances: dict[str, Any]) -> None:
    x = values(ROWS, 3 * WIDTH)
    y = compute(weights, lambda g: g.memory(g.columns(g.inputs["x"], WIDTH, WIDTH), weights[f"taps{KERNEL}"]), {"x": x})
    near(y, convolved(part := x[:, WIDTH : 2 * WIDTH], values(WIDTH, KERNEL)) + part, tolerances)


@pytest.mark.parametrize("kernel", [2, 3, KERNEL])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_causal_fsmn_sees_the_rows_in_front_and_none_behind(
    weights: Weights, tolerances: dict[str, Any], kernel: int, rows: int
) -> None:
    v = values(kernel - 1 + rows, WIDTH)
    y = compute(weights, lambda g: g.causal_fsmn(g.inputs["v"], weights[f"taps{kernel}"]), {"v": v})
    taps = values(WIDTH, kernel).astype(np.float64).T
    near(y, np.stack([(v[row : row + kernel] * taps).sum(axis=0) for row in range(rows)]).reshape(y.shape), tolerances)


def test_rows_planes_and_columns_are_joined(weights: Weights) -> None:
    x, stack = values(ROWS, 3 * WIDTH), values(4, ROWS, WIDTH)

    def joined(graph: Graph) -> Tensor:
        part = graph.rows(graph.columns(graph.inputs["x"], WIDTH, WIDTH), 2, 3)
        return graph.join(graph.plane(graph.inputs["stack"], 2), part)

    y = compute(weights, joined, {"x": x, "stack": stack})
    np.testing.assert_array_equal(y, np.concatenate((stack[2], x[2:5, WIDTH : 2 * WIDTH])))


def test_copy_of_a_view_is_an_output(weights: Weights) -> None:
    x = values(ROWS, 3 * WIDTH)
    y = compute(weights, lambda g: g.copy(g.rows(g.columns(g.inputs["x"], WIDTH, WIDTH), 1, 2)), {"x": x})
    np.testing.assert_array_equal(y, x[1:3, WIDTH : 2 * WIDTH])


def test_argmax_is_the_last_of_equals(weights: Weights) -> None:
    x = values(ROWS, OUT)
    x[2, [5, 9, 40]] = 100
    x[3] = 0
    x[4, 0] = 50
    y = compute(weights, lambda g: g.argmax(g.inputs["x"]), {"x": x})
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, OUT - 1 - x[:, ::-1].argmax(axis=1))


def test_add_repeats_a_row(weights: Weights) -> None:
    x = values(ROWS, WIDTH)
    both = {"x": x, "z": values(ROWS, WIDTH, seed=1)}
    y = compute(weights, lambda g: g.add(g.inputs["x"], g.inputs["z"]), both)
    np.testing.assert_array_equal(y, both["x"] + both["z"])
    np.testing.assert_array_equal(
        compute(weights, lambda g: g.add(g.inputs["x"], weights["scale"]), {"x": x}), x + values(WIDTH)
    )

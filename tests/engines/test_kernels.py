"""Our kernels: exact to the rounding that q8_0 asks for, the same for any number of rows and threads, or not there."""

from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liveasr import store
from liveasr.engines import kernels as kernels_module
from liveasr.engines import native
from liveasr.engines._library import ggml
from liveasr.engines.base import DecodeOptions
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.kernels import Kernels, kernels
from liveasr.engines.native import ComputeContext, Weights
from liveasr.engines.quantize import quantize
from liveasr.engines.registry import open_engine
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array
from tests.engines.operations import (
    MAX_NODES,
    SOURCE,
    build,
    builds,
    compute,
    cpu_flags,
    dequantized,
    values,
    write_matrices,
)

BUILDS = [name for name in builds() if name != "ggml"]
SHAPES = [(1, 32), (31, 64), (32, 96), (33, 512), (65, 560 // 32 * 32), (1536, 512), (512, 2048), (257, 4096)]


@pytest.fixture(scope="module", params=BUILDS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(str(build(request.param, tmp_path_factory.mktemp("kernels"))))


@pytest.fixture
def matrices(library: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weights]:
    """In q8_0, each under the name of its shape."""
    monkeypatch.setattr(native, "kernels", lambda: library)
    blocks = {name_of(shape): values(*shape) for shape in SHAPES}
    made = Weights(GgufFile(write_matrices(tmp_path / "m.gguf", {}, blocks)))
    assert len(made.packed) == len(SHAPES)
    yield made
    made.close()


def name_of(shape: tuple[int, int]) -> str:
    return f"{shape[0]} by {shape[1]}"


def rounded(x: Float32Array) -> NDArray[np.float64]:
    """Each block of 32 values of a row in 255 steps, of a float32 scale."""
    blocks = x.reshape(len(x), -1, 32)
    top = np.abs(blocks).max(axis=2, keepdims=True)
    per_step = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    scales = (top / np.float32(127)).astype(np.float64)
    found: NDArray[np.float64] = np.rint(blocks * per_step).astype(np.float64) * scales
    return found.reshape(x.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=map(name_of, SHAPES))
def test_products_are_exact_to_their_rounding(
    matrices: Weights, tolerances: dict[str, Any], shape: tuple[int, int]
) -> None:
    for rows in (1, 2, 6, 13):
        x = values(rows, shape[1], seed=3)
        x[0, 32:64] = 0  # a block without a largest value, where there is more than one
        y = compute(matrices, lambda g: g.linear(g.inputs["x"], matrices[name_of(shape)]), {"x": x})
        expected = rounded(x) @ dequantized(values(*shape)).T
        assert np.abs(y - expected).max() / np.abs(expected).max() < tolerances["engines"]["kernel_product"]["value"]


@pytest.mark.parametrize("shape", SHAPES, ids=map(name_of, SHAPES))
def test_extreme_values_do_not_overflow(matrices: Weights, tolerances: dict[str, Any], shape: tuple[int, int]) -> None:
    x = np.where(values(3, shape[1]) > 0, np.float32(1e6), np.float32(-1e6))
    y = compute(matrices, lambda g: g.linear(g.inputs["x"], matrices[name_of(shape)]), {"x": x})
    expected = rounded(x) @ dequantized(values(*shape)).T
    assert np.abs(y - expected).max() / np.abs(expected).max() < tolerances["engines"]["kernel_product"]["value"]


@pytest.mark.parametrize("odd", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 31, 500])
def test_what_is_no_number_leaves_none_in_its_row_and_the_others_alone(matrices: Weights, odd: float, at: int) -> None:
    weight = matrices[name_of((1536, 512))]
    x = values(5, 512)
    clean = compute(matrices, lambda g: g.linear(g.inputs["x"], weight), {"x": x})
    x[2, at] = odd
    y = compute(matrices, lambda g: g.linear(g.inputs["x"], weight), {"x": x})
    assert np.isnan(y[2]).all()
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(y[others], clean[others])


def test_values_that_are_nearly_nothing_are_nothing(matrices: Weights) -> None:
    x = values(3, 512)
    x[1] *= np.float32(1e-40)
    x[2, 32:64] *= np.float32(1e-40)
    without = np.where(np.abs(x) < 1e-38, np.float32(0), x)
    weight = matrices[name_of((1536, 512))]
    y, expected = (compute(matrices, lambda g: g.linear(g.inputs["x"], weight), {"x": each}) for each in (x, without))
    np.testing.assert_array_equal(y, expected)


def test_a_row_is_the_same_among_any_others_and_by_any_number_of_threads(matrices: Weights) -> None:
    shape = (1536, 512)
    x = values(20, shape[1])

    def product(rows: Float32Array, threads: int) -> NDArray[Any]:
        return compute(matrices, lambda g: g.linear(g.inputs["x"], matrices[name_of(shape)]), {"x": rows}, threads)

    whole = product(x, 1)
    for threads in (1, 2, 5):
        np.testing.assert_array_equal(product(x, threads), whole)
        for start in range(0, 20, 3):
            np.testing.assert_array_equal(product(x[start : start + 4], threads), whole[start : start + 4])


def attend(matrices: Weights, q: Float32Array, k: Float32Array, v: Float32Array, threads: int = 1) -> NDArray[Any]:
    def build_it(graph: Graph) -> Tensor:
        return graph.attention(graph.inputs["q"], graph.inputs["k"], graph.inputs["v"], 4)

    return compute(matrices, build_it, {"q": q, "k": k, "v": v}, threads)


def test_a_row_of_attention_is_the_same_among_any_others_and_by_any_number_of_threads(matrices: Weights) -> None:
    q, k, v = values(25, 512), values(70, 512, seed=1), values(70, 512, seed=2)
    whole = attend(matrices, q, k, v)
    for threads in (1, 2, 3, 7):
        np.testing.assert_array_equal(attend(matrices, q, k, v, threads), whole)
        for start in range(0, 25, 4):
            np.testing.assert_array_equal(
                attend(matrices, q[start : start + 5], k, v, threads), whole[start : start + 5]
            )


def test_attention_of_many_blocks_takes_the_memory_of_few(matrices: Weights) -> None:
    x = values(70, 512)

    def memory_of(blocks: int) -> int:
        def build_it(graph: Graph) -> dict[str, Tensor]:
            y = graph.inputs["x"]
            for _ in range(blocks):
                y = graph.attention(y, y, y, 4)
            return {"y": y}

        context = ComputeContext(matrices, 8)
        context.run(build_it, {"x": x}, MAX_NODES)
        size_bytes: int = ggml().ggml_gallocr_get_buffer_size(context._allocator, 0)
        context.close()
        return size_bytes

    assert memory_of(30) == memory_of(3)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 3e4])
def test_attention_holds_scores_of_any_size(matrices: Weights, tolerances: dict[str, Any], size: float) -> None:
    q, k, v = values(9, 512) * np.float32(size), values(33, 512, seed=1), values(33, 512, seed=2)
    heads = [np.swapaxes(x.astype(np.float64).reshape(len(x), 4, -1), 0, 1) for x in (q, k, v)]
    scores = heads[0] @ np.swapaxes(heads[1], 1, 2) / 128**0.5
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.swapaxes(shares / shares.sum(axis=-1, keepdims=True) @ heads[2], 0, 1).reshape(9, 512)
    # A score of 1e5 has no digits behind the point in float32: only the largest is certain to count.
    limit = tolerances["engines"]["operation"]["value"] * max(1.0, size)
    assert np.abs(attend(matrices, q, k, v) - expected).max() < limit


def test_an_engine_computes_with_packed_weights_and_lets_the_file_go(
    library: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize(store.built_in("digits"), tmp_path / "digits.gguf", "q8_0")
    features = np.random.default_rng(1).normal(12, 3, (40, 560)).astype(np.float32)
    encoded = []
    for each in (None, library):
        monkeypatch.setattr(native, "kernels", lambda each=each: each)
        engine = open_engine(tmp_path / "digits.gguf")
        encoded.append(engine.encode(features, DecodeOptions()).astype(np.float64))
        engine.close()
    norms = [np.linalg.norm(each, axis=1) for each in encoded]
    assert ((encoded[0] * encoded[1]).sum(axis=1) / norms[0] / norms[1]).min() > 0.999
    assert np.abs(encoded[0] - encoded[1]).max() > 0, "the kernels were not used"


def test_the_library_that_was_built_with_the_package_is_for_this_processor() -> None:
    if not BUILDS:
        pytest.skip("no kernels are written for this processor")
    found = kernels()
    assert found is not None, "the package was installed without its kernels"
    assert found.lanes == (8 if BUILDS == ["avx2"] else 16)


@pytest.mark.parametrize(("machine", "told"), [("x86_64", True), ("aarch64", False)])
def test_without_a_library_that_is_told_where_there_could_be_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, machine: str, told: bool
) -> None:
    monkeypatch.setattr(kernels_module, "_MODULE", "liveasr.engines._nothing")
    monkeypatch.setattr("platform.machine", lambda: machine)
    kernels.cache_clear()
    assert kernels() is None
    kernels.cache_clear()
    assert ["without its kernels, for want of a C compiler" in each.getMessage() for each in caplog.records] == [
        True
    ] * told


def test_without_a_library_or_for_another_ggml_there_are_no_kernels(
    library: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.fits
    monkeypatch.setattr(kernels_module, "_FIELDS", ("nb", "ne", "src", "data"))
    assert not library.fits
    kernels.cache_clear()
    assert kernels() is None
    monkeypatch.undo()
    monkeypatch.setattr(kernels_module, "_MODULE", "liveasr.engines._nothing")
    kernels.cache_clear()
    assert kernels() is None
    kernels.cache_clear()


NEEDS_COMPILER = pytest.mark.skipif(not BUILDS, reason="no kernels are written for this processor, or no C compiler")


@NEEDS_COMPILER
def test_a_processor_without_these_instructions_has_none(tmp_path: Path) -> None:
    assert Kernels(str(build("any", tmp_path))).lanes == 0
    assert not Kernels(str(tmp_path / "any.so")).fits


@NEEDS_COMPILER
@pytest.mark.parametrize("what", ["for another processor", "another version", "older", "empty", "no library"])
def test_a_library_that_cannot_be_used_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    path = tmp_path / "kernels.so"
    match what:
        case "for another processor":
            if "xop" in cpu_flags():
                pytest.skip("this is the other processor")
            path = build("excavator", tmp_path)
        case "another version":
            swapped = SOURCE.read_text("utf-8").replace("int relu;\n    int addends;", "int addends;\n    int relu;")
            assert swapped != SOURCE.read_text("utf-8")
            path = build(BUILDS[0], tmp_path, swapped)
        case "older":
            path = build(BUILDS[0], tmp_path, SOURCE.read_text("utf-8").replace("liveasr_runs_here", "liveasr_other"))
        case "empty":
            path.touch()
        case _:
            path.write_text("nothing")
    monkeypatch.setattr(kernels_module, "find_spec", lambda _name: ModuleSpec("x", None, origin=str(path)))
    kernels.cache_clear()
    assert kernels() is None
    kernels.cache_clear()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path} was built for another processor or version: ")


@NEEDS_COMPILER
def test_that_nothing_is_written_for_a_processor_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = ModuleSpec("x", None, origin=str(build("any", tmp_path)))
    monkeypatch.setattr(kernels_module, "find_spec", lambda _name: spec)
    kernels.cache_clear()
    assert kernels() is None
    kernels.cache_clear()
    assert not caplog.records

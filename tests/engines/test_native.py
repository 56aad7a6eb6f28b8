"""Owners of ggml's objects: how long things live, what happens after, and what the operations compute."""

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr import store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import ComputeContext, Weights
from liveasr.engines.quantize import quantize
from liveasr.engines.registry import ARCHITECTURES, default_threads, open_engine
from liveasr.errors import EngineError, ModelFileError
from liveasr.gguf_file import GgufFile
from tests.engines.conftest import Converted
from tests.engines.operations import KERNEL, MAX_NODES, OUT, ROWS, WIDTH, compute, near, values
from tests.helpers import edited, mappings_of, open_files, resident_bytes, write_gguf

CYCLES, WARM_UP_CYCLES = 200, 20
FEATURES = np.random.default_rng(7).standard_normal((30, 560)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A matrix, a bias, a norm, and kernels of depthwise convolutions."""
    tensors: dict[str, Any] = {
        "matrix": values(OUT, WIDTH),
        "half": values(OUT, WIDTH).astype(np.float16),
        "bias": values(OUT),
        "scale": values(WIDTH),
        "shift": values(WIDTH, seed=1),
        **{f"taps{kernel}": values(WIDTH, kernel) for kernel in (1, 2, 3, KERNEL)},
    }
    return write_gguf(tmp_path / "model.gguf", "test", {}, tensors)


@pytest.fixture
def weights(model: Path) -> Iterator[Weights]:
    made = Weights(GgufFile(model))
    yield made
    made.close()


def linear(weights: Weights) -> Callable[[Graph], Mapping[str, Tensor]]:
    return lambda graph: {"y": graph.linear(graph.inputs["x"], weights["matrix"], weights["bias"])}


def test_inputs_need_not_be_contiguous(weights: Weights) -> None:
    x = values(2 * WIDTH, 2 * ROWS).T[::2, ::2]
    y = compute(weights, lambda g: g.add(g.inputs["x"], g.inputs["x"]), {"x": x})
    np.testing.assert_array_equal(y, x + x)


def test_whole_numbers_go_in_and_come_out_as_int32(weights: Weights) -> None:
    ids = np.array([3, -1, 2**31 - 1], np.int32)
    y = compute(weights, lambda g: g.inputs["x"], {"x": ids})
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, ids)


def test_input_of_another_type_is_refused(weights: Weights) -> None:
    with pytest.raises(EngineError, match="bytes do not fit"):
        compute(weights, lambda g: g.add(g.inputs["x"], g.inputs["x"]), {"x": np.zeros((2, 2))})


def test_results_are_copies_that_outlive_everything(model: Path) -> None:
    made = Weights(GgufFile(model))
    context = ComputeContext(made, 1)
    x = values(ROWS, WIDTH)
    first = context.run(linear(made), {"x": x}, MAX_NODES)["y"]
    kept = first.copy()
    context.run(linear(made), {"x": -x}, MAX_NODES)
    made.close()
    del made, context
    gc.collect()
    np.testing.assert_array_equal(first, kept)


def test_context_computes_any_size_after_any_other(weights: Weights) -> None:
    context = ComputeContext(weights, 1)
    for rows in (3, 300, 2, 50, 3):
        x = values(rows, WIDTH)
        alone = compute(weights, lambda g: g.linear(g.inputs["x"], weights["matrix"], weights["bias"]), {"x": x})
        np.testing.assert_array_equal(context.run(linear(weights), {"x": x}, MAX_NODES)["y"], alone)


def test_graph_that_fails_to_build_leaves_the_context_usable(weights: Weights) -> None:
    context = ComputeContext(weights, 1)

    def fails(graph: Graph) -> Mapping[str, Tensor]:
        graph.linear(graph.inputs["x"], weights["matrix"])
        raise KeyError("nothing")

    x = values(ROWS, WIDTH)
    with pytest.raises(KeyError):
        context.run(fails, {"x": x}, MAX_NODES)
    assert context.run(linear(weights), {"x": x}, MAX_NODES)["y"].shape == (ROWS, OUT)


# Weights and the file that they lie in.


def test_weights_lie_in_the_mapped_file(weights: Weights) -> None:
    for name, info in weights.file.tensors.items():
        assert weights[name].contents.data == weights.file.address() + info.offset


def test_derived_weights_lie_beside_them(model: Path, tolerances: dict[str, Any]) -> None:
    file = GgufFile(model)
    made = Weights(file, {"turned": np.ascontiguousarray(file.array("matrix").T)})
    x = values(ROWS, OUT)
    y = compute(made, lambda g: g.linear(g.inputs["x"], made["turned"]), {"x": x})
    near(y, x.astype(np.float64) @ values(OUT, WIDTH), tolerances)
    made.close()


def test_unknown_weight_is_a_key_error(weights: Weights) -> None:
    with pytest.raises(KeyError):
        weights["nothing"]


def test_type_that_the_library_counts_otherwise_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = GgufFile(model)
    lib = pytest.importorskip("ggml")
    monkeypatch.setattr(lib, "ggml_nbytes", lambda _tensor: 1)
    with pytest.raises(EngineError, match=r"ggml counts 1 bytes for tensor matrix where the file has 12288"):
        Weights(file)
    file.close()


def test_two_contexts_share_the_weights_and_agree(model: Path) -> None:
    made = Weights(GgufFile(model))
    contexts = [ComputeContext(made, threads) for threads in (1, 2)]
    results = [context.run(linear(made), {"x": values(ROWS, WIDTH)}, MAX_NODES)["y"] for context in contexts]
    np.testing.assert_array_equal(results[0], results[1])
    assert mappings_of(model) == 1
    made.close()
    assert mappings_of(model) == 0


# How long things live.


def test_closing_twice_is_fine(model: Path) -> None:
    made = Weights(GgufFile(model))
    context = ComputeContext(made, 1)
    for _ in range(2):
        context.close()
    assert not made.closed
    for _ in range(2):
        made.close()
    assert made.closed
    context.close()


@pytest.mark.parametrize("closed_first", ["context", "weights"])
def test_use_after_close_is_an_error(model: Path, closed_first: str) -> None:
    made = Weights(GgufFile(model))
    context = ComputeContext(made, 1)
    (context if closed_first == "context" else made).close()
    with pytest.raises(EngineError, match=r"used after close\(\)"):
        context.run(linear(made), {"x": values(ROWS, WIDTH)}, MAX_NODES)
    made.close()


def test_context_made_after_close_is_an_error_when_used(model: Path) -> None:
    made = Weights(GgufFile(model))
    made.close()
    context = ComputeContext(made, 1)
    with pytest.raises(EngineError, match=r"used after close\(\)"):
        context.run(linear(made), {"x": values(ROWS, WIDTH)}, MAX_NODES)


def test_closing_the_weights_closes_every_context(model: Path) -> None:
    made = Weights(GgufFile(model))
    contexts = [ComputeContext(made, 1) for _ in range(3)]
    contexts[1].close()
    made.close()
    for context in contexts:
        with pytest.raises(EngineError):
            context.run(linear(made), {"x": values(ROWS, WIDTH)}, MAX_NODES)


@pytest.mark.parametrize("order", list(itertools.permutations(["weights", "first", "second"])))
def test_dropping_in_any_order_frees_everything(model: Path, order: tuple[str, ...]) -> None:
    before = open_files()
    made = Weights(GgufFile(model))
    held: dict[str, Any] = {"weights": made, "first": ComputeContext(made, 1), "second": ComputeContext(made, 1)}
    watched = [weakref.ref(thing) for thing in held.values()]
    for name in ("first", "second"):
        held[name].run(linear(made), {"x": values(ROWS, WIDTH)}, MAX_NODES)
    del made
    for name in order:
        del held[name]
        gc.collect()
        for left in held.values():  # what is left still works: a context keeps its weights
            if isinstance(left, ComputeContext):
                left.run(linear(left.weights), {"x": values(ROWS, WIDTH)}, MAX_NODES)
    del left
    gc.collect()
    assert all(reference() is None for reference in watched)
    assert mappings_of(model) == 0
    assert open_files() == before


@pytest.mark.parametrize("what", ["context", "weights"])
def test_closing_waits_for_the_computation_that_is_running(model: Path, what: str) -> None:
    made = Weights(GgufFile(model))
    context = ComputeContext(made, 1)
    building, go_on = threading.Event(), threading.Event()
    results: list[Any] = []

    def build(graph: Graph) -> Mapping[str, Tensor]:
        building.set()
        assert go_on.wait(10)
        return linear(made)(graph)

    def work() -> None:
        results.append(context.run(build, {"x": values(ROWS, WIDTH)}, MAX_NODES)["y"])

    computing = threading.Thread(target=work)
    closing = threading.Thread(target=context.close if what == "context" else made.close)
    computing.start()
    assert building.wait(10)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    assert not made.closed
    go_on.set()
    for thread in (computing, closing):
        thread.join(10)
        assert not thread.is_alive()
    assert results[0].shape == (ROWS, OUT)
    with pytest.raises(EngineError):
        context.run(linear(made), {"x": values(ROWS, WIDTH)}, MAX_NODES)
    made.close()


def test_closing_under_many_computations_gives_results_or_errors(tiny: Converted) -> None:
    for _ in range(5):
        engine = open_engine(tiny(), threads=1)
        whole = engine.decode(FEATURES, DecodeOptions()).token_ids
        outcomes: list[object] = []
        started = threading.Barrier(4)

        def work(engine: Any = engine, outcomes: list[object] = outcomes, started: Any = started) -> None:
            started.wait(10)
            try:
                while True:
                    outcomes.append(engine.decode(FEATURES, DecodeOptions()).token_ids)
            except EngineError:
                outcomes.append("closed")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait(10)
        engine.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert outcomes.count("closed") == 3
        assert set(outcomes) <= {"closed", whole}


def test_one_context_serves_two_threads_one_after_the_other(model: Path) -> None:
    made = Weights(GgufFile(model))
    context = ComputeContext(made, 1)
    inputs = [values(ROWS + n, WIDTH, seed=n) for n in range(8)]
    alone = [context.run(linear(made), {"x": x}, MAX_NODES)["y"] for x in inputs]
    found: dict[int, Any] = {}

    def work(numbers: range) -> None:
        for _ in range(10):
            for n in numbers:
                found[n] = context.run(linear(made), {"x": inputs[n]}, MAX_NODES)["y"]

    threads = [threading.Thread(target=work, args=(range(start, 8, 2),)) for start in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for n, expected in enumerate(alone):
        np.testing.assert_array_equal(found[n], expected)
    made.close()


def test_closing_an_engine_frees_its_file(tiny: Converted) -> None:
    before = open_files()
    engine = open_engine(tiny(), threads=1)
    assert mappings_of(tiny()) == 1
    engine.close()
    assert mappings_of(tiny()) == 0
    assert open_files() == before
    engine.close()
    with pytest.raises(EngineError, match=r"used after close\(\)"):
        engine.decode(FEATURES, DecodeOptions())


@pytest.mark.parametrize("model", [*store.DEMONSTRATION_MODELS, "digits in q8_0"])
def test_opening_and_closing_again_and_again_costs_nothing(
    tolerances: dict[str, Any], tmp_path: Path, model: str
) -> None:
    path = tmp_path / "digits.gguf"
    if model in store.DEMONSTRATION_MODELS:
        path = store.built_in(model)
    else:  # whose weights our kernels have a copy of
        quantize(store.built_in("digits"), path, "q8_0")

    def cycle() -> None:
        engine = open_engine(path, threads=1)
        engine.decode(FEATURES, DecodeOptions())
        engine.close()

    for _ in range(WARM_UP_CYCLES):
        cycle()
    gc.collect()
    files, memory = open_files(), resident_bytes()
    for _ in range(CYCLES):
        cycle()
    gc.collect()
    assert open_files() == files
    assert resident_bytes() - memory < tolerances["engines"]["open_close_growth"]["value"]


# What open_engine refuses.


def spoiled(tiny: Path, target: Path, what: str) -> Path:
    """A file that no engine may open."""
    content = tiny.read_bytes()
    match what:
        case "empty":
            target.write_bytes(b"")
        case "foreign file":
            target.write_bytes(b"\x7fELF" + bytes(4096))
        case "foreign model":
            edited(tiny, target, architecture="llama")
        case "voice activity detector":
            return store.built_in(store.VAD_MODEL)
        case "no architecture":
            write_gguf(target, "", {"sv.output_size": 32}, {"a": np.zeros(8, np.float32)})
        case "only an architecture":
            write_gguf(target, "sensevoice-small", {}, {})
        case "sizes without tensors":
            edited(tiny, target, tensors=dict.fromkeys(GgufFile(tiny).tensors))
        case "half":
            target.write_bytes(content[: len(content) // 2])
        case "last byte missing":
            # The gguf package pads behind the last tensor, too.
            with GgufFile(tiny) as file:
                end = max(info.offset + info.size_bytes for info in file.tensors.values())
            target.write_bytes(content[: end - 1])
        case _:
            raise ValueError(what)
    return target


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("empty", "it is empty"),
        ("foreign file", "does not begin with GGUF"),
        ("foreign model", f"is a llama model; liveasr runs {', '.join(ARCHITECTURES)}"),
        ("voice activity detector", "is a fsmn-vad model; liveasr runs"),
        ("no architecture", "no text general.architecture"),
        ("only an architecture", "no whole number sv.input_size"),
        ("sizes without tensors", "is missing|more than tensors"),
        ("half", "the download may be incomplete"),
        ("last byte missing", "the download may be incomplete"),
    ],
)
def test_foreign_or_corrupt_file_is_refused_and_nothing_leaks(
    tiny: Converted, tmp_path: Path, what: str, reason: str
) -> None:
    path = spoiled(tiny(), tmp_path / "spoiled.gguf", what)
    gc.collect()
    before = open_files()
    with pytest.raises(ModelFileError, match=reason) as caught:
        open_engine(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert open_files() == before  # while the error, and with it every frame of the call, is still held
    assert mappings_of(path) == 0


def test_missing_cmvn_file_is_refused_and_nothing_leaks(tiny: Converted, tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(ModelFileError, match=r"none\.mvn: cannot be read"):
        open_engine(tiny(), cmvn_path=tmp_path / "none.mvn")
    assert open_files() == before


def test_threads_default_to_the_cores_and_at_most_four(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= default_threads(1 << 30) <= 4
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(64)), raising=False)
    assert default_threads(1 << 30) == 4
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {5}, raising=False)
    assert default_threads(1 << 30) == 1
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert default_threads(1 << 30) == 1

"""Where the time of SenseVoice's encoder goes, operation by operation. Not a test: run it on an idle machine.

    python tests/bench_operations.py MODEL.gguf [--seconds 1,5,11,20] [--threads 1] [--stock all|attention,memory,...]

Every operation of a block is put into a graph of its own, 20 times in a row as the blocks of a model have it, each time
with the weights of another block, and computed; so caches are as cold as they are in the whole. "python" is what
building the graph takes. --stock leaves out our own kernels, or those of some operations.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from liveasr.engines import native
from liveasr.engines.base import DecodeOptions
from liveasr.engines.encoder import SanmEncoder
from liveasr.engines.fast_graph import FastGraph
from liveasr.engines.graph import Graph, Norm, Tensor
from liveasr.engines.registry import open_engine
from liveasr.engines.sensevoice import SenseVoice

_STEP_S = 0.06
_BLOCKS = 20
_QUERIES = 4
_RUNS = 5


@dataclass(frozen=True, slots=True)
class Operation:
    """One part of a block, or of what stands around the blocks."""

    name: str
    count: int
    """How often a whole computation has it."""
    build: Callable[[Graph, Tensor, str], Tensor]
    """The graph, its input and the name of a block -> the output."""
    input_width: int
    flop: int
    """Of one."""
    weight_bytes: int
    """That one reads."""


def _operations(engine: SenseVoice, rows: int) -> Iterator[Operation]:
    encoder, weights = engine.model.encoder, engine.model.weights
    d, blocks = encoder.output_size, encoder.blocks + encoder.tp_blocks
    units = weights.file.tensor(f"{encoder.prefix}encoders.0.feed_forward.w_1.weight").shape[0]
    vocabulary = len(engine.model.vocabulary)

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return weights[f"{name}.weight"], weights[f"{name}.bias"]

    def norm(name: str) -> Norm:
        return Norm(*pair(name), encoder.eps)

    def product(part: str, before: str | None = None, *, relu: bool = False) -> Callable[[Graph, Tensor, str], Tensor]:
        def build(graph: Graph, x: Tensor, block: str) -> Tensor:
            first = None if before is None else norm(f"{block}.{before}")
            return graph.linear(x, *pair(f"{block}.{part}"), norm=first, relu=relu)

        return build

    def attention(graph: Graph, x: Tensor, _block: str) -> Tensor:
        q, k, v = (graph.columns(x, part * d, d) for part in range(3))
        return graph.attention(q, k, v, encoder.heads)

    def memory(graph: Graph, x: Tensor, block: str) -> Tensor:
        return graph.memory(graph.columns(x, 2 * d, d), weights[f"{block}.fsmn_taps"])

    def head(graph: Graph, x: Tensor, _block: str) -> Tensor:
        return graph.argmax(graph.linear(x, *pair("ctc.ctc_lo")))

    def size(name: str) -> int:
        return weights.file.tensor(f"{name}.weight").size_bytes

    first = f"{encoder.prefix}encoders.0"
    for name, part, before, inner, outer in (
        ("norm, queries, keys, values", "self_attn.linear_q_k_v", "norm1", d, 3 * d),
        ("output of attention", "self_attn.linear_out", None, d, d),
        ("norm, feed-forward 1, relu", "feed_forward.w_1", "norm2", d, units),
        ("feed-forward 2", "feed_forward.w_2", None, units, d),
    ):
        made = product(part, before, relu=part.endswith("w_1"))
        yield Operation(name, blocks, made, inner, 2 * rows * inner * outer, size(f"{first}.{part}"))
    yield Operation("attention", blocks, attention, 3 * d, 4 * rows * rows * d, 0)
    yield Operation("memory", blocks, memory, 3 * d, 2 * rows * d * encoder.kernel_size, 0)
    yield Operation("CTC head and argmax", 1, head, d, 2 * rows * d * vocabulary, size("ctc.ctc_lo"))


def _seconds(engine: SenseVoice, operation: Operation, rows: int) -> float:
    """Of one, as the best of several runs."""
    encoder = engine.model.encoder
    names = list(encoder.block_names())[1 : 1 + _BLOCKS]
    x = np.random.default_rng(0).standard_normal((rows, operation.input_width)).astype(np.float32)
    repeats = len(names) if operation.count > 1 else 1

    def build(graph: Graph) -> Mapping[str, Tensor]:
        made = [operation.build(graph, graph.inputs["x"], names[n]) for n in range(repeats)]
        # One row of each, so that the memory of one is used for the next, as in the whole.
        return {str(n): graph.copy(graph.rows(y, 0, 1)) if operation.count > 1 else y for n, y in enumerate(made)}

    def nothing(graph: Graph) -> Mapping[str, Tensor]:
        return {"x": graph.inputs["x"]}

    context = engine.model.weights.context(engine.threads)
    times, empty = [], []
    for _ in range(_RUNS):
        times.append(_timed(lambda: context.run(build, {"x": x}, 64 * repeats)))
        empty.append(_timed(lambda: context.run(nothing, {"x": x}, 64 * repeats)))
    context.close()
    return (min(times) - min(empty)) / repeats


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _python_seconds(engine: SenseVoice, features: np.ndarray[Any, Any]) -> float:
    """What building the graph of a whole decode takes."""
    times: list[float] = []
    original = SanmEncoder.build

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        built = original(*arguments)
        times.append(time.perf_counter() - start)
        return built

    with patch.object(SanmEncoder, "build", timed):
        for _ in range(_RUNS):
            engine.best_ids(features, DecodeOptions())
    return min(times)


def main() -> None:
    """Print a table for each length."""
    parser = argparse.ArgumentParser(description="Where the time of the encoder goes.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", default="1,5,11,20")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stock", default="", help="without our own kernels, all or some")
    args = parser.parse_args()
    if args.stock == "all":
        patch.object(native, "kernels", lambda: None).start()
    else:
        for name in filter(None, args.stock.split(",")):
            patch.object(FastGraph, name, getattr(Graph, name)).start()
    engine = open_engine(args.model, args.threads)
    assert isinstance(engine, SenseVoice)
    for seconds in map(float, args.seconds.split(",")):
        frames = round(seconds / _STEP_S)
        rows = frames + _QUERIES
        features = np.random.default_rng(0).standard_normal((frames, 560)).astype(np.float32)
        whole = min(_timed(lambda: engine.best_ids(features, DecodeOptions())) for _ in range(_RUNS))  # noqa: B023
        print(f"{args.model.stem}, {seconds:g} s, {rows} rows, {args.threads} thread(s), load {os.getloadavg()[0]:.2f}")  # noqa: T201
        print(f"{'':30}{'times':>6}{'ms each':>9}{'ms':>8}{'GFLOP':>8}{'GFLOP/s':>9}{'MB read':>9}")  # noqa: T201
        total = 0.0
        for each in _operations(engine, rows):
            once = _seconds(engine, each, rows)
            total += once * each.count
            print(  # noqa: T201
                f"{each.name:30}{each.count:6}{once * 1e3:9.3f}{once * each.count * 1e3:8.1f}"
                f"{each.flop * each.count / 1e9:8.2f}{each.flop / once / 1e9:9.0f}"
                f"{each.weight_bytes * each.count / 1e6:9.1f}"
            )
        print(f"{'all of these':30}{'':15}{total * 1e3:8.1f}")  # noqa: T201
        print(f"{'python':30}{'':15}{_python_seconds(engine, features) * 1e3:8.1f}")  # noqa: T201
        print(f"{'a whole decode':30}{'':15}{whole * 1e3:8.1f}\n", flush=True)  # noqa: T201
    engine.close()


if __name__ == "__main__":
    main()

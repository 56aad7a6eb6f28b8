"""The arithmetic of the engines once more, in numpy: slow, plain, and nothing of ggml in it but the file's own bytes.

What an engine computes on this is what its file says, whatever the processor, the compiler and the kernels of a ggml
make of it; `liveasr models verify` compares the two.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from liveasr.engines.base import Engine
from liveasr.engines.funasr_nano import FunAsrNano
from liveasr.engines.graph import Graph, Norm
from liveasr.engines.native import ComputeContext, Weights, read
from liveasr.engines.paraformer import Paraformer
from liveasr.engines.paraformer_streaming import ParaformerStreaming
from liveasr.engines.sensevoice import SenseVoice
from liveasr.errors import ModelFileError
from liveasr.types import Float32Array, Int32Array


def plain_lane(engine: Engine) -> Engine:
    """Another lane over the model of an engine, which computes in float32 by numpy, with weights as they round."""
    assert isinstance(engine, SenseVoice | Paraformer | ParaformerStreaming | FunAsrNano)
    weights = PlainWeights(engine.model.weights)
    if isinstance(engine, SenseVoice):
        return SenseVoice(dataclasses.replace(engine.model, weights=weights), 1)
    if isinstance(engine, Paraformer):
        return Paraformer(dataclasses.replace(engine.model, weights=weights), 1)
    if isinstance(engine, ParaformerStreaming):
        return ParaformerStreaming(dataclasses.replace(engine.model, weights=weights), 1)
    return FunAsrNano(dataclasses.replace(engine.model, weights=weights), 1)


class PlainWeights(Weights):
    """The tensors of a file as float32 arrays, each made anew when it is asked for: all at once may be too many.

    Args:
        weights: the same, as ggml has them. They stay open as long as this is used.
    """

    def __init__(self, weights: Weights) -> None:
        self.file = weights.file
        self._native = weights

    def __getitem__(self, name: str) -> Float32Array:
        """The values of a tensor.

        Raises:
            ModelFileError: some are no numbers.
        """
        info = self.file.tensors.get(name)
        if info is None:  # derived from another
            return read(self._native[name])
        kind = gguf.GGMLQuantizationType(info.type_id)
        if info.type_name in ("f32", "f16"):
            values = self.file.array(name)
        else:
            values = gguf.quants.dequantize(self.file.raw(name), kind)
        if not np.isfinite(values).all():
            raise ModelFileError(self.file.path, f"tensor {name} has values that are no numbers; the file is damaged")
        return values

    @property
    def closed(self) -> bool:
        """Whether the memory is gone."""
        return self._native.closed

    def close(self) -> None:
        """Nothing: the others own the file."""

    def context(self, threads: int) -> "PlainContext":  # noqa: ARG002 - as of Weights; numpy has its own
        """What computes with these weights."""
        return PlainContext(self)


class PlainContext(ComputeContext):
    """Runs graphs at once, operation by operation."""

    def __init__(self, weights: PlainWeights) -> None:
        self.weights = weights

    def run(
        self,
        build: Callable[[Graph], Mapping[str, Any]],
        inputs: Mapping[str, NDArray[Any]],
        max_nodes: int,  # noqa: ARG002 - as of ComputeContext
    ) -> dict[str, NDArray[Any]]:
        """Compute the outputs of `build` for `inputs`."""
        return dict(build(PlainGraph(inputs)))

    def close(self) -> None:
        """Nothing is held."""


class PlainGraph(Graph):
    """Each operation of `Graph`, done when it is named; a tensor is an array."""

    def __init__(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        self.inputs = inputs

    def linear(
        self,
        x: Float32Array,
        weight: Float32Array,
        bias: Float32Array | None = None,
        *,
        norm: Norm | None = None,
        relu: bool = False,
        plus: tuple[Float32Array, ...] = (),
    ) -> Float32Array:
        """As of `Graph`."""
        y: Float32Array = (x if norm is None else self.layer_norm(x, norm)) @ weight.T
        if bias is not None:
            y = y + bias
        if relu:
            y = np.maximum(y, np.float32(0))
        for addend in plus:
            y = y + addend
        return y

    def layer_norm(self, x: Float32Array, norm: Norm) -> Float32Array:
        """(T, D) normalised over D."""
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        normed: Float32Array = centred / np.sqrt(variance + np.float32(norm.eps)) * norm.weight + norm.bias
        return normed

    def add(self, a: Float32Array, b: Float32Array) -> Float32Array:
        """Sum of a and b, b repeated over the rows of a where it has one."""
        return a + b

    def argmax(self, x: Float32Array) -> Int32Array:
        """(T, V) -> (T,) int32."""
        ids: Int32Array = x.argmax(axis=-1).astype(np.int32)
        return ids

    def columns(self, x: Float32Array, start: int, count: int) -> Float32Array:
        """The columns [start, start + count)."""
        return x[:, start : start + count]

    def rows(self, x: Float32Array, start: int, count: int) -> Float32Array:
        """The rows [start, start + count)."""
        return x[start : start + count]

    def plane(self, x: Float32Array, index: int) -> Float32Array:
        """One (T, D) of (P, T, D)."""
        plane: Float32Array = x[index]
        return plane

    def join(self, a: Float32Array, b: Float32Array) -> Float32Array:
        """The rows of a (Ta, D), then those of b (Tb, D)."""
        return np.concatenate((a, b))

    def copy(self, x: Float32Array) -> Float32Array:
        """The values of a view."""
        return x.copy()

    def attention(self, q: Float32Array, k: Float32Array, v: Float32Array, heads: int) -> Float32Array:
        """softmax(q k' / sqrt(d)) v for each head; q (Tq, D), k and v (Tk, D) -> (Tq, D)."""
        by_head = [np.split(each, heads, axis=1) for each in (q, k, v)]
        return np.concatenate([_attention(*parts) for parts in zip(*by_head, strict=True)], axis=1)

    def memory(self, v: Float32Array, taps: Float32Array) -> Float32Array:
        """Values and their depthwise convolution over time, centred; v (T, D), taps (D, K) -> (T, D)."""
        kernel = taps.shape[1]
        before = (kernel - 1) // 2
        return self.causal_fsmn(np.pad(v, ((before, kernel - 1 - before), (0, 0))), taps) + v

    def causal_fsmn(self, v: Float32Array, taps: Float32Array) -> Float32Array:
        """The convolution alone, over the past: v (K - 1 + T, D) begins with the rows before the first -> (T, D)."""
        kernel = taps.shape[1]
        steps = len(v) - kernel + 1
        out = np.zeros((steps, v.shape[1]), np.float32)
        for tap in range(kernel):
            out += v[tap : tap + steps] * taps[:, tap]
        return out


def _attention(q: Float32Array, k: Float32Array, v: Float32Array) -> Float32Array:
    scores = q @ k.T / np.float32(q.shape[1] ** 0.5)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    mixed: Float32Array = weights / weights.sum(axis=1, keepdims=True) @ v
    return mixed

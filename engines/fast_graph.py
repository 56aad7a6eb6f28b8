"""A graph whose operations are kernels of our own, wherever their sizes and types allow it."""

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liveasr.engines._library import ggml
from liveasr.engines.graph import Graph, Norm, Tensor
from liveasr.engines.kernels import Kernels, linear_data, norm_data

Packed = Mapping[int, NDArray[np.uint8]]
"""The address of a tensor -> its weights as `Kernels.pack` orders them."""


class FastGraph(Graph):
    """A `Graph` that calls kernels.

    Args:
        context: what ggml's descriptions of tensors lie in.
        inputs: tensors that are filled before it is computed, by name.
        kernels: the library.
        packed: the weights that products are quickest with.
        threads: that it is computed with.
    """

    def __init__(
        self, context: Any, inputs: Mapping[str, Tensor], kernels: Kernels, packed: Packed, threads: int
    ) -> None:
        super().__init__(context, inputs)
        self._kernels = kernels
        self._packed = packed
        self._threads = threads
        self._kept: list[Any] = []  # what kernels read when the graph is computed
        self._scratch: dict[int, Tensor] = {}  # memory that operations of the same size use one after the other

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        norm: Norm | None = None,
        relu: bool = False,
        plus: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """As of `Graph`."""
        packed = self._packed.get(ctypes.addressof(weight.contents))
        if packed is None or (norm is not None and not self._can_norm(x)):
            return super().linear(x, weight, bias, norm=norm, relu=relu, plus=plus)
        inner, outputs = weight.contents.ne[0], weight.contents.ne[1]
        rows = x.contents.ne[1]
        before = None if norm is None else self._keep(norm_data(norm))
        quantized = self._node("quantize", (inner * 5 // 4, rows), (x,), before)
        data = self._keep(linear_data(packed, bias, inner, relu=relu, addends=len(plus)))
        return self._node("linear", (outputs, rows), (quantized, *plus), data)

    def layer_norm(self, x: Tensor, norm: Norm) -> Tensor:
        """As of `Graph`."""
        if not self._can_norm(x):
            return super().layer_norm(x, norm)
        return self._node("norm", (x.contents.ne[0], x.contents.ne[1]), (x,), self._keep(norm_data(norm)))

    def memory(self, v: Tensor, taps: Tensor) -> Tensor:
        """As of `Graph`."""
        width, rows = v.contents.ne[0], v.contents.ne[1]
        if width % self._kernels.lanes or taps.contents.ne[0] > self._kernels.max_taps:
            return super().memory(v, taps)
        return self._node("memory", (width, rows), (v, taps))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        """As of `Graph`."""
        size, rows, keys = q.contents.ne[0], q.contents.ne[1], k.contents.ne[1]
        if size // heads % (2 * self._kernels.lanes):
            return super().attention(q, k, v, heads)
        scratch = self._scratch_of(self._threads * self._kernels.attention_floats(keys, size // heads))
        return self._node("attention", (size, rows), (q, k, v, scratch), self._keep(ctypes.c_int64(heads)))

    def _can_norm(self, x: Tensor) -> bool:
        width = int(x.contents.ne[0])
        return width % self._kernels.lanes == 0 and width <= self._kernels.max_normed

    def _node(self, operation: Any, ne: tuple[int, int], sources: tuple[Tensor, ...], data: Any = None) -> Tensor:
        return self._kernels.node(self._context, operation, ne, sources, data)

    def _scratch_of(self, floats: int) -> Tensor:
        if floats not in self._scratch:
            self._scratch[floats] = ggml().ggml_new_tensor_1d(self._context, 0, floats)
        return self._scratch[floats]

    def _keep(self, data: Any) -> Any:
        self._kept.append(data)
        return data

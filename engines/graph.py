"""The operations that encoders and heads are made of, in ggml's own terms.

Shapes below are numpy's, slowest dimension first. `fast_graph.FastGraph` computes the same by kernels of our own where
this processor has them.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from liveasr.engines._library import ggml

Tensor: TypeAlias = Any
"""A pointer to struct ggml_tensor. `ne` counts from the fastest dimension: numpy's (T, D) is ne = [D, T]."""


class Norm(NamedTuple):
    """A LayerNorm over D: weight and bias (D,)."""

    weight: Tensor
    bias: Tensor
    eps: float


class Graph:
    """One computation while it is built.

    Args:
        context: what ggml's descriptions of tensors lie in.
        inputs: tensors that are filled before it is computed, by name.
    """

    def __init__(self, context: Any, inputs: Mapping[str, Tensor]) -> None:
        self.inputs = inputs
        self._context = context
        self._lib = ggml()

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
        """(T, inputs) by weight (outputs, inputs) -> (T, outputs).

        Args:
            x: what is multiplied.
            weight: of any type.
            bias: (outputs,), added to every row.
            norm: of x, before.
            relu: whether max(y, 0) is taken, after the bias.
            plus: (T, outputs) each, added at the end, one after the other.
        """
        y = self._lib.ggml_mul_mat(self._context, weight, x if norm is None else self.layer_norm(x, norm))
        if bias is not None:
            y = self.add(y, bias)
        if relu:
            y = self._lib.ggml_relu(self._context, y)
        for addend in plus:
            y = self.add(y, addend)
        return y

    def layer_norm(self, x: Tensor, norm: Norm) -> Tensor:
        """(T, D) normalised over D."""
        normed = self._lib.ggml_norm(self._context, x, norm.eps)
        return self.add(self._lib.ggml_mul(self._context, normed, norm.weight), norm.bias)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Sum of a and b, b repeated over the rows of a where it has one."""
        return self._lib.ggml_add(self._context, a, b)

    def argmax(self, x: Tensor) -> Tensor:
        """(T, V) -> (T,) int32; of equals the last, where torch and numpy take the first."""
        return self._lib.ggml_argmax(self._context, x)

    def columns(self, x: Tensor, start: int, count: int) -> Tensor:
        """A view of the columns [start, start + count) of a float32 (T, D)."""
        row_bytes = x.contents.nb[1]
        return self._lib.ggml_view_2d(self._context, x, count, x.contents.ne[1], row_bytes, start * 4)

    def rows(self, x: Tensor, start: int, count: int) -> Tensor:
        """A view of the rows [start, start + count) of (T, D)."""
        row_bytes = x.contents.nb[1]
        return self._lib.ggml_view_2d(self._context, x, x.contents.ne[0], count, row_bytes, start * row_bytes)

    def plane(self, x: Tensor, index: int) -> Tensor:
        """A view of one (T, D) of (P, T, D)."""
        ne, nb = x.contents.ne, x.contents.nb
        return self._lib.ggml_view_2d(self._context, x, ne[0], ne[1], nb[1], index * nb[2])

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """The rows of a (Ta, D), then those of b (Tb, D); both may be views."""
        return self._lib.ggml_concat(self._context, a, b, 1)

    def copy(self, x: Tensor) -> Tensor:
        """The values of a view, one behind the other, as an output must have them."""
        return self._lib.ggml_cont(self._context, x)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        """softmax(q k' / sqrt(d)) v for each head; q (Tq, D), k and v (Tk, D) may be views -> (Tq, D)."""
        lib, c = self._lib, self._context
        width = q.contents.ne[0]
        scores = lib.ggml_mul_mat(c, self._by_head(k, heads), self._by_head(q, heads))  # (heads, Tq, Tk)
        weights = lib.ggml_soft_max_ext(c, scores, None, 1.0 / math.sqrt(width // heads), 0.0)
        values = lib.ggml_cont(c, lib.ggml_permute(c, self._by_head(v, heads), 1, 0, 2, 3))  # (heads, d, Tk)
        mixed = lib.ggml_permute(c, lib.ggml_mul_mat(c, values, weights), 0, 2, 1, 3)  # (Tq, heads, d)
        return lib.ggml_cont_2d(c, mixed, width, q.contents.ne[1])

    def _by_head(self, x: Tensor, heads: int) -> Tensor:
        """(T, heads * d) -> view (heads, T, d)."""
        lib, c = self._lib, self._context
        d, row_bytes = x.contents.ne[0] // heads, x.contents.nb[1]
        split = lib.ggml_view_3d(c, x, d, heads, x.contents.ne[1], d * 4, row_bytes, 0)
        return lib.ggml_permute(c, split, 0, 2, 1, 3)

    def memory(self, v: Tensor, taps: Tensor) -> Tensor:
        """The FSMN of SAN-M: values and their depthwise convolution over time, added; v (T, D), taps (D, K) -> (T, D).

        The convolution is centred, with zeros around. ggml has no exact one under that name; its state-space
        convolution is one.
        """
        lib, c = self._lib, self._context
        kernel = taps.contents.ne[0]
        over_time = lib.ggml_cont(c, lib.ggml_transpose(c, v))  # (D, T)
        before = (kernel - 1) // 2
        padded = lib.ggml_pad_ext(c, over_time, before, kernel - 1 - before, 0, 0, 0, 0, 0, 0)
        return self.add(lib.ggml_ssm_conv(c, padded, taps), v)

    def causal_fsmn(self, v: Tensor, taps: Tensor) -> Tensor:
        """The convolution alone, over the past: v (K - 1 + T, D) begins with the rows before the first -> (T, D)."""
        lib, c = self._lib, self._context
        return lib.ggml_ssm_conv(c, lib.ggml_cont(c, lib.ggml_transpose(c, v)), taps)

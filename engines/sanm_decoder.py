"""The SAN-M decoder of Paraformer: all tokens of a segment at once, from one acoustic embedding for each.

A block: LayerNorm, feed-forward, LayerNorm, memory (FSMN) over the result, and a residual around all of that;
LayerNorm, cross-attention over the encoder's output, residual. Behind the blocks one more norm and feed-forward
without a residual (`decoders3`), then the last norm and the output layer. The feed-forward has a norm between its two
products, and no bias in the second. Source: `funasr/models/paraformer/decoder.py`,
`funasr/models/sanm/{attention,positionwise_feed_forward}.py`.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from liveasr.engines.encoder import check_tensor
from liveasr.engines.graph import Graph, Norm, Tensor
from liveasr.engines.native import Weights
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array

_NODES_PER_BLOCK = 56  # operations of one block, with room to spare
_LAST = "decoders3.0"
Remember: TypeAlias = Callable[[int, Tensor, Tensor], Tensor]
"""The number of a block, the input of its memory (N, D) and its taps (D, K) -> what the memory gives, (N, D)."""


@dataclass(frozen=True, slots=True)
class SanmDecoder:
    """Sizes and names of one decoder; it holds no memory of its own."""

    prefix: str
    """Before the names of its tensors: "decoder."."""
    size: int
    """Of an embedding, and of a row of the encoder's output."""
    heads: int
    blocks: int
    """That have memory and cross-attention."""
    kernel_size: int
    vocab_size: int
    eps: float
    """Of every LayerNorm; no file names it."""

    @property
    def max_nodes(self) -> int:
        """Bound on the operations of `build` and `logits`."""
        return (self.blocks + 1) * _NODES_PER_BLOCK

    def block_names(self) -> Iterator[str]:
        """Names of the blocks, in order."""
        for index in range(self.blocks):
            yield f"{self.prefix}decoders.{index}"

    def check(self, file: GgufFile) -> None:
        """Raise ModelFileError unless every tensor is there with its shape."""
        d = self.size
        if d % self.heads:
            raise ModelFileError(file.path, f"a decoder of width {d} cannot have {self.heads} heads")
        if self.blocks > len(file.tensors):
            raise ModelFileError(file.path, f"{self.blocks} decoder blocks were expected, more than tensors")
        for name in self.block_names():
            shapes = {
                "norm2.weight": (d,),
                "norm2.bias": (d,),
                "self_attn.fsmn_block.weight": (self.kernel_size, d),
                "norm3.weight": (d,),
                "norm3.bias": (d,),
                "src_attn.linear_q.weight": (d, d),
                "src_attn.linear_q.bias": (d,),
                "src_attn.linear_k_v.weight": (2 * d, d),
                "src_attn.linear_k_v.bias": (2 * d,),
                "src_attn.linear_out.weight": (d, d),
                "src_attn.linear_out.bias": (d,),
            }
            self._check_feed_forward(file, name)
            for part, shape in shapes.items():
                check_tensor(file, f"{name}.{part}", shape)
        self._check_feed_forward(file, self.prefix + _LAST)
        check_tensor(file, f"{self.prefix}after_norm.weight", (d,))
        check_tensor(file, f"{self.prefix}after_norm.bias", (d,))
        check_tensor(file, f"{self.prefix}output_layer.weight", (self.vocab_size, d))
        check_tensor(file, f"{self.prefix}output_layer.bias", (self.vocab_size,))

    def derived_weights(self, file: GgufFile) -> dict[str, Float32Array]:
        """FSMN kernels as (D, K); the file has them taps first."""
        return {
            _taps(name): np.ascontiguousarray(file.array(f"{name}.self_attn.fsmn_block.weight").T)
            for name in self.block_names()
        }

    def build(
        self,
        graph: Graph,
        embeddings: Tensor,
        memory: Tensor,
        weights: Weights,
        remember: Remember | None = None,
    ) -> Tensor:
        """What `logits` takes, (N, D).

        Args:
            graph: to add the operations to.
            embeddings: (N, D), one for each token.
            memory: (T, D) output of the encoder.
            weights: of a checked file, with the derived ones.
            remember: the memory of a block, if it is not the one over these tokens alone.
        """
        x = embeddings
        for index, name in enumerate(self.block_names()):
            x = self.block(graph, x, memory, weights, name, remember and functools.partial(remember, index))
        x = self.feed_forward(graph, x, weights, self.prefix + _LAST)
        return self._norm(graph, x, weights, f"{self.prefix}after_norm")

    def logits(self, graph: Graph, hidden: Tensor, weights: Weights) -> Tensor:
        """(N, V) of what `build` gave."""
        return self._linear(graph, hidden, weights, f"{self.prefix}output_layer")

    def block(
        self,
        graph: Graph,
        x: Tensor,
        memory: Tensor,
        weights: Weights,
        name: str,
        remember: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """One block: (N, D) -> (N, D)."""
        normed = self._norm(graph, self.feed_forward(graph, x, weights, name), weights, f"{name}.norm2")
        taps = weights[_taps(name)]
        remembered = graph.add(remember(normed, taps), normed) if remember else graph.memory(normed, taps)
        x = graph.add(remembered, x)  # around the feed-forward as well
        return graph.add(self.cross_attention(graph, x, memory, weights, name), x)

    def feed_forward(self, graph: Graph, x: Tensor, weights: Weights, name: str) -> Tensor:
        """The norm and feed-forward that a block begins with, without a residual: (N, D) -> (N, D)."""
        hidden = self._linear(graph, x, weights, f"{name}.feed_forward.w_1", f"{name}.norm1", relu=True)
        hidden = self._norm(graph, hidden, weights, f"{name}.feed_forward.norm")
        return graph.linear(hidden, weights[f"{name}.feed_forward.w_2.weight"])

    def cross_attention(self, graph: Graph, x: Tensor, memory: Tensor, weights: Weights, name: str) -> Tensor:
        """The norm and attention that a block ends with, without the residual: x (N, D), memory (T, D) -> (N, D)."""
        q = self._linear(graph, x, weights, f"{name}.src_attn.linear_q", f"{name}.norm3")
        key_value = self._linear(graph, memory, weights, f"{name}.src_attn.linear_k_v")
        k, v = (graph.columns(key_value, part * self.size, self.size) for part in range(2))
        return self._linear(graph, graph.attention(q, k, v, self.heads), weights, f"{name}.src_attn.linear_out")

    def _check_feed_forward(self, file: GgufFile, name: str) -> None:
        d = self.size
        units = file.tensor(f"{name}.feed_forward.w_1.weight").shape[0]
        shapes = {
            "norm1.weight": (d,),
            "norm1.bias": (d,),
            "feed_forward.w_1.weight": (units, d),
            "feed_forward.w_1.bias": (units,),
            "feed_forward.norm.weight": (units,),
            "feed_forward.norm.bias": (units,),
            "feed_forward.w_2.weight": (d, units),
        }
        for part, shape in shapes.items():
            check_tensor(file, f"{name}.{part}", shape)

    def _norm(self, graph: Graph, x: Tensor, weights: Weights, name: str) -> Tensor:
        return graph.layer_norm(x, self._norm_of(weights, name))

    def _norm_of(self, weights: Weights, name: str) -> Norm:
        return Norm(weights[f"{name}.weight"], weights[f"{name}.bias"], self.eps)

    def _linear(
        self, graph: Graph, x: Tensor, weights: Weights, name: str, norm: str | None = None, *, relu: bool = False
    ) -> Tensor:
        before = None if norm is None else self._norm_of(weights, norm)
        return graph.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"], norm=before, relu=relu)


def _taps(block: str) -> str:
    return f"{block}.fsmn_taps"

"""The adaptor of Fun-ASR-Nano: from frames of the encoder to embeddings that a language model reads as tokens.

Two linear layers with a ReLU between, then Transformer blocks: LayerNorm, self-attention, residual; LayerNorm,
feed-forward with ReLU, residual. All frames see each other, and what is said of them gathers in the first rows: only
ceil(T / 8) enter the language model. Source: `Transformer` in `funasr/models/llm_asr/adaptor.py`,
`funasr/models/transformer/{encoder,attention}.py`; the number of rows in `data_load_speech` of
`funasr/models/fun_asr_nano/model.py`.
"""

from dataclasses import dataclass
from typing import Any

from liveasr.engines.encoder import check_tensor
from liveasr.engines.graph import Graph, Norm, Tensor
from liveasr.engines.native import Weights
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile

_LAYER_NORM_EPS = 1e-12  # `LayerNorm` of funasr.models.transformer
_NODES_PER_BLOCK = 40
_NODES_BEFORE = 8
_FRAMES_PER_ROW = 8


def audio_rows(frames: int) -> int:
    """How many rows the language model reads for so many stacked frames of 60 ms: one for 8, begun or full.

    The reference rounds three times by half, as if three layers of stride 2 were there. More rows make the model loop.
    """
    return -(-frames // _FRAMES_PER_ROW)


@dataclass(frozen=True, slots=True)
class Adaptor:
    """Sizes and names of one adaptor; it holds no memory of its own."""

    prefix: str
    """Before the names of its tensors: "audio_adaptor."."""
    input_size: int
    """Of a frame of the encoder."""
    hidden_size: int
    """Between the two linear layers."""
    output_size: int
    """Of an embedding of the language model."""
    blocks: int
    heads: int

    @property
    def max_nodes(self) -> int:
        """Bound on the operations of `build`."""
        return _NODES_BEFORE + self.blocks * _NODES_PER_BLOCK

    def check(self, file: GgufFile) -> None:
        """Raise ModelFileError unless every tensor is there with its shape."""
        d = self.output_size
        if d % self.heads:
            raise ModelFileError(file.path, f"an adaptor of width {d} cannot have {self.heads} heads")
        if self.blocks > len(file.tensors):
            raise ModelFileError(file.path, f"{self.blocks} blocks of an adaptor were expected, more than tensors")
        shapes: dict[str, tuple[int, ...]] = {
            "linear1.weight": (self.hidden_size, self.input_size),
            "linear1.bias": (self.hidden_size,),
            "linear2.weight": (d, self.hidden_size),
            "linear2.bias": (d,),
        }
        for index in range(self.blocks):
            block = f"blocks.{index}"
            units = file.tensor(f"{self.prefix}{block}.feed_forward.w_1.weight").shape[0]
            for norm in ("norm1", "norm2"):
                shapes |= {f"{block}.{norm}.weight": (d,), f"{block}.{norm}.bias": (d,)}
            for part in ("q", "k", "v", "out"):
                shapes |= {
                    f"{block}.self_attn.linear_{part}.weight": (d, d),
                    f"{block}.self_attn.linear_{part}.bias": (d,),
                }
            shapes |= {
                f"{block}.feed_forward.w_1.weight": (units, d),
                f"{block}.feed_forward.w_1.bias": (units,),
                f"{block}.feed_forward.w_2.weight": (d, units),
                f"{block}.feed_forward.w_2.bias": (d,),
            }
        for name, shape in shapes.items():
            check_tensor(file, f"{self.prefix}{name}", shape)

    def build(self, graph: Graph, x: Tensor, weights: Weights) -> Tensor:
        """Embeddings (T, output_size) for the output of the encoder (T, input_size)."""
        x = self._linear(graph, self._linear(graph, x, weights, "linear1", relu=True), weights, "linear2")
        for index in range(self.blocks):
            block = f"blocks.{index}"
            normed = graph.layer_norm(x, self._norm_of(weights, f"{block}.norm1"))
            q, k, v = (self._linear(graph, normed, weights, f"{block}.self_attn.linear_{part}") for part in "qkv")
            mixed = graph.attention(q, k, v, self.heads)
            x = self._linear(graph, mixed, weights, f"{block}.self_attn.linear_out", plus=(x,))
            norm = self._norm_of(weights, f"{block}.norm2")
            hidden = self._linear(graph, x, weights, f"{block}.feed_forward.w_1", norm=norm, relu=True)
            x = self._linear(graph, hidden, weights, f"{block}.feed_forward.w_2", plus=(x,))
        return x

    def _norm_of(self, weights: Weights, name: str) -> Norm:
        name = self.prefix + name
        return Norm(weights[f"{name}.weight"], weights[f"{name}.bias"], _LAYER_NORM_EPS)

    def _linear(self, graph: Graph, x: Tensor, weights: Weights, name: str, **more: Any) -> Tensor:
        name = self.prefix + name
        return graph.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"], **more)

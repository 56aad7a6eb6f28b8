"""The SAN-M encoder that SenseVoice, Paraformer and Fun-ASR-Nano share.

A block: LayerNorm, self-attention with a memory (FSMN) over the values added to it, residual; LayerNorm, feed-forward
with ReLU, residual. The first block widens its input and has no residual around attention. Two tiers, each with a
norm behind it; Paraformer has one. Source: `funasr/models/sanm/{attention,encoder}.py`,
`funasr/models/sense_voice/model.py`.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from liveasr.engines.base import RECOGNISER_FRONT_END
from liveasr.engines.graph import Graph, Norm, Tensor
from liveasr.engines.native import Weights
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array

_SENSE_VOICE_EPS = 1e-5  # `LayerNorm` of the reference's own sense_voice/model.py: torch's default
_NODES_PER_BLOCK = 48  # operations of one block, with room to spare
Seen: TypeAlias = Callable[[int, Tensor], Tensor]
"""The number of a block and the keys and values (T, 2 * D) of its input -> those that its queries see, (T', 2 * D)."""


@dataclass(frozen=True, slots=True)
class SanmEncoder:
    """Sizes and names of one encoder; it holds no memory of its own."""

    prefix: str
    """Before the names of its tensors: "encoder."."""
    input_size: int
    output_size: int
    heads: int
    blocks: int
    """Of the first tier, the first block included."""
    tp_blocks: int
    """Of the second tier; 0 if there is none."""
    kernel_size: int
    eps: float
    """Of every LayerNorm; no file names it."""

    @property
    def max_nodes(self) -> int:
        """Bound on the operations of `build`."""
        return (self.blocks + self.tp_blocks + 1) * _NODES_PER_BLOCK

    def block_names(self) -> Iterator[str]:
        """Names of the blocks, in order."""
        yield f"{self.prefix}encoders0.0"
        for index in range(self.blocks - 1):
            yield f"{self.prefix}encoders.{index}"
        for index in range(self.tp_blocks):
            yield f"{self.prefix}tp_encoders.{index}"

    @classmethod
    def of_sense_voice(cls, file: GgufFile, prefix: str, keys: str) -> "SanmEncoder":
        """The body that SenseVoice and Fun-ASR-Nano share, checked.

        Args:
            file: whose metadata has its sizes.
            prefix: before the names of its tensors.
            keys: before those of its metadata: "sv.".

        Raises:
            ModelFileError: a size is missing or absurd, or a tensor is missing or has the wrong shape or type.
        """
        encoder = cls(
            prefix=prefix,
            input_size=file.integer(f"{keys}input_size"),
            output_size=file.integer(f"{keys}output_size"),
            heads=file.integer(f"{keys}attention_heads"),
            blocks=file.integer(f"{keys}num_blocks"),
            tp_blocks=file.integer(f"{keys}tp_blocks", least=0),
            kernel_size=file.integer(f"{keys}kernel_size"),
            eps=_SENSE_VOICE_EPS,
        )
        if encoder.input_size != RECOGNISER_FRONT_END.dims:
            raise ModelFileError(
                file.path, f"takes {encoder.input_size} features a step; {RECOGNISER_FRONT_END.dims} were expected"
            )
        encoder.check(file)
        return encoder

    def check(self, file: GgufFile) -> None:
        """Raise ModelFileError unless every tensor is there with its shape."""
        d = self.output_size
        if d % self.heads:
            raise ModelFileError(file.path, f"an encoder of width {d} cannot have {self.heads} heads")
        if self.blocks + self.tp_blocks > len(file.tensors):
            raise ModelFileError(file.path, f"{self.blocks} + {self.tp_blocks} blocks were expected, more than tensors")
        for index, name in enumerate(self.block_names()):
            width = self.input_size if index == 0 else d
            units = file.tensor(f"{name}.feed_forward.w_1.weight").shape[0]
            shapes = {
                "norm1.weight": (width,),
                "norm1.bias": (width,),
                "self_attn.linear_q_k_v.weight": (3 * d, width),
                "self_attn.linear_q_k_v.bias": (3 * d,),
                "self_attn.fsmn_block.weight": (self.kernel_size, d),
                "self_attn.linear_out.weight": (d, d),
                "self_attn.linear_out.bias": (d,),
                "norm2.weight": (d,),
                "norm2.bias": (d,),
                "feed_forward.w_1.weight": (units, d),
                "feed_forward.w_1.bias": (units,),
                "feed_forward.w_2.weight": (d, units),
                "feed_forward.w_2.bias": (d,),
            }
            for part, shape in shapes.items():
                check_tensor(file, f"{name}.{part}", shape)
        norms = ["after_norm", "tp_norm"] if self.tp_blocks else ["after_norm"]
        for norm in norms:
            check_tensor(file, f"{self.prefix}{norm}.weight", (d,))
            check_tensor(file, f"{self.prefix}{norm}.bias", (d,))

    def derived_weights(self, file: GgufFile) -> dict[str, Float32Array]:
        """FSMN kernels as (D, K); the file has them taps first."""
        return {
            _taps(name): np.ascontiguousarray(file.array(f"{name}.self_attn.fsmn_block.weight").T)
            for name in self.block_names()
        }

    def prepare(self, rows: Float32Array, first: int = 1) -> Float32Array:
        """The input of the first block: rows (T, input_size) times sqrt(output_size), plus positions first, ..."""
        scaled = rows * np.float32(self.output_size**0.5)
        return scaled + positions(len(rows), self.input_size, first)

    def build(self, graph: Graph, x: Tensor, weights: Weights, seen: Seen | None = None) -> Tensor:
        """Output (T, output_size) for a prepared input (T, input_size); queries see the input, or what `seen` says."""
        for index, name in enumerate(self.block_names()):
            if index == self.blocks:
                x = graph.layer_norm(x, self._norm(weights, f"{self.prefix}after_norm"))
            x = self._block(graph, x, weights, name, seen and functools.partial(seen, index), residual=index > 0)
        name = f"{self.prefix}{'tp_norm' if self.tp_blocks else 'after_norm'}"
        return graph.layer_norm(x, self._norm(weights, name))

    def _norm(self, weights: Weights, name: str) -> Norm:
        return Norm(weights[f"{name}.weight"], weights[f"{name}.bias"], self.eps)

    def _block(
        self,
        graph: Graph,
        x: Tensor,
        weights: Weights,
        name: str,
        seen: Callable[[Tensor], Tensor] | None = None,
        *,
        residual: bool,
    ) -> Tensor:
        d = self.output_size
        qkv = graph.linear(
            x, *_pair(weights, f"{name}.self_attn.linear_q_k_v"), norm=self._norm(weights, f"{name}.norm1")
        )
        memory = graph.memory(graph.columns(qkv, 2 * d, d), weights[_taps(name)])
        keys_values = graph.columns(qkv, d, 2 * d)
        if seen is not None:
            keys_values = seen(keys_values)
        k, values = (graph.columns(keys_values, part * d, d) for part in range(2))
        mixed = graph.attention(graph.columns(qkv, 0, d), k, values, self.heads)
        around = (memory, x) if residual else (memory,)
        x = graph.linear(mixed, *_pair(weights, f"{name}.self_attn.linear_out"), plus=around)
        norm = self._norm(weights, f"{name}.norm2")
        hidden = graph.linear(x, *_pair(weights, f"{name}.feed_forward.w_1"), norm=norm, relu=True)
        return graph.linear(hidden, *_pair(weights, f"{name}.feed_forward.w_2"), plus=(x,))


def check_tensor(file: GgufFile, name: str, shape: tuple[int, ...]) -> None:
    """Raise ModelFileError unless the tensor has that shape and a type that fits its use.

    Vectors and FSMN kernels meet float32 arithmetic, so they must be f32; matrices may have any type.
    """
    info = file.tensor(name, shape)
    if (len(shape) == 1 or name.endswith("fsmn_block.weight")) and info.type_name != "f32":
        raise ModelFileError(file.path, f"tensor {name} is {info.type_name}; f32 was expected")


def _pair(weights: Weights, name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def _taps(block: str) -> str:
    return f"{block}.fsmn_taps"


@functools.lru_cache(maxsize=64)
def positions(count: int, depth: int, first: int = 1) -> Float32Array:
    """(count, depth) sinusoids of the positions first, first + 1, ...: sines of all frequencies, then cosines."""
    half = depth // 2
    step = np.float32(np.log(10_000.0) / (half - 1))
    inverse_timescales = np.exp(np.arange(half, dtype=np.float32) * -step)
    angles = np.arange(first, first + count, dtype=np.float32)[:, None] * inverse_timescales
    table = np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
    table.flags.writeable = False  # it is shared by all callers
    return table

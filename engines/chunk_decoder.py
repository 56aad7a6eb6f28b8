"""The SAN-M decoder over the tokens of one chunk of a stream at a time.

Its memory (FSMN) reaches into the past only, and goes on from chunk to chunk. Its cross-attention sees the window that
the tokens were found in, and the last rows of the windows in front of it that had tokens. The reference keeps keys and
values of those rows in every block; the rows themselves give the same, and are a thirtieth as much to carry. Source:
`funasr/models/paraformer/decoder.py`, `ParaformerSANMDecoder.forward_chunk`, and `funasr/models/sanm/attention.py`,
`MultiHeadedAttentionSANMDecoder.forward` and `MultiHeadedAttentionCrossAtt.forward_chunk`.
"""

from dataclasses import dataclass

import numpy as np

from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import ComputeContext, Weights
from liveasr.engines.sanm_decoder import SanmDecoder
from liveasr.types import Float32Array


@dataclass(slots=True, eq=False)
class DecoderState:
    """What one stream carries from chunk to chunk. Arrays are replaced, never written to."""

    earlier: Float32Array
    """(R, D) encoder's rows of earlier windows; R grows from 0 to the look-back."""
    window: Float32Array
    """(W, D) encoder's rows of the window that tokens are decoded in."""
    remembered: Float32Array
    """(blocks, K - 1, D) last rows that the memories were given; zeros before the segment."""
    has_decoded: bool = False
    """Whether the window had tokens: without, it leaves no trace."""


@dataclass(frozen=True, slots=True)
class ChunkDecoder:
    """A decoder and how far it looks back; the state is the caller's."""

    decoder: SanmDecoder
    look_back_rows: int

    def new_state(self) -> DecoderState:
        """Of a stream that has heard nothing."""
        decoder = self.decoder
        nothing = np.zeros((0, decoder.size), np.float32)
        before = np.zeros((decoder.blocks, decoder.kernel_size - 1, decoder.size), np.float32)
        return DecoderState(nothing, nothing, before)

    def enter(self, window: Float32Array, state: DecoderState) -> None:
        """Go on to the next window (W, D), an output of the encoder."""
        if state.has_decoded:
            rows = np.concatenate((state.earlier, state.window))
            state.earlier = rows[max(0, len(rows) - self.look_back_rows) :]
        state.window = window
        state.has_decoded = False

    def decode(
        self, embeddings: Float32Array, state: DecoderState, context: ComputeContext, weights: Weights
    ) -> Float32Array:
        """Logits (N, V) of the next tokens of the window.

        Args:
            embeddings: (N, D), at least one.
            state: of the stream; it moves on.
            context: to compute with.
            weights: of a file that the decoder was checked against.
        """
        decoder = self.decoder
        count, reach = len(embeddings), decoder.kernel_size - 1

        def build(graph: Graph) -> dict[str, Tensor]:
            outputs: dict[str, Tensor] = {}

            def remember(block: int, x: Tensor, taps: Tensor) -> Tensor:
                seen = graph.join(graph.plane(graph.inputs["remembered"], block), x)
                outputs[_name(block)] = graph.copy(graph.rows(seen, count, reach))
                return graph.causal_fsmn(seen, taps)

            hidden = decoder.build(graph, graph.inputs["embeddings"], graph.inputs["memory"], weights, remember)
            outputs["logits"] = decoder.logits(graph, hidden, weights)
            return outputs

        memory = np.concatenate((state.earlier, state.window))
        inputs = {"embeddings": embeddings, "memory": memory, "remembered": state.remembered}
        found = context.run(build, inputs, decoder.max_nodes)
        state.remembered = np.stack([found[_name(block)] for block in range(decoder.blocks)])
        state.has_decoded = True
        return found["logits"]


def _name(block: int) -> str:
    return f"remembered.{block}"

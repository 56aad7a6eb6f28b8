"""The SAN-M encoder over one window of a stream at a time.

A window is encoded as if it were a segment of its own, its memory (FSMN) with zeros around it included, but for two
things: positions go on, and every block also attends to keys and values of earlier windows, without the rows that lay
ahead there: they come again in the next window. Source: `funasr/models/scama/encoder.py`, `SANMEncoderChunkOpt`, and
`funasr/models/sanm/attention.py`, `MultiHeadedAttentionSANM`, both `forward_chunk`.
"""

from dataclasses import dataclass

import numpy as np

from liveasr.engines.chunks import Chunks
from liveasr.engines.encoder import SanmEncoder
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import ComputeContext, Weights
from liveasr.types import Float32Array


@dataclass(slots=True, eq=False)
class EncoderState:
    """What one stream carries from window to window. Arrays are replaced, never written to."""

    kept: Float32Array
    """(past + ahead, input) last rows of the windows so far, prepared; zeros before the segment."""
    keys_values: Float32Array
    """(blocks, R, 2 * D) of earlier windows; R grows from 0 to the look-back."""
    frames: int = 0
    """That were encoded: the position of the last one."""


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """An encoder and how its input is cut; the state is the caller's."""

    encoder: SanmEncoder
    chunks: Chunks

    def new_state(self) -> EncoderState:
        """Of a stream that has heard nothing."""
        encoder = self.encoder
        return EncoderState(
            kept=np.zeros((self.chunks.kept, encoder.input_size), np.float32),
            keys_values=np.zeros((encoder.blocks, 0, 2 * encoder.output_size), np.float32),
        )

    def encode(
        self, features: Float32Array, state: EncoderState, context: ComputeContext, weights: Weights
    ) -> Float32Array:
        """Move on by the next frames.

        Args:
            features: (n, input) normalised frames, 1 to `now` of them.
            state: of the stream; it moves on.
            context: to compute with.
            weights: of a file that the encoder was checked against.

        Returns:
            (past + ahead + n, D): the whole window.
        """
        encoder, chunks = self.encoder, self.chunks
        window = np.concatenate((state.kept, encoder.prepare(features, state.frames + 1)))
        inputs = {"rows": window}
        if state.keys_values.shape[1]:
            inputs["past"] = state.keys_values
        rows_to_keep = len(window) - chunks.ahead if chunks.encoder_look_back else 0

        def build(graph: Graph) -> dict[str, Tensor]:
            outputs: dict[str, Tensor] = {}

            def seen(block: int, keys_values: Tensor) -> Tensor:
                if rows_to_keep:
                    outputs[_name(block)] = graph.copy(graph.rows(keys_values, 0, rows_to_keep))
                if "past" not in graph.inputs:
                    return keys_values
                return graph.join(graph.plane(graph.inputs["past"], block), keys_values)

            outputs["out"] = encoder.build(graph, graph.inputs["rows"], weights, seen)
            return outputs

        found = context.run(build, inputs, encoder.max_nodes)
        if rows_to_keep:
            new = np.stack([found[_name(block)] for block in range(encoder.blocks)])
            drop = max(0, state.keys_values.shape[1] + rows_to_keep - chunks.encoder_rows)
            old = state.keys_values[:, drop:]
            state.keys_values = np.concatenate((old, new), axis=1)[:, -chunks.encoder_rows :]
        state.kept = window[len(window) - chunks.kept :]
        state.frames += len(features)
        return found["out"]


def _name(block: int) -> str:
    return f"keys_values.{block}"

"""Paraformer that hears while the segment goes on: a stream for each segment, over one model."""

import numpy as np

from liveasr.engines.base import MAX_SEGMENT_MS, RECOGNISER_FRONT_END, DecodeOptions
from liveasr.engines.chunk_encoder import ChunkEncoder
from liveasr.engines.paraformer_stream import ParaformerStream
from liveasr.engines.streaming_model import StreamingModel
from liveasr.errors import UsageError
from liveasr.types import Float32Array, Hypothesis, Language


class ParaformerStreaming:
    """One lane over a shared model: its streams take turns.

    Args:
        model: what to compute with.
        threads: for one chunk.
        owns_model: whether closing this lane closes the model too.
    """

    front_end = RECOGNISER_FRONT_END
    languages: tuple[Language, ...] = ("auto",)  # it writes what it was trained on, and cannot be told
    takes_hotwords = False
    max_segment_ms = MAX_SEGMENT_MS

    def __init__(self, model: StreamingModel, threads: int, *, owns_model: bool = False) -> None:
        self.model = model
        self._owns_model = owns_model
        self.threads = threads
        self._context = model.weights.context(threads)

    def stream(self, options: DecodeOptions) -> ParaformerStream:
        """A stream for a new segment."""
        if options.language not in self.languages:
            raise UsageError(f"Paraformer cannot be told the language {options.language}; leave it at auto")
        return ParaformerStream(self.model, self._context)

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """Recognise one segment as a stream would; features (T, 560) before CMVN, one row a step of 60 ms."""
        stream = self.stream(options)
        stream.accept(features)
        return stream.finish()

    def encode(self, features: Float32Array, _options: DecodeOptions) -> Float32Array:
        """Output of the encoder, (T, D): of each window the rows that fire in it."""
        model, past, now = self.model, self.model.chunks.past, self.model.chunks.now
        if len(features) == 0:
            return np.zeros((0, model.encoder.output_size), np.float32)
        encoder = ChunkEncoder(model.encoder, model.chunks)
        state = encoder.new_state()
        rows = features if model.cmvn is None else model.cmvn.apply(features)
        windows = [
            encoder.encode(rows[start : start + now], state, self._context, model.weights)[past:]
            for start in range(0, len(rows), now)
        ]
        centres = [window[:now] for window in windows[:-1]]
        return np.concatenate((*centres, windows[-1]))[model.chunks.ahead :]

    def lane(self) -> "ParaformerStreaming":
        """Another lane over the same model."""
        return ParaformerStreaming(self.model, self.threads)

    def close(self) -> None:
        """Free this lane, and the model if it is this lane's own."""
        self._context.close()
        if self._owns_model:
            self.model.close()

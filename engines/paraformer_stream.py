"""One segment on its way through a streaming Paraformer, chunk by chunk.

What a chunk costs does not depend on what came before: every state is bounded. The text lags by the frames that a
window looks ahead, 300 ms in [0, 10, 5]. Source: `funasr/models/paraformer_streaming/model.py`, `generate_chunk`.

The end of a segment differs from the reference in one case, which is a defect there (`inference`, `tail_chunk`): when
less than 60 ms came behind a whole chunk, it runs the frames that lay ahead again, without their neighbours and scaled
a second time, and drops what came, even where that makes one more frame. Here every frame is heard, once: a segment of
whole chunks ends with the rows ahead of the last window, as they were encoded there.
"""

import math

import numpy as np

from liveasr.engines.base import RECOGNISER_FRONT_END
from liveasr.engines.char_tokens import join_settled, join_tokens
from liveasr.engines.chunk_decoder import ChunkDecoder
from liveasr.engines.chunk_encoder import ChunkEncoder
from liveasr.engines.cif_stream import CifState, Fire, integrate, integrate_tail
from liveasr.engines.native import ComputeContext
from liveasr.engines.streaming_model import StreamingModel
from liveasr.engines.tokens import TimedPiece
from liveasr.errors import UsageError
from liveasr.types import Float32Array, Hypothesis

_STEP_MS = 60
_SILENT_IDS = (0, 1, 2)  # blank_id, sos and eos of `ParaformerStreaming.__init__`


class ParaformerStream:
    """The frames of the next chunk, the states of encoder, predictor and decoder, and what was heard so far.

    Args:
        model: what to compute with.
        context: of the lane that computes.
    """

    def __init__(self, model: StreamingModel, context: ComputeContext) -> None:
        self._model = model
        self._context = context
        self._encoder = ChunkEncoder(model.encoder, model.chunks)
        self._decoder = ChunkDecoder(model.decoder, model.chunks.decoder_rows)
        self._pending = np.zeros((0, RECOGNISER_FRONT_END.dims), np.float32)
        self._encoded = self._encoder.new_state()
        width = model.encoder.output_size
        # The first centre begins with rows of zeros: as many as later windows have ahead of theirs.
        self._fired = CifState(-model.chunks.ahead, np.zeros(width, np.float32))
        self._decoded = self._decoder.new_state()
        self._ahead = np.zeros((0, width), np.float32), np.zeros(0, np.float32)  # rows that have not fired yet
        self._ids: list[int] = []
        self._pieces: list[TimedPiece] = []
        self._heard = Hypothesis((), "", ())
        self._finished = False

    def accept(self, features: Float32Array) -> Hypothesis:
        """Take the next frames (T, 560), before CMVN, and decode every chunk that they complete."""
        if self._finished:
            raise UsageError("frames were fed after finish(); open a new stream for the next segment")
        pending = np.concatenate((self._pending, features))
        now = self._model.chunks.now
        whole = len(pending) // now * now
        self._pending = pending[whole:].copy()
        for start in range(0, whole, now):
            hidden, alphas = self._encode(pending[start : start + now])
            self._ahead = hidden[now:], alphas[now:]
            self._name(*integrate(hidden[:now], alphas[:now], self._fired))
        if len(self._ids) > len(self._heard.token_ids):
            self._heard = Hypothesis(tuple(self._ids), *join_settled(self._pieces))
        return self._heard

    def finish(self) -> Hypothesis:
        """Decode what is left; a token that has almost all of its weight fires, too."""
        if self._finished:
            raise UsageError("finish() was called twice")
        self._finished = True
        if len(self._pending):
            self._ahead = self._encode(self._pending)
        if self._encoded.frames:
            embeddings, fires = integrate(*self._ahead, self._fired)
            last_embedding, last_fire = integrate_tail(self._fired, self._model.tail)
            self._name(np.concatenate((embeddings, last_embedding)), fires + last_fire)
        return Hypothesis(tuple(self._ids), *join_tokens(self._pieces))

    def _encode(self, features: Float32Array) -> tuple[Float32Array, Float32Array]:
        """Rows (n, D) of the next window behind its past, and their weights (n,)."""
        model = self._model
        normalised = features if model.cmvn is None else model.cmvn.apply(features)
        window = self._encoder.encode(normalised, self._encoded, self._context, model.weights)
        self._decoder.enter(window, self._decoded)
        past = model.chunks.past
        return window[past:], model.predictor.alphas(window)[past:]

    def _name(self, embeddings: Float32Array, fires: list[Fire]) -> None:
        """Decode the tokens that fired in the window, (N, D)."""
        if not fires:
            return
        logits = self._decoder.decode(embeddings, self._decoded, self._context, self._model.weights)
        for token, fire in zip(logits.argmax(axis=1).tolist(), fires, strict=True):
            if token not in _SILENT_IDS:
                self._ids.append(token)
                self._pieces.append(self._timed(self._model.vocabulary[token], fire))

    def _timed(self, piece: str, fire: Fire) -> TimedPiece:
        """When a token was spoken, in ms; row i begins half a step early, since its frames reach back that far."""
        heard_ms = self._encoded.frames * _STEP_MS - _STEP_MS // 2  # the tail fires behind it
        earliest_ms = self._pieces[-1].end_ms if self._pieces else 0
        start_ms = max(earliest_ms, math.floor(fire.start * _STEP_MS) - _STEP_MS // 2)
        end_ms = max(start_ms + 1, math.ceil(fire.end * _STEP_MS) - _STEP_MS // 2)
        return TimedPiece(piece, start_ms, min(end_ms, heard_ms))

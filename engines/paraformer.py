"""Paraformer: the SAN-M encoder, a CIF predictor that counts and places the tokens, and a decoder that names them all.

The predictor runs on the host between two graphs, since it decides how many rows the second one has. GGUF layout:
`paraformer`, keys `pf.*`, as published by FunAudioLLM. Source: `funasr/models/paraformer/model.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liveasr.engines import cif
from liveasr.engines.base import MAX_SEGMENT_MS, RECOGNISER_FRONT_END, DecodeOptions
from liveasr.engines.char_tokens import join_tokens
from liveasr.engines.cif import CifPredictor, Fired
from liveasr.engines.cmvn import Cmvn
from liveasr.engines.encoder import SanmEncoder
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import Weights
from liveasr.engines.sanm_decoder import SanmDecoder
from liveasr.engines.token_times import token_spans
from liveasr.engines.tokens import TimedPiece
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array, Hypothesis, Int32Array, Language

ARCHITECTURE = "paraformer"
_STEP_MS = 60
_LAYER_NORM_EPS = 1e-12  # of `transformer/layer_norm.py`, which the encoder, too, takes here
_SILENT_IDS = (0, 1, 2)  # blank_id, sos and eos of `Paraformer.__init__`


@dataclass(frozen=True, slots=True, eq=False)
class ParaformerModel:
    """Everything that does not change: checked once, shared by any number of `Paraformer` engines."""

    weights: Weights
    encoder: SanmEncoder
    predictor: CifPredictor
    tail: float
    """Weight of the frame behind the last one."""
    decoder: SanmDecoder
    vocabulary: list[str]
    cmvn: Cmvn | None

    def close(self) -> None:
        """Close all engines of this model, then free the weights."""
        self.weights.close()


def load(file: GgufFile, cmvn: Cmvn | None) -> ParaformerModel:
    """Check a file and map its weights. The model owns the file from here on.

    Args:
        file: of architecture `paraformer`.
        cmvn: normalisation of the features, if any.

    Raises:
        ModelFileError: as `check` says.
    """
    encoder, predictor, tail, decoder, vocabulary = check(file)
    weights = Weights(file, encoder.derived_weights(file) | decoder.derived_weights(file))
    return ParaformerModel(weights, encoder, predictor, tail, decoder, vocabulary, cmvn)


def check(file: GgufFile) -> tuple[SanmEncoder, CifPredictor, float, SanmDecoder, list[str]]:
    """The parts of a file that can be run, in the order of a model's. Loads no library.

    Raises:
        ModelFileError: a size is missing or absurd, or a tensor is missing or has the wrong shape or type.
    """
    encoder = SanmEncoder(
        prefix="encoder.",
        input_size=RECOGNISER_FRONT_END.dims,
        output_size=file.integer("pf.enc.output_size"),
        heads=file.integer("pf.enc.attention_heads"),
        blocks=file.integer("pf.enc.num_blocks"),
        tp_blocks=0,
        kernel_size=file.integer("pf.enc.kernel_size"),
        eps=_LAYER_NORM_EPS,
    )
    encoder.check(file)
    vocabulary = file.strings("pf.vocab")
    if len(vocabulary) != file.integer("pf.vocab_size"):
        raise ModelFileError(file.path, f"pf.vocab has {len(vocabulary)} entries, against pf.vocab_size")
    decoder = SanmDecoder(
        prefix="decoder.",
        size=encoder.output_size,
        heads=file.integer("pf.dec.attention_heads"),
        blocks=file.integer("pf.dec.att_layer_num"),
        kernel_size=file.integer("pf.dec.kernel_size"),
        vocab_size=len(vocabulary),
        eps=_LAYER_NORM_EPS,
    )
    if file.integer("pf.dec.num_blocks") > decoder.blocks or file.integer("pf.dec.decoders3") != 1:
        raise ModelFileError(file.path, "has a decoder with other blocks than those with attention and the last one")
    decoder.check(file)
    tail = file.number("pf.predictor.tail_threshold")
    if not 0 < tail <= 1:
        raise ModelFileError(file.path, f"pf.predictor.tail_threshold is {tail:g}; above 0 and up to 1 was expected")
    return encoder, cif.load(file, "predictor.", encoder.output_size), tail, decoder, vocabulary


class Paraformer:
    """One lane over a shared model: decodes one segment at a time.

    Args:
        model: what to compute with.
        threads: for one decode.
        owns_model: whether closing this lane closes the model too.
    """

    front_end = RECOGNISER_FRONT_END
    languages: tuple[Language, ...] = ("auto",)  # it writes what it was trained on, and cannot be told
    takes_hotwords = False
    max_segment_ms = MAX_SEGMENT_MS

    def __init__(self, model: ParaformerModel, threads: int, *, owns_model: bool = False) -> None:
        self.model = model
        self._owns_model = owns_model
        self.threads = threads
        self._context = model.weights.context(threads)

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """Recognise one segment; features (T, 560) before CMVN, one row a step of 60 ms."""
        hidden = self.encode(features, options)
        fired = self.fire(hidden)
        return self.hypothesis(self.best_ids(hidden, fired), fired)

    def encode(self, features: Float32Array, options: DecodeOptions) -> Float32Array:
        """Output of the encoder, (T, D)."""
        if options.language not in self.languages:
            raise UsageError(f"Paraformer cannot be told the language {options.language}; leave it at auto")
        encoder, weights, cmvn = self.model.encoder, self.model.weights, self.model.cmvn
        if len(features) == 0:
            return np.zeros((0, encoder.output_size), np.float32)
        rows = encoder.prepare(features if cmvn is None else cmvn.apply(features))

        def build(graph: Graph) -> Mapping[str, Tensor]:
            return {"out": encoder.build(graph, graph.inputs["rows"], weights)}

        return self._context.run(build, {"rows": rows}, encoder.max_nodes)["out"]

    def fire(self, hidden: Float32Array) -> Fired:
        """The tokens in an output of the encoder (T, D)."""
        return cif.integrate(hidden, self.model.predictor.alphas(hidden), self.model.tail)

    def best_ids(self, hidden: Float32Array, fired: Fired) -> Int32Array:
        """(N,) best id of each token that fired."""
        if len(fired.embeddings) == 0:
            return np.zeros(0, np.int32)
        return self._decode(hidden, fired, ("ids",))["ids"]

    def stages(self, hidden: Float32Array, fired: Fired) -> dict[str, Float32Array]:
        """Return "decoder_out" (N, D) and "logits" (N, V) of one or more tokens, for comparing with the reference."""
        return self._decode(hidden, fired, ("decoder_out", "logits"))

    def hypothesis(self, best: Int32Array, fired: Fired) -> Hypothesis:
        """Text and words of the best ids (N,)."""
        ids = tuple(token for token in best.tolist() if token not in _SILENT_IDS)
        # The reference passes the curve (peaks) here, and its words come 0.4 s late (docs/measurements.md).
        spans_ms = token_spans(fired.alphas, len(ids)) * _STEP_MS
        # Stacking rounds the steps up: the segment may end half a step before its last step does.
        end_ms = max(0, (len(fired.alphas) - 1) * _STEP_MS - _STEP_MS // 2)
        pieces = [
            TimedPiece(self.model.vocabulary[token], *(math.floor(min(max(time, 0), end_ms)) for time in span))
            for token, span in zip(ids, spans_ms.tolist(), strict=True)
        ]
        text, words = join_tokens(pieces)
        return Hypothesis(ids, text, words)

    def lane(self) -> "Paraformer":
        """Another lane over the same model."""
        return Paraformer(self.model, self.threads)

    def close(self) -> None:
        """Free this lane, and the model if it is this lane's own."""
        self._context.close()
        if self._owns_model:
            self.model.close()

    def _decode(self, hidden: Float32Array, fired: Fired, wanted: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        decoder, weights = self.model.decoder, self.model.weights

        def build(graph: Graph) -> Mapping[str, Tensor]:
            out = decoder.build(graph, graph.inputs["embeddings"], graph.inputs["memory"], weights)
            logits = decoder.logits(graph, out, weights)
            stages = {"decoder_out": out, "logits": logits, "ids": graph.argmax(logits)}
            return {name: stages[name] for name in wanted}

        inputs = {"embeddings": fired.embeddings, "memory": hidden}
        return self._context.run(build, inputs, decoder.max_nodes)

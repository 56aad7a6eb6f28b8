"""SenseVoiceSmall: four query rows in front of the features, the SAN-M encoder, and a greedy CTC head.

The first four outputs are tags: language, emotion, event, text norm. One step is 60 ms. GGUF layout:
`sensevoice-small`, keys `sv.*`, as published by FunAudioLLM. Source: `funasr/models/sense_voice/model.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from liveasr.engines.base import MAX_SEGMENT_MS, RECOGNISER_FRONT_END, DecodeOptions
from liveasr.engines.cmvn import Cmvn
from liveasr.engines.ctc import CtcToken, collapse
from liveasr.engines.encoder import SanmEncoder, check_tensor
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import Weights
from liveasr.engines.tokens import TimedPiece, tag_name, to_text, to_words
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array, Hypothesis, Int32Array, Language

ARCHITECTURE = "sensevoice-small"
_STEP_MS = 60
_QUERY_ROWS = 4
_LANGUAGE_ROWS: dict[Language, int] = {
    "auto": 0,
    "zh": 3,
    "en": 4,
    "yue": 7,
    "ja": 11,
    "ko": 12,
}  # lid_dict
_EVENT_EMOTION_ROWS = (1, 2)
_WITH_ITN_ROW, _WITHOUT_ITN_ROW = 14, 15  # textnorm_dict
_EMBED_ROWS = 16
_HEAD_NODES = 8
_UNKNOWN_TAGS = ("EMO_UNKNOWN", "Event_UNK")
_Pick: TypeAlias = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class SenseVoiceModel:
    """Everything that does not change: checked once, shared by any number of `SenseVoice` engines."""

    weights: Weights
    encoder: SanmEncoder
    queries: Float32Array
    """(16, 560) query embeddings."""
    vocabulary: list[str]
    blank_id: int
    cmvn: Cmvn | None

    def close(self) -> None:
        """Close all engines of this model, then free the weights."""
        self.weights.close()


def load(file: GgufFile, cmvn: Cmvn | None) -> SenseVoiceModel:
    """Check a file and map its weights. The model owns the file from here on.

    Args:
        file: of architecture `sensevoice-small`.
        cmvn: normalisation of the features, if any.

    Raises:
        ModelFileError: as `check` says.
    """
    encoder, queries, vocabulary, blank_id = check(file)
    weights = Weights(file, encoder.derived_weights(file))
    return SenseVoiceModel(weights, encoder, queries, vocabulary, blank_id, cmvn)


def check(file: GgufFile) -> tuple[SanmEncoder, Float32Array, list[str], int]:
    """The encoder, the query embeddings, the vocabulary and the blank's id of a file that can be run. Loads no library.

    Raises:
        ModelFileError: a size is missing or absurd, or a tensor is missing or has the wrong shape or type.
    """
    encoder = SanmEncoder.of_sense_voice(file, "encoder.", "sv.")
    vocabulary = file.strings("sv.vocab")
    blank_id = file.integer("sv.blank_id", least=0)
    if len(vocabulary) != file.integer("sv.vocab_size") or blank_id >= len(vocabulary):
        raise ModelFileError(
            file.path, f"sv.vocab has {len(vocabulary)} entries, against sv.vocab_size and sv.blank_id"
        )
    check_tensor(file, "ctc.ctc_lo.weight", (len(vocabulary), encoder.output_size))
    check_tensor(file, "ctc.ctc_lo.bias", (len(vocabulary),))
    return encoder, file.array("embed.weight", (_EMBED_ROWS, encoder.input_size)), vocabulary, blank_id


class SenseVoice:
    """One lane over a shared model: decodes one segment at a time.

    Args:
        model: what to compute with.
        threads: for one decode.
        owns_model: whether closing this lane closes the model too.
    """

    front_end = RECOGNISER_FRONT_END
    languages = tuple(_LANGUAGE_ROWS)
    takes_hotwords = False
    max_segment_ms = MAX_SEGMENT_MS

    def __init__(self, model: SenseVoiceModel, threads: int, *, owns_model: bool = False) -> None:
        self.model = model
        self._owns_model = owns_model
        self.threads = threads
        self._context = model.weights.context(threads)

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """Recognise one segment; features (T, 560) before CMVN, one row a step of 60 ms."""
        if len(features) == 0:
            return Hypothesis((), "", ())
        return self.hypothesis(self.best_ids(features, options))

    def best_ids(self, features: Float32Array, options: DecodeOptions) -> Int32Array:
        """(4 + T,) best id of each output step."""
        return self._run(features, options, lambda head: {"ids": head["ids"]})["ids"].astype(np.int32)

    def encode(self, features: Float32Array, options: DecodeOptions) -> Float32Array:
        """Output of the encoder, (4 + T, D)."""
        return self._run(features, options, lambda head: {"out": head["encoder_out"]})["out"]

    def stages(self, features: Float32Array, options: DecodeOptions) -> dict[str, Float32Array]:
        """Return "encoder_out" (4 + T, D) and "logits" (4 + T, V), for comparing with the reference."""
        return self._run(features, options, lambda head: {name: head[name] for name in ("encoder_out", "logits")})

    def encoder_input(self, features: Float32Array, options: DecodeOptions) -> Float32Array:
        """(4 + T, 560): queries and normalised features, scaled, with positions."""
        language = _LANGUAGE_ROWS.get(options.language)
        if language is None:
            raise UsageError(f"SenseVoice knows no language {options.language}; it knows {', '.join(_LANGUAGE_ROWS)}")
        text_norm = _WITH_ITN_ROW if options.itn else _WITHOUT_ITN_ROW
        queries = self.model.queries[[language, *_EVENT_EMOTION_ROWS, text_norm]]
        normalised = features if self.model.cmvn is None else self.model.cmvn.apply(features)
        return self.model.encoder.prepare(np.concatenate((queries, normalised)))

    def hypothesis(self, best: Int32Array) -> Hypothesis:
        """Text, words and tags of the best ids (4 + T,)."""
        vocabulary = self.model.vocabulary
        speech = collapse(best[_QUERY_ROWS:], self.model.blank_id)
        pieces = [_timed(vocabulary[token.id], token, len(best) - _QUERY_ROWS) for token in speech]
        language, emotion, event = (_tag(vocabulary[index]) for index in best[: _QUERY_ROWS - 1].tolist())
        return Hypothesis(
            token_ids=tuple(token.id for token in collapse(best, self.model.blank_id)),
            text=to_text(pieces),
            words=to_words(pieces),
            language=language,
            emotion=emotion,
            event=event,
        )

    def lane(self) -> "SenseVoice":
        """Another lane over the same model."""
        return SenseVoice(self.model, self.threads)

    def close(self) -> None:
        """Free this lane, and the model if it is this lane's own."""
        self._context.close()
        if self._owns_model:
            self.model.close()

    def _run(self, features: Float32Array, options: DecodeOptions, pick: _Pick) -> dict[str, Float32Array]:
        encoder, weights = self.model.encoder, self.model.weights

        def build(graph: Graph) -> Mapping[str, Tensor]:
            hidden = encoder.build(graph, graph.inputs["rows"], weights)
            logits = graph.linear(hidden, weights["ctc.ctc_lo.weight"], weights["ctc.ctc_lo.bias"])
            return pick({"encoder_out": hidden, "logits": logits, "ids": graph.argmax(logits)})

        rows = self.encoder_input(features, options)
        return self._context.run(build, {"rows": rows}, encoder.max_nodes + _HEAD_NODES)


def _timed(piece: str, token: CtcToken, steps: int) -> TimedPiece:
    """The token's time as FunASR's `output_timestamp` gives it: steps of 60 ms, half a step early, in the segment."""
    start_ms = max(0, token.start_step * _STEP_MS - _STEP_MS // 2)
    end_ms = min(token.end_step, steps) * _STEP_MS - _STEP_MS // 2
    return TimedPiece(piece, start_ms, end_ms)


def _tag(piece: str) -> str | None:
    """A tag in lower case; None where the model could not tell."""
    name = tag_name(piece)
    return None if name is None or name in _UNKNOWN_TAGS else name.lower()

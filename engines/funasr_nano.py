"""Fun-ASR-Nano: the encoder of SenseVoice, an adaptor, and a language model that writes what is said.

Encoder and adaptor run on ggml here, from a GGUF file of architecture `funasr-sensevoice-encoder` with keys `funasr.*`,
as published by FunAudioLLM; no query rows, no CMVN. The language model is a standard `qwen3` file and runs on llama.cpp
in a process of its own. Source: `funasr/models/fun_asr_nano/model.py`.

A language model is a dangerous listener: it answers silence with words, may repeat itself for ever, and may die. So
silence does not reach it, what it writes is bounded by what can be said in the time, a loop ends it, and a process that
died over a segment gets it once more.
"""

import codecs
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from liveasr import store
from liveasr.engines.adaptor import Adaptor, audio_rows
from liveasr.engines.base import RECOGNISER_FRONT_END, DecodeOptions, Draft
from liveasr.engines.encoder import SanmEncoder
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.llm_process import LlmProcess, NobodyWaitsError
from liveasr.engines.llm_running import LanguageModelDiedError
from liveasr.engines.native import Weights
from liveasr.engines.prompt import LANGUAGE_NAMES, Prompt, prompt_for
from liveasr.engines.spread import spread
from liveasr.engines.writing import looped, most_tokens
from liveasr.errors import EngineError, ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array, Hypothesis, Language

ARCHITECTURE = store.NANO_ARCHITECTURE
_STEP_MS = 60
_MAX_SEGMENT_MS = 15_000  # the model loops on longer ones
_SILENT_LOG_MEL = 8.0
"""Mean of a frame's log-mel values that no spoken frame stays below: as white noise of -75 dBFS has. Digital silence
has -16, a quiet room 10, loud vowels 17 to 21."""
_PAUSES = re.compile(r"(/sil|[\s\x00-\x1f\x7f-\x9f])+")
"""Become a space: "/sil" as in the reference, and control characters, which a terminal would obey."""
_MAX_DEATHS = 6
"""In a row, until the model is to blame and not what else goes on: three segments."""
_NOTHING = Hypothesis((), "", ())
_UNFINISHED = Hypothesis((), "", (), complete=False)
_UTF8 = codecs.getincrementaldecoder("utf-8")
_log = logging.getLogger("liveasr")


@dataclass(frozen=True, slots=True, eq=False)
class FunAsrNanoModel:
    """Everything that lanes share."""

    weights: Weights
    encoder: SanmEncoder
    adaptor: Adaptor
    language_model: LlmProcess

    def close(self) -> None:
        """Close all engines of this model, then free the weights and end the language model."""
        self.weights.close()
        self.language_model.close()


def load(file: GgufFile, llm_path: Path, threads: int, llm_offset_bytes: int = 0) -> FunAsrNanoModel:
    """Check a file, map its weights, start the language model. The model owns the file from here on.

    Args:
        file: of architecture `funasr-sensevoice-encoder`.
        llm_path: the language model, a GGUF file of architecture `qwen3`, or a file that it lies in.
        threads: of the language model, for one lane.
        llm_offset_bytes: where it begins in it.

    Raises:
        ModelFileError: a size is missing or absurd, a tensor is missing or has the wrong shape or type, or the two
            files do not belong together.
        MissingExtraError: llama-cpp-python is not installed.
        EngineError: the language model cannot be started.
    """
    encoder, adaptor = check(file)
    language_model = LlmProcess(llm_path, threads, llm_offset_bytes)
    if language_model.width != adaptor.output_size:
        language_model.close()
        raise ModelFileError(
            llm_path,
            f"reads embeddings of {language_model.width} values; those of {file.path.name} have {adaptor.output_size}",
        )
    return FunAsrNanoModel(Weights(file, encoder.derived_weights(file)), encoder, adaptor, language_model)


def check(file: GgufFile) -> tuple[SanmEncoder, Adaptor]:
    """Encoder and adaptor of a file that can be run. Loads no library.

    Raises:
        ModelFileError: a size is missing or absurd, or a tensor is missing or has the wrong shape or type.
    """
    encoder = SanmEncoder.of_sense_voice(file, "audio_encoder.", "funasr.enc.")
    adaptor = Adaptor(
        prefix="audio_adaptor.",
        input_size=encoder.output_size,
        hidden_size=file.integer("funasr.adp.ffn_dim"),
        output_size=file.integer("funasr.adp.llm_dim"),
        blocks=file.integer("funasr.adp.n_layer", least=0),
        heads=file.integer("funasr.adp.attention_heads"),
    )
    if (rate := file.integer("funasr.adp.downsample_rate")) != 1:
        raise ModelFileError(file.path, f"has an adaptor that joins {rate} frames; only 1 is known")
    adaptor.check(file)
    return encoder, adaptor


class FunAsrNano:
    """One lane over a shared model: decodes one segment at a time.

    Args:
        model: what to compute with.
        threads: for one decode.
        owns_model: whether closing this lane closes the model too.
    """

    front_end = RECOGNISER_FRONT_END
    languages: tuple[Language, ...] = ("auto", *LANGUAGE_NAMES)
    takes_hotwords = True
    max_segment_ms = _MAX_SEGMENT_MS

    def __init__(self, model: FunAsrNanoModel, threads: int, *, owns_model: bool = False) -> None:
        self.model = model
        self.threads = threads
        self._owns_model = owns_model
        self._context = model.weights.context(threads)
        self._lane = model.language_model.lane()

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """Recognise one segment; features (T, 560), one row a step of 60 ms."""
        return self.write(features, options, lambda _draft: True)

    def write(self, features: Float32Array, options: DecodeOptions, draft: Draft) -> Hypothesis:
        """Recognise one segment, telling every token.

        Raises:
            UsageError: the model does not know the language.
            EngineError: the language model cannot read the prompt.
        """
        if options.language not in self.languages:
            raise UsageError(f"Fun-ASR-Nano knows no language {options.language}; it knows {', '.join(self.languages)}")
        if is_silent(features):
            return _NOTHING
        prompt = prompt_for(options)
        rows = self.embeddings(features)[: audio_rows(len(features))]
        for _ in range(2):
            try:
                return self._write(prompt, rows, len(features), draft)
            except LanguageModelDiedError as error:
                died = error
                if not draft(_NOTHING):
                    return _UNFINISHED
                _log.warning("%s; it is started anew", error)
        language_model = self.model.language_model
        if language_model.deaths >= _MAX_DEATHS:
            raise EngineError(f"{language_model.path} may be damaged: over every segment {died}") from died
        _log.error("the language model died twice over one segment, which stays without text")
        return _UNFINISHED

    def encode(self, features: Float32Array, options: DecodeOptions) -> Float32Array:  # noqa: ARG002 - asked of all
        """Output of the encoder, (T, D)."""
        return self._run(features, adapted=False)

    def embeddings(self, features: Float32Array) -> Float32Array:
        """Output of the adaptor (T, W); the first `audio_rows(T)` are for the language model."""
        return self._run(features, adapted=True)

    def lane(self) -> "FunAsrNano":
        """Another lane over the same model."""
        return FunAsrNano(self.model, self.threads)

    def close(self) -> None:
        """Free this lane, and the model if it is this lane's own."""
        self._lane.close()
        self._context.close()
        if self._owns_model:
            self.model.close()

    def _run(self, features: Float32Array, *, adapted: bool) -> Float32Array:
        encoder, adaptor, weights = self.model.encoder, self.model.adaptor, self.model.weights

        def build(graph: Graph) -> Mapping[str, Tensor]:
            hidden = encoder.build(graph, graph.inputs["rows"], weights)
            return {"out": adaptor.build(graph, hidden, weights) if adapted else hidden}

        rows = encoder.prepare(features)
        return self._context.run(build, {"rows": rows}, encoder.max_nodes + adaptor.max_nodes)["out"]

    def _write(self, prompt: Prompt, rows: Float32Array, frames: int, draft: Draft) -> Hypothesis:
        most, duration_ms = most_tokens(frames), frames * _STEP_MS
        ids: list[int] = []
        pieces: list[bytes] = []
        written = _NOTHING
        if not draft(written):
            return _UNFINISHED

        def wanted() -> bool:
            return draft(written)

        complete = False
        try:
            token = self._lane.begin(prompt, rows, most, wanted)
            while not token.ends:
                ids.append(token.id)
                pieces.append(token.piece)
                if repeated := looped(ids):
                    del ids[-repeated:], pieces[-repeated:]
                    break
                written = _hypothesis(ids, pieces, duration_ms, draft=True)
                if len(ids) == most or not wanted():
                    break
                token = self._lane.next(wanted)
            complete = token.ends
        except NobodyWaitsError:
            pass
        return _hypothesis(ids, pieces, duration_ms, complete=complete)


def is_silent(features: Float32Array) -> bool:
    """Whether nobody can have spoken in a segment (T, 560): it is empty, or too quiet in every frame."""
    frames = features.reshape(-1, RECOGNISER_FRONT_END.mel_bins)
    return len(frames) == 0 or bool(frames.mean(axis=1).max() < _SILENT_LOG_MEL)


def _hypothesis(
    ids: list[int], pieces: list[bytes], duration_ms: int, *, draft: bool = False, complete: bool = True
) -> Hypothesis:
    decoded = _UTF8("replace").decode(b"".join(pieces), final=not draft)  # a draft may end within a character
    text = _PAUSES.sub(" ", decoded).strip()
    return Hypothesis(tuple(ids), text, spread(text, duration_ms), complete=complete)

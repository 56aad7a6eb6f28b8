"""The architectures that there are: what the files of each have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from liveasr.engines import funasr_nano, paraformer, qwen3_layout, sensevoice, streaming_model
from liveasr.engines.base import RECOGNISER_FRONT_END, FrontEnd
from liveasr.engines.layouts import LAYOUTS
from liveasr.types import Language

_VAD = LAYOUTS["FsmnVADStreaming"]
VAD_ARCHITECTURE = _VAD.architecture


@dataclass(frozen=True, slots=True)
class Family:
    """What the files of an architecture have in common, and under which keys they tell the rest."""

    words: str
    layers: Mapping[str, str]
    """What they are called, and the key of their number."""
    width: str | None
    heads: str | None
    languages: tuple[Language, ...]
    """Of the released models."""
    vocabulary: str | None = None
    front_end: FrontEnd | None = None
    has_cmvn: bool = False


FAMILIES = {
    sensevoice.ARCHITECTURE: Family(
        "SenseVoiceSmall: encoder and CTC, which write a whole segment at once",
        {"encoder blocks": "sv.num_blocks", "second-tier blocks": "sv.tp_blocks"},
        "sv.output_size",
        "sv.attention_heads",
        sensevoice.SenseVoice.languages,
        "sv.vocab_size",
        sensevoice.SenseVoice.front_end,
        has_cmvn=True,
    ),
    paraformer.ARCHITECTURE: Family(
        "Paraformer: encoder, predictor and decoder, which write a whole segment at once",
        {"encoder blocks": "pf.enc.num_blocks", "decoder blocks": "pf.dec.att_layer_num"},
        "pf.enc.output_size",
        "pf.enc.attention_heads",
        ("zh", "en"),
        "pf.vocab_size",
        paraformer.Paraformer.front_end,
        has_cmvn=True,
    ),
    streaming_model.ARCHITECTURE: Family(
        "Paraformer, streaming: writes while the segment goes on",
        {"encoder blocks": "pfs.enc.num_blocks", "decoder blocks": "pfs.dec.att_layer_num"},
        "pfs.enc.output_size",
        "pfs.enc.attention_heads",
        ("zh", "en"),
        "pfs.vocab_size",
        RECOGNISER_FRONT_END,
        has_cmvn=True,
    ),
    funasr_nano.ARCHITECTURE: Family(
        "Fun-ASR-Nano, the encoder and adaptor of it; a language model writes what they hear",
        {
            "encoder blocks": "funasr.enc.num_blocks",
            "second-tier blocks": "funasr.enc.tp_blocks",
            "adaptor blocks": "funasr.adp.n_layer",
        },
        "funasr.enc.output_size",
        "funasr.enc.attention_heads",
        funasr_nano.FunAsrNano.languages,
        front_end=funasr_nano.FunAsrNano.front_end,
    ),
    qwen3_layout.ARCHITECTURE: Family(
        "a Qwen3 language model, as one is part of Fun-ASR-Nano",
        {"blocks": "qwen3.block_count"},
        "qwen3.embedding_length",
        "qwen3.attention.head_count",
        funasr_nano.FunAsrNano.languages,
        "tokenizer.ggml.tokens",
    ),
    _VAD.architecture: Family(
        "FSMN-VAD: tells where there is speech",
        {"FSMN layers": "vad.fsmn_layers"},
        "vad.linear_dim",
        None,
        (),
        front_end=_VAD.front_end,
        has_cmvn=True,
    ),
}
UNKNOWN = Family("nothing that liveasr knows", {}, None, None, ())

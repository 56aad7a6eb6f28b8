"""How each family of checkpoints is written to a GGUF file: its metadata, and which tensors in which types."""

from collections.abc import Callable
from dataclasses import dataclass

import gguf

from liveasr import store
from liveasr.engines.base import RECOGNISER_FRONT_END, FrontEnd
from liveasr.engines.checkpoint_folder import CheckpointFolder, Settings
from liveasr.engines.gguf_output import TensorKind, block_values
from liveasr.errors import ModelFileError

_PARAFORMER_PARTS = {"encoder": "SANMEncoder", "decoder": "ParaformerSANMDecoder", "predictor": "CifPredictorV2"}
# What a GGUF file cannot tell, so that the engine takes it for granted: of the streaming Paraformer, then of the other.
_STREAMING_SETTINGS: Settings = {
    ("predictor_conf", "smooth_factor"): 1,
    ("predictor_conf", "noise_threshold"): 0,
    ("model_conf", "blank_id"): 0,
    ("model_conf", "sos"): 1,
    ("model_conf", "eos"): 2,
}
_PARAFORMER_SETTINGS: Settings = {
    ("encoder_conf", "sanm_shfit"): 0,
    ("decoder_conf", "sanm_shfit"): 0,
    ("predictor_conf", "l_order"): 1,
    ("predictor_conf", "r_order"): 1,
    **_STREAMING_SETTINGS,
}
_SENSEVOICE_PARTS = {"encoder": "SenseVoiceEncoderSmall"}
_SENSEVOICE_SETTINGS: Settings = {("encoder_conf", "sanm_shfit"): 0}
_NANO_PARTS = {"audio_encoder": "SenseVoiceEncoderSmall", "audio_adaptor": "Transformer"}
_NANO_SETTINGS: Settings = {
    ("audio_encoder_conf", "sanm_shfit"): 0,
    ("frontend_conf", "cmvn_file"): None,
    ("llm_conf", "use_lora"): False,
}
# Where the reference takes another value if a setting is missing.
_NANO_STATED: Settings = {
    ("audio_adaptor_conf", "downsample_rate"): 1,
    ("audio_adaptor_conf", "use_low_frame_rate"): True,
}
_ADAPTOR_HEADS = 8  # released configurations do not say it
_MATRIX_DIMS = 2
FSMN_KERNELS = ("fsmn_block.weight", "conv_left.weight")
"""How their names end."""
# Of the parameters of a model these spoil the output most, for their number, when they have four bits: in `digits` the
# output layer, ten times as much as others, in `digits-paraformer` the output of attention, nearly twice
# (docs/measurements.md).
_SENSITIVE = ("ctc.ctc_lo.weight", "output_layer.weight", "linear_out.weight")
_SENSITIVE_OF_QWEN3 = ("token_embd.weight", "output.weight", "attn_v.weight")
"""As llama.cpp has them in its own mixes, but for half of the ffn_down; attn_output is one of them by its name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one family is written."""

    architecture: str
    prefixes: tuple[str, ...]
    """Tensors to write."""
    add_metadata: Callable[[gguf.GGUFWriter, CheckpointFolder], None]
    skipped: tuple[str, ...] = ()
    """Names that are left out although a prefix fits."""
    never_quantised: tuple[str, ...] = ()
    """Names that are f32 in a q8_0 file, and f16 in one of fewer bits."""
    never_shrunk: tuple[str, ...] = ()
    """Names that stay f32 in every file."""
    matrices_shrink: bool = True
    front_end: FrontEnd = RECOGNISER_FRONT_END
    """What its features have to be; there is no other that the program makes."""
    has_cmvn: bool = True
    has_language_model: bool = False
    """Which goes into a file of its own."""
    sensitive: tuple[str, ...] = _SENSITIVE
    """How the names of those end that a mix of types keeps more exact."""

    def stored_type(self, name: str, shape: tuple[int, ...], wanted: TensorKind) -> TensorKind:
        """How a tensor is written in a file of the wanted type.

        A q8_0 file has in f32 what has rows that do not divide into blocks. Files of fewer bits are for those who want
        them small: there such rows are q8_0 where its shorter blocks fit, else f16.
        """
        is_matrix = len(shape) == _MATRIX_DIMS and "norm" not in name and not name.endswith(FSMN_KERNELS)
        if not is_matrix or not self.matrices_shrink or name in self.never_shrunk:
            return "f32"
        if wanted in ("f32", "f16"):
            return wanted
        if name not in self.never_quantised:
            kinds: tuple[TensorKind, ...] = (wanted, "q8_0")
            for kind in kinds:
                if shape[1] % block_values(kind) == 0:
                    return kind
        return "f32" if wanted == "q8_0" else "f16"


def _add_sensevoice(writer: gguf.GGUFWriter, folder: CheckpointFolder) -> None:
    """sv.*: sizes, the published default query rows, the vocabulary in the order of its ids."""
    folder.require_parts(_SENSEVOICE_PARTS)
    folder.require_settings(_SENSEVOICE_SETTINGS)
    for key in ("output_size", "attention_heads", "num_blocks", "tp_blocks", "kernel_size"):
        writer.add_uint32(f"sv.{key}", folder.integer("encoder_conf", key))
    writer.add_uint32("sv.input_size", folder.stacked_size())
    pieces = folder.pieces()
    writer.add_uint32("sv.vocab_size", len(pieces))
    writer.add_uint32("sv.blank_id", 0)
    writer.add_array("sv.query_tokens", [0, 1, 2, 14])
    writer.add_array("sv.vocab", pieces)


def _add_paraformer(writer: gguf.GGUFWriter, folder: CheckpointFolder) -> None:
    """pf.*: sizes of encoder and decoder, the vocabulary in the order of its ids, thresholds of the predictor."""
    folder.require_parts(_PARAFORMER_PARTS)
    folder.require_settings(_PARAFORMER_SETTINGS)
    for key in ("output_size", "attention_heads", "num_blocks", "kernel_size"):
        writer.add_uint32(f"pf.enc.{key}", folder.integer("encoder_conf", key))
    for key in ("num_blocks", "att_layer_num", "attention_heads", "kernel_size"):
        writer.add_uint32(f"pf.dec.{key}", folder.integer("decoder_conf", key))
    writer.add_uint32("pf.dec.decoders3", 1)
    tokens = folder.tokens()
    writer.add_uint32("pf.vocab_size", len(tokens))
    writer.add_array("pf.vocab", tokens)
    for key in ("tail_threshold", "threshold"):
        writer.add_float32(f"pf.predictor.{key}", folder.fraction("predictor_conf", key))


def _add_paraformer_streaming(writer: gguf.GGUFWriter, folder: CheckpointFolder) -> None:
    """pfs.*, as docs/gguf-paraformer-streaming.md says."""
    folder.require_parts(_PARAFORMER_PARTS | {"encoder": "SANMEncoderChunkOpt"})
    folder.require_settings(_STREAMING_SETTINGS)
    for key in ("output_size", "attention_heads", "num_blocks", "kernel_size", "sanm_shfit"):
        writer.add_uint32(f"pfs.enc.{key}", folder.integer("encoder_conf", key))
    for key in ("num_blocks", "att_layer_num", "attention_heads", "kernel_size", "sanm_shfit"):
        writer.add_uint32(f"pfs.dec.{key}", folder.integer("decoder_conf", key))
    for key in ("l_order", "r_order"):
        writer.add_uint32(f"pfs.predictor.{key}", folder.integer("predictor_conf", key))
    for key in ("tail_threshold", "threshold"):
        writer.add_float32(f"pfs.predictor.{key}", folder.fraction("predictor_conf", key))
    for key in ("n_mels", "lfr_m", "lfr_n"):
        writer.add_uint32(f"pfs.frontend.{key}", folder.integer("frontend_conf", key))
    for key, value in _chunks(folder).items():
        writer.add_uint32(f"pfs.{key}", value)
    tokens = folder.tokens()
    writer.add_uint32("pfs.vocab_size", len(tokens))
    writer.add_array("pfs.vocab", tokens)


def _chunks(folder: CheckpointFolder) -> dict[str, int]:
    """How the model was trained to cut a segment; of several ways the last, which has the longest chunks.

    A chunk of the training is past, now and ahead together: [0, 10, 5] is a chunk of 15 with a stride of 10.
    """
    chunk, past, now, encoder_look_back, decoder_look_back = (
        folder.last_integer("encoder_conf", key)
        for key in ("chunk_size", "pad_left", "stride", "encoder_att_look_back_factor", "decoder_att_look_back_factor")
    )
    if past + now >= chunk:
        raise ModelFileError(
            folder.path / "config.yaml", f"its chunks of {chunk} frames have none behind {past} + {now}"
        )
    return {
        "chunk.past": past,
        "chunk.now": now,
        "chunk.ahead": chunk - past - now,
        "encoder_look_back": encoder_look_back,
        "decoder_look_back": decoder_look_back,
    }


def _add_nano(writer: gguf.GGUFWriter, folder: CheckpointFolder) -> None:
    """funasr.*: sizes of encoder, adaptor and stacked frames."""
    folder.require_parts(_NANO_PARTS)
    folder.require_settings(_NANO_SETTINGS)
    folder.require_settings(_NANO_STATED, even_if_missing=True)
    writer.add_uint32("funasr.enc.input_size", folder.stacked_size())
    encoder = ("output_size", "attention_heads", "linear_units", "num_blocks", "tp_blocks", "kernel_size", "sanm_shfit")
    for key in encoder:
        writer.add_uint32(f"funasr.enc.{key}", folder.integer("audio_encoder_conf", key))
    for key in ("llm_dim", "encoder_dim", "ffn_dim", "n_layer", "downsample_rate"):
        writer.add_uint32(f"funasr.adp.{key}", folder.integer("audio_adaptor_conf", key))
    heads = folder.integer("audio_adaptor_conf", "attention_heads", _ADAPTOR_HEADS)
    writer.add_uint32("funasr.adp.attention_heads", heads)
    for key in ("n_mels", "lfr_m", "lfr_n"):
        writer.add_uint32(f"funasr.frontend.{key}", folder.integer("frontend_conf", key))


def _add_fsmn_vad(writer: gguf.GGUFWriter, folder: CheckpointFolder) -> None:
    """vad.*: the sizes of the network and of its stacked frames."""
    network = ("input_dim", "input_affine_dim", "linear_dim", "proj_dim", "fsmn_layers", "lorder")
    for key in (*network, "output_affine_dim", "output_dim"):
        writer.add_uint32(f"vad.{key}", folder.integer("encoder_conf", key))
    for key in ("n_mels", "lfr_m", "lfr_n"):
        writer.add_uint32(f"vad.{key}", folder.integer("frontend_conf", key))


LAYOUTS = {
    "SenseVoiceSmall": Layout(
        "sensevoice-small", ("encoder.", "ctc.", "embed.weight"), _add_sensevoice, never_quantised=("embed.weight",)
    ),
    "Paraformer": Layout(
        "paraformer",
        ("encoder.", "decoder.", "predictor."),
        _add_paraformer,
        skipped=("decoder.embed.0.weight",),  # which only the training needs
        never_shrunk=("predictor.cif_output.weight",),
    ),
    "ParaformerStreaming": Layout(
        "paraformer-streaming",
        ("encoder.", "decoder.", "predictor."),
        _add_paraformer_streaming,
        skipped=("decoder.embed.0.weight",),
        never_shrunk=("predictor.cif_output.weight",),
    ),
    "FunASRNano": Layout(
        store.NANO_ARCHITECTURE,
        ("audio_encoder.", "audio_adaptor."),
        _add_nano,
        has_cmvn=False,
        has_language_model=True,
        sensitive=(*_SENSITIVE, *_SENSITIVE_OF_QWEN3),
    ),
    "FsmnVADStreaming": Layout(
        "fsmn-vad",
        ("encoder.",),
        _add_fsmn_vad,
        matrices_shrink=False,
        front_end=FrontEnd(mel_bins=80, lfr_m=5, lfr_n=1),
    ),
}

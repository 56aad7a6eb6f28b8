"""From a released checkpoint folder to a GGUF file in the layout that FunAudioLLM publishes.

Nobody publishes the streaming Paraformer, so its layout is our own: docs/gguf-paraformer-streaming.md.
A folder holds `model.pt`, `config.yaml`, `am.mvn` and a vocabulary: for SenseVoice a SentencePiece model `*.bpe.model`,
for Paraformer `tokens.json`. Tensor names are the checkpoint's own. Matrices of two dimensions take the wanted type;
norms, biases, FSMN kernels and whatever a block type cannot hold stay f32. FSMN kernels are stored taps first, (K, D).
"""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gguf
import numpy as np
import sentencepiece
import yaml

from liveasr.engines.checkpoint import read_state
from liveasr.engines.cmvn import from_kaldi
from liveasr.errors import ModelFileError, OutputError
from liveasr.gguf_file import MAX_DIMS, MAX_NAME_BYTES
from liveasr.types import Float32Array

WeightType: TypeAlias = Literal["f32", "f16", "q8_0"]
_Q8_0_BLOCK = 32  # values
_MATRIX_DIMS = 2
_PARAFORMER_PARTS = {"encoder": "SANMEncoder", "decoder": "ParaformerSANMDecoder", "predictor": "CifPredictorV2"}
_Settings: TypeAlias = dict[tuple[str, str], float]
# What a GGUF file cannot tell, so that the engine takes it for granted: of the streaming Paraformer, then of the other.
_STREAMING_SETTINGS: _Settings = {
    ("predictor_conf", "smooth_factor"): 1,
    ("predictor_conf", "noise_threshold"): 0,
    ("model_conf", "blank_id"): 0,
    ("model_conf", "sos"): 1,
    ("model_conf", "eos"): 2,
}
_PARAFORMER_SETTINGS: _Settings = {
    ("encoder_conf", "sanm_shfit"): 0,
    ("decoder_conf", "sanm_shfit"): 0,
    ("predictor_conf", "l_order"): 1,
    ("predictor_conf", "r_order"): 1,
    **_STREAMING_SETTINGS,
}
_MAX_UINT32 = 2**32 - 1
_Config: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one family is written."""

    architecture: str
    prefixes: tuple[str, ...]
    """Tensors to write."""
    add_metadata: Callable[[gguf.GGUFWriter, Path, _Config], None]
    skipped: tuple[str, ...] = ()
    """Names that are left out although a prefix fits."""
    never_quantised: tuple[str, ...] = ()
    """Names that stay f32 in a q8_0 file."""
    never_shrunk: tuple[str, ...] = ()
    """Names that stay f32 in every file."""
    matrices_shrink: bool = True


def convert(folder: Path, output: Path, weight_type: WeightType = "f32") -> int:
    """Write the model of a checkpoint folder to a GGUF file; the file appears only when it is complete.

    Returns:
        The number of tensors written.

    Raises:
        ModelFileError: the folder is not a checkpoint of a known family, or a part of it is missing or broken.
        OutputError: the output cannot be written.
    """
    config = _load_config(folder)
    layout = _LAYOUTS.get(str(config.get("model")))
    if layout is None:
        known = ", ".join(_LAYOUTS)
        raise ModelFileError(folder, f"holds a model of the class {config.get('model')}; known are {known}")
    writer = gguf.GGUFWriter(None, layout.architecture)
    layout.add_metadata(writer, folder, config)
    cmvn = from_kaldi(folder / "am.mvn", _stacked_size(folder, config))
    writer.add_tensor("cmvn.shift", cmvn.shift)
    writer.add_tensor("cmvn.scale", cmvn.scale)
    state = read_state(folder / "model.pt")
    names = [name for name in state if name.startswith(layout.prefixes) and name not in layout.skipped]
    if not names:
        raise ModelFileError(folder / "model.pt", f"has no tensors named {' or '.join(layout.prefixes)}")
    for name in names:
        values = state[name]
        if len(name.encode()) > MAX_NAME_BYTES or not 1 <= values.ndim <= MAX_DIMS or not values.size:
            raise ModelFileError(folder / "model.pt", f"no GGUF file can hold tensor {name!r} of shape {values.shape}")
        values = _taps_first(name, values)
        _add_tensor(writer, name, values, _stored_type(name, values, layout, weight_type))
    _write(writer, output)
    return len(names) + 2


def _write(writer: gguf.GGUFWriter, output: Path) -> None:
    """Write under another name in the same folder, then rename."""
    try:
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        os.close(handle)
        partial = Path(name)
        try:
            writer.write_header_to_file(partial)
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            partial.chmod(0o644)
            partial.replace(output)
        finally:
            writer.close()
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(output, f"cannot be written: {error.strerror}") from error


def _load_config(folder: Path) -> _Config:
    path = folder / "config.yaml"
    if not folder.is_dir():
        raise ModelFileError(folder, "is no folder" if folder.exists() else "no such folder")
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(folder, "is not a checkpoint folder: it has no config.yaml") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ModelFileError(path, f"cannot be read: {error}".splitlines()[0]) from error
    if not isinstance(config, dict):
        raise ModelFileError(path, "is not a table of settings")
    return config


def _setting(folder: Path, config: _Config, section: str, key: str) -> int:
    """One whole number of config.yaml."""
    table = config.get(section)
    value = table.get(key) if isinstance(table, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_UINT32:
        raise ModelFileError(folder / "config.yaml", f"has no whole number {section}.{key}")
    return value


def _last_setting(folder: Path, config: _Config, section: str, key: str) -> int:
    """The last whole number of a list of config.yaml."""
    table = config.get(section)
    values = table.get(key) if isinstance(table, dict) else None
    if not isinstance(values, list) or not values:
        raise ModelFileError(folder / "config.yaml", f"has no list of whole numbers {section}.{key}")
    return _setting(folder, {section: {key: values[-1]}}, section, key)


def _fraction(folder: Path, config: _Config, section: str, key: str) -> float:
    """One number of config.yaml from 0 to 1."""
    table = config.get(section)
    value = table.get(key) if isinstance(table, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ModelFileError(folder / "config.yaml", f"has no number from 0 to 1 {section}.{key}")
    return float(value)


def _stacked_size(folder: Path, config: _Config) -> int:
    """Values in one stacked feature frame."""
    return _setting(folder, config, "frontend_conf", "n_mels") * _setting(folder, config, "frontend_conf", "lfr_m")


def _taps_first(name: str, values: Float32Array) -> Float32Array:
    """FSMN kernels as (K, D), from (D, 1, K) in SAN-M blocks and (D, 1, K, 1) in the VAD."""
    if name.endswith(("fsmn_block.weight", "conv_left.weight")):
        return np.ascontiguousarray(values.reshape(values.shape[0], -1).T)
    return values


def _stored_type(name: str, values: Float32Array, layout: _Layout, wanted: WeightType) -> WeightType:
    is_matrix = (
        values.ndim == _MATRIX_DIMS
        and "norm" not in name
        and not name.endswith(("fsmn_block.weight", "conv_left.weight"))
    )
    if not is_matrix or not layout.matrices_shrink or name in layout.never_shrunk:
        return "f32"
    if wanted == "q8_0" and (name in layout.never_quantised or values.shape[1] % _Q8_0_BLOCK):
        return "f32"
    return wanted


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: Float32Array, kind: WeightType) -> None:
    if kind == "q8_0":
        block = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, block), raw_dtype=block)
    else:
        writer.add_tensor(name, values.astype(np.float16 if kind == "f16" else np.float32))


def _add_sensevoice(writer: gguf.GGUFWriter, folder: Path, config: _Config) -> None:
    """sv.*: sizes, the published default query rows, the vocabulary in the order of its ids."""
    for key in ("output_size", "attention_heads", "num_blocks", "tp_blocks", "kernel_size"):
        writer.add_uint32(f"sv.{key}", _setting(folder, config, "encoder_conf", key))
    writer.add_uint32("sv.input_size", _stacked_size(folder, config))
    pieces = _pieces(folder)
    writer.add_uint32("sv.vocab_size", len(pieces))
    writer.add_uint32("sv.blank_id", 0)
    writer.add_array("sv.query_tokens", [0, 1, 2, 14])
    writer.add_array("sv.vocab", pieces)


def _pieces(folder: Path) -> list[str]:
    """The pieces of the SentencePiece model of a folder."""
    paths = sorted(folder.glob("*.bpe.model"))
    if not paths:
        raise ModelFileError(folder, "has no *.bpe.model")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(paths[0]))
    except (OSError, RuntimeError) as error:
        raise ModelFileError(paths[0], "is not a SentencePiece model") from error
    return [processor.id_to_piece(index) for index in range(processor.get_piece_size())]


def _add_paraformer(writer: gguf.GGUFWriter, folder: Path, config: _Config) -> None:
    """pf.*: sizes of encoder and decoder, the vocabulary in the order of its ids, thresholds of the predictor."""
    _check_parts(folder, config, _PARAFORMER_PARTS)
    _check_settings(folder, config, _PARAFORMER_SETTINGS)
    for key in ("output_size", "attention_heads", "num_blocks", "kernel_size"):
        writer.add_uint32(f"pf.enc.{key}", _setting(folder, config, "encoder_conf", key))
    for key in ("num_blocks", "att_layer_num", "attention_heads", "kernel_size"):
        writer.add_uint32(f"pf.dec.{key}", _setting(folder, config, "decoder_conf", key))
    writer.add_uint32("pf.dec.decoders3", 1)
    tokens = _tokens(folder)
    writer.add_uint32("pf.vocab_size", len(tokens))
    writer.add_array("pf.vocab", tokens)
    for key in ("tail_threshold", "threshold"):
        writer.add_float32(f"pf.predictor.{key}", _fraction(folder, config, "predictor_conf", key))


def _add_paraformer_streaming(writer: gguf.GGUFWriter, folder: Path, config: _Config) -> None:
    """pfs.*, as docs/gguf-paraformer-streaming.md says."""
    _check_parts(folder, config, _PARAFORMER_PARTS | {"encoder": "SANMEncoderChunkOpt"})
    _check_settings(folder, config, _STREAMING_SETTINGS)
    for key in ("output_size", "attention_heads", "num_blocks", "kernel_size", "sanm_shfit"):
        writer.add_uint32(f"pfs.enc.{key}", _setting(folder, config, "encoder_conf", key))
    for key in ("num_blocks", "att_layer_num", "attention_heads", "kernel_size", "sanm_shfit"):
        writer.add_uint32(f"pfs.dec.{key}", _setting(folder, config, "decoder_conf", key))
    for key in ("l_order", "r_order"):
        writer.add_uint32(f"pfs.predictor.{key}", _setting(folder, config, "predictor_conf", key))
    for key in ("tail_threshold", "threshold"):
        writer.add_float32(f"pfs.predictor.{key}", _fraction(folder, config, "predictor_conf", key))
    for key in ("n_mels", "lfr_m", "lfr_n"):
        writer.add_uint32(f"pfs.frontend.{key}", _setting(folder, config, "frontend_conf", key))
    for key, value in _chunks(folder, config).items():
        writer.add_uint32(f"pfs.{key}", value)
    tokens = _tokens(folder)
    writer.add_uint32("pfs.vocab_size", len(tokens))
    writer.add_array("pfs.vocab", tokens)


def _chunks(folder: Path, config: _Config) -> dict[str, int]:
    """How the model was trained to cut a segment; of several ways the last, which has the longest chunks.

    A chunk of the training is past, now and ahead together: [0, 10, 5] is a chunk of 15 with a stride of 10.
    """
    chunk, past, now, encoder_look_back, decoder_look_back = (
        _last_setting(folder, config, "encoder_conf", key)
        for key in ("chunk_size", "pad_left", "stride", "encoder_att_look_back_factor", "decoder_att_look_back_factor")
    )
    if past + now >= chunk:
        raise ModelFileError(folder / "config.yaml", f"its chunks of {chunk} frames have none behind {past} + {now}")
    return {
        "chunk.past": past,
        "chunk.now": now,
        "chunk.ahead": chunk - past - now,
        "encoder_look_back": encoder_look_back,
        "decoder_look_back": decoder_look_back,
    }


def _check_parts(folder: Path, config: _Config, parts: dict[str, str]) -> None:
    """Raise ModelFileError unless the model is made of these classes."""
    for key, kind in parts.items():
        if config.get(key) != kind:
            raise ModelFileError(folder / "config.yaml", f"has the {key} {config.get(key)}; only {kind} is known")


def _check_settings(folder: Path, config: _Config, settings: _Settings) -> None:
    """Raise ModelFileError where one of these settings has another value; one that is missing has this one."""
    for (section, key), usual in settings.items():
        table = config.get(section)
        value = table.get(key, usual) if isinstance(table, dict) else usual
        if value != usual:
            raise ModelFileError(folder / "config.yaml", f"has {section}.{key} {value}; only {usual} is known")


def _tokens(folder: Path) -> list[str]:
    """The vocabulary in tokens.json."""
    path = folder / "tokens.json"
    try:
        tokens = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(tokens, list) or not tokens or not all(map(_is_text, tokens)):
        raise ModelFileError(path, "is not a list of tokens")
    return tokens


def _is_text(token: object) -> bool:
    """Whether it is a string that UTF-8 can hold: JSON can escape halves of characters."""
    return isinstance(token, str) and not any("\ud800" <= character <= "\udfff" for character in token)


def _add_fsmn_vad(writer: gguf.GGUFWriter, folder: Path, config: _Config) -> None:
    """vad.*: the sizes of the network and of its stacked frames."""
    network = ("input_dim", "input_affine_dim", "linear_dim", "proj_dim", "fsmn_layers", "lorder")
    for key in (*network, "output_affine_dim", "output_dim"):
        writer.add_uint32(f"vad.{key}", _setting(folder, config, "encoder_conf", key))
    for key in ("n_mels", "lfr_m", "lfr_n"):
        writer.add_uint32(f"vad.{key}", _setting(folder, config, "frontend_conf", key))


_LAYOUTS = {
    "SenseVoiceSmall": _Layout(
        "sensevoice-small", ("encoder.", "ctc.", "embed.weight"), _add_sensevoice, never_quantised=("embed.weight",)
    ),
    "Paraformer": _Layout(
        "paraformer",
        ("encoder.", "decoder.", "predictor."),
        _add_paraformer,
        skipped=("decoder.embed.0.weight",),  # which only the training needs
        never_shrunk=("predictor.cif_output.weight",),
    ),
    "ParaformerStreaming": _Layout(
        "paraformer-streaming",
        ("encoder.", "decoder.", "predictor."),
        _add_paraformer_streaming,
        skipped=("decoder.embed.0.weight",),
        never_shrunk=("predictor.cif_output.weight",),
    ),
    "FsmnVADStreaming": _Layout("fsmn-vad", ("encoder.",), _add_fsmn_vad, matrices_shrink=False),
}

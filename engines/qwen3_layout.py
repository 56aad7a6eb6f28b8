"""The language model of a Fun-ASR-Nano as a `qwen3` file that llama.cpp opens: its metadata, and its tensors' names."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import gguf

from liveasr import store
from liveasr.engines.checkpoint_folder import CheckpointFolder
from liveasr.engines.gguf_output import WeightType
from liveasr.engines.qwen3_folder import Qwen3Folder
from liveasr.engines.weight_files import Weights, has_weights, open_weights
from liveasr.errors import ModelFileError

ARCHITECTURE = store.LANGUAGE_MODEL_ARCHITECTURE
_PREFIX = "llm."
"""Of the language model's tensors, where they lie among those of the whole checkpoint."""
_USUAL_FOLDER = "Qwen3-0.6B"
_END_OF_TEXT = "<|endoftext|>"
_EMBEDDING = "model.embed_tokens.weight"
_OUTPUT = "lm_head.weight"
_FILE_TYPES: Mapping[WeightType, gguf.LlamaFileType] = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
_BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class OwnWeights(NamedTuple):
    """Weights, and how the names of those begin that are the language model's."""

    weights: Weights
    prefix: str


def language_model_folder(checkpoint: CheckpointFolder) -> Qwen3Folder:
    """The folder of the language model: the one that the settings name, else the one of the release."""
    named = checkpoint.text("llm_conf", "init_param_path") or _USUAL_FOLDER
    for path in (checkpoint.path / named, checkpoint.path / _USUAL_FOLDER):
        if path.is_dir():
            return Qwen3Folder(path)
    raise ModelFileError(checkpoint.path / named, "no such folder; it should hold the language model's config.json")


def add_metadata(writer: gguf.GGUFWriter, folder: Qwen3Folder, weight_type: WeightType) -> None:
    """qwen3.*, the type of the file, and the tokenizer."""
    writer.add_context_length(folder.integer("max_position_embeddings"))
    writer.add_embedding_length(folder.integer("hidden_size"))
    writer.add_block_count(folder.integer("num_hidden_layers"))
    writer.add_feed_forward_length(folder.integer("intermediate_size"))
    writer.add_head_count(folder.integer("num_attention_heads"))
    writer.add_head_count_kv(folder.integer("num_key_value_heads"))
    writer.add_key_length(folder.integer("head_dim"))
    writer.add_value_length(folder.integer("head_dim"))
    writer.add_layer_norm_rms_eps(folder.number("rms_norm_eps"))
    writer.add_rope_freq_base(folder.rope_theta)
    writer.add_vocab_size(folder.integer("vocab_size"))
    writer.add_file_type(_FILE_TYPES[weight_type])
    _add_tokenizer(writer, folder)


@contextlib.contextmanager
def open_tensors(weights: Weights, folder: Qwen3Folder) -> Iterator[OwnWeights]:
    """The language model's part of a checkpoint, or the weights in its own folder where the checkpoint has none of it.

    Args:
        weights: of the checkpoint.
        folder: of the language model.

    Raises:
        ModelFileError: there are none, or their file is broken.
    """
    if any(name.startswith(_PREFIX) for name in weights.tensors):
        yield OwnWeights(weights, _PREFIX)
    elif has_weights(folder.path):
        with open_weights(folder.path) as own:
            yield OwnWeights(own, "")
    else:
        reason = f"has no tensors named {_PREFIX}, of the language model, and {folder.path} has no weights of its own"
        raise ModelFileError(weights.path, reason)


def tensor_names(own: OwnWeights, folder: Qwen3Folder) -> dict[str, str]:
    """The names of the language model's tensors in the file, by those in the checkpoint and in its order.

    Args:
        own: has the tensors.
        folder: says how many blocks there are, and whether the output is the input's.

    Raises:
        ModelFileError: a tensor is missing, or there is one that no Qwen3 has, or the vocabulary has another size.
    """
    (path, tensors), prefix = (own.weights.path, own.weights.tensors), own.prefix
    names = {}
    for theirs, ours in _expected_names(folder):
        names[prefix + theirs] = ours
        if prefix + theirs not in tensors:
            raise ModelFileError(path, f"has no tensor {prefix + theirs}")
    has_copy = folder.has_tied_embeddings
    found = [name for name in tensors if name.startswith(prefix) and not (has_copy and name == prefix + _OUTPUT)]
    for name in found:
        if name not in names:
            raise ModelFileError(path, f"has a tensor {name!r}, which is not of a Qwen3 as {folder.config_path} says")
    shape = tensors[prefix + _EMBEDDING].shape
    if shape != (folder.integer("vocab_size"), folder.integer("hidden_size")):
        raise ModelFileError(folder.config_path, f"has another vocab_size or hidden_size than the embedding: {shape}")
    return {name: names[name] for name in found}


def _expected_names(folder: Qwen3Folder) -> Iterator[tuple[str, str]]:
    """In the checkpoint and in the file."""
    yield _EMBEDDING, "token_embd.weight"
    for block in range(folder.integer("num_hidden_layers")):
        for theirs, ours in _BLOCK_NAMES.items():
            yield f"model.layers.{block}.{theirs}.weight", f"blk.{block}.{ours}.weight"
    yield "model.norm.weight", "output_norm.weight"
    if not folder.has_tied_embeddings:
        yield _OUTPUT, "output.weight"


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Qwen3Folder) -> None:
    """tokenizer.ggml.*; ids that no token has are padded with unused ones."""
    vocabulary = folder.vocabulary()
    tokens, kinds = [], []
    for index in range(folder.integer("vocab_size")):
        if index in vocabulary.added:
            text, is_control = vocabulary.added[index]
            kind = gguf.TokenType.CONTROL if is_control else gguf.TokenType.USER_DEFINED
        elif index in vocabulary.pieces:
            text, kind = vocabulary.pieces[index], gguf.TokenType.NORMAL
        else:
            text, kind = f"[PAD{index}]", gguf.TokenType.UNUSED
        tokens.append(text)
        kinds.append(kind)
    if _END_OF_TEXT not in tokens:
        raise ModelFileError(folder.path, f"its tokenizer has no {_END_OF_TEXT}")
    end_of_text = tokens.index(_END_OF_TEXT)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(folder.integer("eos_token_id"))
    writer.add_pad_token_id(end_of_text)
    writer.add_bos_token_id(end_of_text)
    writer.add_add_bos_token(False)

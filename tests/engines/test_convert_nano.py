"""A Fun-ASR-Nano checkpoint becomes two GGUF files, both or neither; broken ones are named with the reason."""

import json
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from liveasr import store
from liveasr.engines.checkpoint import read_state
from liveasr.engines.convert import convert
from liveasr.engines.stored_tensor import StoredTensor
from liveasr.errors import ModelFileError, OutputError
from liveasr.gguf_file import GgufFile
from tests.engines.conftest import Converted
from tests.engines.spoiled import drop, half, in_memory, pipe, put, setting, sparse, with_state

LLM = "Qwen3-0.6B"
CONFIG = f"{LLM}/config.json"
TOKENIZER = f"{LLM}/tokenizer.json"
SIZES = {
    "enc.input_size": 560, "enc.output_size": 32, "enc.attention_heads": 2, "enc.linear_units": 64, "enc.num_blocks": 3,
    "enc.tp_blocks": 2, "enc.kernel_size": 11, "enc.sanm_shfit": 0, "adp.llm_dim": 64, "adp.encoder_dim": 32,
    "adp.ffn_dim": 64, "adp.n_layer": 2, "adp.downsample_rate": 1, "adp.attention_heads": 4, "frontend.n_mels": 80,
    "frontend.lfr_m": 7, "frontend.lfr_n": 6,
}  # fmt: skip
LLM_SIZES = {
    "context_length": 40960, "embedding_length": 64, "block_count": 2, "feed_forward_length": 128,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 16, "attention.value_length": 16,
    "vocab_size": 512,
}  # fmt: skip


@pytest.fixture
def checkpoint(golden: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint, to be broken."""
    return shutil.copytree(golden / "nano-tiny", tmp_path / "checkpoint", copy_function=shutil.copyfile)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.gguf"


@pytest.fixture
def language_model(output: Path) -> Path:
    return output.with_name("model-llm.gguf")


def numbers(file: GgufFile, prefix: str) -> dict[str, int]:
    return {
        key.removeprefix(prefix): value
        for key, value in file.metadata.items()
        if key.startswith(prefix) and isinstance(value, int)
    }


# What good checkpoints become.


def test_encoder_and_adaptor_are_written_under_the_published_keys(golden: Path, tiny_nano: Converted) -> None:
    state = read_state(golden / "nano-tiny" / "model.pt")
    with GgufFile(tiny_nano()) as file:
        assert file.architecture == "funasr-sensevoice-encoder"
        assert numbers(file, "funasr.") == SIZES
        assert set(file.tensors) == {name for name in state if name.startswith(("audio_encoder.", "audio_adaptor."))}
        for name in file.tensors:
            values = state[name]
            wanted = values[:, 0].T if name.endswith("fsmn_block.weight") else values
            np.testing.assert_array_equal(file.array(name), wanted, name)


def test_language_model_is_written_as_llama_cpp_names_it(golden: Path, tiny_nano: Converted) -> None:
    state = read_state(golden / "nano-tiny" / "model.pt")
    with GgufFile(store.language_model_path(tiny_nano())) as file:
        assert file.architecture == "qwen3"
        assert numbers(file, "qwen3.") == LLM_SIZES
        assert file.number("qwen3.rope.freq_base") == 1_000_000
        for theirs, ours in (
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("model.layers.1.self_attn.o_proj.weight", "blk.1.attn_output.weight"),
            ("model.layers.1.post_attention_layernorm.weight", "blk.1.ffn_norm.weight"),
        ):
            np.testing.assert_array_equal(file.array(ours), state[f"llm.{theirs}"], ours)
        assert "output.weight" not in file.tensors
        tokens = file.strings("tokenizer.ggml.tokens")
        assert (len(tokens), tokens[507], tokens[509]) == (512, "<|endoftext|>", "<|im_end|>")
        assert file.metadata["tokenizer.ggml.eos_token_id"] == 509


def test_encoder_of_the_release_says_nothing_about_the_heads_of_its_adaptor(checkpoint: Path, output: Path) -> None:
    setting("  attention_heads: 4\n", "")(checkpoint)
    convert(checkpoint, output)
    with GgufFile(output) as file:
        assert file.metadata["funasr.adp.attention_heads"] == 8


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    table = json.loads(path.read_text(encoding="utf-8"))
    edit(table)
    path.write_text(json.dumps(table), encoding="utf-8")


def test_output_matrix_of_its_own_is_written(
    checkpoint: Path, output: Path, language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = np.full((512, 64), 0.5, np.float32)
    with_state(monkeypatch, lambda state: state.update({"llm.lm_head.weight": in_memory(own)}))
    change(checkpoint / CONFIG, lambda config: config.update(tie_word_embeddings=False))
    convert(checkpoint, output)
    with GgufFile(language_model) as file:
        np.testing.assert_array_equal(file.array("output.weight"), own)


def test_checkpoint_may_leave_out_the_copy_of_its_embedding(
    golden: Path, output: Path, language_model: Path, tiny_nano: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_state(monkeypatch, lambda state: state.pop("llm.lm_head.weight"))
    convert(golden / "nano-tiny", output)
    assert language_model.read_bytes() == store.language_model_path(tiny_nano()).read_bytes()


def split_tokenizer(checkpoint: Path) -> None:
    """Leave the vocabulary in vocab.json, merges.txt and tokenizer_config.json alone, as older releases have it."""
    folder = checkpoint / LLM
    table = json.loads((checkpoint / TOKENIZER).read_text(encoding="utf-8"))
    added = {str(token.pop("id")): token for token in table["added_tokens"]}
    (checkpoint / TOKENIZER).unlink()
    change(folder / "tokenizer_config.json", lambda config: config.update(added_tokens_decoder=added))


def join_merges(checkpoint: Path) -> None:
    """Each merge as one text, as older versions of tokenizers write it."""

    def join(table: dict[str, Any]) -> None:
        table["model"]["merges"] = [" ".join(merge) for merge in table["model"]["merges"]]

    change(checkpoint / TOKENIZER, join)


def old_rope(checkpoint: Path) -> None:
    """The base of the positions' frequencies where the release has it."""

    def move(config: dict[str, Any]) -> None:
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]

    change(checkpoint / CONFIG, move)


def moved(name: str, setting_name: str) -> Callable[[Path], object]:
    def move(checkpoint: Path) -> None:
        (checkpoint / LLM).rename(checkpoint / name)
        setting(f"init_param_path: {LLM}", f"init_param_path: {setting_name}")(checkpoint)

    return move


@pytest.mark.parametrize(
    "other_way",
    [
        split_tokenizer,
        join_merges,
        old_rope,
        moved("brain", "brain"),
        setting(f"init_param_path: {LLM}", "init_param_path: Qwen/Qwen3-0.6B"),
        setting(f"  init_param_path: {LLM}\n", ""),
    ],
    ids=["split tokenizer", "joined merges", "old rope", "folder of another name", "name on a hub", "no name"],
)
def test_other_ways_to_say_the_same_give_the_same_file(
    checkpoint: Path, output: Path, language_model: Path, tiny_nano: Converted, other_way: Callable[[Path], object]
) -> None:
    other_way(checkpoint)
    convert(checkpoint, output)
    assert language_model.read_bytes() == store.language_model_path(tiny_nano()).read_bytes()


def test_ids_without_a_token_are_padded_with_unused_ones(
    checkpoint: Path, output: Path, language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_state(
        monkeypatch, lambda state: state.update({"llm.model.embed_tokens.weight": in_memory(np.zeros((514, 64), "f4"))})
    )
    change(checkpoint / CONFIG, lambda config: config.update(vocab_size=514))
    change(checkpoint / TOKENIZER, lambda table: table["added_tokens"][4].update(special=False))
    convert(checkpoint, output)
    with GgufFile(language_model) as file:
        assert file.strings("tokenizer.ggml.tokens")[510:] == [
            "<|startofspeech|>",
            "<|endofspeech|>",
            "[PAD512]",
            "[PAD513]",
        ]
        kinds = file.metadata["tokenizer.ggml.token_type"]
        assert isinstance(kinds, np.ndarray)
        assert kinds[505:].tolist() == [
            gguf.TokenType.NORMAL,
            gguf.TokenType.NORMAL,
            *[gguf.TokenType.CONTROL] * 4,
            gguf.TokenType.USER_DEFINED,
            gguf.TokenType.UNUSED,
            gguf.TokenType.UNUSED,
        ]


def test_few_of_many_tensors_are_in_memory_at_a_time(
    golden: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(state: dict[str, StoredTensor]) -> None:
        big = StoredTensor((512, 1024), lambda: np.ones((512, 1024), np.float32))
        state.update({f"audio_encoder.big.{index}.weight": big for index in range(32)})

    with_state(monkeypatch, add)
    tracemalloc.start()
    try:
        convert(golden / "nano-tiny", output, "f16")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert output.stat().st_size > 32 << 20
    assert peak_bytes < 12 << 20


# What broken checkpoints become.


def away(name: str) -> Callable[[Path], object]:
    return lambda checkpoint: shutil.rmtree(checkpoint / name)


def with_config(**settings: Any) -> Callable[[Path], object]:
    return lambda checkpoint: change(checkpoint / CONFIG, lambda config: config.update(settings))


def without(key: str) -> Callable[[Path], object]:
    return lambda checkpoint: change(checkpoint / CONFIG, lambda config: config.pop(key))


def with_bpe(**settings: Any) -> Callable[[Path], object]:
    return lambda checkpoint: change(checkpoint / TOKENIZER, lambda table: table["model"].update(settings))


def with_added(*entries: Any) -> Callable[[Path], object]:
    return lambda checkpoint: change(checkpoint / TOKENIZER, lambda table: table.update(added_tokens=list(entries)))


def split_and(then: Callable[[Path], object]) -> Callable[[Path], object]:
    def both(checkpoint: Path) -> None:
        split_tokenizer(checkpoint)
        then(checkpoint)

    return both


def damaged(checkpoint: Path) -> None:
    """Change a byte of the last tensor's values, long after the first file could have been written."""
    path = checkpoint / "model.pt"
    with zipfile.ZipFile(path) as archive:
        last = max((info for info in archive.infolist() if "/data/" in info.filename), key=lambda i: i.header_offset)
    content = bytearray(path.read_bytes())
    name_bytes, extra_bytes = struct.unpack_from("<2H", content, last.header_offset + 26)
    content[last.header_offset + 30 + name_bytes + extra_bytes] ^= 0xFF
    path.write_bytes(content)


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "another encoder": (setting("SenseVoiceEncoderSmall", "x"), "config.yaml", "only SenseVoiceEncoderSmall is"),
    "another adaptor": (setting("adaptor: Transformer", "adaptor: Linear"), "config.yaml", "only Transformer is known"),
    "memory of the past": (setting("sanm_shfit: 0", "sanm_shfit: 5"), "config.yaml", "encoder_conf.sanm_shfit 5;"),
    "normalised": (setting("cmvn_file: null", "cmvn_file: am.mvn"), "config.yaml", "frontend_conf.cmvn_file 'am.mvn';"),
    "LoRA": (setting("use_lora: false", "use_lora: true"), "config.yaml", "has llm_conf.use_lora True; only False is"),
    "fewer rows": (setting("downsample_rate: 1", "downsample_rate: 2"), "config.yaml", "downsample_rate 2; only 1 is"),
    "fewer rows unsaid": (setting("downsample_rate: 1", "x: 2"), "config.yaml", "downsample_rate None; only 1 is"),
    "all rows": (setting("use_low_frame_rate", "x"), "config.yaml", "use_low_frame_rate None; only True is known"),
    "no size": (setting("linear_units: 64", "x: 64"), "config.yaml", "no whole number audio_encoder_conf.linear_units"),
    "heads in words": (setting("heads: 4", "heads: four"), "config.yaml", "audio_adaptor_conf.attention_heads"),
    "another width": (setting("llm_dim: 64", "llm_dim: 32"), CONFIG, "has another hidden_size than the 32 of"),
    "no weights": (drop("model.pt"), "", "has no weights: none of model.pt, model.safetensors, "),
    "half of the weights": (half("model.pt"), "model.pt", "is not a PyTorch checkpoint"),
    "damaged weights": (damaged, "model.pt", "is damaged: Bad CRC-32"),
    "no language model": (away(LLM), LLM, "no such folder; it should hold the language model's config.json"),
    "config is a pipe": (pipe(CONFIG), CONFIG, "is a pipe or a device, and no file"),
    "tokenizer is huge": (sparse(TOKENIZER), TOKENIZER, "is larger than 64 MiB"),
    "no config": (drop(CONFIG), CONFIG, "cannot be read: No such file"),
    "config is no JSON": (half(CONFIG), CONFIG, "cannot be read"),
    "config is a list": (put(CONFIG, b"[]"), CONFIG, "is not a table"),
    "config is deep": (put(CONFIG, b"[" * 100_000), CONFIG, "cannot be read"),
    "another class": (with_config(architectures=["Qwen2ForCausalLM"]), CONFIG, "only Qwen3ForCausalLM is known"),
    "no class": (without("architectures"), CONFIG, "has the architectures None; only Qwen3ForCausalLM is known"),
    "biases": (with_config(attention_bias=True), CONFIG, "has attention_bias True; only False is known"),
    "windows": (with_config(use_sliding_window=True), CONFIG, "has use_sliding_window True; only False is known"),
    "scaled positions": (with_config(rope_scaling={"factor": 4}), CONFIG, "has rope_scaling {'factor': 4}; only None"),
    "other positions": (with_config(rope_parameters={"rope_type": "yarn"}), CONFIG, "has the rope_type yarn; only"),
    "no positions": (without("rope_parameters"), CONFIG, "has no number rope_theta"),
    "no heads": (without("num_attention_heads"), CONFIG, "has no whole number num_attention_heads"),
    "heads of a truth": (with_config(num_attention_heads=True), CONFIG, "has no whole number num_attention_heads"),
    "no epsilon": (with_config(rms_norm_eps="small"), CONFIG, "has no number rms_norm_eps"),
    "many ends": (with_config(eos_token_id=[1, 2]), CONFIG, "has no whole number eos_token_id"),
    "more ids": (with_config(vocab_size=2**31), CONFIG, "has another vocab_size or hidden_size than the embedding"),
    "more blocks": (with_config(num_hidden_layers=2**31), "model.pt", "has no tensor llm.model.layers.2.input_layern"),
    "fewer blocks": (with_config(num_hidden_layers=1), "model.pt", "has a tensor 'llm.model.layers.1.self_attn.q_pro"),
    "no tokenizer": (drop(TOKENIZER), f"{LLM}/tokenizer_config.json", "has no table added_tokens_decoder, and"),
    "tokenizer is no JSON": (half(TOKENIZER), TOKENIZER, "cannot be read"),
    "tokenizer is not UTF-8": (put(TOKENIZER, b'{"\xff": 1}'), TOKENIZER, "cannot be read"),
    "another tokenizer": (with_bpe(type="Unigram"), TOKENIZER, "is not the tokenizer of a byte-level BPE"),
    "no merges": (with_bpe(merges=None), TOKENIZER, "has no list of merges or of added tokens"),
    "merge of three": (with_bpe(merges=[["a", "b", "c"]]), TOKENIZER, "has a merge that is not of two pieces"),
    "merge of a number": (with_bpe(merges=[7]), TOKENIZER, "has a merge that is not of two pieces: 7"),
    "vocabulary is a list": (with_bpe(vocab=[]), TOKENIZER, "has no table from pieces to ids"),
    "vocabulary of texts": (with_bpe(vocab={"a": "b"}), TOKENIZER, "has no table from pieces to ids"),
    "vocabulary of halves": (with_bpe(vocab={"\ud800": 1}), TOKENIZER, "has no table from pieces to ids"),
    "vocabulary is empty": (with_bpe(vocab={}), LLM, "its tokenizer has ids outside the vocab_size of 512, or none"),
    "id too high": (with_bpe(vocab={"a": 512}), LLM, "its tokenizer has ids outside the vocab_size of 512"),
    "id below zero": (with_bpe(vocab={"a": -1}), LLM, "its tokenizer has ids outside the vocab_size of 512"),
    "added without id": (with_added({"content": "x"}), TOKENIZER, "has an added token without an id or a text"),
    "added without text": (with_added({"id": 7}), TOKENIZER, "has an added token without an id or a text"),
    "added is a text": (with_added("x"), TOKENIZER, "has an added token without an id or a text"),
    "nothing that ends": (with_added(), LLM, "its tokenizer has no <|endoftext|>"),
    "split, no vocabulary": (split_and(drop(f"{LLM}/vocab.json")), LLM, "has no tokenizer: neither tokenizer.json"),
    "split, no merges": (split_and(drop(f"{LLM}/merges.txt")), f"{LLM}/merges.txt", "cannot be read: No such file"),
    "split, broken merges": (split_and(put(f"{LLM}/merges.txt", b"a\n")), f"{LLM}/merges.txt", "of two pieces: 'a'"),
    "split, no list of added": (
        split_and(put(f"{LLM}/tokenizer_config.json", b'{"added_tokens_decoder": {"x": {}}}')),
        f"{LLM}/tokenizer_config.json", "has an added token without an id or a text",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "part", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_nano_is_named_with_the_reason_and_leaves_neither_file(
    checkpoint: Path, output: Path, spoil: Callable[[Path], object], part: str, reason: str
) -> None:
    spoil(checkpoint)
    with pytest.raises(ModelFileError) as caught:
        convert(checkpoint, output, "f16")
    message = str(caught.value)
    assert message.startswith(f"{checkpoint / part}: ")
    assert reason in message
    assert message.isprintable()
    assert not list(output.parent.iterdir())


@pytest.mark.parametrize("name", ["llm.model.norm.weight", "llm.model.layers.1.mlp.up_proj.weight"])
def test_tensor_that_is_missing_in_the_language_model_is_named(
    golden: Path, output: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with_state(monkeypatch, lambda state: state.pop(name))
    with pytest.raises(ModelFileError, match=rf"model\.pt: has no tensor {name}$"):
        convert(golden / "nano-tiny", output)
    assert not list(output.parent.iterdir())


# What happens when a file cannot be written.


@pytest.mark.parametrize("old", [b"old", None], ids=["something there", "nothing there"])
@pytest.mark.parametrize("taken", ["model.gguf", "model-llm.gguf"])
def test_folder_in_the_place_of_one_file_leaves_the_other_as_it_was(
    golden: Path, output: Path, language_model: Path, old: bytes | None, taken: str
) -> None:
    blocked = output.with_name(taken)
    (other,) = {output, language_model} - {blocked}
    blocked.mkdir()
    if old is not None:
        other.write_bytes(old)
    with pytest.raises(OutputError, match=rf"{taken}: cannot be written: Is a directory"):
        convert(golden / "nano-tiny", output)
    assert set(output.parent.iterdir()) == ({blocked, other} if old is not None else {blocked})
    assert blocked.is_dir()
    assert old is None or other.read_bytes() == old


def test_interrupt_between_both_names_leaves_the_old_files(
    golden: Path, output: Path, language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace
    presses = [KeyboardInterrupt()]

    def interrupted(path: Path, target: Path) -> Path:
        if target == output and presses:
            raise presses.pop()
        return real(path, target)

    for path in (output, language_model):
        path.write_bytes(path.name.encode())
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(golden / "nano-tiny", output)
    assert {path.name: path.read_bytes() for path in output.parent.iterdir()} == {
        path.name: path.name.encode() for path in (output, language_model)
    }


def test_both_old_files_are_replaced(golden: Path, output: Path, language_model: Path) -> None:
    for path in (output, language_model):
        path.write_bytes(b"old")
    convert(golden / "nano-tiny", output)
    assert set(output.parent.iterdir()) == {output, language_model}
    for path in (output, language_model):
        assert path.stat().st_mode & 0o777 == 0o644
        GgufFile(path).close()

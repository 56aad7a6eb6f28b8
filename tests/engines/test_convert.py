"""Checkpoints become GGUF files in the published layout; broken ones become one line that says what is wrong."""

import errno
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from liveasr.engines.checkpoint import read_state
from liveasr.engines.cmvn import read_kaldi
from liveasr.engines.convert import WeightType, convert
from liveasr.engines.layouts import LAYOUTS
from liveasr.errors import ModelFileError, OutputError
from liveasr.gguf_file import GgufFile
from tests.engines.conftest import Converted
from tests.engines.safetensors_writing import save
from tests.engines.spoiled import (
    drop,
    half,
    in_memory,
    into_folder,
    linked,
    pipe,
    put,
    setting,
    sparse,
    with_state,
)
from tests.helpers import open_files

WEIGHT_TYPES: tuple[WeightType, ...] = ("f32", "f16", "q8_0")
BPE_MODEL = "chn_jpn_yue_eng_ko_spectok.bpe.model"
SENSEVOICE_KEYS = ("input_size", "output_size", "attention_heads", "num_blocks", "tp_blocks", "kernel_size",
                   "vocab_size", "blank_id")  # fmt: skip
PARAFORMER_KEYS = ("enc.output_size", "enc.attention_heads", "enc.num_blocks", "enc.kernel_size", "dec.num_blocks",
                   "dec.att_layer_num", "dec.attention_heads", "dec.kernel_size", "dec.decoders3",
                   "vocab_size")  # fmt: skip
STREAMING_NUMBERS = {
    "enc.output_size": 32, "enc.attention_heads": 2, "enc.num_blocks": 3, "enc.kernel_size": 11, "enc.sanm_shfit": 0,
    "dec.num_blocks": 2, "dec.att_layer_num": 2, "dec.attention_heads": 2, "dec.kernel_size": 11, "dec.sanm_shfit": 5,
    "predictor.l_order": 1, "predictor.r_order": 1, "frontend.n_mels": 80, "frontend.lfr_m": 7, "frontend.lfr_n": 6,
    "chunk.past": 0, "chunk.now": 10, "chunk.ahead": 5, "encoder_look_back": 4, "decoder_look_back": 1,
    "vocab_size": 256,
}  # fmt: skip
VAD_KEYS = ("input_dim", "input_affine_dim", "linear_dim", "proj_dim", "fsmn_layers", "lorder", "output_affine_dim",
            "output_dim", "n_mels", "lfr_m", "lfr_n")  # fmt: skip


@pytest.fixture
def checkpoint(golden: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint, to be broken."""
    return shutil.copytree(golden / "sensevoice-tiny", tmp_path / "checkpoint", copy_function=shutil.copyfile)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.gguf"


def numbers(file: GgufFile, prefix: str) -> dict[str, int]:
    return {
        key.removeprefix(prefix): value
        for key, value in file.metadata.items()
        if key.startswith(prefix) and isinstance(value, int)
    }


def assert_holds_checkpoint(file: GgufFile, folder: Path, weight_type: WeightType) -> None:
    """Every tensor of the checkpoint is there, in the type that its use allows, with its values or near them."""
    state = read_state(folder / "model.pt")
    shift, scale = read_kaldi(folder / "am.mvn")
    np.testing.assert_array_equal(file.array("cmvn.shift"), shift)
    np.testing.assert_array_equal(file.array("cmvn.scale"), scale)
    state.pop("decoder.embed.0.weight", None)  # which only the training of a Paraformer needs
    assert set(file.tensors) == {*state, "cmvn.shift", "cmvn.scale"}
    for name, values in state.items():
        info = file.tensor(name)
        fsmn = name.endswith(("fsmn_block.weight", "conv_left.weight"))
        wanted = values.reshape(len(values), -1).T if fsmn else values
        assert info.shape == wanted.shape, name
        matrix = values.ndim == 2 and name != "predictor.cif_output.weight"
        block = matrix and values.shape[1] % 32 == 0 and name != "embed.weight"
        kind = "f16" if weight_type == "f16" and matrix else "q8_0" if weight_type == "q8_0" and block else "f32"
        assert info.type_name == kind, name
        if kind == "f32":
            np.testing.assert_array_equal(file.array(name), wanted, name)
        elif kind == "f16":
            np.testing.assert_array_equal(file.array(name), wanted.astype(np.float16).astype(np.float32), name)
        else:
            raw = np.fromfile(file.path, np.uint8, info.size_bytes, offset=info.offset)
            near = gguf.quants.dequantize(raw.reshape(len(wanted), -1), gguf.GGMLQuantizationType.Q8_0)
            # 127 steps to the largest of a block: half a step is lost, and what f16 does to the step, 127 times.
            step = np.abs(wanted).reshape(-1, 32).max(axis=1) / 127
            assert (np.abs(near - wanted).reshape(-1, 32).max(axis=1) <= step * (0.5 + 127 / 2048 + 1e-3)).all(), name


# What good checkpoints become.


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_tiny_sensevoice_is_written_in_the_published_layout(
    golden: Path, output: Path, weight_type: WeightType
) -> None:
    folder = golden / "sensevoice-tiny"
    assert convert(folder, output, weight_type) == {output: 74}
    with GgufFile(output) as file:
        assert file.architecture == "sensevoice-small"
        sizes = numbers(file, "sv.")
        assert tuple(sizes[key] for key in SENSEVOICE_KEYS) == (560, 32, 2, 3, 2, 11, 384, 0)
        assert set(sizes) == set(SENSEVOICE_KEYS)
        query = file.metadata["sv.query_tokens"]
        assert isinstance(query, np.ndarray)
        assert query.tolist() == [0, 1, 2, 14]
        vocabulary = file.strings("sv.vocab")
        assert len(vocabulary) == 384
        assert "<|withitn|>" in vocabulary
        assert file.tensor("encoder.encoders0.0.self_attn.fsmn_block.weight").shape == (11, 32)
        assert_holds_checkpoint(file, folder, weight_type)


def test_f32_is_the_default(golden: Path, output: Path) -> None:
    convert(golden / "sensevoice-tiny", output)
    default = output.read_bytes()
    convert(golden / "sensevoice-tiny", output, "f32")
    assert output.read_bytes() == default


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_digits_model_is_written_in_the_published_layout(shared: Path, output: Path, weight_type: WeightType) -> None:
    folder = shared / "models" / "digits" / "sensevoice"
    assert convert(folder, output, weight_type) == {output: 100}
    with GgufFile(output) as file:
        assert file.architecture == "sensevoice-small"
        assert tuple(numbers(file, "sv.")[key] for key in SENSEVOICE_KEYS) == (560, 96, 4, 5, 2, 11, 31, 0)
        assert_holds_checkpoint(file, folder, weight_type)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_tiny_paraformer_is_written_in_the_published_layout(
    golden: Path, output: Path, weight_type: WeightType
) -> None:
    folder = golden / "paraformer-tiny"
    assert convert(folder, output, weight_type) == {output: 94}
    with GgufFile(output) as file:
        assert file.architecture == "paraformer"
        sizes = numbers(file, "pf.")
        assert tuple(sizes[key] for key in PARAFORMER_KEYS) == (32, 2, 3, 11, 2, 2, 2, 11, 1, 256)
        assert set(sizes) == set(PARAFORMER_KEYS)
        assert file.number("pf.predictor.tail_threshold") == pytest.approx(0.45)
        assert file.number("pf.predictor.threshold") == 1
        assert file.strings("pf.vocab") == json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        assert file.tensor("decoder.decoders.0.self_attn.fsmn_block.weight").shape == (11, 32)
        assert_holds_checkpoint(file, folder, weight_type)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_digits_paraformer_is_written_in_the_published_layout(
    shared: Path, output: Path, weight_type: WeightType
) -> None:
    folder = shared / "models" / "digits" / "paraformer"
    convert(folder, output, weight_type)
    with GgufFile(output) as file:
        assert tuple(numbers(file, "pf.")[key] for key in PARAFORMER_KEYS) == (96, 4, 5, 11, 3, 3, 4, 11, 1, 14)
        assert_holds_checkpoint(file, folder, weight_type)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_tiny_streaming_paraformer_is_written_as_its_page_says(
    golden: Path, output: Path, weight_type: WeightType
) -> None:
    folder = golden / "paraformer-streaming-tiny"
    assert convert(folder, output, weight_type) == {output: 94}
    with GgufFile(output) as file:
        assert file.architecture == "paraformer-streaming"
        assert numbers(file, "pfs.") == STREAMING_NUMBERS
        assert file.number("pfs.predictor.tail_threshold") == pytest.approx(0.45)
        assert file.number("pfs.predictor.threshold") == 1
        assert file.strings("pfs.vocab") == json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        assert_holds_checkpoint(file, folder, weight_type)


def test_page_about_the_streaming_layout_names_every_key(golden: Path, output: Path) -> None:
    convert(golden / "paraformer-streaming-tiny", output)
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "gguf-paraformer-streaming.md").read_text(encoding="utf-8")
    general = (docs / "converting.md").read_text(encoding="utf-8")
    with GgufFile(output) as file:
        for key in file.metadata:
            assert f"`{key}`" in (general if key.startswith("liveasr.") else page)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_vad_is_written_in_the_published_layout_and_never_shrinks(
    shared: Path, output: Path, weight_type: WeightType
) -> None:
    folder = shared / "models" / "fsmn-vad"
    assert convert(folder, output, weight_type) == {output: 26}
    with GgufFile(output) as file:
        assert file.architecture == "fsmn-vad"
        sizes = numbers(file, "vad.")
        assert tuple(sizes[key] for key in VAD_KEYS) == (400, 140, 250, 128, 4, 20, 140, 248, 80, 5, 1)
        assert set(sizes) == set(VAD_KEYS)
        assert file.tensor("encoder.fsmn.0.fsmn_block.conv_left.weight").shape == (20, 128)
        assert_holds_checkpoint(file, folder, "f32")


def test_file_that_is_there_is_replaced_and_readable_by_all(golden: Path, output: Path) -> None:
    output.write_bytes(b"old")
    convert(golden / "sensevoice-tiny", output, "f16")
    assert output.stat().st_mode & 0o777 == 0o644
    assert list(output.parent.iterdir()) == [output]
    GgufFile(output).close()


# What broken checkpoints become.


BOMB = (
    b"".join(b"%d: &%d [%s]\n" % (n, n, b", ".join([b"*%d" % (n - 1) if n else b"x"] * 10)) for n in range(9))
    + b"model: *8"
)
"""Ten to the ninth in a kilobyte, if anybody writes it out."""
BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no config": (drop("config.yaml"), "", "is not a checkpoint folder: it has no config.yaml"),
    "config is a folder": (into_folder("config.yaml"), "config.yaml", "cannot be read"),
    "config is empty": (put("config.yaml", b""), "config.yaml", "is not a table of settings"),
    "config is a list": (put("config.yaml", b"- model\n- config\n"), "config.yaml", "is not a table of settings"),
    "config is not YAML": (put("config.yaml", b"model: [\nother: }"), "config.yaml", "but found '}' in line 2"),
    "config is not UTF-8": (put("config.yaml", b"model: \xff\xfe"), "config.yaml", "cannot be read"),
    "config wants objects": (put("config.yaml", b"a: !!python/object/apply:os.system ['x']"), "config.yaml", "cannot"),
    "config has a day that is none": (put("config.yaml", b"model: 2001-13-45"), "config.yaml", "cannot be read: month"),
    "config has a truth that is none": (put("config.yaml", b"model: !!bool x"), "config.yaml", "cannot be read: 'x'"),
    "config has a number too long": (put("config.yaml", b"model: " + b"9" * 9999), "config.yaml", "cannot be read: Ex"),
    "config has a bomb": (put("config.yaml", BOMB), "", "holds a model of the class [[[...], "),
    "config is a pipe": (pipe("config.yaml"), "config.yaml", "is a pipe or a device, and no file"),
    "config has no end": (linked("config.yaml", "/dev/zero"), "config.yaml", "is a pipe or a device, and no file"),
    "config is huge": (sparse("config.yaml"), "config.yaml", "is larger than 64 MiB, which no file of its kind is"),
    "tokenizer is huge": (sparse(BPE_MODEL), BPE_MODEL, "is larger than 64 MiB"),
    "normalisation is huge": (sparse("am.mvn"), "am.mvn", "is larger than 64 MiB"),
    "papers are a pipe": (pipe("README.md"), "README.md", "is a pipe or a device, and no file"),
    "config is very deep": (put("config.yaml", b"[" * 2000), "config.yaml", "cannot be read"),
    "no class": (setting("model: SenseVoiceSmall", "kind: x"), "", "a model of the class None"),
    "wrong class": (setting("model: SenseVoiceSmall", "model: Whisper"), "", "a model of the class Whisper; known are"),
    "class is a list": (setting("model: SenseVoiceSmall", "model: [1]"), "", "a model of the class [1]"),
    "rate in quotes": (setting("fs: 16000", "fs: '16000'"), "config.yaml", "fs '16000'; only 16000 is known"),
    "another encoder": (setting("SenseVoiceEncoderSmall", "SANMEncoder"), "config.yaml", "only SenseVoiceEncoderSmall"),
    "memory of the past": (setting("sanm_shfit: 0", "sanm_shfit: 3"), "config.yaml", "encoder_conf.sanm_shfit 3; only"),
    "no size": (setting("output_size: 32", "x: 32"), "config.yaml", "no whole number encoder_conf.output_size"),
    "size in words": (setting("output_size: 32", "output_size: big"), "config.yaml", "no whole number"),
    "size is a fraction": (setting("output_size: 32", "output_size: 32.5"), "config.yaml", "no whole number"),
    "size is a truth": (setting("output_size: 32", "output_size: true"), "config.yaml", "no whole number"),
    "size below zero": (setting("output_size: 32", "output_size: -1"), "config.yaml", "no whole number"),
    "size over 32 bits": (setting("output_size: 32", "output_size: 4294967296"), "config.yaml", "no whole number"),
    "section is a text": (setting("encoder_conf:\n", "encoder_conf: x\ny:\n"), "config.yaml", "no whole number"),
    "section is missing": (setting("frontend_conf:\n", "other_conf:\n"), "config.yaml", "frontend_conf.n_mels"),
    "no weights": (drop("model.pt"), "", "has no weights: none of model.pt, model.safetensors, "),
    "weights are a folder": (into_folder("model.pt"), "model.pt", "cannot be read: Is a directory"),
    "half of the weights": (half("model.pt"), "model.pt", "is not a PyTorch checkpoint"),
    "weights are a pointer": (put("model.pt", b"version https://git-lfs.github.com/"), "model.pt", "is not a PyTorch"),
    "no normalisation": (drop("am.mvn"), "am.mvn", "cannot be read"),
    "half of the normalisation": (half("am.mvn"), "am.mvn", "has no <AddShift> block"),
    "normalisation of another model": (
        put("am.mvn", b"<AddShift> 1 1 [ 1 ] <Rescale> 1 1 [ 1 ]"), "am.mvn", "has 1 values; the model takes 560",
    ),
    "no tokenizer": (drop(BPE_MODEL), "", "has no *.bpe.model"),
    "tokenizer is empty": (put(BPE_MODEL, b""), BPE_MODEL, "is not a SentencePiece model"),
    "tokenizer is text": (put(BPE_MODEL, b"<unk>\n<s>\n"), BPE_MODEL, "is not a SentencePiece model"),
    "tokenizer is a folder": (into_folder(BPE_MODEL), BPE_MODEL, "cannot be read: Is a directory"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "part", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_checkpoint_is_named_with_the_reason_and_leaves_nothing(
    checkpoint: Path, output: Path, spoil: Callable[[Path], object], part: str, reason: str
) -> None:
    spoil(checkpoint)
    output.write_bytes(b"old")
    with pytest.raises(ModelFileError) as caught:
        convert(checkpoint, output, "f16")
    message = str(caught.value)
    assert message.startswith(f"{checkpoint / part}: ")
    assert reason in message
    assert message.isprintable()
    assert len(message) < 500
    assert list(output.parent.iterdir()) == [output]
    assert output.read_bytes() == b"old"


BROKEN_PARAFORMER: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "another encoder": (setting("encoder: SANMEncoder", "encoder: Conformer"), "config.yaml", "only SANMEncoder"),
    "another decoder": (setting("decoder: ParaformerSANMDecoder", "decoder: x"), "config.yaml", "has the decoder 'x';"),
    "another predictor": (setting("predictor: CifPredictorV2", "predictor: CifPredictorV3"), "config.yaml", "only Cif"),
    "memory of the past": (setting("sanm_shfit: 0", "sanm_shfit: 5"), "config.yaml", "has encoder_conf.sanm_shfit 5;"),
    "convolution of the past": (setting("l_order: 1", "l_order: 2"), "config.yaml", "has predictor_conf.l_order 2;"),
    "another end": (setting("model_conf:", "model_conf:\n  eos: 7"), "config.yaml", "has model_conf.eos 7; only 2 is"),
    "no tail": (setting("tail_threshold: 0.45", "x: 1"), "config.yaml", "predictor_conf.tail_threshold"),
    "tail in words": (setting("tail_threshold: 0.45", "tail_threshold: a"), "config.yaml", "no number from 0 to 1"),
    "tail of a truth": (setting("tail_threshold: 0.45", "tail_threshold: true"), "config.yaml", "no number from"),
    "tail that is none": (setting("tail_threshold: 0.45", "tail_threshold: .nan"), "config.yaml", "no number"),
    "tail of two": (setting("tail_threshold: 0.45", "tail_threshold: 2"), "config.yaml", "no number from 0 to 1"),
    "no size": (setting("att_layer_num: 2", "x: 2"), "config.yaml", "no whole number decoder_conf.att_layer_num"),
    "no vocabulary": (drop("tokens.json"), "tokens.json", "cannot be read: No such file"),
    "vocabulary is a folder": (into_folder("tokens.json"), "tokens.json", "cannot be read"),
    "vocabulary is no JSON": (half("tokens.json"), "tokens.json", "cannot be read"),
    "vocabulary is deep": (put("tokens.json", b"[" * 100_000), "tokens.json", "cannot be read"),
    "vocabulary is not UTF-8": (put("tokens.json", b'["\xff"]'), "tokens.json", "cannot be read"),
    "vocabulary is empty": (put("tokens.json", b"[]"), "tokens.json", "is not a list of tokens"),
    "vocabulary is a table": (put("tokens.json", b'{"a": 1}'), "tokens.json", "is not a list of tokens"),
    "vocabulary of numbers": (put("tokens.json", b"[1, 2]"), "tokens.json", "is not a list of tokens"),
    "vocabulary of halves": (put("tokens.json", b'["\\ud800"]'), "tokens.json", "is not a list of tokens"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "part", "reason"), BROKEN_PARAFORMER.values(), ids=BROKEN_PARAFORMER)
def test_broken_paraformer_is_named_with_the_reason(
    golden: Path, tmp_path: Path, output: Path, spoil: Callable[[Path], object], part: str, reason: str
) -> None:
    folder = shutil.copytree(golden / "paraformer-tiny", tmp_path / "checkpoint", copy_function=shutil.copyfile)
    spoil(folder)
    with pytest.raises(ModelFileError) as caught:
        convert(folder, output, "f16")
    message = str(caught.value)
    assert message.startswith(f"{folder / part}: ")
    assert reason in message
    assert message.isprintable()
    assert not list(output.parent.iterdir())


BROKEN_STREAMING: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "offline encoder": (setting("SANMEncoderChunkOpt", "SANMEncoder"), "config.yaml", "only SANMEncoderChunkOpt"),
    "smoothed": (setting("tail_mask: false", "smooth_factor: 2"), "config.yaml", "smooth_factor 2; only 1 is known"),
    "no shift": (setting("sanm_shfit: 5", "x: 5"), "config.yaml", "no whole number decoder_conf.sanm_shfit"),
    "no order": (setting("l_order: 1", "x: 1"), "config.yaml", "no whole number predictor_conf.l_order"),
    "no threshold": (setting("  threshold: 1.0", "  x: 1"), "config.yaml", "predictor_conf.threshold"),
    "no stride": (setting("stride:", "x:"), "config.yaml", "no list of whole numbers encoder_conf.stride"),
    "no chunk": (setting("chunk_size:\n  - 12\n  - 15", "chunk_size: []"), "config.yaml", "encoder_conf.chunk_size"),
    "one chunk": (setting("chunk_size:\n  - 12\n  - 15", "chunk_size: 15"), "config.yaml", "encoder_conf.chunk_size"),
    "chunk in words": (setting("- 15", "- x"), "config.yaml", "no whole number encoder_conf.chunk_size"),
    "nothing ahead": (setting("- 15", "- 10"), "config.yaml", "its chunks of 10 frames have none behind 0 + 10"),
    "negative look-back": (setting("factor:\n  - 4\n  - 4", "factor: [-1]"), "config.yaml", "att_look_back_factor"),
    "no vocabulary": (drop("tokens.json"), "tokens.json", "cannot be read: No such file"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "part", "reason"), BROKEN_STREAMING.values(), ids=BROKEN_STREAMING)
def test_broken_streaming_paraformer_is_named_with_the_reason(
    golden: Path, tmp_path: Path, output: Path, spoil: Callable[[Path], object], part: str, reason: str
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(golden / "paraformer-streaming-tiny", folder, copy_function=shutil.copyfile)
    spoil(folder)
    with pytest.raises(ModelFileError) as caught:
        convert(folder, output, "f16")
    assert str(caught.value).startswith(f"{folder / part}: ")
    assert reason in str(caught.value)
    assert not list(output.parent.iterdir())


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("encoder.scalar", np.float32(1), r"no GGUF file can hold tensor 'encoder.scalar' of shape \(\)"),
        ("encoder.x.fsmn_block.weight", np.float32(1), "no GGUF file can hold"),
        ("encoder.empty", np.zeros((0, 3), np.float32), r"of shape \(0, 3\)"),
        ("encoder.empty.fsmn_block.weight", np.zeros((0, 3), np.float32), r"of shape \(0, 3\)"),
        ("encoder.deep", np.zeros((1, 1, 1, 1, 1), np.float32), "no GGUF file can hold"),
        ("encoder." + "n" * 64, np.zeros(3, np.float32), "no GGUF file can hold"),
        ("encoder.\n", np.float32(1), r"'encoder.\\n'"),
        ("encoder.\ud800", np.ones(3, np.float32), r"'encoder.\\ud800'"),
        ("encoder.\x1b[2J", np.ones(3, np.float32), r"'encoder.\\x1b\[2J'"),
    ],
)
def test_tensor_that_no_gguf_file_can_hold_is_named(
    golden: Path, output: Path, monkeypatch: pytest.MonkeyPatch, name: str, array: object, reason: str
) -> None:
    with_state(monkeypatch, lambda state: state.update({name: in_memory(np.asarray(array))}))
    with pytest.raises(ModelFileError, match=reason):
        convert(golden / "sensevoice-tiny", output)
    assert not list(output.parent.iterdir())


def test_query_rows_stay_f32_in_a_q8_0_file_of_any_width() -> None:
    layout = LAYOUTS["SenseVoiceSmall"]
    assert layout.stored_type("embed.weight", (16, 64), "q8_0") == "f32"
    assert layout.stored_type("ctc.ctc_lo.weight", (16, 64), "q8_0") == "q8_0"


def test_checkpoint_without_an_encoder_is_refused(golden: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_state(monkeypatch, lambda state: state.clear())
    with pytest.raises(ModelFileError, match=r"model\.pt: has no tensors named encoder\. or ctc\. or embed\.weight"):
        convert(golden / "sensevoice-tiny", output)
    assert not list(output.parent.iterdir())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (setting("num_blocks: 3", "num_blocks: 4"), "tensor encoder.encoders.2.feed_forward.w_1.weight is missing"),
        (setting("output_size: 32", "output_size: 64"), "linear_q_k_v.weight has the shape (96, 560); (192, 560) was"),
        (setting("attention_heads: 2", "attention_heads: 3"), "an encoder of width 32 cannot have 3 heads"),
    ],
)
def test_settings_of_another_model_than_the_weights_are_refused(
    checkpoint: Path, output: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(checkpoint)
    with pytest.raises(ModelFileError) as caught:
        convert(checkpoint, output)
    assert str(caught.value).startswith(f"{checkpoint}: its settings, vocabulary and weights are not of one model: ")
    assert reason in str(caught.value)
    assert not list(output.parent.iterdir())


@pytest.mark.parametrize(
    ("value", "weight_type", "reason"),
    [
        (np.nan, "f32", "values that are no numbers"),
        (-np.inf, "q8_0", "values that are no numbers"),
        (1e300, "f32", "values that are no numbers"),
        (70_000, "f16", "values that are too large for f16; only f32 holds them"),
        (1e7, "q8_0", "values that are too large for q8_0; only f32 holds them"),
    ],
)
@pytest.mark.parametrize("name", ["encoder.encoders.0.feed_forward.w_2.weight"])
def test_values_that_the_file_could_not_hold_are_named(
    checkpoint: Path, output: Path, name: str, value: float, weight_type: WeightType, reason: str
) -> None:
    state = read_state(checkpoint / "model.pt")
    values = state[name].astype(np.float64)
    values[1, 1] = value
    (checkpoint / "model.pt").unlink()
    save(checkpoint / "model.safetensors", {**state, name: values})
    with pytest.raises(ModelFileError, match=rf"model\.safetensors: tensor {name} has {reason}$"):
        convert(checkpoint, output, weight_type)
    assert not list(output.parent.iterdir())


# What happens when the output cannot be written.


def test_output_in_no_folder_is_one_line(golden: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"none/model\.gguf: cannot be written: No such file or directory"):
        convert(golden / "sensevoice-tiny", tmp_path / "none" / "model.gguf")


def test_output_that_is_a_folder_is_one_line_and_leaves_nothing(golden: Path, output: Path) -> None:
    output.mkdir()
    with pytest.raises(OutputError, match=r"model\.gguf: cannot be written: Is a directory"):
        convert(golden / "sensevoice-tiny", output)
    assert list(output.parent.iterdir()) == [output]
    assert not list(output.iterdir())


@pytest.mark.parametrize(
    "step", ["write_header_to_file", "write_kv_data_to_file", "write_ti_data_to_file", "write_tensor_data"]
)
@pytest.mark.parametrize("cause", ["full disk", "interrupt"])
def test_failure_on_the_way_leaves_the_old_file_and_nothing_else(
    golden: Path, output: Path, monkeypatch: pytest.MonkeyPatch, step: str, cause: str
) -> None:
    real = getattr(gguf.GGUFWriter, step)

    def fail(writer: gguf.GGUFWriter, *arguments: object) -> None:
        real(writer, *arguments)
        raise OSError(errno.ENOSPC, "No space left on device") if cause == "full disk" else KeyboardInterrupt

    output.write_bytes(b"old")
    monkeypatch.setattr(gguf.GGUFWriter, step, fail)
    before = open_files()
    with pytest.raises(OutputError if cause == "full disk" else KeyboardInterrupt) as caught:
        convert(golden / "sensevoice-tiny", output)
    assert open_files() == before
    if cause == "full disk":
        assert str(caught.value) == f"{output}: cannot be written: No space left on device"
    assert list(output.parent.iterdir()) == [output]
    assert output.read_bytes() == b"old"


def test_number_of_keys_in_the_header_is_that_of_the_file(tiny: Converted) -> None:
    tensors, keys = struct.unpack_from("<QQ", tiny("f32").read_bytes(), 8)
    with GgufFile(tiny("f32")) as file:
        assert (tensors, keys) == (74, len(file.metadata))


def test_keys_of_our_own_stand_behind_those_of_the_published_layout(tiny: Converted) -> None:
    with GgufFile(tiny("f32")) as file:
        published, own = list(file.metadata)[:11], list(file.metadata)[11:]
    assert all(key == "general.architecture" or key.startswith("sv.") for key in published)
    assert all(key.startswith("liveasr.") for key in own)

"""`liveasr models pack`: both files of Fun-ASR-Nano in one, which hears what the two hear."""

import json
import os
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.convert import convert
from liveasr.engines.funasr_nano import FunAsrNano
from liveasr.engines.nano_files import PACKED
from liveasr.engines.pack import pack
from liveasr.engines.registry import open_engine
from liveasr.errors import EngineError, ModelFileError
from liveasr.gguf_file import GgufFile
from tests.command import Run
from tests.helpers import write_gguf

NEEDS_LLAMA = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make nano")
GOLDEN = Path(__file__).parent / "golden"
MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder of a small model that knows digits, its language model beside it."""
    path = tmp_path_factory.mktemp("pair") / "digits-nano.gguf"
    convert(GOLDEN / "digits-nano", path, "f16")
    return path


@pytest.fixture
def packed(run: Run, pair: Path, tmp_path: Path) -> Path:
    (tmp_path / "alone").mkdir()
    path = tmp_path / "alone" / "packed.gguf"
    result = run("models", "pack", pair, "-o", path)
    assert result.code == 0, result.err
    assert result.out == f"{path}: {path.stat().st_size / 1e6:.1f} MB\n"
    return path


def test_the_file_has_all_of_the_encoder_and_every_byte_of_the_language_model(packed: Path, pair: Path) -> None:
    with GgufFile(packed) as file, GgufFile(pair) as encoder:
        assert file.architecture == encoder.architecture
        assert [*file.tensors] == [*encoder.tensors, PACKED]
        for name, info in encoder.tensors.items():
            assert (file.tensors[name].type_id, file.tensors[name].shape) == (info.type_id, info.shape)
            assert np.array_equal(file.raw(name), encoder.raw(name))
        assert file.metadata_types == encoder.metadata_types
        assert file.metadata.keys() == encoder.metadata.keys()
        assert all(np.array_equal(file.metadata[key], value) for key, value in encoder.metadata.items())
        assert file.raw(PACKED).tobytes() == store.language_model_path(pair).read_bytes()
        assert file.tensors[PACKED].offset % 32 == 0, "llama.cpp maps nothing else"
        assert max(file.tensors.values(), key=lambda info: info.offset).name == PACKED


@NEEDS_LLAMA
def test_one_file_alone_hears_what_the_two_hear(run: Run, packed: Path, pair: Path, data: Path) -> None:
    assert [path.name for path in packed.parent.iterdir()] == [packed.name]
    heard = [
        json.loads(run("transcribe", "--model", model, "-f", "json", data / "digits-clean.wav").out)["segments"]
        for model in (packed, pair)
    ]
    assert heard[0] == heard[1]
    assert [segment["text"] for segment in heard[0]] == ["three one four", "one five nine two", "six five"]


@NEEDS_LLAMA
def test_both_processes_compute_on_the_pages_of_the_file(packed: Path) -> None:
    if not MAPS.exists():
        pytest.skip("this system does not tell what a process has mapped")
    engine = open_engine(packed)
    assert isinstance(engine, FunAsrNano)
    try:
        with GgufFile(packed) as file:
            begin = file.tensors[PACKED].offset
            size = file.tensors[PACKED].size_bytes
        for pid in (os.getpid(), engine.model.language_model.pid):
            maps = (MAPS.parent.parent / str(pid) / "maps").read_text()
            found = [
                (int(offset, 16), int(end, 16) - int(start, 16))
                for start, end, offset in re.findall(
                    rf"^(\w+)-(\w+) r\S+ (\w+) .* {re.escape(str(packed))}$", maps, re.M
                )
            ]
            assert any(offset <= begin + size - 1 < offset + length for offset, length in found), maps
        heard = engine.decode(np.full((20, 560), 12, np.float32), DecodeOptions())
        assert heard.complete
    finally:
        engine.close()


def test_its_weights_are_those_of_the_encoder(golden: Path, tmp_path: Path) -> None:
    encoder, large = tmp_path / "a.gguf", tmp_path / "b.gguf"
    convert(golden / "nano-tiny", encoder, "f16")
    convert(golden / "nano-tiny", large, "f32")
    pack(encoder, store.language_model_path(large), tmp_path / "packed.gguf")
    with GgufFile(tmp_path / "packed.gguf") as file:
        assert file.tensors[PACKED].size_bytes > 400_000
        assert file.weight_type == "f16"


def test_it_is_one_model_for_inspect(run: Run, packed: Path, pair: Path) -> None:
    told = json.loads(run("models", "inspect", "--json", packed).out)
    of_pair = json.loads(run("models", "inspect", "--json", pair).out)
    assert told["companion"] == str(packed)
    assert told["packed_bytes"] == store.language_model_path(pair).stat().st_size
    assert (told["parameters"], told["types"]) == (of_pair["parameters"], of_pair["types"])
    assert "other part    a language model in this file, 0.2 MB" in run("models", "inspect", packed).out


def test_another_language_model_can_be_named(run: Run, pair: Path, tmp_path: Path) -> None:
    encoder, other = tmp_path / "encoder.gguf", tmp_path / "elsewhere" / "language-model.gguf"
    other.parent.mkdir()
    encoder.write_bytes(pair.read_bytes())
    other.write_bytes(store.language_model_path(pair).read_bytes())
    output = tmp_path / "packed.gguf"
    assert "its language model is not in" in run("models", "pack", encoder, "-o", output).complaint
    assert not output.exists()
    assert run("models", "pack", encoder, other, "-o", output).code == 0
    with GgufFile(output) as file:
        assert file.raw(PACKED).tobytes() == other.read_bytes()


def test_what_cannot_be_packed_is_refused_and_nothing_is_written(
    run: Run, packed: Path, pair: Path, tmp_path: Path
) -> None:
    own = store.language_model_path(pair)
    narrow = write_gguf(tmp_path / "narrow.gguf", "qwen3", {"qwen3.embedding_length": 8}, {"x": np.ones(4, np.float32)})
    output = tmp_path / "output.gguf"
    for encoder, language_model, reason in (
        (packed, own, "has its language model in it already"),
        ("digits", own, "is a sensevoice-small model; only Fun-ASR-Nano has parts to pack"),
        (own, own, "is a qwen3 model; only Fun-ASR-Nano has parts to pack"),
        (pair, pair, "is a funasr-sensevoice-encoder model; that of Fun-ASR-Nano is qwen3"),
        (pair, narrow, f"{narrow}: reads embeddings of 8 values; those of digits-nano.gguf have 64"),
        (pair, tmp_path / "nothing.gguf", "nothing.gguf: cannot be read: No such file or directory"),
    ):
        result = run("models", "pack", encoder, language_model, "-o", output)
        assert result.code == 1
        assert reason in result.complaint
        assert not output.exists()


@pytest.mark.parametrize("part", ["encoder", "language model"])
def test_a_part_is_not_overwritten(run: Run, pair: Path, part: str) -> None:
    path = pair if part == "encoder" else store.language_model_path(pair)
    before = path.read_bytes()
    assert "exists already; use --force" in run("models", "pack", pair, "-o", path).complaint
    assert "is one of the files to pack" in run("models", "pack", "--force", pair, "-o", path).complaint
    assert path.read_bytes() == before


def test_a_packed_file_is_not_quantized_by_half(run: Run, packed: Path, tmp_path: Path) -> None:
    result = run("models", "quantize", packed, "q8_0", "-o", tmp_path / "smaller.gguf")
    assert result.complaint.endswith("has its language model in it; quantize the two files, then pack them")


@NEEDS_LLAMA
def test_a_language_model_that_was_damaged_in_the_file_is_told(packed: Path) -> None:
    with GgufFile(packed) as file:
        begin = file.tensors[PACKED].offset
    spoiled = bytearray(packed.read_bytes())
    spoiled[begin : begin + 4] = b"JUNK"
    packed.write_bytes(spoiled)
    with pytest.raises(ModelFileError, match=r"llama\.cpp cannot load it"):
        open_engine(packed)


def test_a_tensor_that_only_has_the_name_is_refused(packed: Path, tmp_path: Path) -> None:
    with GgufFile(packed) as file:
        arrays = {name: file.array(name) for name in file.tensors if name != PACKED}
        metadata = {key: value for key, value in file.metadata.items() if not key.startswith("general.")}
    path = write_gguf(
        tmp_path / "odd.gguf", store.NANO_ARCHITECTURE, metadata, {**arrays, PACKED: np.ones((4, 8), np.float32)}
    )
    with pytest.raises((ModelFileError, EngineError), match="is not the bytes of a language model"):
        open_engine(path)

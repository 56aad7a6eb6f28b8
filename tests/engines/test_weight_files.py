"""A checkpoint becomes the same GGUF file whatever its weights lie in; what is missing or contradictory is named."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr import store
from liveasr.engines.checkpoint import read_state
from liveasr.engines.convert import convert
from liveasr.engines.weight_files import open_weights
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from tests.engines.conftest import Converted, ConvertedNano
from tests.engines.safetensors_writing import INDEX, into_safetensors, save, save_shards
from tests.helpers import open_files

NANO_PREFIXES = ("audio_encoder.", "audio_adaptor.", "llm.")
LLM = "Qwen3-0.6B"


def copied(checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(checkpoint, tmp_path / "checkpoint", copy_function=shutil.copyfile)


@pytest.fixture
def checkpoint(golden: Path, tmp_path: Path) -> Path:
    """A copy of the tiny SenseVoice."""
    return copied(golden / "sensevoice-tiny", tmp_path)


@pytest.fixture
def nano(golden: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Fun-ASR-Nano."""
    return copied(golden / "nano-tiny", tmp_path)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.gguf"


# The same weights elsewhere.


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("name", ["sensevoice-tiny", "paraformer-tiny", "paraformer-streaming-tiny"])
def test_safetensors_become_the_file_that_model_pt_becomes(
    golden: Path, tmp_path: Path, output: Path, name: str, shards: bool
) -> None:
    folder = copied(golden / name, tmp_path)
    into_safetensors(folder, shards=shards)
    convert(folder, output, "f16")
    assert_same_tensors(output, Converted(golden / name, tmp_path)("f16"))


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
def test_both_files_of_nano_come_out_of_safetensors_too(
    nano: Path, output: Path, tiny_nano: ConvertedNano, shards: bool
) -> None:
    into_safetensors(nano, shards=shards, bfloat16=NANO_PREFIXES)
    convert(nano, output, "q8_0")
    assert_same_tensors(output, tiny_nano("q8_0"))
    assert_same_tensors(store.language_model_path(output), tiny_nano.language_model("q8_0"))


def assert_same_tensors(ours: Path, theirs: Path) -> None:
    """Files are equal but for the order of their tensors, which safetensors files do not keep."""
    with GgufFile(ours) as one, GgufFile(theirs) as other:
        assert set(one.tensors) == set(other.tensors)
        for name, info in one.tensors.items():
            assert (info.shape, info.type_id) == (other.tensors[name].shape, other.tensors[name].type_id), name
            np.testing.assert_array_equal(one.raw(name), other.raw(name), name)
        assert list(one.metadata) == list(other.metadata)


def test_model_pt_is_read_where_there_are_several(checkpoint: Path) -> None:
    save(checkpoint / "model.safetensors", {"encoder.x": np.ones(3, np.float32)})
    save_shards(checkpoint, {"encoder.y": np.ones(3, np.float32)}, count=1)
    with open_weights(checkpoint) as weights:
        assert weights.path.name == "model.pt"
    (checkpoint / "model.pt").unlink()
    with open_weights(checkpoint) as weights:
        assert (weights.path.name, list(weights.tensors)) == ("model.safetensors", ["encoder.x"])
    (checkpoint / "model.safetensors").unlink()
    with open_weights(checkpoint) as weights:
        assert (weights.path.name, list(weights.tensors)) == (INDEX, ["encoder.y"])


def test_shards_are_closed_again(checkpoint: Path) -> None:
    into_safetensors(checkpoint, shards=True)
    before = open_files()
    with open_weights(checkpoint) as weights:
        assert open_files() == before + 3
        assert len(weights.tensors) == 72
    assert open_files() == before


def test_whole_numbers_in_shards_are_passed_over(checkpoint: Path) -> None:
    (checkpoint / "model.pt").unlink()
    save_shards(checkpoint, {"a": np.ones(3, np.float32), "steps": np.array([1]), "b": np.ones(2, np.float32)})
    with open_weights(checkpoint) as weights:
        assert list(weights.tensors) == ["a", "b"]


# The weights of a language model in its own folder.


def without_language_model(nano: Path) -> dict[str, Any]:
    """Take the language model out of a checkpoint; its tensors under the names of transformers, as bfloat16."""
    state = read_state(nano / "model.pt")
    (nano / "model.pt").unlink()
    save(nano / "model.safetensors", {name: each for name, each in state.items() if not name.startswith("llm.")})
    return {name.removeprefix("llm."): each for name, each in state.items() if name.startswith("llm.")}


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
def test_language_model_may_lie_in_its_own_folder(
    nano: Path, output: Path, tiny_nano: ConvertedNano, shards: bool
) -> None:
    own = without_language_model(nano)
    del own["lm_head.weight"]  # a copy of the embedding, which transformers does not save
    if shards:
        save_shards(nano / LLM, own)
    else:
        save(nano / LLM / "model.safetensors", own)
    convert(nano, output, "f16")
    assert_same_tensors(output, tiny_nano("f16"))
    assert_same_tensors(store.language_model_path(output), tiny_nano.language_model("f16"))


def test_language_model_of_the_checkpoint_stands_above_that_in_the_folder(
    nano: Path, output: Path, tiny_nano: ConvertedNano
) -> None:
    """The release has been trained further, and the folder may hold what it was trained from."""
    save(nano / LLM / "model.safetensors", {"model.norm.weight": np.zeros(64, np.float32)})
    convert(nano, output, "f16")
    assert_same_tensors(store.language_model_path(output), tiny_nano.language_model("f16"))


def test_tensor_that_the_language_model_lacks_is_named_as_its_file_has_it(nano: Path, output: Path) -> None:
    own = without_language_model(nano)
    del own["model.norm.weight"]
    save(nano / LLM / "model.safetensors", own)
    with pytest.raises(ModelFileError) as caught:
        convert(nano, output)
    assert str(caught.value) == f"{nano / LLM / 'model.safetensors'}: has no tensor model.norm.weight"
    assert not list(output.parent.iterdir())


def test_checkpoint_without_a_language_model_is_told_where_it_was_looked_for(nano: Path, output: Path) -> None:
    without_language_model(nano)
    with pytest.raises(ModelFileError) as caught:
        convert(nano, output)
    message = str(caught.value)
    assert message.startswith(f"{nano / 'model.safetensors'}: has no tensors named llm., of the language model, and ")
    assert message.endswith(f"{nano / LLM} has no weights of its own")


# Faults.


def place(tensor: str, shard: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        index["weight_map"][tensor] = shard
        (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")

    return change


def index_of(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / INDEX).write_bytes(content)


FIRST, SECOND = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
FAULTS: Mapping[str, tuple[Callable[[Path], object], str, str]] = {
    "no index": (lambda folder: (folder / INDEX).unlink(), "", "has no weights: none of model.pt, model.safetensors,"),
    "index is empty": (index_of(b""), INDEX, "its list of tensors cannot be read"),
    "index is a list": (index_of(b"[]"), INDEX, "has no table weight_map"),
    "index of nothing": (index_of(b'{"weight_map": {}}'), INDEX, "has no table weight_map"),
    "index says it twice": (index_of(b'{"weight_map": {"a": "x", "a": "y"}}'), INDEX, "'a' stands in it twice"),
    "index is huge": (index_of(b" " * (5 << 20)), INDEX, "is larger than 4194304 bytes"),
    "shard is a number": (place("ctc.ctc_lo.bias", 1), INDEX, "1 is not the name of a .safetensors file beside it"),
    "shard is elsewhere": (place("x", "../x.safetensors"), INDEX, "'../x.safetensors' is not the name of a"),
    "shard is absolute": (place("x", "/etc/x.safetensors"), INDEX, "'/etc/x.safetensors' is not the name of a"),
    "shard is a pickle": (place("x", "model.bin"), INDEX, "'model.bin' is not the name of a .safetensors file"),
    "shard of many lines": (place("x", "a\n.safetensors"), INDEX, "is not the name of a"),
    "shard of a long name": (place("x", "n" * 9000), INDEX, "is not the name of a"),
    "shard is missing": (lambda folder: (folder / FIRST).unlink(), FIRST, "cannot be read: No such file or directory"),
    "shard is half": (lambda f: (f / FIRST).write_bytes((f / FIRST).read_bytes()[:5000]), FIRST, ""),
    "shard without a tensor": (place("more", FIRST), FIRST, f"has no tensor 'more', which {INDEX} says it has"),
    "tensor in another shard": (place("ctc.ctc_lo.weight", SECOND), SECOND, "has no tensor 'ctc.ctc_lo.weight', which"),
}


@pytest.mark.parametrize(("spoil", "part", "reason"), FAULTS.values(), ids=FAULTS)
def test_broken_shards_are_named_with_the_reason(
    checkpoint: Path, output: Path, spoil: Callable[[Path], object], part: str, reason: str
) -> None:
    into_safetensors(checkpoint, shards=True)
    spoil(checkpoint)
    before = open_files()
    with pytest.raises(ModelFileError) as caught:
        convert(checkpoint, output)
    message = str(caught.value)
    assert message.startswith(f"{checkpoint / part}: ")
    assert reason in message
    assert message.isprintable()
    assert len(message) < len(str(checkpoint)) + 300
    assert open_files() == before
    assert not list(output.parent.iterdir())


def test_damaged_values_leave_nothing_behind(checkpoint: Path, output: Path) -> None:
    into_safetensors(checkpoint)
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ModelFileError, match="the download may be incomplete"):
        convert(checkpoint, output)
    assert not list(output.parent.iterdir())

"""Which language model belongs to an encoder of Fun-ASR-Nano."""

from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from liveasr.engines import nano_files
from liveasr.engines._library import missing_extra
from liveasr.engines.nano_files import is_complete, language_model_beside
from liveasr.engines.registry import open_engine
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from tests.helpers import write_gguf
from tests.models import write_model

WIDTH = 64


def encoder(folder: Path, name: str = "funasr-encoder-f16") -> GgufFile:
    path = folder / f"{name}.gguf"
    return GgufFile(write_gguf(path, store.NANO_ARCHITECTURE, {"funasr.adp.llm_dim": WIDTH}, {}))


def llm(folder: Path, name: str, kind: str = "q8_0", rows: int = 4, width: int = WIDTH) -> Path:
    return write_model(folder / f"{name}.gguf", "qwen3", kind, rows, metadata={"qwen3.embedding_length": width})


def test_the_published_files_belong_together(tmp_path: Path) -> None:
    path = llm(tmp_path, "qwen3-0.6b-q8_0")
    with encoder(tmp_path) as file:
        assert language_model_beside(file) == path


@pytest.mark.parametrize(
    ("installed", "best"),
    [
        ({"a": ("f32", 4), "b": ("bf16", 4), "c": ("f16", 4), "d": ("q8_0", 4)}, "d"),
        ({"a": ("f32", 4), "b": ("bf16", 4), "c": ("f16", 4)}, "c"),
        ({"a": ("f32", 4), "b": ("bf16", 4)}, "b"),
        ({"a": ("q4_0", 4), "b": ("f32", 4)}, "b"),
        ({"q4": ("q4_0", 4), "q5": ("q5_0", 4)}, "q5"),
        ({"small": ("q8_0", 4), "large": ("q8_0", 8)}, "large"),
        ({"b": ("q8_0", 4), "a": ("q8_0", 4)}, "a"),
    ],
)
def test_of_several_the_fastest_that_is_exact_and_then_the_largest_is_taken(
    tmp_path: Path, installed: dict[str, tuple[str, int]], best: str
) -> None:
    for name, (kind, rows) in installed.items():
        llm(tmp_path, name, kind, rows)
    with encoder(tmp_path) as file:
        assert language_model_beside(file).stem == best


def test_a_language_model_of_its_own_goes_first_and_is_nobody_elses(tmp_path: Path) -> None:
    own = llm(tmp_path, "mine-llm", "f32")
    with encoder(tmp_path, "mine") as mine, encoder(tmp_path) as published:
        assert language_model_beside(mine) == own
        with pytest.raises(ModelFileError):
            language_model_beside(published)
        other = llm(tmp_path, "qwen3-0.6b-q4km", "q4_0")
        assert language_model_beside(mine) == own
        assert language_model_beside(published) == other


def test_a_file_of_the_right_name_with_another_model_is_named(tmp_path: Path) -> None:
    write_model(tmp_path / "mine-llm.gguf", "qwen2", "f32", 4, metadata={"qwen2.embedding_length": WIDTH})
    with encoder(tmp_path, "mine") as mine, pytest.raises(ModelFileError, match=r"mine-llm.gguf: is a qwen2 model"):
        language_model_beside(mine)


def test_what_only_looks_like_one_is_passed_over(tmp_path: Path) -> None:
    llm(tmp_path, "wider", width=128)
    write_model(tmp_path / "llama.gguf", "llama", "q8_0", 4, metadata={"qwen3.embedding_length": WIDTH})
    write_gguf(tmp_path / "no-width.gguf", "qwen3", {"x": 1}, {"matrix": np.zeros((4, WIDTH), np.float32)})
    whole = llm(tmp_path, "download").read_bytes()
    (tmp_path / "download.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "below").mkdir()
    llm(tmp_path / "below", "deeper")
    with encoder(tmp_path) as file, pytest.raises(ModelFileError) as caught:
        language_model_beside(file)
    message = str(caught.value)
    assert message.startswith(f"{file.path}: its language model is not in {tmp_path}, neither ")
    assert "funasr-encoder-f16-llm.gguf" in message
    assert store.nano_download_command(tmp_path) in message
    assert message.isprintable()


def test_an_encoder_that_does_not_say_how_wide_is_at_fault(tmp_path: Path) -> None:
    llm(tmp_path, "qwen3-0.6b-q8_0")
    path = write_gguf(tmp_path / "x.gguf", store.NANO_ARCHITECTURE, {"y": 1}, {})
    with GgufFile(path) as file, pytest.raises(ModelFileError, match=r"x\.gguf: .* funasr\.adp\.llm_dim"):
        language_model_beside(file)
    with GgufFile(path) as file:
        assert not is_complete(file)


def test_only_this_model_needs_more_than_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, object] = {"llama_cpp": object()}
    monkeypatch.setattr(nano_files, "find_spec", found.get)
    with GgufFile(store.built_in("digits")) as digits, encoder(tmp_path) as nano:
        assert is_complete(digits)
        assert not is_complete(nano)
        llm(tmp_path, "qwen3-0.6b-q8_0")
        assert is_complete(nano)
        found.clear()
        assert is_complete(digits)
        assert not is_complete(nano)


def test_a_language_model_is_no_model_to_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a language model, as one is part of Fun-ASR-Nano; name the encoder"):
        open_engine(llm(tmp_path, "qwen3-0.6b-q8_0"))


def test_what_is_not_installed_is_named_with_what_it_takes() -> None:
    message = str(missing_extra())
    assert message.startswith("llama-cpp-python, which runs the language model of Fun-ASR-Nano, is not installed")
    assert "pip install 'liveasr[nano]'" in message
    assert "minutes" in message
    assert "C++ compiler" in message
    assert message.isprintable()

"""Model files of the command line: those that it converts, and those that it cannot use."""

from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from tests.command import CLEAN_TEXT, Run
from tests.helpers import write_gguf

# Those that it converts.


def test_a_converted_checkpoint_transcribes(run: Run, clean: Path, golden: Path, tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    result = run("models", "convert", golden / "sensevoice-tiny", "--output", model)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{model}: 74 tensors")
    result = run("transcribe", "--model", model, clean)
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) == 3  # the weights are random: it says something, but nothing


@pytest.mark.parametrize("weight_type", ["f32", "f16", "q8_0"])
def test_a_converted_checkpoint_hears_what_the_built_in_file_hears(
    weight_type: str, run: Run, clean: Path, shared: Path, tmp_path: Path
) -> None:
    checkpoint = shared / "models" / "digits" / "sensevoice"
    model = tmp_path / "mine.gguf"
    assert run("models", "convert", checkpoint, "--type", weight_type, "-o", model).code == 0
    assert run("transcribe", "--model", model, clean).out == CLEAN_TEXT


def test_a_model_that_exists_is_kept_unless_it_is_forced(run: Run, golden: Path, tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"precious")
    result = run("models", "convert", golden / "sensevoice-tiny", "--output", model)
    assert result.code != 0
    assert "exists already" in result.complaint
    assert model.read_bytes() == b"precious"
    assert run("models", "convert", golden / "sensevoice-tiny", "--output", model, "--force").code == 0
    assert model.read_bytes() != b"precious"


def test_a_converted_nano_is_two_files_and_both_are_told(run: Run, golden: Path, tmp_path: Path) -> None:
    model, language_model = tmp_path / "nano.gguf", tmp_path / "nano-llm.gguf"
    result = run("models", "convert", golden / "nano-tiny", "--output", model)
    assert (result.code, result.err) == (0, "")
    first, second, note = result.out.splitlines()
    assert first.startswith(f"{model}: 105 tensors, ")
    assert second.startswith(f"{language_model}: 24 tensors, ")
    assert note.endswith("does not tell the model's name, licence, source; say it with --name --licence --source")
    assert {model, language_model} == set(tmp_path.iterdir())


def test_a_language_model_that_exists_is_kept_unless_it_is_forced(run: Run, golden: Path, tmp_path: Path) -> None:
    model, language_model = tmp_path / "nano.gguf", tmp_path / "nano-llm.gguf"
    language_model.write_bytes(b"precious")
    result = run("models", "convert", golden / "nano-tiny", "--output", model)
    assert result.code == 1
    assert f"{language_model}: exists already" in result.complaint
    assert language_model.read_bytes() == b"precious"
    assert not model.exists()
    assert run("models", "convert", golden / "nano-tiny", "--output", model, "--force").code == 0
    assert language_model.read_bytes() != b"precious"


@pytest.mark.parametrize("place", ["missing", "data"])
def test_a_folder_without_a_checkpoint_is_one_line(place: str, run: Run, data: Path, tmp_path: Path) -> None:
    folder = data if place == "data" else tmp_path / place
    result = run("models", "convert", folder, "--output", tmp_path / "x.gguf")
    assert result.code != 0
    assert str(folder) in result.complaint
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_written_is_one_line(run: Run, golden: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    result = run("models", "convert", golden / "sensevoice-tiny", "--output", blocked / "x.gguf")
    assert result.code == 1
    assert str(blocked) in result.complaint


# Those that it cannot use.


def test_without_any_model_it_is_told_how_to_get_one(run: Run, clean: Path) -> None:
    result = run("transcribe", clean)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.startswith("liveasr: no speech model is installed; get one with: ")
    assert "--model digits" in result.complaint


def test_a_model_that_nobody_knows_is_one_line(run: Run, clean: Path) -> None:
    result = run("transcribe", "--model", "nonesuch", clean)
    assert (result.code, result.out) == (1, "")
    assert "no model named nonesuch" in result.complaint
    assert "digits" in result.complaint


def test_a_model_file_that_is_missing_is_one_line(run: Run, clean: Path, tmp_path: Path) -> None:
    result = run("transcribe", "--model", tmp_path / "x.gguf", clean)
    assert (result.code, result.out) == (1, "")
    assert result.complaint == f"liveasr: {tmp_path / 'x.gguf'}: no such model file"


@pytest.mark.parametrize("kind", ["cut off", "no GGUF", "empty", "a language model", "that of Nano", "the VAD"])
def test_a_model_file_that_cannot_be_run_is_one_line(kind: str, run: Run, clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    digits = store.built_in("digits").read_bytes()
    match kind:
        case "cut off":
            path.write_bytes(digits[: len(digits) // 2])
        case "no GGUF":
            path.write_bytes(np.random.default_rng(0).bytes(10_000))
        case "empty":
            path.touch()
        case "a language model":
            write_gguf(path, "llama", {"llama.block_count": 1}, {"token_embd.weight": np.zeros((4, 32), np.float32)})
        case "that of Nano":
            write_gguf(
                path, "qwen3", {"qwen3.embedding_length": 32}, {"token_embd.weight": np.zeros((4, 32), np.float32)}
            )
        case _:
            path = store.built_in("fsmn-vad")
    result = run("transcribe", "--model", path, clean)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.startswith(f"liveasr: {path}: ")
    if kind == "a language model":
        assert "is a llama model" in result.complaint
    if kind == "that of Nano":
        assert "part of Fun-ASR-Nano; name the encoder" in result.complaint

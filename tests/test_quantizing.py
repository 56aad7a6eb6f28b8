"""`liveasr models quantize`: the report, the comparison on recordings, and what is refused beforehand."""

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile

from liveasr import store
from liveasr.engines.convert import convert
from liveasr.gguf_file import GgufFile
from tests.command import Run
from tests.helpers import edited, write_gguf

DIGITS = store.built_in("digits")
NEEDS_LLAMA = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "smaller.gguf"


# The report.


def test_the_report_fits_the_screen_and_adds_up(run: Run, output: Path) -> None:
    result = run("models", "quantize", "digits", "q4_K", "-o", output)
    assert (result.code, result.err) == (0, "")
    *lines, size, note = result.out.splitlines()
    assert max(map(len, lines)) <= 80
    tensors = [line.split() for line in lines[1:]]
    with GgufFile(output) as file:
        assert sum(int(words[0]) for words in tensors) == len(file.tensors)
    assert ["4", "encoder.encoders.feed_forward.w_2", "q4_K", "0.39", "0.06", "7.00%"] in tensors
    assert tensors[-1][:2] == ["70", "all"]
    assert size == f"{output}: 3.1 MB became 0.9 MB (31%)"
    assert note.startswith("note: rows that do not divide into the blocks of that type: ")
    assert "21 with rows of 96 in q8_0" in note
    assert "2 with rows of 560 in f16" in note


def test_a_name_that_is_too_long_for_the_screen_is_cut_where_one_sees_it(
    run: Run, golden: Path, tmp_path: Path, output: Path
) -> None:
    convert(golden / "nano-tiny", tmp_path / "nano.gguf", "f16")
    lines = run("models", "quantize", tmp_path / "nano.gguf", "q8_0", "-o", output).out.splitlines()
    name = "audio_encoder.tp_encoders.self_attn.linear_q_k_v"
    assert f"...{name[-41:]}" in [word for line in lines for word in line.split()]
    assert max(len(line) for line in lines if "linear_q_k_v" in line) <= 80


def test_a_built_in_model_goes_to_the_current_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("models", "quantize", "digits", "q8_0").code == 0
    assert (tmp_path / "digits-q8_0.gguf").is_file()
    assert "liveasr models inspect digits" not in run("models", "inspect", tmp_path / "digits-q8_0.gguf").out


def test_what_was_made_is_what_inspect_tells(run: Run, output: Path) -> None:
    run("models", "quantize", "digits", "q6_K", "-o", output)
    told = run("models", "inspect", output).out
    assert "7 q6_K" in " ".join(told.split())
    assert told.rstrip().endswith("yes")


# What is heard.


def test_recordings_are_compared(run: Run, data: Path, clean: Path, output: Path) -> None:
    noisy = data / "digits-noisy.wav"
    result = run("models", "quantize", "digits", "q4_K_mix", "-o", output, "--check", clean, "--check", noisy)
    assert (result.code, result.err) == (0, "")
    head, first, second, both = result.out.partition("\n\n")[2].splitlines()[:4]
    assert head.split() == ["recording", "segments", "ids", "changed", "texts", "changed", "before", "after"]
    assert first.split()[:6] == ["digits-clean.wav", "3", "0", "of", "21", "0"]
    assert second.split()[:6] == ["digits-noisy.wav", "3", "0", "of", "23", "0"]
    assert both.split()[:6] == ["all", "6", "0", "of", "44", "0"]
    assert max(map(len, (head, first, second, both))) <= 80
    assert all(float(line.split()[place]) > 0 for line in (first, second, both) for place in (-4, -2))


def test_changed_texts_are_shown(run: Run, clean: Path, output: Path, tmp_path: Path) -> None:
    """Weights whose rows have one outlier each: four bits leave nothing of the rest."""
    with GgufFile(DIGITS) as file:
        matrices = {name: file.array(name) for name in file.tensors if name.endswith("feed_forward.w_2.weight")}
    for values in matrices.values():
        values[:, 0] = 60  # of a hidden unit that is put out below
    biases = {name.replace("w_2.weight", "w_1.bias"): name for name in matrices}
    with GgufFile(DIGITS) as file:
        silenced = {}
        for bias, name in biases.items():
            silenced[bias] = file.array(bias)
            silenced[bias][0] = -1e6
            assert name in matrices
    fragile = edited(DIGITS, tmp_path / "fragile.gguf", tensors={**matrices, **silenced})
    result = run("models", "quantize", fragile, "q4_K", "-o", output, "--check", clean)
    assert (result.code, result.err) == (0, "")
    row, *texts = result.out.partition("\n\n")[2].splitlines()[1:]
    changed = int(row.split()[5])
    assert changed > 0
    assert int(row.split()[2]) > 0
    assert texts[0].startswith("digits-clean.wav at 00:0")
    assert len(texts) == 3 * changed
    before, after = texts[1].removeprefix("  before: "), texts[2].removeprefix("  after:  ")
    assert before in ("three one four", "one five nine two", "six five")
    assert after != before


def test_a_recording_without_speech_has_nothing_to_compare(run: Run, output: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silence.wav", np.zeros(32_000), 16_000)
    result = run("models", "quantize", "digits", "q8_0", "-o", output, "--check", tmp_path / "silence.wav")
    assert result.code == 0
    assert result.out.splitlines()[-1].split()[:6] == ["silence.wav", "0", "0", "of", "0", "0"]


@NEEDS_LLAMA
def test_both_parts_of_fun_asr_nano_are_compared_with_their_own(
    run: Run, golden: Path, clean: Path, tmp_path: Path
) -> None:
    convert(golden / "nano-tiny", tmp_path / "nano.gguf", "f32")
    assert run("models", "quantize", tmp_path / "nano-llm.gguf", "q8_0").code == 0
    result = run("models", "quantize", tmp_path / "nano.gguf", "q8_0", "--check", clean)
    assert (result.code, result.err) == (0, "")
    assert "digits-clean.wav" in result.out


# Fun-ASR-Nano, in two files.


def test_an_encoder_tells_that_its_language_model_is_needed(run: Run, golden: Path, tmp_path: Path) -> None:
    convert(golden / "nano-tiny", tmp_path / "nano.gguf", "f32")
    told = run("models", "quantize", tmp_path / "nano.gguf", "q8_0").out
    command = f"models quantize {tmp_path}/nano-llm.gguf q8_0 -o {tmp_path}/nano-q8_0-llm.gguf"
    assert command in told
    assert run(*command.split()).code == 0
    again = run("models", "quantize", tmp_path / "nano.gguf", "q8_0", "--force").out
    assert "language model" not in again


def test_a_language_model_hears_nothing_by_itself(run: Run, golden: Path, clean: Path, tmp_path: Path) -> None:
    convert(golden / "nano-tiny", tmp_path / "nano.gguf", "f32")
    result = run("models", "quantize", tmp_path / "nano-llm.gguf", "q8_0", "--check", clean)
    assert result.code == 1
    assert "a language model hears nothing by itself" in result.complaint
    assert not (tmp_path / "nano-q8_0-llm.gguf").exists()


# What is refused.


def test_a_file_that_exists_is_kept(run: Run, output: Path) -> None:
    output.write_text("mine")
    result = run("models", "quantize", "digits", "q8_0", "-o", output)
    assert (result.code, output.read_text()) == (1, "mine")
    assert "exists already; use --force" in result.complaint
    assert run("models", "quantize", "digits", "q8_0", "-o", output, "--force").code == 0


@pytest.mark.parametrize("name", ["new/", "model", "model.ggml"])
def test_what_could_not_be_found_as_a_model_is_not_written(run: Run, tmp_path: Path, name: str) -> None:
    result = run("models", "quantize", "digits", "q8_0", "-o", f"{tmp_path}/{name}")
    assert (result.code, result.out) == (1, "")
    assert result.complaint == f"liveasr: {tmp_path / name}: is no name for a model; let it end in .gguf"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_source_is_kept_whatever_is_said(run: Run, tmp_path: Path, force: list[str]) -> None:
    source = Path(shutil.copyfile(DIGITS, tmp_path / "m.gguf"))
    result = run("models", "quantize", source, "q8_0", "-o", source, *force)
    assert result.code == 1
    assert "is the file to quantize" in result.complaint
    assert source.read_bytes() == DIGITS.read_bytes()


@pytest.mark.parametrize("recording", ["nothing.wav", "-"])
def test_a_recording_that_cannot_be_heard_is_found_before_anything_is_written(
    run: Run, output: Path, recording: str
) -> None:
    result = run("models", "quantize", "digits", "q8_0", "-o", output, "--check", recording)
    assert result.code == 1
    assert recording in result.complaint
    assert list(output.parent.iterdir()) == []


def test_a_type_that_nobody_knows_lists_the_others(run: Run, output: Path) -> None:
    result = run("models", "quantize", "digits", "q2_K", "-o", output)
    assert result.code == 2
    assert "'q4_K_mix'" in result.err


@pytest.mark.parametrize("content", [b"", b"GGUF\3\0\0\0", DIGITS.read_bytes()[:100_000]])
def test_what_is_no_model_is_one_line(run: Run, tmp_path: Path, output: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    result = run("models", "quantize", path, "q8_0", "-o", output)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.startswith(f"liveasr: {path}: not a usable GGUF file: ")


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, output: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, 2048)).astype(np.float32)
    source = write_gguf(tmp_path / "m.gguf", "sensevoice-small", {}, {"m.weight": rows})
    command = [sys.executable, "-m", "liveasr", "models", "quantize", str(source), "q4_K", "-o", str(output)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + 60
    while not list(output.parent.iterdir()):
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "liveasr: interrupted")
    assert list(output.parent.iterdir()) == []

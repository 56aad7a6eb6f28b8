"""The command line: what it prints where, and with which exit code it ends.

Most tests call `main` in this process, which takes no time to start; what depends on a process of its own (signals,
pipes, descriptors) runs in one.
"""

import errno
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import liveasr
from liveasr import model_list, store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.sensevoice import SenseVoice
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Hypothesis
from tests.command import NOTICE, Result, Run
from tests.helpers import write_gguf
from tests.sounds import load, silence

CLEAN = ("three one four", "one five nine two", "six five")
CLEAN_TEXT = """\
[00:00.250 --> 00:02.150]  three one four
[00:02.790 --> 00:05.150]  one five nine two
[00:05.830 --> 00:07.510]  six five
"""
DIGITS = ("transcribe", "--model", "digits")
LIMIT_S = 120
NOBODY = "nothing was removed: nobody is here to be asked; add --yes"
NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")


def start(*arguments: object, **settings: Any) -> subprocess.Popen[bytes]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "liveasr", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    # Unbuffered, or communicate() would not know of what readline() has read ahead.
    return subprocess.Popen(command, bufsize=0, **{**pipes, **settings})


def ended(process: subprocess.Popen[bytes], already: bytes = b"") -> Result:
    """What a process has said, once it has ended, after what was read of its output already."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert b"Traceback" not in err, err.decode()
    return Result(process.returncode, (already + (out or b"")).decode(), err.decode())


@pytest.fixture
def clean(data: Path) -> Path:
    return data / "digits-clean.wav"


@pytest.fixture
def noisy(data: Path) -> Path:
    return data / "digits-noisy.wav"


@pytest.fixture(scope="session")
def long(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of digits."""
    path = tmp_path_factory.mktemp("long") / "long.wav"
    samples = load(data / "digits-clean.wav")
    soundfile.write(path, np.tile(samples, 600 * SAMPLE_RATE_HZ // samples.size), SAMPLE_RATE_HZ)
    return path


# Results.


def test_text_is_a_line_a_segment(run: Run, clean: Path) -> None:
    result = run(*DIGITS, clean)
    assert (result.code, result.out) == (0, CLEAN_TEXT)


def test_words_add_a_line_each(run: Run, clean: Path) -> None:
    lines = run(*DIGITS, "--words", clean).out.splitlines()
    assert [line for line in lines if line.startswith("[")] == CLEAN_TEXT.splitlines()
    words = [line.split() for line in lines if line.startswith("    ")]
    assert [word for *_, word in words] == " ".join(CLEAN).split()
    assert all(begin < end for begin, _, end, _ in words)


def test_json_holds_segments_and_words(run: Run, clean: Path) -> None:
    result = run(*DIGITS, "--format", "json", clean)
    document = json.loads(result.out)
    assert result.code == 0
    assert [segment["text"] for segment in document["segments"]] == list(CLEAN)
    assert [[word["text"] for word in segment["words"]] for segment in document["segments"]] == [
        text.split() for text in CLEAN
    ]
    assert (document["path"], document["model"], document["error"]) == (str(clean), "digits", None)
    assert document["duration_ms"] == load(clean).size // 16
    for segment in document["segments"]:
        times = [ms for word in segment["words"] for ms in (word["start_ms"], word["end_ms"])]
        assert times == sorted(times)
        assert segment["start_ms"] <= times[0]
        assert times[-1] <= segment["end_ms"]


def test_output_goes_to_the_file_and_nowhere_else(run: Run, clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    result = run(*DIGITS, "--output", path, clean)
    assert (result.code, result.out) == (0, "")
    assert path.read_text(encoding="utf-8") == CLEAN_TEXT
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


def test_a_file_that_exists_is_kept_unless_it_is_forced(run: Run, clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("precious", encoding="utf-8")
    result = run(*DIGITS, "--output", path, clean)
    assert result.code != 0
    assert "exists already" in result.complaint
    assert path.read_text(encoding="utf-8") == "precious"
    assert run(*DIGITS, "--force", "--output", path, clean).code == 0
    assert path.read_text(encoding="utf-8") == CLEAN_TEXT


def test_a_recording_is_never_written_over(run: Run, clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(clean.read_bytes())
    assert run(*DIGITS, "--force", "--output", path, path).code != 0
    assert path.read_bytes() == clean.read_bytes()


def test_several_recordings_stand_under_their_names(run: Run, clean: Path, noisy: Path) -> None:
    result = run(*DIGITS, clean, noisy)
    assert result.code == 0
    assert result.out.startswith(f"# {clean}\n{CLEAN_TEXT}# {noisy}\n")
    assert "zero zero seven" in result.out


def test_several_recordings_and_formats_go_to_a_folder(run: Run, clean: Path, noisy: Path, tmp_path: Path) -> None:
    formats = ("txt", "json", "srt", "vtt", "tsv")
    folder = tmp_path / "transcripts"
    result = run(*DIGITS, *(part for each in formats for part in ("-f", each)), "-o", folder, clean, noisy)
    assert (result.code, result.out) == (0, "")
    names = {f"{stem}.{ending}" for stem in ("digits-clean", "digits-noisy") for ending in formats}
    assert {path.name for path in folder.iterdir()} == names
    for ending in formats:
        assert "three one four" in (folder / f"digits-clean.{ending}").read_text(encoding="utf-8")
    assert json.loads((folder / "digits-noisy.json").read_text(encoding="utf-8"))["error"] is None


def test_a_folder_means_its_recordings(run: Run, data: Path) -> None:
    result = run(*DIGITS, data)
    assert result.code == 0
    assert [line for line in result.out.splitlines() if line.startswith("#")] == [
        f"# {data / 'digits-clean.wav'}",
        f"# {data / 'digits-noisy.wav'}",
    ]


def test_without_vad_the_windows_are_transcribed(run: Run, clean: Path) -> None:
    result = run(*DIGITS, "--vad", "none", clean)
    assert result.code == 0
    assert result.out.startswith("[00:00.000 --> 00:08.628]")


def test_silence_prints_nothing(run: Run, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", silence(5), SAMPLE_RATE_HZ)
    result = run(*DIGITS, tmp_path / "x.wav")
    assert (result.code, result.out) == (0, "")


def test_the_demonstration_model_is_called_so_once(run: Run, clean: Path, noisy: Path) -> None:
    result = run(*DIGITS, clean, noisy)
    assert result.err.count(NOTICE) == 1
    assert len(result.err.splitlines()) == 1
    assert NOTICE not in result.out


def test_every_built_in_model_hears_the_recording_and_is_called_a_demonstration(run: Run, clean: Path) -> None:
    for name in store.DEMONSTRATION_MODELS:
        result = run("transcribe", "--model", name, clean)
        assert (result.code, result.out) == (0, CLEAN_TEXT)
        assert result.err.startswith(f"liveasr: '{name}' is a demonstration")


@pytest.mark.parametrize("command", [("transcribe",), ("live", "--file")], ids=lambda command: command[0])
def test_language_that_a_model_cannot_be_told_is_refused_before_anything_is_done(
    run: Run, clean: Path, command: tuple[str, ...]
) -> None:
    result = run(command[0], "--model", "digits-paraformer", "--language", "zh", *command[1:], clean)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "liveasr: --language zh: digits-paraformer takes auto"


@pytest.mark.parametrize("command", [("transcribe",), ("live", "--file")], ids=lambda command: command[0])
def test_hot_words_are_refused_where_they_are_none_or_the_model_takes_none(
    run: Run, clean: Path, command: tuple[str, ...]
) -> None:
    result = run(command[0], "--model", "digits", "--hotword", "<|im_end|>", *command[1:], clean)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.startswith("liveasr: --hotword: the hot word <|im_end|> holds <|")
    result = run(command[0], "--model", "digits", "--hotword", "Lagrange", *command[1:], clean)
    assert (result.code, result.out) == (1, "")
    assert result.complaint == "liveasr: --hotword: digits takes no hot words; fun-asr-nano does"


@pytest.mark.parametrize("command", [("transcribe",), ("live", "--file")], ids=lambda command: command[0])
def test_hot_words_and_the_longest_segment_are_as_the_engine_has_them(
    run: Run, clean: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[DecodeOptions] = []
    decode = SenseVoice.decode

    def watched(engine: SenseVoice, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        asked.append(options)
        return decode(engine, features, options)

    monkeypatch.setattr(SenseVoice, "decode", watched)
    monkeypatch.setattr(SenseVoice, "takes_hotwords", True)
    monkeypatch.setattr(SenseVoice, "max_segment_ms", 1000)
    words = ("--hotword", "Lagrange", "--hotword", "Ada Lovelace")
    result = run(command[0], "--model", "digits", *words, *command[1:], clean)
    assert result.code == 0
    assert len(result.out.splitlines()) > len(CLEAN)
    assert set(asked) == {DecodeOptions(hotwords=("Lagrange", "Ada Lovelace"))}
    result = run(command[0], "--model", "digits", "--max-segment-ms", "20000", *command[1:], clean)
    assert (result.code, result.out) == (0, CLEAN_TEXT)


def test_offline_a_model_that_is_not_installed_is_told_how_to_get(
    run: Run, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIVEASR_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://no.invalid")  # were it asked, the message would be another
    result = run("transcribe", "--offline", "--model", "sensevoice-small", clean)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.endswith("get it with: liveasr models pull sensevoice-small")


def test_fun_asr_nano_without_its_files_is_told_how_to_get_both(run: Run, clean: Path) -> None:
    result = run("transcribe", "--model", "fun-asr-nano", clean)
    assert (result.code, result.out) == (1, "")
    assert store.nano_download_command() in result.complaint


def test_no_notice_is_printed_for_another_model(run: Run, clean: Path, tmp_path: Path) -> None:
    model = tmp_path / "mine.gguf"
    model.write_bytes(store.built_in("digits").read_bytes())
    result = run("transcribe", "--model", model, clean)
    assert (result.code, result.out, result.err) == (0, CLEAN_TEXT, "")


def test_an_installed_model_is_taken_when_none_is_named(
    run: Run, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full.gguf").write_bytes(store.built_in("digits").read_bytes())
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    result = run("transcribe", "--format", "json", clean)
    assert result.err == ""
    assert json.loads(result.out)["model"] == "full"


# Voice activity.


def test_vad_prints_segments_as_json(run: Run, noisy: Path) -> None:
    result = run("vad", noisy)
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == [
        {"start_ms": 250, "end_ms": 2110, "forced_cut": False},
        {"start_ms": 2850, "end_ms": 4550, "forced_cut": False},
        {"start_ms": 5240, "end_ms": 7190, "forced_cut": False},
    ]


def test_vad_prints_segments_as_text(run: Run, noisy: Path) -> None:
    result = run("vad", "--format", "txt", noisy)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0] == "00:00.250 --> 00:02.110"
    assert len(result.out.splitlines()) == 3


def test_vad_marks_forced_cuts(run: Run, noisy: Path) -> None:
    text = run("vad", "--format", "txt", "--max-segment-ms", 1000, noisy).out.splitlines()
    spans = json.loads(run("vad", "--max-segment-ms", 1000, noisy).out)
    assert [line.endswith("  cut") for line in text] == [span["forced_cut"] for span in spans]
    assert any(span["forced_cut"] for span in spans)


def test_vad_of_silence_is_an_empty_list(run: Run, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", silence(5), SAMPLE_RATE_HZ)
    assert json.loads(run("vad", tmp_path / "x.wav").out) == []


@pytest.mark.parametrize("name", ["missing.wav", "text.wav"])
def test_vad_of_no_recording_is_one_line(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound", encoding="utf-8")
    result = run("vad", tmp_path / name)
    assert (result.code, result.out) == (1, "")
    assert result.complaint.startswith(f"liveasr: {tmp_path / name}: ")


# Models.


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


# What goes wrong.


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


@pytest.mark.parametrize("kind", ["missing", "text", "empty", "no sample", "empty folder"])
def test_a_bad_recording_is_one_line_and_the_others_are_still_done(
    kind: str, run: Run, clean: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    match kind:
        case "text":
            bad.write_text("nobody speaks here\n" * 50, encoding="utf-8")
        case "empty":
            bad.touch()
        case "no sample":
            soundfile.write(bad, silence(0), SAMPLE_RATE_HZ)
        case "empty folder":
            bad.mkdir()
    for arguments in ((bad, clean), (clean, bad)):
        result = run(*DIGITS, *arguments)
        assert result.code == 1
        assert result.complaint.startswith(f"liveasr: {bad}: ")
        assert CLEAN_TEXT in result.out


def test_a_recording_that_cannot_be_opened_has_no_document(run: Run, tmp_path: Path) -> None:
    result = run(*DIGITS, "--format", "json", tmp_path / "missing.wav")
    assert (result.code, result.out) == (1, "")
    assert "missing.wav: no such file" in result.complaint


def test_a_recording_that_was_cut_off_gives_what_there_is(run: Run, clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.flac"
    soundfile.write(path, load(clean), SAMPLE_RATE_HZ)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.7)])
    result = run(*DIGITS, "--format", "json", path)
    document = json.loads(result.out)
    assert result.code == 1
    assert document["segments"][0]["text"] == CLEAN[0]
    assert str(path) in result.complaint
    assert document["error"] in result.complaint


def test_a_cmvn_file_that_is_none_is_one_line(run: Run, clean: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.mvn", clean):
        result = run(*DIGITS, "--cmvn", path, clean)
        assert (result.code, result.out) == (1, "")
        assert result.complaint.startswith(f"liveasr: {path}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe"],
        ["vad"],
        ["models", "convert"],
        ["models", "pull"],
        ["models", "rm"],
        ["nonesuch"],
        ["transcribe", "--language", "klingon", "x.wav"],
        ["transcribe", "--format", "docx", "x.wav"],
        ["transcribe", "--max-segment-ms", "999", "x.wav"],
        ["transcribe", "--end-silence-ms", "149", "x.wav"],
        ["transcribe", "--threads", "0", "x.wav"],
        ["transcribe", "--nonesuch", "x.wav"],
    ],
    ids=" ".join,
)
def test_a_slip_in_the_command_is_told_with_exit_code_2(arguments: list[str], run: Run) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "Error: " in result.err
    assert "--help" in result.err


# Help.


@pytest.mark.parametrize(
    ("command", "mentions"),
    [
        ([], ["transcribe", "vad", "live", "stream", "models", "--version"]),
        (
            ["transcribe"],
            ["PATH", "--model", "--vad", "--language", "--hotword", "fun-asr-nano:", "--format", "digits"],
        ),
        (["transcribe"], ["--output", "--offline", "Examples:"]),
        (["vad"], ["FILE", "--format", "--end-silence-ms", "--max-segment-ms"]),
        (["live"], ["--device", "--file", "--server", "LIVEASR_TOKEN", "--save", "--end-silence-ms"]),
        (
            ["stream"],
            ["FILE", "--server", "http://127.0.0.1:8765", "--realtime", "--save", "LIVEASR_TOKEN", "Examples:"],
        ),
        (["models"], ["list", "pull", "rm", "convert"]),
        (["models", "list"], ["--json", "models.toml", "to convert"]),
        (["models", "pull"], ["NAME[:VARIANT]", "--from", "modelscope", "HF_ENDPOINT", "HF_TOKEN", "Examples:"]),
        (["models", "rm"], ["NAME[:VARIANT]", "--yes", "Examples:"]),
        (
            ["models", "convert"],
            ["DIR", "--type", "--output", "--force", "--licence", "README.md", "Examples:"],
        ),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else str(part),
)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_explains_itself(command: list[str], mentions: list[str], option: str, run: Run) -> None:
    result = run(*command, option)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: ")
    for mention in mentions:
        assert mention in result.out


@pytest.mark.parametrize("group", [(), ("models",), ("bench",)])
def test_what_commands_do_is_told_in_whole_on_a_narrow_terminal(
    group: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*group, "--help").out.splitlines()
    commands = lines[lines.index("Commands:") + 1 :]
    assert len(commands) > 2
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


def test_version_is_the_packages(run: Run) -> None:
    assert run("--version").out == f"liveasr {liveasr.__version__}\n"


# In a process of its own.


def test_results_go_to_stdout_and_everything_else_to_stderr(clean: Path) -> None:
    result = ended(start(*DIGITS, clean))
    assert (result.code, result.out) == (0, CLEAN_TEXT)
    assert result.err.startswith(NOTICE)
    assert len(result.err.splitlines()) == 1


def test_errors_of_a_process_are_one_line_and_an_exit_code(tmp_path: Path) -> None:
    result = ended(start(*DIGITS, tmp_path / "missing.wav"))
    assert (result.code, result.out) == (1, "")
    assert result.complaint == f"liveasr: {tmp_path / 'missing.wav'}: no such file"


def test_a_recording_may_come_on_stdin(clean: Path) -> None:
    with clean.open("rb") as stream:
        result = ended(start(*DIGITS, "-", stdin=stream))
    assert (result.code, result.out) == (0, CLEAN_TEXT)


def interrupted(process: subprocess.Popen[bytes], lines: int) -> Result:
    """Press Ctrl-C once so many lines have come."""
    assert process.stdout is not None
    already = b"".join(process.stdout.readline() for _ in range(lines))
    process.send_signal(signal.SIGINT)
    return ended(process, already)


def test_ctrl_c_keeps_what_was_printed(long: Path) -> None:
    result = interrupted(start(*DIGITS, long), 2)
    assert result.code == 130
    assert result.complaint == "liveasr: interrupted"
    assert result.out.startswith("".join(CLEAN_TEXT.splitlines(keepends=True)[:2]))
    assert result.out.endswith("\n")


def test_ctrl_c_leaves_whole_json(long: Path) -> None:
    result = interrupted(start(*DIGITS, "--format", "json", long), 3)
    document = json.loads(result.out)
    assert result.code == 130
    assert document["error"] == "interrupted"
    assert [segment["text"] for segment in document["segments"][:2]] == list(CLEAN[:2])
    assert document["duration_ms"] >= document["segments"][-1]["end_ms"]


def test_a_reader_that_has_seen_enough_is_no_error_to_talk_about(long: Path) -> None:
    process = start(*DIGITS, long)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().decode() == CLEAN_TEXT.splitlines(keepends=True)[0]
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(LIMIT_S) != 0
    assert err.startswith(NOTICE)
    assert len(err.splitlines()) == 1


@NEEDS_LINUX
def test_who_closes_all_streams_is_not_answered_with_a_traceback(tmp_path: Path) -> None:
    script = '"$0" -m liveasr models rm mine <&-'
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    result = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**os.environ, "LIVEASR_MODELS": str(tmp_path)},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, f"liveasr: {NOBODY}\n")


def test_what_runs_under_nohup_goes_on_when_its_terminal_is_closed(clean: Path) -> None:
    process = start(
        *DIGITS, "-", stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert process.stderr is not None
    process.stderr.readline()  # the notice, before which the signals are seen to
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(clean.read_bytes(), timeout=LIMIT_S)
    assert (process.returncode, out.decode()) == (0, CLEAN_TEXT), err


def test_no_name_of_a_file_is_obeyed_by_the_terminal(run: Run) -> None:
    result = run("models", "inspect", "a\nb\x1b[31m/\u3000模型.gguf")
    assert result.complaint == "liveasr: a\\nb\\x1b[31m/\u3000模型.gguf: no such model file"


def test_a_lack_of_memory_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lack() -> None:
        raise MemoryError

    monkeypatch.setattr(model_list, "listed", lack)
    result = run("models", "list")
    assert (result.code, result.err) == (1, "liveasr: there is not enough memory for this\n")


def test_a_full_disk_is_one_line(clean: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = ended(start(*DIGITS, clean, stdout=full))
    assert result.code == 1
    assert os.strerror(errno.ENOSPC) in result.complaint


@NEEDS_LINUX
def test_a_name_that_is_no_utf_8_can_be_read_and_written_about(clean: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"talk\xff\xe4.wav")
    odd.write_bytes(clean.read_bytes())
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    result = ended(start(*DIGITS, odd, tmp_path / "missing.wav", env=environment))
    assert (result.code, result.out.count(CLEAN_TEXT)) == (1, 1)
    result = ended(start(*DIGITS, "-f", "json", "-f", "txt", "-o", tmp_path / "out", odd, env=environment))
    assert result.code == 0
    documents = [path for path in (tmp_path / "out").iterdir() if path.suffix == ".json"]
    assert len(json.loads(documents[0].read_text(encoding="utf-8"))["segments"]) == 3


def test_a_terminal_gets_the_progress_on_stderr_and_stdout_stays_clean(clean: Path) -> None:
    controller, terminal = pty.openpty()
    process = start(*DIGITS, clean, stderr=terminal)
    os.close(terminal)
    assert process.stdout is not None
    shown = b""
    try:
        while piece := os.read(controller, 4096):
            shown += piece
    except OSError as error:
        if error.errno != errno.EIO:  # which is how Linux tells that the other end has closed
            raise
    os.close(controller)
    with process.stdout:
        assert process.stdout.read().decode() == CLEAN_TEXT
    assert process.wait(LIMIT_S) == 0
    assert b"digits-clean.wav" in shown
    assert b"three" not in shown

"""`liveasr transcribe`: what it prints where, of which recordings, and what it refuses."""

import json
from pathlib import Path

import pytest
import soundfile

from liveasr import store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.sensevoice import SenseVoice
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Hypothesis
from tests.command import CLEAN, CLEAN_TEXT, DIGITS, NOTICE, Run
from tests.sounds import load, silence

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


# What goes wrong.


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

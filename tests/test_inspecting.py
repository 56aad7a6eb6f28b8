"""`liveasr models inspect`: good files, published ones with a fault, and those that do not run."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr import store
from liveasr.engines.convert import convert
from liveasr.gguf_file import GgufFile
from tests.command import Run
from tests.helpers import Metadata, edited
from tests.models import write_model

DIGITS = store.built_in("digits")
HAS_LLAMA = find_spec("llama_cpp") is not None
LOADS_NOTHING = """
import sys
from liveasr.inspecting import inspect
inspect({path!r}, True)
sys.exit(", ".join(name for name in ("ggml", "llama_cpp") if name in sys.modules))
"""


def told(run: Run, model: Path | str) -> dict[str, Any]:
    """What the command tells a program."""
    result = run("models", "inspect", "--json", model)
    assert (result.code, result.err) == (0, "")
    facts: dict[str, Any] = json.loads(result.out)
    return facts


def spoken(run: Run, model: Path | str) -> str:
    """What it tells a person, in one line."""
    result = run("models", "inspect", model)
    assert (result.code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= 80
    assert len(result.out.splitlines()) <= 30
    return " ".join(result.out.split())


@pytest.fixture
def nano(golden: Path, tmp_path: Path) -> Path:
    """An encoder, and its language model beside it."""
    convert(golden / "nano-tiny", tmp_path / "nano.gguf", "f16")
    return tmp_path / "nano.gguf"


# What runs.


@pytest.mark.parametrize("model", ["digits", "digits-paraformer", "fsmn-vad", DIGITS])
def test_every_built_in_model_runs(run: Run, model: Path | str) -> None:
    assert spoken(run, model).endswith("runs here yes")
    assert told(run, model)["runs"] is True


def test_sizes_and_types_are_those_of_the_file(run: Run) -> None:
    facts = told(run, "digits-paraformer")
    assert facts["layers"] == {"encoder blocks": 5, "decoder blocks": 3}
    assert (facts["width"], facts["heads"], facts["vocabulary"]) == (96, 4, 14)
    assert facts["size_bytes"] == store.built_in("digits-paraformer").stat().st_size
    assert told(run, "digits")["parameters"] == 764_255  # as its training counted them
    with GgufFile(store.built_in("digits-paraformer")) as file:
        assert sum(share["tensors"] for share in facts["types"]) == len(file.tensors)
        assert sum(share["bytes"] for share in facts["types"]) == sum(info.size_bytes for info in file.tensors.values())
    assert [share["type"] for share in facts["types"]] == ["f16", "f32"]
    assert "38 f16 1.74 MB 89.6%" in spoken(run, "digits-paraformer")


def test_every_architecture_has_its_sizes(run: Run, golden: Path, tmp_path: Path) -> None:
    for name, layers in (
        ("sensevoice-tiny", ["encoder blocks", "second-tier blocks"]),
        ("paraformer-streaming-tiny", ["encoder blocks", "decoder blocks"]),
    ):
        path = tmp_path / f"{name}.gguf"
        convert(golden / name, path, "q8_0")
        facts = told(run, path)
        assert list(facts["layers"]) == layers
        assert facts["runs"]
        assert None not in (facts["width"], facts["heads"], facts["vocabulary"])
        assert facts["front_end"] == {"mel_bins": 80, "lfr_m": 7, "lfr_n": 6}


def test_a_model_is_found_by_its_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "no models").mkdir()
    shutil.copyfile(DIGITS, tmp_path / "no models" / "mine.gguf")
    assert told(run, "mine")["path"] == str(tmp_path / "no models" / "mine.gguf")


def test_no_native_library_is_loaded() -> None:
    code = LOADS_NOTHING.format(path=str(DIGITS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.strip() == ""
    assert json.loads(done.stdout)["runs"]


# Normalisation.


def test_the_mistake_of_the_upstream_exporter_is_named(run: Run, tmp_path: Path) -> None:
    with GgufFile(DIGITS) as file:
        shift = file.array("cmvn.shift")
    published = {"cmvn.shift": np.zeros(1, np.float32), "cmvn.scale": shift}
    path = edited(DIGITS, tmp_path / "m.gguf", tensors=published)
    assert told(run, path)["cmvn"] == "misexported"
    said = spoken(run, path)
    assert "CMVN not applied: the upstream exporter wrote the wrong blocks" in said
    assert "--cmvn am.mvn" in said
    assert said.endswith("runs here yes")


@pytest.mark.parametrize(
    ("tensors", "policy"),
    [
        ({"cmvn.shift": None}, "missing"),
        ({"cmvn.scale": np.full(560, -1, np.float32)}, "unusable"),
        ({"cmvn.scale": np.ones(400, np.float32)}, "unusable"),
    ],
)
def test_other_faults_are_told_apart(run: Run, tmp_path: Path, tensors: dict[str, Any], policy: str) -> None:
    path = edited(DIGITS, tmp_path / "m.gguf", tensors=tensors)
    assert told(run, path)["cmvn"] == policy
    assert "--cmvn am.mvn" in spoken(run, path)


def test_a_normalisation_that_no_engine_reads_is_why_it_does_not_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        DIGITS.read_bytes().replace(
            b"cmvn.shift\x01\0\0\0\x30\x02\0\0\0\0\0\0\0", b"cmvn.shift\x01\0\0\0\x30\x02\0\0\0\0\0\0\x1e"
        )
    )
    facts = told(run, path)
    assert (facts["cmvn"], facts["runs"]) == ("unusable", False)
    assert facts["reason"].startswith("tensor cmvn.shift is bf16; f32 or f16 was expected")


# What the file says of itself.


def test_name_author_licence_and_source_are_shown(run: Run, tmp_path: Path) -> None:
    metadata: Metadata = {
        "liveasr.revision": "1f2e3d4c",
        "liveasr.converter": "liveasr 9",
        "liveasr.quantized": "q8_0 from f16 by liveasr 10",
        "general.languages": ["en", "xx"],
        "general.name": "Ten Words",
        "general.organization": "liveasr",
        "general.license": "cc-by-sa-4.0",
        "general.source.url": "https://example.org/ten-words",
    }
    said = spoken(run, edited(DIGITS, tmp_path / "m.gguf", metadata=metadata))
    for words in (
        "name Ten Words",
        "author liveasr",
        "licence cc-by-sa-4.0",
        "source https://example.org/ten-words",
        "revision 1f2e3d4c",
        "languages English, xx",
        "made by liveasr 9, q8_0 from f16 by liveasr 10",
    ):
        assert words in said


def test_what_is_not_said_is_said_to_be_missing(run: Run, tmp_path: Path) -> None:
    path = edited(DIGITS, tmp_path / "m.gguf", metadata={"liveasr.converter": None})
    said = spoken(run, path)
    for label in ("name", "author", "licence", "source"):
        assert f"{label} not in the file" in said
    facts = told(run, path)
    assert (facts["licence"], facts["licence_origin"]) == (None, None)
    assert "revision" not in said
    assert "made by" not in said


def test_metadata_cannot_write_on_the_terminal(run: Run, tmp_path: Path) -> None:
    path = edited(
        DIGITS,
        tmp_path / "m.gguf",
        metadata={
            "general.name": "\x1b[2Jgone\nruns here yes",
            "general.license": "L" * 9000,
            "liveasr.converter": "\x1b[2J",
        },
    )
    shown = run("models", "inspect", path).out
    assert "\x1b" not in shown
    assert sum(line.startswith("runs here") for line in shown.splitlines()) == 1
    assert "L" * 300 in "".join(shown.split())
    assert "L" * 301 not in "".join(shown.split())


def test_a_demonstration_says_so_wherever_its_file_lies(run: Run, tmp_path: Path) -> None:
    for model in ("digits", Path(shutil.copyfile(DIGITS, tmp_path / "m.gguf"))):
        said = spoken(run, model)
        assert "name digits, a demonstration: ten English words author liveasr" in said
        assert "languages English made by" in said
        facts = told(run, model)
        assert (facts["languages"], facts["languages_origin"]) == (["en"], "file")


def test_languages_of_a_file_that_says_none_are_those_of_its_family(run: Run, tmp_path: Path) -> None:
    path = edited(DIGITS, tmp_path / "m.gguf")
    assert told(run, path)["languages_origin"] == "family"
    words = "languages Mandarin, English, Cantonese, Japanese, Korean (of the released model; the file does not say)"
    assert words in spoken(run, path)


@pytest.mark.parametrize(
    ("name", "licence", "languages"),
    [
        ("sensevoice-small-q8", "FunASR Model License 1.1", ["zh", "yue", "en", "ja", "ko"]),
        ("paraformer-f16", None, ["zh", "en"]),
        ("paraformer-streaming", None, ["zh", "en"]),
    ],
)
def test_the_registry_speaks_for_an_installed_file_that_says_nothing(
    run: Run, tmp_path: Path, name: str, licence: str | None, languages: list[str]
) -> None:
    folder = tmp_path / "no models"
    folder.mkdir()
    path = edited(DIGITS, folder / f"{name}.gguf")
    for model in (name, path, folder / ".." / folder.name / path.name):
        facts = told(run, model)
        assert (facts["licence"], facts["licence_origin"]) == (licence, "registry" if licence else None)
        assert (facts["languages"], facts["languages_origin"]) == (languages, "registry")
    said = spoken(run, name)
    assert said.count("(as the registry says; the file does not)") == (1 if licence is None else 2)
    elsewhere = edited(DIGITS, tmp_path / path.name)
    assert told(run, elsewhere)["licence"] is None


def test_what_an_installed_file_says_stands_above_the_registry(run: Run, tmp_path: Path) -> None:
    (tmp_path / "no models").mkdir()
    shutil.copyfile(DIGITS, tmp_path / "no models" / "sensevoice-small-f16.gguf")
    facts = told(run, "sensevoice-small-f16")
    assert (facts["licence_origin"], facts["languages_origin"]) == ("file", "file")
    assert facts["licence"].startswith("CC BY-SA 4.0")


# What does not run.


def test_a_foreign_architecture_is_told_with_the_way_out(run: Run, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "llama", "q8_0")
    facts = told(run, path)
    assert facts["runs"] is False
    assert "is a llama model; liveasr runs sensevoice-small" in facts["reason"]
    assert facts["reason"].endswith("get one that it runs with: liveasr models pull sensevoice-small")
    assert "runs here no: is a llama model" in spoken(run, path)


def test_names_are_not_broken_where_they_have_hyphens(run: Run, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "a-rather-long-architecture", "q8_0")
    assert ", funasr-sensevoice-encoder; get one" in spoken(run, path)


def test_a_file_of_transcribe_cpp_is_recognised(run: Run, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "sensevoice", "f16", metadata={"stt.frontend.num_mels": 80})
    assert "it is made for transcribe.cpp" in told(run, path)["reason"]


def test_a_missing_tensor_is_named_in_the_words_of_every_command(run: Run, data: Path, tmp_path: Path) -> None:
    path = edited(DIGITS, tmp_path / "m.gguf", tensors={"ctc.ctc_lo.bias": None})
    facts = told(run, path)
    assert facts["reason"].startswith("tensor ctc.ctc_lo.bias is missing; download it again")
    assert not facts["runs"]
    refused = run("transcribe", "--model", path, data / "digits-clean.wav")
    assert refused.complaint.endswith("tensor ctc.ctc_lo.bias is missing")


def test_a_missing_size_leaves_the_others(run: Run, tmp_path: Path) -> None:
    facts = told(run, edited(DIGITS, tmp_path / "m.gguf", metadata={"sv.output_size": None}))
    assert (facts["width"], facts["heads"]) == (None, 4)
    assert "sv.output_size" in facts["reason"]


@pytest.mark.parametrize("content", [b"", b"RIFF" * 20, b"GGUF", DIGITS.read_bytes()[:100_000]])
def test_what_is_no_model_is_one_line(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    for options in ([], ["--json"]):
        result = run("models", "inspect", *options, path)
        assert (result.code, result.out) == (1, "")
        assert result.complaint.startswith(f"liveasr: {path}: not a usable GGUF file: ")


def test_a_name_that_means_nothing_is_one_line(run: Run) -> None:
    result = run("models", "inspect", "nonesuch")
    assert (result.code, result.out) == (1, "")
    assert "no model named nonesuch" in result.complaint


def test_another_vad_is_not_promised_to_run(run: Run, tmp_path: Path) -> None:
    copy = Path(shutil.copyfile(store.built_in("fsmn-vad"), tmp_path / "vad.gguf"))
    assert "built in" in told(run, copy)["reason"]


# Fun-ASR-Nano, in two files.


def test_the_encoder_tells_where_its_language_model_is(run: Run, nano: Path) -> None:
    facts = told(run, nano)
    assert facts["companion"] == str(nano.with_name("nano-llm.gguf"))
    assert facts["cmvn"] == "not used"
    assert facts["runs"] is HAS_LLAMA
    if not HAS_LLAMA:
        assert "pip install 'liveasr[nano]'" in facts["reason"]


def test_an_encoder_alone_does_not_run(run: Run, nano: Path) -> None:
    nano.with_name("nano-llm.gguf").unlink()
    facts = told(run, nano)
    assert (facts["companion"], facts["runs"]) == (None, False)
    assert "its language model is not in" in facts["reason"]
    assert facts["reason"].endswith("liveasr models pull fun-asr-nano")


def test_a_language_model_that_is_none_is_named(run: Run, nano: Path) -> None:
    beside = write_model(nano.with_name("nano-llm.gguf"), "llama", "f32")
    facts = told(run, nano)
    assert facts["companion"] is None
    assert facts["reason"].startswith(f"{beside}: is a llama model")


def test_a_language_model_tells_what_it_is_part_of(run: Run, nano: Path) -> None:
    facts = told(run, nano.with_name("nano-llm.gguf"))
    assert facts["companion"] == str(nano)
    assert facts["front_end"] is None
    assert "part of Fun-ASR-Nano" in spoken(run, nano.with_name("nano-llm.gguf"))
    nano.unlink()
    alone = told(run, nano.with_name("nano-llm.gguf"))
    assert (alone["companion"], alone["runs"]) == (None, False)
    assert "no encoder that fits lies beside it" in alone["reason"]

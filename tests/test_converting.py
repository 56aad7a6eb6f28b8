"""`liveasr models convert`: what is said on the command line and in the folder is in the file, and shown of it."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from liveasr import provenance, store
from liveasr.gguf_file import GgufFile
from liveasr.provenance import Provenance
from tests.command import Run
from tests.engines.safetensors_writing import into_safetensors

COMMIT = "3eb3b4eeffc2f2dde6051b853983753db33e35c3"
CARD = "---\nlicense: cc-by-4.0\nlanguage: [en, fr]\n---\n# Mine\n"


@pytest.fixture
def checkpoint(golden: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint."""
    return shutil.copytree(golden / "sensevoice-tiny", tmp_path / "checkpoint", copy_function=shutil.copyfile)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def said(model: Path) -> Provenance:
    with GgufFile(model) as file:
        return provenance.read(file)


def test_every_option_is_in_the_file(run: Run, checkpoint: Path, model: Path) -> None:
    options = (
        "--name",
        "Mine",
        "--author",
        "Ann",
        "--licence",
        "MIT",
        "--source",
        "https://x.org/m",
        "--revision",
        "v2",
    )
    result = run("models", "convert", checkpoint, "-o", model, *options)
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{model}: 74 tensors, {model.stat().st_size / 1e6:.1f} MB\n"
    assert said(model) == Provenance("Mine", "Ann", licence="MIT", source="https://x.org/m", revision="v2")
    shown = run("models", "inspect", model).out
    for line in ("name          Mine", "author        Ann", "licence       MIT", "revision      v2"):
        assert f"{line}\n" in shown


def test_the_page_of_a_repository_tells_name_and_owner_too(run: Run, checkpoint: Path, model: Path) -> None:
    run("models", "convert", checkpoint, "-o", model, "--source", "https://huggingface.co/FunAudioLLM/SenseVoiceSmall")
    found = said(model)
    assert (found.name, found.organization) == ("SenseVoiceSmall", "FunAudioLLM")
    assert (found.licence, found.languages) == ("FunASR Model License 1.1", ("zh", "yue", "en", "ja", "ko"))
    run(
        "models", "convert", checkpoint, "-o", model, "--force", "--name", "X", "--source", "https://huggingface.co/a/b"
    )
    assert (said(model).name, said(model).licence) == ("X", None)


def test_papers_of_the_folder_are_taken_where_nothing_is_said(run: Run, checkpoint: Path, model: Path) -> None:
    (checkpoint / "README.md").write_text(CARD, encoding="utf-8")
    result = run("models", "convert", checkpoint, "-o", model)
    assert said(model) == Provenance(licence="cc-by-4.0", languages=("en", "fr"))
    note = f"note: {checkpoint} does not tell the model's name, source; say it with --name --source"
    assert result.out.splitlines()[1] == note
    run("models", "convert", checkpoint, "-o", model, "--force", "--licence", "MIT")
    assert said(model) == Provenance(licence="MIT", languages=("en", "fr"))
    facts: dict[str, Any] = json.loads(run("models", "inspect", "--json", model).out)
    assert facts["provenance"]["languages"] == ["en", "fr"]
    assert (facts["licence"], facts["licence_origin"], facts["languages_origin"]) == ("MIT", "file", "file")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--name", ""),
        ("--name", " "),
        ("--licence", "two\nlines"),
        ("--author", "\x1b[2J"),
        ("--revision", "r" * 301),
        ("--source", "example.org"),
        ("--source", "https://example.org/\n"),
        ("--source", "file:///etc"),
    ],
)
def test_a_text_that_no_file_can_show_is_refused(
    run: Run, checkpoint: Path, model: Path, option: str, text: str
) -> None:
    result = run("models", "convert", checkpoint, "-o", model, option, text)
    assert result.code == 2
    assert f"Invalid value for '{option}'" in result.err
    assert "was expected" in result.err
    assert not model.exists()


def test_a_broken_card_is_told_and_the_model_is_written(run: Run, checkpoint: Path, model: Path) -> None:
    (checkpoint / "README.md").write_text("---\nlicense: [\n---\n", encoding="utf-8")
    result = run("models", "convert", checkpoint, "-o", model)
    assert result.code == 0
    assert f"{checkpoint / 'README.md'}: cannot be read and is passed over" in result.complaint
    assert model.exists()


@pytest.mark.parametrize("part", ["model.pt", "config.yaml", "a link to model.pt"])
def test_the_checkpoint_is_never_written_over(run: Run, checkpoint: Path, tmp_path: Path, part: str) -> None:
    output = checkpoint / part
    if part.startswith("a link"):
        output = tmp_path / "model.gguf"
        output.symlink_to(checkpoint / "model.pt")
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    result = run("models", "convert", checkpoint, "-o", output, "--force")
    assert (result.code, result.complaint) == (
        1,
        f"liveasr: {output}: is a part of the checkpoint; write to another file with -o",
    )
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before


def test_a_model_may_lie_in_the_folder_that_it_is_made_of(run: Run, checkpoint: Path) -> None:
    for _ in range(2):
        assert run("models", "convert", checkpoint, "-o", checkpoint / "model.gguf", "--force").code == 0


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
def test_safetensors_convert_and_transcribe(run: Run, checkpoint: Path, model: Path, data: Path, shards: bool) -> None:
    run("models", "convert", checkpoint, "--type", "f32", "-o", model)
    heard = run("transcribe", "--model", model, data / "digits-clean.wav").out
    into_safetensors(checkpoint, shards=shards)
    result = run("models", "convert", checkpoint, "--type", "f32", "-o", model, "--force")
    assert (result.code, result.err) == (0, "")
    assert run("transcribe", "--model", model, data / "digits-clean.wav").out == heard


def test_the_longest_screen_is_one_screen(run: Run, golden: Path, tmp_path: Path) -> None:
    """Of Fun-ASR-Nano in the cache of Hugging Face, quantised: everything that can be told is told."""
    folder = tmp_path / "hub" / "models--FunAudioLLM--Fun-ASR-Nano-2512" / "snapshots" / COMMIT
    shutil.copytree(golden / "nano-tiny", folder, copy_function=shutil.copyfile)
    (folder / "README.md").write_text(
        "---\nlicense: other\nlicense_name: FunASR Model Open Source License Agreement\n"
        "license_link: https://github.com/modelscope/FunASR/blob/main/MODEL_LICENSE\n"
        "language: [zh, yue, en, ja, ko, fr, de, es, it, pt, nl, sv, da, fi, el, pl, cs, hu, ro, bg, ar, vi]\n---\n",
        encoding="utf-8",
    )
    encoder, small = tmp_path / "nano.gguf", tmp_path / "nano-q8_0.gguf"
    assert run("models", "convert", folder, "--type", "f32", "-o", encoder, "--author", "Tongyi Lab").code == 0
    assert run("models", "quantize", encoder, "q8_0", "-o", small).code == 0
    for path in (encoder, small, store.language_model_path(encoder)):
        shown = run("models", "inspect", path).out
        lines = shown.splitlines()
        assert len(lines) <= 30
        assert max(map(len, lines)) <= 80
        said_of_it = " ".join(shown.split())
        assert (
            "name Fun-ASR-Nano-2512 author Tongyi Lab licence FunASR Model Open Source License Agreement, "
            in said_of_it
        )
        assert f"revision {COMMIT} languages Mandarin, Cantonese, English, Japanese, Korean, fr, de, " in said_of_it
        assert ("q8_0 from f32 by liveasr" in said_of_it) is (path == small)
    runs = find_spec("llama_cpp") is not None
    assert json.loads(run("models", "inspect", "--json", encoder).out)["runs"] is runs

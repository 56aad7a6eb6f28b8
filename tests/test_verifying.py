"""`liveasr models verify`: files that are fine pass, and every kind of fault fails."""

import hashlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr import store, verifying
from liveasr.engines import native
from liveasr.engines.convert import convert
from liveasr.engines.graph import Graph, Norm
from liveasr.gguf_file import GgufFile
from tests.command import Run
from tests.helpers import edited

SPOKEN = "three one four | one five nine two | six five"


def told(run: Run, model: object, code: int = 0) -> dict[str, Any]:
    """What it says of each thing, by its name."""
    result = run("models", "verify", "--json", model)
    assert result.code == code, result.err
    found = json.loads(result.out)
    assert found["passed"] is (code == 0)
    return {check["name"]: check for check in found["checks"]}


@pytest.mark.parametrize("name", store.DEMONSTRATION_MODELS)
def test_a_model_that_is_built_in_hears_what_is_spoken(run: Run, name: str) -> None:
    checks = told(run, name)
    assert [*checks] == ["file", "sha256", "numbers", "ids", "heard", "spoken"]
    assert checks["heard"] == {"name": "heard", "words": SPOKEN, "passed": True}
    assert checks["ids"]["words"].startswith("0 of ")
    lines = run("models", "verify", name).out.splitlines()
    assert [line.split()[0] for line in lines] == [*checks, "result"]
    assert lines[-1].split() == ["result", "passed"]


def test_the_vad_finds_speech_where_the_reference_does(run: Run) -> None:
    assert told(run, "fsmn-vad")["speech"]["words"] == "0.25-2.15 s, 2.79-5.15 s, 5.83-7.51 s, as the reference"


@pytest.mark.parametrize("family", ["sensevoice-tiny", "paraformer-tiny", "paraformer-streaming-tiny"])
def test_a_file_with_few_blocks_is_measured_as_one_of_blocks(
    run: Run, golden: Path, tmp_path: Path, family: str
) -> None:
    convert(golden / family, tmp_path / "mine.gguf", "q8_0")
    with GgufFile(tmp_path / "mine.gguf") as file:
        assert file.weight_type == "f32"
    assert told(run, tmp_path / "mine.gguf")["numbers"]["words"].endswith("; at least 0.99")


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make nano")
def test_a_model_with_a_language_model_is_heard_too(run: Run, tmp_path: Path) -> None:
    convert(Path(__file__).parent / "golden" / "digits-nano", tmp_path / "nano.gguf", "f16")
    checks = told(run, tmp_path / "nano.gguf")
    assert "ids" not in checks
    assert checks["heard"] == {"name": "heard", "words": SPOKEN, "passed": None}


def test_the_checksum_of_the_registry_decides(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = store.built_in("digits")
    path = tmp_path / "models" / "mine.gguf"
    path.parent.mkdir()
    shutil.copy(source, path)
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(path.parent))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    registry = store.registry_path()
    registry.parent.mkdir(parents=True)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    for sha256, passed in ((digest, True), (digest.upper(), True), ("0" * 64, False)):
        file = f'{{ name = "mine.gguf", url = "https://example.org/m.gguf", sha256 = "{sha256}" }}'
        registry.write_text(f'[mine]\nlanguages = []\nlicence = "MIT"\nvariants.f32 = [{file}]\n')
        for name in ("mine", "mine:f32", path):
            assert told(run, name, code=not passed)["sha256"]["passed"] is passed
    assert run("models", "verify", "mine").out.splitlines()[-1] == "result    FAILED: sha256"


def test_a_kernel_that_computes_something_else_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def layer_norm(graph: Graph, x: Any, norm: Norm) -> Any:
        return graph.add(graph._lib.ggml_norm(graph._context, x, norm.eps), norm.bias)

    monkeypatch.setattr(native, "kernels", lambda: None)
    monkeypatch.setattr(Graph, "layer_norm", layer_norm)
    checks = told(run, "digits", code=1)
    assert checks["numbers"]["passed"] is False
    assert "FAILED: numbers" in run("models", "verify", "digits").out


def test_a_built_in_model_that_hears_something_else_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GgufFile(store.built_in("digits")) as file:
        vocabulary = [{"▁one": "▁two"}.get(piece, piece) for piece in file.strings("sv.vocab")]
        assert "▁one" in file.strings("sv.vocab")
    path = edited(store.built_in("digits"), tmp_path / "digits.gguf", metadata={"sv.vocab": vocabulary})
    assert told(run, path)["heard"]["passed"] is None  # nobody knows what a file of another's should hear
    monkeypatch.setattr(store, "is_demonstration", lambda _path: True)
    assert told(run, path, code=1)["heard"]["words"].startswith("three two four | ")


def test_a_vad_that_finds_speech_elsewhere_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    known = verifying._known_input()
    known.segments_ms[1][0] += 10
    monkeypatch.setattr(verifying, "_known_input", lambda: known)
    assert told(run, "fsmn-vad", code=1)["speech"]["passed"] is False


def test_a_weight_that_is_no_number_is_named(run: Run, tmp_path: Path) -> None:
    name = "encoder.encoders.1.feed_forward.w_2.weight"
    with GgufFile(store.built_in("digits")) as file:
        weight = file.array(name)
    weight[2, 3] = np.inf
    path = edited(store.built_in("digits"), tmp_path / "spoiled.gguf", tensors={name: weight})
    result = run("models", "verify", path)
    assert result.code == 1
    assert result.complaint == f"liveasr: {path}: tensor {name} has values that are no numbers; the file is damaged"


@pytest.mark.parametrize(("name", "words"), [("half.gguf", "ends inside"), ("text.gguf", "does not begin with GGUF")])
def test_a_file_that_is_not_whole_is_one_line(run: Run, tmp_path: Path, name: str, words: str) -> None:
    content = store.built_in("digits").read_bytes()
    (tmp_path / "half.gguf").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.gguf").write_bytes(b"words")
    result = run("models", "verify", tmp_path / name)
    assert result.code == 1
    assert words in result.complaint

"""The language model inside its process: tokens, logits and ids as the reference has them, one libggml."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines.base import DecodeOptions
from liveasr.engines.prompt import prompt_for
from tests.engines.conftest import ConvertedNano

PROBE = Path(__file__).with_name("llm_probe.py")
VARIANTS = {
    "default": DecodeOptions(itn=True),
    "language": DecodeOptions("zh", itn=True),
    "noitn": DecodeOptions(),
    "hotwords": DecodeOptions(itn=True, hotwords=("开放时间", "liveasr")),
    "all": DecodeOptions("zh", hotwords=("开放时间", "liveasr")),
}
STEMS = ("digits-clean", "digits-noisy")


def probe(**asked: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROBE)], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module", params=STEMS)
def seen(request: pytest.FixtureRequest, tiny_nano: ConvertedNano, golden: Path) -> tuple[dict[str, Any], Any, str]:
    """What the probe sees of a golden segment, the goldens, and the name of the segment."""
    arrays = np.load(golden / "nano-tiny.npz")
    stem = request.param
    rows = arrays[f"{stem}/adaptor_out"]
    rows = rows[: arrays["audio_tokens"][len(rows) - 1]]
    prompts = [prompt_for(options) for options in VARIANTS.values()]
    answer = probe(
        model=str(tiny_nano.language_model()),
        texts=[text for prompt in prompts for text in prompt],
        before=arrays["prompt/default/before"].tolist(),
        after=arrays["prompt/default/after"].tolist(),
        rows=rows.tolist(),
        count=len(arrays[f"{stem}/llm_ids"]),
    )
    return answer, arrays, stem


def test_prompts_become_the_ids_of_the_reference_in_all_variants(seen: tuple[dict[str, Any], Any, str]) -> None:
    answer, arrays, _ = seen
    ids = iter(answer["texts"])
    for name in VARIANTS:
        assert next(ids) == arrays[f"prompt/{name}/before"].tolist(), name
        assert next(ids) == arrays[f"prompt/{name}/after"].tolist(), name


def test_the_first_logits_are_those_of_the_reference(
    seen: tuple[dict[str, Any], Any, str], tolerances: dict[str, Any]
) -> None:
    answer, arrays, stem = seen
    worst = np.abs(np.asarray(answer["logits"]) - arrays[f"{stem}/llm_first_logits"]).max()
    assert worst <= tolerances["engines"]["llm_logits"]["value"]


def test_the_greedy_ids_are_those_of_the_reference(seen: tuple[dict[str, Any], Any, str]) -> None:
    answer, arrays, stem = seen
    assert answer["ids"] == arrays[f"{stem}/llm_ids"].tolist()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped in /proc; run it on Linux")
def test_the_process_maps_the_ggml_that_came_with_llama_cpp_and_no_other(seen: tuple[dict[str, Any], Any, str]) -> None:
    mapped = [Path(path) for path in seen[0]["mapped"]]
    assert {path.name.partition(".")[0] for path in mapped} >= {"libggml-base", "libggml-cpu", "libllama"}
    assert len({path.parent for path in mapped}) == 1
    spec = importlib.util.find_spec("ggml")
    assert spec is not None
    assert spec.origin is not None
    assert mapped[0].parent != Path(spec.origin).parent / "lib"


@pytest.mark.parametrize(
    ("first", "second"),
    [("ggml", "llama"), ("llama", "ggml")],
)
def test_a_process_that_has_one_of_the_libraries_refuses_the_other(first: str, second: str) -> None:
    script = (
        "from liveasr.engines import _library\n"
        "from liveasr.errors import EngineError\n"
        f"_library.{first}()\n"
        f"try: _library.{second}()\n"
        "except EngineError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "two versions of ggml would mix" in done.stdout

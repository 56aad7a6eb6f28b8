"""What every test may ask for: where the material lies, and how far numbers may be from the reference's."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before numpy is imported: its matrices are small here, and threads for them only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# No test fetches a model by naming it, unless that is what it is about.
os.environ["LIVEASR_OFFLINE"] = "1"

import pytest
from hypothesis import settings

from liveasr import store
from liveasr.gguf_file import GgufFile
from liveasr.vad import weights
from liveasr.vad.weights import FsmnWeights
from tests.command import Run, runs
from tests.file_server import Served, serving

TESTS = Path(__file__).resolve().parent
SHARED_VARIABLE = "LIVEASR_SHARED"

# A machine that others use too is no reason to fail a test for its speed.
settings.register_profile("liveasr", deadline=None, print_blob=True)
settings.load_profile("liveasr")

# A shell lets its jobs in the background ignore Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the reference material, which is no part of the repository."""
    folder = Path(os.environ.get(SHARED_VARIABLE, TESTS.parents[1] / "shared"))
    if not (folder / "golden").is_dir():
        pytest.skip(
            f"the reference material (tests/golden/README.md) is not in {folder}; where it is elsewhere: "
            f"{SHARED_VARIABLE}=FOLDER make test"
        )
    return folder


@pytest.fixture(scope="session")
def data() -> Path:
    """The recordings of the repository."""
    return TESTS / "data"


@pytest.fixture(scope="session")
def clean(data: Path) -> Path:
    """Three strings of digits, without noise."""
    return data / "digits-clean.wav"


@pytest.fixture(scope="session")
def noisy(data: Path) -> Path:
    """Three others, with noise."""
    return data / "digits-noisy.wav"


@pytest.fixture(scope="session")
def golden() -> Path:
    """What the reference makes of them."""
    return TESTS / "golden"


@pytest.fixture(scope="session")
def tolerances() -> dict[str, Any]:
    """tolerances.json: room -> name -> {"value", "reason"}."""
    numbers: dict[str, Any] = json.loads((TESTS / "tolerances.json").read_text(encoding="utf-8"))
    return numbers


@pytest.fixture(scope="session")
def fsmn() -> FsmnWeights:
    """The weights of the VAD that ships with the package."""
    with GgufFile(store.built_in(store.VAD_MODEL)) as file:
        return weights.load(file)


@pytest.fixture
def served() -> Iterator[Served]:
    """A web server that answers with the built-in model, whatever it is asked for."""
    with serving(store.built_in("digits").read_bytes()) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Calls the command line with arguments; no model is installed."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "no models"))
    yield from runs(monkeypatch, capsys)

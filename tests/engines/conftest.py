"""Models that the tests of the engines open: the random checkpoints of the goldens in every weight type."""

from pathlib import Path

import pytest

from liveasr import store
from liveasr.engines.convert import WeightType, convert


class Converted:
    """A checkpoint folder converted on demand, once for each weight type."""

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        self.checkpoint = checkpoint
        self._folder = folder

    def __call__(self, weight_type: WeightType = "f32") -> Path:
        """The GGUF file."""
        path = self._folder / f"{self.checkpoint.name}-{weight_type}.gguf"
        if not path.exists():
            convert(self.checkpoint, path, weight_type)
        return path


@pytest.fixture(scope="session")
def tiny(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """SenseVoice with random weights."""
    return Converted(golden / "sensevoice-tiny", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_paraformer(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Paraformer with random weights."""
    return Converted(golden / "paraformer-tiny", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_streaming(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Streaming Paraformer with random weights."""
    return Converted(golden / "paraformer-streaming-tiny", tmp_path_factory.mktemp("tiny-streaming"))


class ConvertedNano(Converted):
    """A checkpoint of Fun-ASR-Nano, which becomes two files."""

    def language_model(self, weight_type: WeightType = "f32") -> Path:
        """The GGUF file of the language model."""
        return store.language_model_path(self(weight_type))


@pytest.fixture(scope="session")
def digits_nano(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> ConvertedNano:
    """Fun-ASR-Nano, trained on spoken digits."""
    return ConvertedNano(golden / "digits-nano", tmp_path_factory.mktemp("digits-nano"))


@pytest.fixture(scope="session")
def tiny_nano(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> ConvertedNano:
    """Fun-ASR-Nano with random weights."""
    return ConvertedNano(golden / "nano-tiny", tmp_path_factory.mktemp("tiny-nano"))

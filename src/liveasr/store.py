"""Where models live: a few inside the package, the others in the user's own folder."""

import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from platformdirs import user_data_path

from liveasr.errors import ModelError, ModelNotFoundError
from liveasr.gguf_file import GgufFile

FOLDER_VARIABLE = "LIVEASR_MODELS"
DEMONSTRATION_MODEL = "digits"
"""What is served, and recommended for a try, where nothing else is installed."""
DEMONSTRATION_MODELS = (DEMONSTRATION_MODEL, "digits-paraformer")
"""All built-in speech models: each knows ten words."""
VAD_MODEL = "fsmn-vad"
_BUILT_IN = (*DEMONSTRATION_MODELS, VAD_MODEL)
_SUFFIX = ".gguf"
_PREFERRED_TYPES = ("f16", "q8_0", "f32")
"""Of several installed models of an architecture the one with these weights first: f16 is as exact as f32 and faster
than both."""


def models_folder() -> Path:
    """Where installed models lie: $LIVEASR_MODELS, or the platform's folder for a user's data."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else user_data_path("liveasr") / "models"


def download_command() -> str:
    """The command that installs a full model."""
    return f"hf download FunAudioLLM/SenseVoiceSmall-GGUF sensevoice-small-q8.gguf --local-dir '{models_folder()}'"


def find(model: str) -> Path:
    """The file of a model given by name ("digits", or a file's name in the models folder) or by path.

    Raises:
        ModelNotFoundError: there is none; the message lists what there is.
    """
    if model.endswith(_SUFFIX) or os.sep in model or (model not in _BUILT_IN and Path(model).is_file()):
        path = Path(model)
        if not path.is_file():
            raise ModelNotFoundError(f"{path}: no such model file")
        return path
    if model in _BUILT_IN:
        return built_in(model)
    path = models_folder() / f"{model}{_SUFFIX}"
    if not path.is_file():
        names = ", ".join([*DEMONSTRATION_MODELS, *(path.stem for path in _installed())])
        raise ModelNotFoundError(f"no model named {model} in {models_folder()}; known here: {names}")
    return path


def built_in(name: str) -> Path:
    """The file of a model that ships with the package."""
    return Path(str(resources.files("liveasr.models") / f"{name}{_SUFFIX}"))


def is_demonstration(path: Path) -> bool:
    """Whether a file is one of the built-in speech models, of which nobody should expect more than digits."""
    return path in map(built_in, DEMONSTRATION_MODELS)


def best_installed(architectures: tuple[str, ...]) -> Path:
    """The installed model to use when none is named. A demonstration model never stands in for one.

    Args:
        architectures: what the engines run, the best first.

    Raises:
        ModelNotFoundError: no full model is installed; the message says how to get one.
    """
    ranked = []
    for path in _installed():
        try:
            with GgufFile(path) as file:
                if file.architecture in architectures:
                    ranked.append((architectures.index(file.architecture), _rank(file), path))
        except ModelError:
            continue  # half a download is no reason to refuse a whole model beside it
    if not ranked:
        raise ModelNotFoundError(
            f"no speech model is installed; get one with: {download_command()} (from pip install huggingface_hub), "
            f"or try the demonstration, which knows ten digits: --model {DEMONSTRATION_MODEL}"
        )
    return min(ranked)[-1]


def _installed() -> Iterator[Path]:
    folder = models_folder()
    return iter(sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else [])


def _rank(file: GgufFile) -> int:
    """Position of the type of most of the file's bytes among the preferred ones."""
    bytes_of: dict[str, int] = {}
    for info in file.tensors.values():
        bytes_of[info.type_name] = bytes_of.get(info.type_name, 0) + info.size_bytes
    kind = max(bytes_of, key=lambda name: bytes_of[name], default="f32")
    return _PREFERRED_TYPES.index(kind) if kind in _PREFERRED_TYPES else len(_PREFERRED_TYPES)

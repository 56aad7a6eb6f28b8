"""Where models live: a few inside the package, the others in the user's own folder."""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path

from platformdirs import user_data_path

from liveasr.errors import ModelError, ModelNotFoundError
from liveasr.gguf_file import GgufFile, peek_architecture

FOLDER_VARIABLE = "LIVEASR_MODELS"
DEMONSTRATION_MODEL = "digits"
"""What is served, and recommended for a try, where nothing else is installed."""
DEMONSTRATION_MODELS = (DEMONSTRATION_MODEL, "digits-paraformer")
"""All built-in speech models: each knows ten words."""
VAD_MODEL = "fsmn-vad"
_BUILT_IN = (*DEMONSTRATION_MODELS, VAD_MODEL)
NANO = "fun-asr-nano"
"""What the published files of Fun-ASR-Nano are called together: an encoder, and a language model beside it."""
NANO_ARCHITECTURE = "funasr-sensevoice-encoder"
"""Of its encoder."""
LANGUAGE_MODEL_ENDING = "-llm"
"""Of the language model's name, where it belongs to one encoder: that of the encoder stands in front."""
_NANO_ENCODERS = "funasr-encoder*"
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


def nano_download_command(folder: Path | None = None) -> str:
    """The command that puts both files of Fun-ASR-Nano into a folder, by default into that of the models."""
    files = "funasr-encoder-f16.gguf qwen3-0.6b-q8_0.gguf"
    return f"hf download FunAudioLLM/Fun-ASR-Nano-GGUF {files} --local-dir '{folder or models_folder()}'"


def name_of(path: Path) -> str:
    """What a model is called, on the command line and by clients: as its file, without the ending.

    Only the published encoder of Fun-ASR-Nano goes by the name of the whole.
    """
    return NANO if path.match(_NANO_ENCODERS) and not path.stem.endswith(LANGUAGE_MODEL_ENDING) else path.stem


def find(model: str) -> Path:
    """The file of a model given by name ("digits", or a file's name in the models folder) or by path.

    Of Fun-ASR-Nano it is the encoder; "fun-asr-nano" also means the published one, whatever its file is called.

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
    if path.is_file():
        return path
    if model == NANO:
        return _published_nano()
    names = ", ".join(dict.fromkeys([*DEMONSTRATION_MODELS, *map(name_of, _installed())]))
    raise ModelNotFoundError(f"no model named {model} in {models_folder()}; known here: {names}")


def built_in(name: str) -> Path:
    """The file of a model that ships with the package."""
    return Path(str(resources.files("liveasr.models") / f"{name}{_SUFFIX}"))


def is_demonstration(path: Path) -> bool:
    """Whether a file is one of the built-in speech models, of which nobody should expect more than digits."""
    return path in map(built_in, DEMONSTRATION_MODELS)


def best_installed(architectures: tuple[str, ...], complete: Callable[[GgufFile], bool] = lambda _file: True) -> Path:
    """The installed model to use when none is named. A demonstration model never stands in for one.

    Args:
        architectures: what the engines run, the best first.
        complete: whether all is there that the engine of a file needs besides.

    Raises:
        ModelNotFoundError: no full model is installed; the message says how to get one.
    """
    incomplete: Path | None = None
    for path in _ranked(_installed(), architectures):
        with GgufFile(path) as file:
            if complete(file):
                return path
        incomplete = incomplete or path
    if incomplete is not None:
        name = name_of(incomplete)
        raise ModelNotFoundError(
            f"{name} is installed, but lacks something; --model {name} says what, and how to get it"
        )
    raise ModelNotFoundError(
        f"no speech model is installed; get one with: {download_command()} (from pip install huggingface_hub), "
        f"or try the demonstration, which knows ten digits: --model {DEMONSTRATION_MODEL}"
    )


def _published_nano() -> Path:
    encoders = (path for path in _installed() if name_of(path) == NANO)
    for path in _ranked(encoders, (NANO_ARCHITECTURE,)):
        return path
    raise ModelNotFoundError(
        f"{NANO} is not in {models_folder()}; get its two files with: {nano_download_command()} "
        "(from pip install huggingface_hub); it also needs the extra nano, in a checkout: make nano"
    )


def _ranked(paths: Iterable[Path], architectures: tuple[str, ...]) -> list[Path]:
    """Those among files that hold a model of these architectures, the best first."""
    ranked = []
    for path in paths:
        if peek_architecture(path) not in (None, *architectures):
            continue
        try:
            with GgufFile(path) as file:
                if file.architecture in architectures:
                    ranked.append((architectures.index(file.architecture), _rank(file), path))
        except ModelError:
            continue  # half a download is no reason to refuse a whole model beside it
    return [path for _, _, path in sorted(ranked)]


def _installed() -> Iterator[Path]:
    folder = models_folder()
    return iter(sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else [])


def _rank(file: GgufFile) -> int:
    """Position of the type of its weights among the preferred ones."""
    kind = file.weight_type
    return _PREFERRED_TYPES.index(kind) if kind in _PREFERRED_TYPES else len(_PREFERRED_TYPES)

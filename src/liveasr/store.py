"""Where models live: a few inside the package, the others in the user's own folder."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path

from platformdirs import user_config_path, user_data_path

from liveasr.errors import ModelError, ModelNotFoundError, RegistryError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import peek_architecture
from liveasr.model_registry import RegisteredFile, RegisteredModel, parse

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
LANGUAGE_MODEL_ARCHITECTURE = "qwen3"
LANGUAGE_MODEL_ENDING = "-llm"
"""Of the language model's name, where it belongs to one encoder: that of the encoder stands in front."""
_NANO_ENCODERS = "funasr-encoder*"
_SUFFIX = ".gguf"
_PREFERRED_TYPES = ("f16", "q8_0", "f32")
"""Of several installed models of an architecture the one with these weights first: f16 is as exact as f32 in half the
memory. q8_0 may be three times as fast, but whoever has both has got the larger one on purpose."""


def models_folder() -> Path:
    """Where installed models lie: $LIVEASR_MODELS, or the platform's folder for a user's data."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else user_data_path("liveasr") / "models"


def registry_path() -> Path:
    """The user's own registry of models, which need not exist."""
    return user_config_path("liveasr") / "models.toml"


def registry() -> dict[str, RegisteredModel]:
    """The models that have names, by them: those of the package, then the user's own.

    Raises:
        RegistryError: the user's registry is malformed, or cannot be read.
    """
    ours = Path(str(resources.files("liveasr") / "registry.toml"))
    models = parse(ours.read_text(encoding="utf-8"), ours)
    path = registry_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return models
    except OSError as error:
        raise RegistryError(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RegistryError(path, "is not UTF-8") from error
    theirs = parse(text, path)
    for name, model in theirs.items():
        if model.built_in or name in _BUILT_IN:
            known = ", ".join(_BUILT_IN)
            raise RegistryError(path, f"{name}: built in are {known}, which stay as they are, and no others")
    return models | theirs


def registered(text: str) -> tuple[RegisteredModel, str | None]:
    """The model, and the variant if one is named, of NAME or NAME:VARIANT.

    Raises:
        ModelNotFoundError: the registry knows no such model or variant.
        RegistryError: the user's registry is malformed.
    """
    name, _, variant = text.partition(":")
    models = registry()
    model = models.get(name)
    if model is None:
        raise ModelNotFoundError(f"no model named {name} in the registry; known are {', '.join(models)}")
    if variant and variant not in model.variants:
        if not model.variants:
            raise ModelNotFoundError(f"{name} has no variants; say just {name}")
        raise ModelNotFoundError(f"{name} has no variant {variant}; known are {', '.join(model.variants)}")
    return model, variant or None


def installed() -> Iterator[Path]:
    """The model files in the folder, whatever they hold."""
    folder = models_folder()
    return iter(model_files(folder) if folder.is_dir() else [])


def model_files(folder: Path) -> list[Path]:
    """The files of a folder whose names are those of models, sorted; a pipe would be waited for without end.

    Raises:
        OSError: the folder cannot be read, which `glob` would pass over.
    """
    return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX) and path.is_file())


def installed_path(file: RegisteredFile) -> Path:
    """Where a file of the registry lies, once it is installed."""
    return models_folder() / file.name


def converted_path(model: RegisteredModel) -> Path:
    """Where a model lies that is published nowhere, and was converted."""
    return models_folder() / f"{model.name}{_SUFFIX}"


def partial_path(path: Path) -> Path:
    """Where a file lies while it is being fetched, and until that is gone on with."""
    return path.with_name(f"{path.name}.part")


def partial_identity_path(path: Path) -> Path:
    """What tells which version of a file it is that was begun."""
    return path.with_name(f"{path.name}.part.id")


def begun_bytes(path: Path) -> int:
    """How much came of a file that was begun, if that can be gone on with."""
    part, identity = partial_path(path), partial_identity_path(path)
    if not part.is_file() or not identity.is_file() or not identity.stat().st_size:
        return 0
    return part.stat().st_size


def is_installed(files: Iterable[RegisteredFile]) -> bool:
    """Whether all files of a variant are there."""
    return all(installed_path(file).is_file() for file in files)


def language_model_path(encoder: Path) -> Path:
    """Where the language model lies that belongs to one encoder of Fun-ASR-Nano: beside it, under its name."""
    return encoder.with_name(f"{encoder.stem}{LANGUAGE_MODEL_ENDING}{_SUFFIX}")


def download_command(model: str = "sensevoice-small") -> str:
    """The command that installs a full model."""
    return f"liveasr models pull {model}"


def nano_download_command(folder: Path | None = None) -> str:
    """The command that puts both files of Fun-ASR-Nano into a folder, by default into that of the models."""
    elsewhere = folder is not None and folder != models_folder()
    where = f"{FOLDER_VARIABLE}={shlex.quote(str(folder))} " if elsewhere else ""
    return f"{where}{download_command(NANO)}"


def name_of(path: Path) -> str:
    """What a model is called, on the command line and by clients: as its file, without the ending.

    Only the published encoder of Fun-ASR-Nano goes by the name of the whole.
    """
    return NANO if path.match(_NANO_ENCODERS) and not path.stem.endswith(LANGUAGE_MODEL_ENDING) else path.stem


def also_called(path: Path) -> list[str]:
    """What the registry calls an installed model of one file, NAME and NAME:VARIANT.

    Raises:
        RegistryError: the user's registry is malformed.
    """
    names = []
    for model in registry().values():
        for variant, files in model.variants.items():
            if len(files) == 1 and os.path.realpath(installed_path(files[0])) == os.path.realpath(path):
                names += [model.name, f"{model.name}:{variant}"]
    return names


def find(model: str) -> Path:
    """The file of a model given by name ("digits", or a file's name in the models folder) or by path.

    A name of the registry means the default variant, or, where that is not installed, another one; NAME:VARIANT means
    just that one. Of Fun-ASR-Nano it is the encoder; "fun-asr-nano" also means the published one, whatever its file is
    called.

    Raises:
        ModelNotFoundError: there is none; the message says how to get it, or lists what there is.
        RegistryError: the user's registry is malformed.
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
    if ":" in model:
        return _variant(*registered(model))
    if model == NANO:
        return _published_nano()
    if known := registry().get(model):
        return _installed_variant(known)
    if published := next(_variants_of(path.name), None):
        raise ModelNotFoundError(f"{model} is not in {models_folder()}; get it with: {download_command(published)}")
    names = ", ".join(dict.fromkeys([*DEMONSTRATION_MODELS, *map(name_of, installed())]))
    fetched = ", ".join(each.name for each in registry().values() if each.variants)
    raise ModelNotFoundError(
        f"no model named {model} in {models_folder()}; known here: {names}; to be fetched: {fetched}"
    )


def _variants_of(file_name: str) -> Iterator[str]:
    """What is called by the name of a file that the registry knows: NAME:VARIANT."""
    for model in registry().values():
        yield from (f"{model.name}:{each}" for each, files in model.variants.items() if files[0].name == file_name)


def built_in(name: str) -> Path:
    """The file of a model that ships with the package."""
    return Path(str(resources.files("liveasr.models") / f"{name}{_SUFFIX}"))


def model_of(path: Path) -> RegisteredModel | None:
    """The model of the registry that a file is a part of: a built-in one, or one that lies installed under its name.

    Raises:
        RegistryError: the user's registry is malformed.
    """
    for model in registry().values():
        files = [installed_path(file) for variant in model.variants.values() for file in variant]
        if model.built_in:
            files.append(built_in(model.name))
        if model.instead is not None:
            files.append(converted_path(model))
        if os.path.realpath(path) in map(os.path.realpath, files):
            return model
    return None


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
    for path in _ranked(installed(), architectures):
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
        f"no speech model is installed; get one with: {download_command()}, or try the demonstration, "
        f"which knows ten digits: --model {DEMONSTRATION_MODEL}"
    )


def _published_nano() -> Path:
    encoders = (path for path in installed() if name_of(path) == NANO)
    for path in _ranked(encoders, (NANO_ARCHITECTURE,)):
        return path
    raise ModelNotFoundError(
        f"{NANO} is not in {models_folder()}; get its two files with: {nano_download_command()} "
        "(it also needs the extra nano, in a checkout: make nano)"
    )


def _variant(model: RegisteredModel, variant: str | None) -> Path:
    """The first file of the variant that is named, or of the one that is installed."""
    if variant is None:
        return _installed_variant(model)
    name, files = f"{model.name}:{variant}", model.variants[variant]
    if not is_installed(files):
        raise ModelNotFoundError(f"{name} is not in {models_folder()}; get it with: {download_command(name)}")
    for other, others in model.variants.items():
        if other == variant:  # the default comes first, and is the one that a shared encoder takes
            break
        if others[0] == files[0] and is_installed(others):
            raise ModelNotFoundError(
                f"{name} shares {files[0].name} with {model.name}:{other}, which is installed too and goes first; "
                f"liveasr models rm {model.name}:{other}, or make one file of what you want: liveasr models pack "
                f"{shlex.join(str(installed_path(file)) for file in files)} -o {model.name}-{variant}.gguf"
            )
    return installed_path(files[0])


def _installed_variant(model: RegisteredModel) -> Path:
    for files in model.variants.values():
        if is_installed(files):
            return installed_path(files[0])
    way = model.instead or f"get it with: {download_command(model.name)}"
    raise ModelNotFoundError(f"{model.name} is not in {models_folder()}; {way}")


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


def _rank(file: GgufFile) -> int:
    """Position of the type of its weights among the preferred ones."""
    kind = file.weight_type
    return _PREFERRED_TYPES.index(kind) if kind in _PREFERRED_TYPES else len(_PREFERRED_TYPES)

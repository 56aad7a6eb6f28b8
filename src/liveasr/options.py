"""What several commands make of their options."""

import logging
from collections.abc import Sequence
from pathlib import Path

from liveasr import first_use, store
from liveasr.engines import nano_files, paraformer, sensevoice, streaming_model
from liveasr.engines.base import AutoregressiveEngine, DecodeOptions, Engine
from liveasr.engines.registry import ARCHITECTURES, open_engine
from liveasr.errors import ModelNotFoundError, OutputError, UsageError
from liveasr.stream.detect import DetectorKind
from liveasr.types import Language
from liveasr.vad.config import VadConfig

_log = logging.getLogger("liveasr")
NO_PARTIALS = "none"
"""Says that no other model is to give the partials."""
_PARTIALS_ARCHITECTURES = (streaming_model.ARCHITECTURE, sensevoice.ARCHITECTURE, paraformer.ARCHITECTURE)
"""What gives the best partials first: streaming costs least, and grows only at the end."""


def vad_config(
    own_max_segment_ms: int,
    *,
    end_silence_ms: int,
    schedule: bool,
    max_segment_ms: int | None,
    speech_threshold: float | None,
    min_speech_ms: int,
    pad_before_ms: int,
    pad_after_ms: int,
) -> VadConfig:
    """The settings of the voice activity detection, as the command line has them.

    The longest segment is `own_max_segment_ms`, the model's own, where nobody says otherwise.
    """
    return VadConfig(
        end_silence_ms=None if schedule else end_silence_ms,
        max_segment_ms=own_max_segment_ms if max_segment_ms is None else max_segment_ms,
        speech_threshold=speech_threshold,
        min_speech_ms=min_speech_ms,
        pad_before_ms=pad_before_ms,
        pad_after_ms=pad_after_ms,
    )


def notice_webrtc(vad: DetectorKind) -> None:
    """Warn of a detector that is worse than the default."""
    if vad == "webrtc":
        _log.warning("WebRTC's voice activity detector takes music and babble for speech; fsmn is more exact")


def notice_demonstration(model: str, where_to_get_more: str) -> None:
    """Warn that nobody should expect more than digits."""
    _log.warning("'%s' is a demonstration: it knows ten words, zero to nine, in English. %s", model, where_to_get_more)


def best_installed() -> Path:
    """The model to use when none is named.

    Raises:
        ModelNotFoundError: no full model is installed.
    """
    return store.best_installed(ARCHITECTURES, nano_files.is_complete)


def partials_for(engine: Engine, name: str, wanted: str | None) -> Path | None:
    """The file of another model that is to give the partials of an engine, if one is.

    An engine that writes token by token takes too long to be asked over and over, so it gets the best other model
    there is, with a notice.

    Args:
        engine: which has the last word.
        name: of its model.
        wanted: what was asked for: a model, NO_PARTIALS, or nothing.

    Raises:
        ModelNotFoundError: there is no such model.
        FetchError: it is not installed, and cannot be fetched now.
    """
    if wanted is not None:
        return None if wanted == NO_PARTIALS else first_use.find(wanted)
    if not isinstance(engine, AutoregressiveEngine):
        return None
    if name in store.DEMONSTRATION_MODELS:
        path = store.built_in(store.DEMONSTRATION_MODEL)
    else:
        try:
            path = store.best_installed(_PARTIALS_ARCHITECTURES)
        except ModelNotFoundError:
            _log.warning(
                "%s writes its text when a segment ends; for text while someone speaks, a faster model is needed "
                "beside it: %s (or say --partials none)",
                name, store.download_command(),
            )  # fmt: skip
            return None
    _log.warning(
        "the text while someone speaks comes from %s, and %s has the last word; --partials chooses another, or none",
        store.name_of(path), name,
    )  # fmt: skip
    return path


def open_partials(path: Path | None, threads: int | None) -> Engine | None:
    """The engine of the model that is to give the partials, if one is.

    Raises:
        UsageError: it writes, so it cannot keep up with partials.
    """
    if path is None:
        return None
    engine = open_engine(path, threads)
    if isinstance(engine, AutoregressiveEngine):
        engine.close()
        raise UsageError(
            f"--partials {store.name_of(path)}: it writes word by word, too slowly to be asked while someone speaks; "
            "name a quicker model, as paraformer-streaming or sensevoice-small"
        )
    return engine


def open_model(
    model: str | None, threads: int | None, cmvn: Path | None, decoding: DecodeOptions
) -> tuple[Engine, str]:
    """The engine of a model, or of the best one installed, and the model's name.

    Raises:
        ModelError: there is no such model, or it cannot be run.
        FetchError: it is not installed, and cannot be fetched now.
        UsageError: it cannot do what is asked of its decodes.
    """
    path = first_use.find(model) if model else best_installed()
    name = store.name_of(path)
    if store.is_demonstration(path):
        notice_demonstration(name, f"A full model: {store.download_command()}")
    engine = open_engine(path, threads, cmvn)
    try:
        _check(engine, name, decoding)
    except UsageError:
        engine.close()
        raise
    return engine, name


def _check(engine: Engine, name: str, decoding: DecodeOptions) -> None:
    if decoding.language not in engine.languages:
        raise UsageError(f"--language {decoding.language}: {name} takes {', '.join(engine.languages)}")
    if decoding.hotwords and not engine.takes_hotwords:
        raise UsageError(f"--hotword: {name} takes no hot words; {store.NANO} does")


def check_output(path: Path, *, force: bool) -> None:
    """Refuse to write a model where something is that must not be replaced.

    Raises:
        OutputError: it is no file, is not called as one, or it is there and nobody said `force`.
    """
    if path.suffix != ".gguf":
        raise OutputError(path, "is no name for a model; let it end in .gguf")
    if path.exists() and not path.is_file():
        raise OutputError(path, "is no file that could be replaced")
    if path.exists() and not force:
        raise OutputError(path, "exists already; use --force to replace it")


def decode_options(language: Language, itn: bool, hotwords: Sequence[str]) -> DecodeOptions:
    """What is asked of every decode.

    Raises:
        UsageError: these are no hot words.
    """
    try:
        return DecodeOptions(language, itn, tuple(hotwords))
    except UsageError as error:
        raise UsageError(f"--hotword: {error}") from error

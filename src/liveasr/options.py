"""What several commands make of their options."""

import logging
from pathlib import Path

from liveasr import store
from liveasr.engines.base import AutoregressiveEngine, Engine
from liveasr.engines.registry import ARCHITECTURES, open_engine
from liveasr.errors import UsageError
from liveasr.stream.detect import DetectorKind
from liveasr.types import Language
from liveasr.vad.config import VadConfig

_log = logging.getLogger("liveasr")


def vad_config(
    end_silence_ms: int,
    schedule: bool,
    max_segment_ms: int,
    speech_threshold: float | None,
    min_speech_ms: int,
    pad_before_ms: int,
    pad_after_ms: int,
) -> VadConfig:
    """The settings of the voice activity detection."""
    return VadConfig(
        end_silence_ms=None if schedule else end_silence_ms,
        max_segment_ms=max_segment_ms,
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


def open_partials(model: str | None, threads: int | None) -> Engine | None:
    """The engine of the model that is to give the partials, if one is named.

    Raises:
        UsageError: it writes, so it cannot keep up with partials.
    """
    if model is None:
        return None
    path = store.find(model)
    engine = open_engine(path, threads)
    if isinstance(engine, AutoregressiveEngine):
        engine.close()
        raise UsageError(
            f"--partials {path.stem}: it writes word by word, too slowly to be asked while someone speaks; "
            "name a quicker model, as paraformer-streaming or sensevoice-small"
        )
    return engine


def open_model(
    model: str | None, threads: int | None, cmvn: Path | None, language: Language = "auto"
) -> tuple[Engine, str]:
    """The engine of a model, or of the best one installed, and the model's name.

    Raises:
        ModelError: there is no such model, or it cannot be run.
        UsageError: it cannot be told that language.
    """
    path = store.find(model) if model else store.best_installed(ARCHITECTURES)
    if store.is_demonstration(path):
        notice_demonstration(path.stem, f"A full model: {store.download_command()}")
    engine = open_engine(path, threads, cmvn)
    if language not in engine.languages:
        engine.close()
        raise UsageError(f"--language {language}: {path.stem} takes {', '.join(engine.languages)}")
    return engine, path.stem

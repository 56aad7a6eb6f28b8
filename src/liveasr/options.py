"""What several commands make of their options."""

import logging
from pathlib import Path

from liveasr import store
from liveasr.engines.base import Engine
from liveasr.engines.registry import ARCHITECTURES, open_engine
from liveasr.stream.detect import DetectorKind
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


def notice_demonstration(where_to_get_more: str) -> None:
    """Warn that nobody should expect more than digits."""
    _log.warning("'digits' is a demonstration: it knows ten words, zero to nine, in English. %s", where_to_get_more)


def open_model(model: str | None, threads: int | None, cmvn: Path | None) -> tuple[Engine, str]:
    """The engine of a model, or of the best one installed, and the model's name."""
    path = store.find(model) if model else store.best_installed(ARCHITECTURES)
    if path == store.built_in(store.DEMONSTRATION_MODEL):
        notice_demonstration(f"A full model: {store.download_command()}")
    return open_engine(path, threads, cmvn), path.stem

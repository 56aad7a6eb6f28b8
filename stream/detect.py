"""What a segmenter asks of a voice activity detector, and the detectors fitted to it.

The detectors take finished features; stacking them is done here, since features belong to this room.
"""

import logging
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from liveasr import store
from liveasr.errors import ModelError
from liveasr.gguf_file import GgufFile
from liveasr.stream.fbank import FRAME_SAMPLES, HOP_SAMPLES, MEL_BINS
from liveasr.stream.lfr import OnlineLfr
from liveasr.types import FeatureFrames, Float32Array, SpeechEvent
from liveasr.vad import weights
from liveasr.vad.config import VadConfig
from liveasr.vad.endpoint import Endpointer
from liveasr.vad.fsmn import SILENCE, FsmnScorer
from liveasr.vad.webrtc import WebrtcScorer
from liveasr.vad.weights import FsmnWeights
from liveasr.vad.windows import FixedWindows

DetectorKind: TypeAlias = Literal["fsmn", "webrtc", "none"]
Watcher: TypeAlias = Callable[[Float32Array], None]
_log = logging.getLogger("liveasr")


class Detector(Protocol):
    """Audio and its features in, speech events out; `accept` and `flush` any number of times, then `finish` once."""

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        ...

    @property
    def speech_frames(self) -> int:
        """Frames of speech (10 ms each) in the open segment so far; 0 if none is open."""
        ...

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:
        """Events of the next samples (n,), and of the log-mel frames that they completed."""
        ...

    def flush(self) -> list[SpeechEvent]:
        """End the open segment where the frames scored so far end."""
        ...

    def finish(self) -> list[SpeechEvent]:
        """Events of the end of the stream."""
        ...


class _ScoringDetector:
    """What detectors that score every 10 ms have in common: endpoints from their scores."""

    def __init__(self, config: VadConfig, score_delay_samples: int, watch: Watcher) -> None:
        self._endpointer = Endpointer(config, score_delay_samples)
        self._watch = watch

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        return self._endpointer.earliest_start_frame * HOP_SAMPLES

    @property
    def speech_frames(self) -> int:
        """Frames of speech in the open segment so far."""
        return self._endpointer.speech_frames

    def flush(self) -> list[SpeechEvent]:
        """End the open segment."""
        return self._endpointer.flush()

    def _follow(self, silence: Float32Array) -> list[SpeechEvent]:
        """Events of the next silence scores, (n,)."""
        self._watch(silence)
        return self._endpointer.accept(silence)


class FsmnDetector(_ScoringDetector):
    """Log-mel frames -> LFR -> FSMN scores -> endpoints."""

    def __init__(self, fsmn: FsmnWeights, config: VadConfig, watch: Watcher = lambda _silence: None) -> None:
        # The score of a frame needs the frames stacked around it.
        super().__init__(config, (fsmn.lfr_m - 1) // 2 * HOP_SAMPLES + FRAME_SAMPLES, watch)
        self._lfr = OnlineLfr(fsmn.lfr_m, fsmn.lfr_n, MEL_BINS)
        self._scorer = FsmnScorer(fsmn)

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:  # noqa: ARG002 - the contract
        """Events of the next log-mel frames."""
        return self._follow(self._score(self._lfr.accept(frames)))

    def finish(self) -> list[SpeechEvent]:
        """Events of the last frames and of the end."""
        return self._follow(self._score(self._lfr.finish())) + self._endpointer.finish()

    def _score(self, stacked: FeatureFrames) -> Float32Array:
        return self._scorer.accept(stacked.data)[:, SILENCE]


class WebrtcDetector(_ScoringDetector):
    """Samples -> WebRTC's decisions -> endpoints."""

    def __init__(self, scorer: WebrtcScorer, config: VadConfig, watch: Watcher = lambda _silence: None) -> None:
        super().__init__(config, scorer.window_samples, watch)
        self._scorer = scorer

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:  # noqa: ARG002 - the contract
        """Events of the next samples."""
        return self._follow(self._scorer.accept(samples))

    def finish(self) -> list[SpeechEvent]:
        """The end of the open segment."""
        return self._endpointer.finish()


class WindowDetector:
    """No detection: windows of the longest segment."""

    def __init__(self, config: VadConfig) -> None:
        self._windows = FixedWindows(config.max_segment_ms)

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        return self._windows.earliest_start

    @property
    def speech_frames(self) -> int:
        """All frames of the open window: without detection everything counts as speech."""
        return self._windows.open_samples // HOP_SAMPLES

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:  # noqa: ARG002 - the contract
        """Events of the next samples."""
        return self._windows.accept(samples.size)

    def flush(self) -> list[SpeechEvent]:
        """End the open window."""
        return self._windows.flush()

    def finish(self) -> list[SpeechEvent]:
        """The end of the last window."""
        return self._windows.finish()


def detectors(kind: DetectorKind, config: VadConfig, watch: Watcher = lambda _silence: None) -> Callable[[], Detector]:
    """A maker of fresh detectors of the same settings, one for each stream. Arguments as of `detector_maker`."""
    make = detector_maker(kind, watch)
    return lambda: make(config)


def detector_maker(kind: DetectorKind, watch: Watcher = lambda _silence: None) -> Callable[[VadConfig], Detector]:
    """A maker of fresh detectors, which share what can be shared.

    Where the weights of the FSMN-VAD cannot be read, WebRTC's detector takes its place, with a warning.

    Args:
        kind: which.
        watch: sees the silence score of every 10 ms; windows have none.
    """
    if kind == "none":
        return WindowDetector
    if kind == "fsmn":
        try:
            with GgufFile(store.built_in(store.VAD_MODEL)) as file:
                fsmn = weights.load(file)
            return lambda config: FsmnDetector(fsmn, config, watch)
        except ModelError as error:
            _log.warning("%s; falling back to WebRTC's voice activity detector, which is less exact", error)
    return lambda config: WebrtcDetector(WebrtcScorer(), config, watch)

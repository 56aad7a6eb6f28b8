"""What a segmenter asks of a voice activity detector, and the FSMN-VAD fitted to it.

The VAD itself takes finished features; stacking them for it is done here, since features belong to this room.
"""

from typing import Protocol

from liveasr.stream.fbank import HOP_SAMPLES, MEL_BINS
from liveasr.stream.lfr import OnlineLfr
from liveasr.types import FeatureFrames, Float32Array, SpeechEvent
from liveasr.vad.config import VadConfig
from liveasr.vad.endpoint import Endpointer
from liveasr.vad.fsmn import SILENCE, FsmnScorer
from liveasr.vad.weights import FsmnWeights
from liveasr.vad.windows import FixedWindows


class Detector(Protocol):
    """Audio and its features in, speech events out; `accept` any number of times, then `finish` once."""

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        ...

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:
        """Events of the next samples (n,), and of the log-mel frames that they completed."""
        ...

    def finish(self) -> list[SpeechEvent]:
        """Events of the end of the stream."""
        ...


class FsmnDetector:
    """Log-mel frames -> LFR -> FSMN scores -> endpoints."""

    def __init__(self, weights: FsmnWeights, config: VadConfig) -> None:
        self._lfr = OnlineLfr(weights.lfr_m, weights.lfr_n, MEL_BINS)
        self._scorer = FsmnScorer(weights)
        self._endpointer = Endpointer(config)

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        return self._endpointer.earliest_start_frame * HOP_SAMPLES

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:  # noqa: ARG002 - the contract
        """Events of the next log-mel frames."""
        return self._endpointer.accept(self._score(self._lfr.accept(frames)))

    def finish(self) -> list[SpeechEvent]:
        """Events of the last frames and of the end."""
        return self._endpointer.accept(self._score(self._lfr.finish())) + self._endpointer.finish()

    def _score(self, stacked: FeatureFrames) -> Float32Array:
        return self._scorer.accept(stacked.data)[:, SILENCE]


class WindowDetector:
    """No detection: windows of the longest segment."""

    def __init__(self, config: VadConfig) -> None:
        self._windows = FixedWindows(config.max_segment_ms)

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        return self._windows.earliest_start

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:  # noqa: ARG002 - the contract
        """Events of the next samples."""
        return self._windows.accept(samples.size)

    def finish(self) -> list[SpeechEvent]:
        """The end of the last window."""
        return self._windows.finish()

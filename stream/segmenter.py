"""Audio in, speech segments with their features out. The features are computed once, for the VAD and the recogniser.

Kaldi frames carry nothing over from one to the next and VAD times lie on the 10 ms grid, so the frames of a segment
are a slice of the stream's, equal to the bit to the frames of the audio cut there.
"""

from dataclasses import dataclass

import numpy as np

from liveasr.stream.detect import Detector
from liveasr.stream.fbank import HOP_SAMPLES, MEL_BINS, OnlineFbank, frame_count
from liveasr.stream.ring import FrameRing
from liveasr.types import FeatureFrames, Float32Array, SpeechEvent, SpeechStart


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A stretch of speech, complete."""

    segment_id: int
    """0, 1, 2, ... in the order of the stream."""
    start_sample: int
    end_sample: int
    forced_cut: bool
    frames: Float32Array
    """(T, 80) log-mel frames of the samples [start_sample, end_sample)."""


class Segmenter:
    """Cuts a stream into segments. Call `accept` (or `follow`, `flush`) any number of times, then `finish` once.

    Keeps the frames of the open segment and of the detector's look-back, no more.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._fbank = OnlineFbank()
        self._ring = FrameRing(MEL_BINS)
        self._start: int | None = None  # sample of the open segment
        self._next_id = 0

    def accept(self, samples: Float32Array) -> list[Segment]:
        """The segments that end within these samples: (n,) float32 in [-1, 1], 16 kHz, mono."""
        return [step for step in self.follow(samples) if isinstance(step, Segment)]

    def finish(self) -> list[Segment]:
        """The segments that the end of the stream ends."""
        return [step for step in self.follow_end() if isinstance(step, Segment)]

    def follow(self, samples: Float32Array) -> list[SpeechEvent | Segment]:
        """As `accept`, with all events in order; each SpeechEnd is followed by its segment."""
        frames = self._fbank.accept(samples)
        return self._handle(frames, self._detector.accept(samples, frames))

    def flush(self) -> list[SpeechEvent | Segment]:
        """End the open segment here, up to 50 ms before the last sample; the stream goes on."""
        return self._handle(self._fbank.accept(np.zeros(0, np.float32)), self._detector.flush())

    def follow_end(self) -> list[SpeechEvent | Segment]:
        """As `finish`, with all events in order."""
        return self._handle(self._fbank.finish(), self._detector.finish())

    @property
    def end_frame(self) -> int:
        """How many frames the stream has had so far."""
        return self._ring.end_frame

    def open_frames(self, start_frame: int) -> Float32Array:
        """The frames from start_frame, which must not lie before the open segment, to the latest."""
        return self._ring.slice(start_frame, self._ring.end_frame)

    def _handle(self, frames: FeatureFrames, events: list[SpeechEvent]) -> list[SpeechEvent | Segment]:
        self._ring.append(frames)
        steps: list[SpeechEvent | Segment] = []
        for event in events:
            steps.append(event)
            if isinstance(event, SpeechStart):
                self._start = event.sample
                continue
            assert self._start is not None, "a detector ends only what it began"
            steps.append(self._segment(self._start, event.sample, forced_cut=event.forced_cut))
            self._start = None
        self._ring.drop_before(self._detector.earliest_start // HOP_SAMPLES)
        return steps

    def _segment(self, start: int, end: int, *, forced_cut: bool) -> Segment:
        first = start // HOP_SAMPLES
        frames = self._ring.slice(first, first + frame_count(end - start))
        segment = Segment(self._next_id, start, end, forced_cut, frames)
        self._next_id += 1
        return segment

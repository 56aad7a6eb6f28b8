"""Audio in, speech segments with their features out. The features are computed once, for the VAD and the recogniser.

Kaldi frames carry nothing over from one to the next and VAD times lie on the 10 ms grid, so the frames of a segment
are a slice of the stream's, equal to the bit to the frames of the audio cut there.
"""

from dataclasses import dataclass

import numpy as np

from liveasr.stream.detect import Detector
from liveasr.stream.fbank import HOP_SAMPLES, MEL_BINS, OnlineFbank, frame_count
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
    """Cuts a stream into segments. Call `accept` any number of times, then `finish` once.

    Keeps the frames of the open segment and of the detector's look-back, no more.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._fbank = OnlineFbank()
        self._frames = np.empty((0, MEL_BINS), np.float32)
        self._first_frame = 0  # absolute index of self._frames[0]
        self._start: int | None = None  # sample of the open segment
        self._next_id = 0

    def accept(self, samples: Float32Array) -> list[Segment]:
        """The segments that end within these samples: (n,) float32 in [-1, 1], 16 kHz, mono."""
        frames = self._fbank.accept(samples)
        return self._handle(frames, self._detector.accept(samples, frames))

    def finish(self) -> list[Segment]:
        """The segments that the end of the stream ends."""
        return self._handle(self._fbank.finish(), self._detector.finish())

    def _handle(self, frames: FeatureFrames, events: list[SpeechEvent]) -> list[Segment]:
        self._frames = np.concatenate((self._frames, frames.data))
        segments = []
        for event in events:
            if isinstance(event, SpeechStart):
                self._start = event.sample
                continue
            assert self._start is not None, "a detector ends only what it began"
            segments.append(self._segment(self._start, event.sample, forced_cut=event.forced_cut))
            self._start = None
        drop = min(self._detector.earliest_start // HOP_SAMPLES - self._first_frame, len(self._frames))
        if drop > 0:
            self._frames = self._frames[drop:].copy()
            self._first_frame += drop
        return segments

    def _segment(self, start: int, end: int, *, forced_cut: bool) -> Segment:
        first = start // HOP_SAMPLES - self._first_frame
        frames = self._frames[first : first + frame_count(end - start)].copy()
        segment = Segment(self._next_id, start, end, forced_cut, frames)
        self._next_id += 1
        return segment

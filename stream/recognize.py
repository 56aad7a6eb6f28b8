"""An engine with what is asked of it, fitted to the segments of a stream."""

from dataclasses import dataclass

from liveasr.engines.base import AutoregressiveEngine, DecodeOptions, Draft, Engine
from liveasr.stream import lfr, second_look
from liveasr.stream.second_look import Verdict
from liveasr.stream.segmenter import Segment
from liveasr.types import SAMPLES_PER_MS, Float32Array, Hypothesis, Transcript, Word


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Turns segments into transcripts."""

    engine: Engine
    options: DecodeOptions

    def features(self, segment: Segment) -> Float32Array:
        """The frames of a segment, stacked as the engine takes them."""
        front = self.engine.front_end
        return lfr.stack(segment.frames, front.lfr_m, front.lfr_n)

    def encode(self, features: Float32Array) -> Float32Array:
        """The encoder alone, for measuring."""
        return self.engine.encode(features, self.options)

    def decode(self, features: Float32Array) -> Hypothesis:
        """What is said in a segment, its times counted from the segment's start."""
        return self.engine.decode(features, self.options)

    @property
    def writes(self) -> bool:
        """Whether the engine goes token by token, so that `write` may be called."""
        return isinstance(self.engine, AutoregressiveEngine)

    def write(self, features: Float32Array, draft: Draft) -> Hypothesis:
        """`decode` that tells every token."""
        assert isinstance(self.engine, AutoregressiveEngine)
        return self.engine.write(features, self.options, draft)

    def transcript(self, segment: Segment) -> Transcript:
        """The transcript of one segment, its times on the clock of the stream."""
        verdict = decode_segment(self.engine, segment, self.features(segment), self.options)
        return to_transcript(segment, verdict.hypothesis)


def decode_segment(
    engine: Engine,
    segment: Segment,
    features: Float32Array,
    options: DecodeOptions,
    draft: Draft = lambda _written: True,
    heard: Hypothesis | None = None,
) -> Verdict:
    """What stands as said in a whole segment, for its final.

    Args:
        engine: what decodes.
        segment: the segment.
        features: (T, dims) its frames, stacked as the engine takes them.
        options: what the caller wants.
        draft: sees what is written, where the engine writes.
        heard: what the partials of the segment agreed on, if there were any.
    """
    if isinstance(engine, AutoregressiveEngine):
        return second_look.write(engine, features, segment.frames, options, draft, heard)
    return Verdict(engine.decode(features, options))


def to_transcript(segment: Segment, hypothesis: Hypothesis) -> Transcript:
    """A hypothesis with times that count from the start of the stream; its words rise and stay inside the segment."""
    start_ms = segment.start_sample // SAMPLES_PER_MS
    end_ms = segment.end_sample // SAMPLES_PER_MS
    words = tuple(
        Word(word.text, min(start_ms + word.start_ms, end_ms), min(start_ms + word.end_ms, end_ms))
        for word in hypothesis.words
    )
    return Transcript(
        segment_id=segment.segment_id,
        text=hypothesis.text,
        words=words,
        start_ms=start_ms,
        end_ms=end_ms,
        forced_cut=segment.forced_cut,
        language=hypothesis.language,
        emotion=hypothesis.emotion,
        event=hypothesis.event,
    )

"""From a segment to its transcript: stack its frames for the engine, decode, put the words on the stream's clock."""

from liveasr.engines.base import DecodeOptions, Engine
from liveasr.stream import lfr
from liveasr.stream.segmenter import Segment
from liveasr.types import SAMPLES_PER_MS, Hypothesis, Transcript, Word


def recognize(segment: Segment, engine: Engine, options: DecodeOptions) -> Transcript:
    """The transcript of one segment; its words rise and stay inside it."""
    stacked = lfr.stack(segment.frames, engine.front_end.lfr_m, engine.front_end.lfr_n)
    return to_transcript(segment, engine.decode(stacked, options))


def to_transcript(segment: Segment, hypothesis: Hypothesis) -> Transcript:
    """A hypothesis with times that count from the start of the stream."""
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

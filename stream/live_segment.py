"""A segment that has no final yet: what was asked about it, what was heard, and what of that is on the screen."""

from dataclasses import dataclass, field

from liveasr.stream.lfr import OnlineLfr
from liveasr.stream.overlay import overlaid
from liveasr.stream.segmenter import Segment
from liveasr.stream.spelling import joined, spaced
from liveasr.stream.stabilize import Stabilizer
from liveasr.types import SAMPLES_PER_MS, Hypothesis, LiveTranscript, Transcript, Word


@dataclass(slots=True)
class LiveSegment:
    """The state of one segment. Its revisions come from `revise`, the last one from `finish`."""

    segment_id: int
    start_sample: int
    stabilizer: Stabilizer = field(default_factory=Stabilizer)
    revision: int = 0
    speech_at_request: int = 0
    """Frames of speech that the last request knew of."""
    asked_at_frame: int = 0
    """Where the audio of the last request ended."""
    answered_until_ms: int = 0
    """Where the audio of the last partial applied ended."""
    rows: OnlineLfr | None = None
    """Of the frames that a streaming engine has got."""
    draft: list[Word] = field(default_factory=list)
    """What is written of the final, spaced."""
    shown: tuple[str, str] = ("", "")
    """Committed and tentative text of the last revision."""
    shown_until_ms: int = 0
    final: Transcript | None = None
    """It is there, but waits for those of the segments before."""

    def revise(self, heard_until_ms: int) -> list[LiveTranscript]:
        """What there is to show, if it is something new.

        Args:
            heard_until_ms: where the audio ends that it was heard in.
        """
        stabilizer = self.stabilizer
        tentative = joined(overlaid(stabilizer.committed_words, stabilizer.tentative_words, self.draft))
        self.shown_until_ms = max(self.shown_until_ms, heard_until_ms)
        if (stabilizer.committed, tentative) == self.shown:
            return []
        self.shown = (stabilizer.committed, tentative)
        self.revision += 1
        return [
            LiveTranscript(
                segment_id=self.segment_id,
                revision=self.revision,
                committed=stabilizer.committed,
                tentative=tentative,
                start_ms=self.start_sample // SAMPLES_PER_MS,
                end_ms=self.shown_until_ms,
            )
        ]

    def agreed_on(self, segment: Segment) -> Hypothesis | None:
        """What the partials agreed on, as a hypothesis of the segment now that it has ended; None if on nothing.

        Behind a forced cut they may have heard more than the segment holds.
        """
        start_ms, end_ms = segment.start_sample // SAMPLES_PER_MS, segment.end_sample // SAMPLES_PER_MS
        within = [word for word in self.stabilizer.stable_words if (word.start_ms + word.end_ms) // 2 < end_ms]
        words = [Word(word.text.strip(), word.start_ms - start_ms, word.end_ms - start_ms) for word in within]
        return Hypothesis((), joined(within), tuple(words)) if words else None

    def finish(self, final: Transcript) -> LiveTranscript:
        """The last revision."""
        self.stabilizer.finish(spaced(final.text, final.words), written=bool(self.draft))
        return LiveTranscript(
            segment_id=self.segment_id,
            revision=self.revision + 1,
            committed=self.stabilizer.committed,
            tentative="",
            start_ms=final.start_ms,
            end_ms=final.end_ms,
            final=final,
        )

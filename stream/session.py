"""A live session: sound in as it is spoken; decode requests, speech events and transcripts out. No I/O, no clock.

    accept(samples) -> SpeechStart | SpeechEnd | DecodeRequest ...      whoever drives the session decodes the requests
    decoded(request, hypothesis, took_ms) -> LiveTranscript ...         and brings back what was heard
    drafted(request, hypothesis) -> LiveTranscript ...                  or, before that, what is written of a final

While a segment is open, partial requests ask for a decode of what is there. The first comes after 480 ms of speech; how
soon the next one follows depends on how long the last one took, so that partials never take more than a share of the
engine, and on how much there is to decode, so that a long segment costs what a short one does; and none is made until
there is new speech. A partial covers at most the last 5 s: before that, the words are committed already. Where a
streaming engine gives the partials, a request holds only what is new of the segment, and the engine's answer is the
whole of it so far.

When a segment ends, one final request asks for all of it, cut exactly as the file transcriber cuts it, and its answer
is the only final of that segment. Finals come out in the order of the stream. An engine that writes token by token can
be watched: its drafts of a final cover what the partials heard, but commit nothing.
"""

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from liveasr.engines.base import FrontEnd
from liveasr.stream import lfr
from liveasr.stream.detect import Detector
from liveasr.stream.fbank import HOP_SAMPLES
from liveasr.stream.lfr import OnlineLfr
from liveasr.stream.live_segment import LiveSegment
from liveasr.stream.recognize import to_transcript
from liveasr.stream.segmenter import Segment, Segmenter
from liveasr.stream.spelling import spaced
from liveasr.types import (
    SAMPLES_PER_MS,
    FeatureFrames,
    Float32Array,
    Hypothesis,
    LiveTranscript,
    SpeechEnd,
    SpeechEvent,
    SpeechStart,
    Word,
)

_FRAME_MS = HOP_SAMPLES // SAMPLES_PER_MS


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """What is shown of a segment before its final, and how often."""

    partials: bool = True
    drafts: bool = True
    """Of finals, where the engine writes."""
    first_partial_ms: int = 480
    """Of speech, before the first partial of a segment."""
    partial_interval_ms: int = 320
    """Of audio between partials, at least."""
    interval_of_window: float = 0.15
    """Of what a partial decodes, so long at least to the next."""
    engine_share: float = 0.35
    """Of the time, at most, that the partials of one session keep a lane busy."""
    window_ms: int = 5_000
    """The longest end of a segment that a partial decodes."""
    max_segment_ms: int = 20_000
    """As in VadConfig: nothing is committed that a forced cut may still move to the next segment."""
    cut_ms: int = 5_000
    """How far back a forced cut may lie."""


@dataclass(frozen=True, slots=True)
class PartialInput:
    """What the engine of the partials takes."""

    front_end: FrontEnd
    streaming: bool
    """Each row of a segment once, and not its end again and again."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeRequest:
    """One decode to be done."""

    segment_id: int
    is_final: bool
    start_ms: int
    """Where the audio of the features begins and ends in the stream."""
    end_ms: int
    features: Float32Array
    """(T, dims) stacked frames, as the engine takes them."""
    segment: Segment | None = None
    """Of a final."""
    heard: Hypothesis | None = None
    """For a final, what the partials agreed on, if they did; times count from the start of the segment."""
    is_next: bool = False
    """The features follow those of the segment's last request: they are for the streaming engine."""


SessionStep: TypeAlias = SpeechEvent | DecodeRequest


class Session:
    """One stream of speech. Call `accept` and `flush` any number of times, then `finish` once; `decoded` for answers.

    Args:
        detector: a fresh one.
        front_end: of the engine that decodes.
        config: how partials are made.
        partials: what the engine of the partials takes, if that is another one.
    """

    def __init__(
        self, detector: Detector, front_end: FrontEnd, config: LiveConfig, partials: PartialInput | None = None
    ) -> None:
        self.config = config
        self._front_end = front_end
        self._partials = partials or PartialInput(front_end, streaming=False)
        self._detector = detector
        self._segmenter = Segmenter(detector)
        self._live: deque[LiveSegment] = deque()  # in order; the last one is open while _open says so
        self._open = False
        self._next_id = 0
        self._pace_frames = config.partial_interval_ms // _FRAME_MS  # between partials, as the engine can

    @property
    def finals_pending(self) -> int:
        """Segments that ended and whose final is not out."""
        return len(self._live) - self._open

    @property
    def settled_sample(self) -> int:
        """All audio before it has its final, or is no speech."""
        return self._live[0].start_sample if self._live else self._detector.earliest_start

    def accept(self, samples: Float32Array, *, partials: bool = True) -> list[SessionStep]:
        """Speech events and decode requests that these samples bring.

        Args:
            samples: (n,) float32 in [-1, 1], 16 kHz, mono.
            partials: whether there is time for one now; otherwise it is made later, of what is there by then.
        """
        steps = self._handle(self._segmenter.follow(samples))
        request = self._partial_request() if partials else None
        return steps if request is None else [*steps, request]

    def flush(self) -> list[SessionStep]:
        """End the open segment here: its end, and the request for its final. The stream goes on."""
        return self._handle(self._segmenter.flush())

    def finish(self) -> list[SessionStep]:
        """End the stream: the end of an open segment, and the request for its final."""
        return self._handle(self._segmenter.follow_end())

    def decoded(self, request: DecodeRequest, hypothesis: Hypothesis, took_ms: float) -> list[LiveTranscript]:
        """Take the answer to a request; answers that came too late give nothing.

        Args:
            request: what was decoded.
            hypothesis: what was heard.
            took_ms: how long the engine worked on it.
        """
        live = self._awaited(request)
        if live is None:
            return []
        if request.segment is None:
            return self._apply_partial(live, request, hypothesis, took_ms)
        live.final = to_transcript(request.segment, hypothesis)
        transcripts = []
        while self._live and (final := self._live[0].final) is not None:
            transcripts.append(self._live.popleft().finish(final))
        return transcripts

    def drafted(self, request: DecodeRequest, hypothesis: Hypothesis) -> list[LiveTranscript]:
        """Take what is written so far of the answer to the request for a final; shown, but nothing is committed."""
        live = self._awaited(request)
        if live is None or not self.config.drafts or not hypothesis.words:
            return []  # no words, as a second look begins: what was written first stays until there are some
        live.draft = spaced(hypothesis.text, hypothesis.words)
        return live.revise(request.end_ms)

    def _awaited(self, request: DecodeRequest) -> LiveSegment | None:
        """The segment of a request, if its final is still to come."""
        return next((each for each in self._live if each.segment_id == request.segment_id and not each.final), None)

    def _handle(self, steps: list[SpeechEvent | Segment]) -> list[SessionStep]:
        found: list[SessionStep] = []
        for step in steps:
            if isinstance(step, SpeechStart):
                self._live.append(LiveSegment(self._next_id, step.sample, asked_at_frame=step.sample // HOP_SAMPLES))
                self._next_id += 1
                self._open = True
            elif isinstance(step, SpeechEnd):
                self._open = False
            else:
                found.append(self._final_request(self._live[-1], step))
                continue
            found.append(step)
        return found

    def _final_request(self, live: LiveSegment, segment: Segment) -> DecodeRequest:
        return DecodeRequest(
            segment_id=segment.segment_id,
            is_final=True,
            start_ms=segment.start_sample // SAMPLES_PER_MS,
            end_ms=segment.end_sample // SAMPLES_PER_MS,
            features=lfr.stack(segment.frames, self._front_end.lfr_m, self._front_end.lfr_n),
            segment=segment,
            heard=live.agreed_on(segment),
        )

    def _partial_request(self) -> DecodeRequest | None:
        """A decode of the open segment, if it is time for one."""
        if not (self._open and self.config.partials):
            return None
        live = self._live[-1]
        end_frame = self._segmenter.end_frame
        speech = self._detector.speech_frames
        first = live.speech_at_request == 0
        due = speech * _FRAME_MS >= self.config.first_partial_ms if first else speech > live.speech_at_request
        if not due or (not first and end_frame - live.asked_at_frame < self._interval_frames(live, end_frame)):
            return None
        live.speech_at_request = speech
        live.asked_at_frame = end_frame
        front_end = self._partials.front_end
        if self._partials.streaming:
            return self._next_request(live, front_end, end_frame)
        start_frame = self._window_start(live, end_frame)
        frames = self._segmenter.open_frames(start_frame)
        return DecodeRequest(
            segment_id=live.segment_id,
            is_final=False,
            start_ms=start_frame * _FRAME_MS,
            end_ms=end_frame * _FRAME_MS,
            features=lfr.stack(frames, front_end.lfr_m, front_end.lfr_n),
        )

    def _interval_frames(self, live: LiveSegment, end_frame: int) -> int:
        """Between the last partial and the next."""
        if self._partials.streaming:
            return self._pace_frames
        window_frames = end_frame - self._window_start(live, end_frame)
        return max(self._pace_frames, int(window_frames * self.config.interval_of_window))

    def _next_request(self, live: LiveSegment, front_end: FrontEnd, end_frame: int) -> DecodeRequest:
        """What is new of the open segment."""
        start_frame = live.start_sample // HOP_SAMPLES
        if live.rows is None:
            live.rows = OnlineLfr(front_end.lfr_m, front_end.lfr_n, front_end.mel_bins)
        given = live.rows.end_frame
        frames = FeatureFrames(self._segmenter.open_frames(start_frame + given), given)
        return DecodeRequest(
            segment_id=live.segment_id,
            is_final=False,
            start_ms=(start_frame + given) * _FRAME_MS,
            end_ms=end_frame * _FRAME_MS,
            features=live.rows.accept(frames).data,
            is_next=True,
        )

    def _window_start(self, live: LiveSegment, end_frame: int) -> int:
        """Where a partial begins: with the segment, or, once that is too long, between two committed words."""
        start_frame = live.start_sample // HOP_SAMPLES
        earliest = end_frame - self.config.window_ms // _FRAME_MS
        if earliest <= start_frame:
            return start_frame
        ends = [word.end_ms // _FRAME_MS for word in live.stabilizer.committed_words]
        return next((end for end in ends if end >= earliest), earliest)

    def _apply_partial(
        self, live: LiveSegment, request: DecodeRequest, hypothesis: Hypothesis, took_ms: float
    ) -> list[LiveTranscript]:
        self._pace_frames = max(self.config.partial_interval_ms, int(took_ms / self.config.engine_share)) // _FRAME_MS
        if request.end_ms <= live.answered_until_ms:  # lanes may answer in another order
            return []
        live.answered_until_ms = request.end_ms
        start_ms = live.start_sample // SAMPLES_PER_MS
        commit_until_ms = start_ms + max(
            self.config.max_segment_ms - self.config.cut_ms, self.config.max_segment_ms // 2
        )
        heard_from_ms = start_ms if request.is_next else request.start_ms
        words = [
            Word(word.text, heard_from_ms + word.start_ms, heard_from_ms + word.end_ms)
            for word in spaced(hypothesis.text, hypothesis.words)
        ]
        if request.is_next:
            live.stabilizer.follow(words, commit_until_ms)
        else:
            live.stabilizer.accept(words, request.end_ms, commit_until_ms)
        return live.revise(request.end_ms)

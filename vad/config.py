"""What a caller may set of the voice activity detection."""

from dataclasses import dataclass

from liveasr.errors import UsageError

FRAME_MS = 10
SPEECH_TO_SILENCE_MS = 150
"""A pause is noticed this late; an end silence cannot be shorter (`speech_to_sil_time_thres` of the released model)."""
MIN_SEGMENT_MS = 1_000
"""Shortest allowed longest segment: below it every word would be cut."""
MAX_PADDING_MS = 5_000

SILENCE_SCHEDULE = (
    (10_000, 2000),
    (20_000, 1000),
    (30_000, 800),
    (40_000, 600),
    (50_000, 400),
    (60_000, 200),
)
"""(speech so far, the pause that ends it) in ms; `DEFAULT_SILENCE_SCHEDULE` of the reference."""
SCHEDULE_LAST_SILENCE_MS = 100
SCHEDULE_SPEECH_THRESHOLD = 0.5
"""The reference lowers its threshold to this wherever it uses the schedule."""


@dataclass(frozen=True, slots=True)
class VadConfig:
    """Settings of the endpoint machine.

    Raises:
        UsageError: a value is out of range.
    """

    end_silence_ms: int | None = 800
    """A pause of this length ends a segment. None: the longer the segment, the shorter the pause (SILENCE_SCHEDULE)."""
    max_segment_ms: int = 20_000
    """A segment that grows longer is cut at its quietest point."""
    speech_threshold: float | None = None
    """By how much speech must be more probable than silence in a frame; None: 0.6, with the schedule 0.5."""
    min_speech_ms: int = 0
    """A segment with less speech than this is dropped."""
    pad_before_ms: int = 0
    """Begin segments this much earlier than the VAD finds, but never before the last one ended."""
    pad_after_ms: int = 0
    """End segments this much later than the VAD finds, as far as was heard when it found the end."""

    def __post_init__(self) -> None:
        if self.end_silence_ms is not None and self.end_silence_ms < SPEECH_TO_SILENCE_MS:
            raise UsageError(f"end silence is {self.end_silence_ms} ms; at least {SPEECH_TO_SILENCE_MS} ms are needed")
        if self.max_segment_ms < MIN_SEGMENT_MS:
            raise UsageError(
                f"the longest segment is {self.max_segment_ms} ms; at least {MIN_SEGMENT_MS} ms are needed"
            )
        if not -1.0 < self.threshold < 1.0:
            raise UsageError(f"the speech threshold is {self.threshold}; it lies between -1 and 1")
        if self.min_speech_ms < 0:
            raise UsageError(f"the shortest speech is {self.min_speech_ms} ms; it cannot be negative")
        for padding_ms in (self.pad_before_ms, self.pad_after_ms):
            if not 0 <= padding_ms <= MAX_PADDING_MS:
                raise UsageError(f"padding of {padding_ms} ms; it lies between 0 and {MAX_PADDING_MS} ms")

    @property
    def threshold(self) -> float:
        """The speech threshold in force (`speech_noise_thres` of the released model, unless set)."""
        if self.speech_threshold is not None:
            return self.speech_threshold
        return SCHEDULE_SPEECH_THRESHOLD if self.end_silence_ms is None else 0.6

    def end_silence_after(self, speech_ms: int) -> int:
        """The pause in ms that ends a segment which has lasted so long."""
        if self.end_silence_ms is not None:
            return self.end_silence_ms
        for limit_ms, silence_ms in SILENCE_SCHEDULE:
            if speech_ms <= limit_ms:
                return silence_ms
        return SCHEDULE_LAST_SILENCE_MS

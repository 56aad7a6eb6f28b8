"""What a caller may set of the voice activity detection."""

from dataclasses import dataclass

from liveasr.errors import UsageError

FRAME_MS = 10
SPEECH_TO_SILENCE_MS = 150
"""A pause is noticed this late; an end silence cannot be shorter (`speech_to_sil_time_thres` of the released model)."""
MIN_SEGMENT_MS = 1_000
"""Shortest allowed longest segment: below it every word would be cut."""


@dataclass(frozen=True, slots=True)
class VadConfig:
    """Settings of the endpoint machine.

    Raises:
        UsageError: a value is out of range.
    """

    end_silence_ms: int = 800
    """A pause of this length ends a segment."""
    max_segment_ms: int = 20_000
    """A segment that grows longer is cut at its quietest point."""

    def __post_init__(self) -> None:
        if self.end_silence_ms < SPEECH_TO_SILENCE_MS:
            raise UsageError(f"end silence is {self.end_silence_ms} ms; at least {SPEECH_TO_SILENCE_MS} ms are needed")
        if self.max_segment_ms < MIN_SEGMENT_MS:
            raise UsageError(
                f"the longest segment is {self.max_segment_ms} ms; at least {MIN_SEGMENT_MS} ms are needed"
            )

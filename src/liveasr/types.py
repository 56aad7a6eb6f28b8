"""The nouns of liveasr, as plain data.

Inside, positions are absolute samples of the 16 kHz stream, counted from its first sample and never renumbered.
Milliseconds appear only in configuration, in `Word` and in `Transcript`, where people read them.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000

Float32Array: TypeAlias = NDArray[np.float32]
Float64Array: TypeAlias = NDArray[np.float64]
Int32Array: TypeAlias = NDArray[np.int32]

Language: TypeAlias = Literal["auto", "zh", "en", "yue", "ja", "ko"]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureFrames:
    """Consecutive feature frames of one stream."""

    data: Float32Array
    """(frames, dims), C-contiguous."""
    start_frame: int
    """Absolute index of the first row."""

    @property
    def end_frame(self) -> int:
        """Absolute index behind the last row."""
        return self.start_frame + len(self.data)


@dataclass(frozen=True, slots=True)
class SpeechStart:
    """Speech begins at `sample`."""

    sample: int
    """Absolute sample where the segment begins."""
    confirmed_at: int
    """Absolute sample that had to be heard before this could be said."""


@dataclass(frozen=True, slots=True)
class SpeechEnd:
    """The open segment ends before `sample`."""

    sample: int
    """Absolute sample behind the segment."""
    confirmed_at: int
    """Absolute sample that had to be heard before this could be said."""
    forced_cut: bool = False
    """The segment reached its longest length and was cut; speech goes on in the next one."""


SpeechEvent: TypeAlias = SpeechStart | SpeechEnd


@dataclass(frozen=True, slots=True)
class Word:
    """One word, or one character where a script writes no spaces."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a head heard in one segment. Word times count from the start of the segment."""

    token_ids: tuple[int, ...]
    """The ids that the head emitted, tags included."""
    text: str
    """Plain text, without tags."""
    words: tuple[Word, ...]
    language: str | None = None
    """As the model heard it: "zh", "en", ...; None where the model does not tell."""
    emotion: str | None = None
    event: str | None = None
    complete: bool = True
    """False where the head was stopped before it came to its end: it repeated itself, or wrote more than can be said
    in the time."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of one segment. Times count from the start of the stream."""

    segment_id: int
    """0, 1, 2, ... in the order of the stream."""
    text: str
    words: tuple[Word, ...]
    start_ms: int
    end_ms: int
    forced_cut: bool = False
    language: str | None = None
    emotion: str | None = None
    event: str | None = None


@dataclass(frozen=True, slots=True)
class LiveTranscript:
    """What is known of one segment at some moment. Times count from the start of the stream."""

    segment_id: int
    revision: int
    """1, 2, 3, ... within the segment."""
    committed: str
    """Append-only: every revision begins with that of the one before."""
    tentative: str
    """May still change; put behind `committed` as it is. Empty in a final."""
    start_ms: int
    end_ms: int
    """Of what was heard so far; in a final, of the segment."""
    final: Transcript | None = None
    """Exactly one revision of a segment, the last, has it: the text of the whole segment decoded at once, as the file
    transcriber gives it. It may correct words that stand in `committed`."""

    @property
    def is_final(self) -> bool:
        """Whether the segment is done."""
        return self.final is not None

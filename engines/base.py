"""What every engine offers to the rest of the program."""

from dataclasses import dataclass
from typing import Protocol

from liveasr.types import Float32Array, Hypothesis, Language


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The features that an engine takes: stacked log-mel frames, before CMVN."""

    mel_bins: int
    lfr_m: int
    lfr_n: int


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What a caller may ask of a decode."""

    language: Language = "auto"
    itn: bool = False
    """Write numbers as digits and add punctuation, where the model can."""


class Engine(Protocol):
    """Frames of one segment in, one hypothesis out."""

    front_end: FrontEnd
    threads: int
    """That one decode uses."""
    languages: tuple[Language, ...]
    """That `DecodeOptions` may name."""
    takes_hotwords: bool
    """Whether words to listen for can be given."""

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """Recognise one segment.

        Args:
            features: (T, mel_bins * lfr_m) stacked frames; T may be 0, which gives an empty hypothesis.
            options: what the caller wants.
        """
        ...

    def encode(self, features: Float32Array, options: DecodeOptions) -> Float32Array:
        """The output of the encoder alone, (rows, dims): for measuring and comparing. Arguments as in `decode`."""
        ...

    def lane(self) -> "Engine":
        """Another engine over the same weights, for another thread; close it before this one."""
        ...

    def close(self) -> None:
        """Free what the engine holds. Closing twice is fine."""
        ...


class EngineStream(Protocol):
    """One segment on its way through a streaming engine. All its state is here, so streams never mix."""

    def accept(self, features: Float32Array) -> Hypothesis:
        """What is said in the segment so far, which only grows at its end.

        Args:
            features: (T, mel_bins * lfr_m) the next stacked frames; T may be 0.
        """
        ...

    def finish(self) -> Hypothesis:
        """What is said in the whole segment; nothing is accepted any more."""
        ...


class StreamingEngine(Engine, Protocol):
    """An engine that was trained to hear a segment piece by piece, at a cost that does not grow with its length."""

    def stream(self, options: DecodeOptions) -> EngineStream:
        """A new segment; made anywhere, used in the thread that uses this lane."""
        ...

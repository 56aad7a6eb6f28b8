"""What every engine offers to the rest of the program."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeAlias, runtime_checkable

from liveasr.engines import hotwords
from liveasr.types import Float32Array, Hypothesis, Language

MAX_SEGMENT_MS = 20_000
"""Of engines that have no reason for less; none has more."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The features that an engine takes: stacked log-mel frames, before CMVN."""

    mel_bins: int
    lfr_m: int
    lfr_n: int

    @property
    def dims(self) -> int:
        """Features of one stacked frame."""
        return self.mel_bins * self.lfr_m


RECOGNISER_FRONT_END = FrontEnd(mel_bins=80, lfr_m=7, lfr_n=6)
"""Of `WavFrontend` in every released recogniser: a stacked frame each 60 ms. Most files do not repeat it."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What a caller may ask of a decode.

    Raises:
        UsageError: the hot words are none; see `hotwords.check`.
    """

    language: Language = "auto"
    itn: bool = False
    """Write numbers as digits and add punctuation, where the model can."""
    hotwords: tuple[str, ...] = ()
    """Words to listen for, where the model takes them."""

    def __post_init__(self) -> None:
        hotwords.check(self.hotwords)


Draft: TypeAlias = Callable[[Hypothesis], bool]
"""Sees what is written of a segment so far. False stops the decode: nobody wants its result any more."""


class Engine(Protocol):
    """Frames of one segment in, one hypothesis out."""

    front_end: FrontEnd
    threads: int
    """That one decode uses, at most."""
    languages: tuple[Language, ...]
    """That `DecodeOptions` may name."""
    takes_hotwords: bool
    """Whether words to listen for can be given."""
    max_segment_ms: int
    """Longer segments are not for it, unless someone insists."""

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

    def lane(self) -> Self:
        """Another engine over the same weights, for another thread; close it before this one."""
        ...

    def close(self) -> None:
        """Free what the engine holds. Closing twice is fine."""
        ...


def possible(engine: Engine, options: DecodeOptions) -> DecodeOptions:
    """What an engine can do of what was asked of another, which it helps."""
    return replace(
        options,
        language=options.language if options.language in engine.languages else "auto",
        hotwords=options.hotwords if engine.takes_hotwords else (),
    )


class EngineStream(Protocol):
    """One segment on its way through a streaming engine. All of its state is in here, so two streams never mix.

    Call `accept` any number of times, then `finish` once. How the frames are cut makes no difference to the result.
    """

    def accept(self, features: Float32Array) -> Hypothesis:
        """Take the next frames of the segment.

        Args:
            features: (T, mel_bins * lfr_m) stacked frames that follow those of the last call, before CMVN; T may be 0.

        Returns:
            What was heard in the segment so far. It only grows at its end.

        Raises:
            UsageError: after `finish`.
        """
        ...

    def finish(self) -> Hypothesis:
        """The segment ends here; what was heard in all of it.

        Raises:
            UsageError: when called twice.
        """
        ...


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine that hears while the segment still goes on; its `decode` is a stream over all frames, finished."""

    def stream(self, options: DecodeOptions) -> EngineStream:
        """A stream for a new segment. Streams of one engine may be open at the same time, and take turns."""
        ...


@runtime_checkable
class AutoregressiveEngine(Engine, Protocol):
    """An engine that writes a token after the other, each for the sake of those before.

    So it takes long, and can be watched at it; asked again and again for the partials of a segment it would do little
    else; and it may end too early, or never. Its `decode` is `write` that nobody watches.
    """

    def write(self, features: Float32Array, options: DecodeOptions, draft: Draft) -> Hypothesis:
        """Recognise one segment, telling every token. Arguments as in `decode`.

        Returns:
            What is said. It is not `complete` where the engine had to stop the model, or the draft stopped the engine.
        """
        ...

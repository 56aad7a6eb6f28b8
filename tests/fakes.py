"""Stand-ins for what is slow or random."""

import copy
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from liveasr.engines.base import DecodeOptions, Draft, FrontEnd
from liveasr.errors import LiveasrError
from liveasr.types import Float32Array, Hypothesis, Language, Word

WORD_MS = 100


def said(text: str, *, language: str | None = "en") -> Hypothesis:
    """A hypothesis whose words follow each other, WORD_MS each, from the start of the segment."""
    words = tuple(Word(word, index * WORD_MS, (index + 1) * WORD_MS) for index, word in enumerate(text.split()))
    return Hypothesis(tuple(range(len(words))), text, words, language)


class FakeEngine:
    """Answers the segments in turn with what it was told, the last answer again and again; an error is raised.

    Args:
        answers: at least one.
    """

    front_end = FrontEnd(mel_bins=80, lfr_m=7, lfr_n=6)
    threads = 1
    languages: tuple[Language, ...] = ("auto", "en")
    takes_hotwords = False
    max_segment_ms = 20_000

    def __init__(self, answers: Iterable[Hypothesis | LiveasrError]) -> None:
        self._answers = list(answers)
        self.heard: list[Float32Array] = []
        """The features of each segment."""
        self.options: list[DecodeOptions] = []
        self.closed = False

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """The next answer."""
        assert not self.closed
        self.heard.append(features)
        self.options.append(options)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, LiveasrError):
            raise answer
        return answer

    def encode(self, features: Float32Array, options: DecodeOptions) -> Float32Array:
        """The features themselves."""
        assert not self.closed
        self.options.append(options)
        return features

    def lane(self) -> Self:
        """Another engine with the answers that are left."""
        other = copy.copy(self)
        other._answers = list(self._answers)
        other.heard, other.options, other.closed = [], [], False
        return other

    def close(self) -> None:
        """Refuse further work."""
        self.closed = True


class GatedEngine(FakeEngine):
    """Decodes only while its gate is open."""

    def __init__(self, answers: Iterable[Hypothesis | LiveasrError] = (said("a"),)) -> None:
        super().__init__(answers)
        self.gate = threading.Event()
        self.started = threading.Event()

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        self.started.set()
        assert self.gate.wait(10)
        return super().decode(features, options)


class FakeStreamingEngine(FakeEngine):
    """Hears a word in every few rows, whatever pieces they come in; a whole segment as its stream hears it.

    Args:
        words: of every segment, in order, again and again.
        rows: for each word.
    """

    def __init__(self, words: Sequence[str], rows: int) -> None:
        super().__init__([said("")])
        self.words = words
        self.rows = rows
        self.streams: list[FakeEngineStream] = []

    def stream(self, options: DecodeOptions) -> "FakeEngineStream":
        """A new segment."""
        self.options.append(options)
        self.streams.append(FakeEngineStream(self))
        return self.streams[-1]

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """The whole segment."""
        self.options.append(options)
        return FakeEngineStream(self).accept(features)

    def lane(self) -> Self:
        """Another one."""
        other = super().lane()
        other.streams = []
        return other


class FakeEngineStream:
    """A segment of a FakeStreamingEngine."""

    def __init__(self, engine: FakeStreamingEngine) -> None:
        self._engine = engine
        self.pieces: list[Float32Array] = []

    def accept(self, features: Float32Array) -> Hypothesis:
        """All words so far."""
        assert not self._engine.closed
        self.pieces.append(features)
        count = sum(map(len, self.pieces)) // self._engine.rows
        texts = [self._engine.words[index % len(self._engine.words)] for index in range(count)]
        step_ms = self._engine.rows * 60
        words = tuple(Word(text, index * step_ms, (index + 1) * step_ms) for index, text in enumerate(texts))
        return Hypothesis(tuple(range(count)), " ".join(texts), words, "en")

    def finish(self) -> Hypothesis:
        """All words."""
        return self.accept(np.empty((0, 560), np.float32))


class FakeAutoregressiveEngine(FakeEngine):
    """Writes its answers word by word, and waits for its gate before each."""

    takes_hotwords = True
    max_segment_ms = 15_000

    def __init__(self, answers: Iterable[Hypothesis | LiveasrError]) -> None:
        super().__init__(answers)
        self.gate = threading.Semaphore(1_000_000)
        """Each word takes one."""
        self.written = 0
        """Words, of all segments."""

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        """The next answer."""
        return self.write(features, options, lambda _draft: True)

    def write(self, features: Float32Array, options: DecodeOptions, draft: Draft) -> Hypothesis:
        """The next answer, every word of it told."""
        whole = super().decode(features, options)
        for count in range(1, len(whole.words) + 1):
            assert self.gate.acquire(timeout=10)
            self.written += 1
            words = whole.words[:count]
            if not draft(Hypothesis(whole.token_ids[:count], " ".join(word.text for word in words), words)):
                return replace(whole, complete=False)
        return whole

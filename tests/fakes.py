"""Stand-ins for what is slow or random."""

import threading
from collections.abc import Iterable

from liveasr.engines.base import DecodeOptions, FrontEnd
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

    def lane(self) -> "FakeEngine":
        """Another engine with the answers that are left."""
        return FakeEngine(self._answers)

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

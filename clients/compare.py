"""What two files of one model hear in the same recordings, and how long they take."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from liveasr.clients.batch import open_audio
from liveasr.clients.file import segments
from liveasr.stream.detect import Detector
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLES_PER_MS

_RUNS = 2
"""The best counts: the first one fills caches."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One segment."""

    start_ms: int
    ids: tuple[int, ...]
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One recording, its segments as each file hears them; there are as many of both."""

    path: Path
    before: tuple[Heard, ...]
    after: tuple[Heard, ...]

    @property
    def ids(self) -> int:
        """How many there were before."""
        return sum(len(heard.ids) for heard in self.before)

    @property
    def ids_changed(self) -> int:
        """How many were replaced, added or left out."""
        return sum(changes(old.ids, new.ids) for old, new in zip(self.before, self.after, strict=True))

    @property
    def texts_changed(self) -> list[tuple[Heard, Heard]]:
        """The segments whose text is another."""
        return [(old, new) for old, new in zip(self.before, self.after, strict=True) if old.text != new.text]

    @property
    def seconds(self) -> tuple[float, float]:
        """Of decoding, before and after."""
        return sum(heard.seconds for heard in self.before), sum(heard.seconds for heard in self.after)


def hear(path: Path, recognizer: Recognizer, new_detector: Callable[[], Detector]) -> tuple[Heard, ...]:
    """Decode every segment of a recording.

    Raises:
        AudioError: the recording cannot be read.
    """
    found = []
    with open_audio(path) as audio:
        for segment in segments(audio.blocks(), new_detector()):
            features = recognizer.features(segment)
            times = []
            for _ in range(_RUNS):
                begun_s = time.perf_counter()
                hypothesis = recognizer.decode(features)
                times.append(time.perf_counter() - begun_s)
            start_ms = segment.start_sample // SAMPLES_PER_MS
            found.append(Heard(start_ms, hypothesis.token_ids, hypothesis.text, min(times)))
    return tuple(found)


def changes(old: Sequence[int], new: Sequence[int]) -> int:
    """How many items were replaced, added or left out from one sequence to another."""
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for step, i1, i2, j1, j2 in steps if step != "equal")


def table(comparisons: Sequence[Comparison]) -> list[str]:
    """Lines of a table, 80 columns wide, with a line for all together where there are several."""
    lines = [f"{'recording':<20} {'segments':>8} {'ids changed':>15} {'texts changed':>13} {'before':>9} {'after':>9}"]
    lines += (_line(item.path.name, [item]) for item in comparisons)
    if len(comparisons) > 1:
        lines.append(_line("all", comparisons))
    return lines


def _line(name: str, items: Sequence[Comparison]) -> str:
    ids = f"{sum(item.ids_changed for item in items)} of {sum(item.ids for item in items)}"
    texts = sum(len(item.texts_changed) for item in items)
    before, after = (sum(item.seconds[side] for item in items) for side in range(2))
    count = sum(len(item.before) for item in items)
    return f"{name[:20]:<20} {count:>8} {ids:>15} {texts:>13} {before:>7.3f} s {after:>7.3f} s"

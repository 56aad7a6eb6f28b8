"""How long a listener waits: a recording played at the speed of speech, and when each piece of text came.

The clock starts with the first sample, so that the sound of audio time t is complete at t; a delay is how much later
the text was there. Word times are those of the finals.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from liveasr.clients.live import Stream
from liveasr.clients.stability import common_prefix, edit_overhead, percentile, unstable_words
from liveasr.types import SAMPLES_PER_MS, Float32Array, LiveTranscript, SpeechEnd, Transcript, Word

_LOOP_TICK_S = 0.005
MEASURES = ("first_partial", "commit", "final_after_speech", "final_after_segment", "loop_lag")


@dataclass(slots=True)
class _Seen:
    """One segment as it was shown."""

    shown: list[list[str]] = field(default_factory=list)
    """Words on the screen, at every change."""
    first_ms: float | None = None
    committed_at_ms: list[float] = field(default_factory=list)
    """For every word of the committed text."""
    ended_ms: float = 0.0
    """When the sound had been made that its end is known by: what heard it late is late."""


@dataclass(slots=True)
class LiveFigures:
    """What was seen, over any number of recordings. Delays are in ms."""

    delays: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    unnecessary_edits: int = 0
    edits: int = 0
    unstable: int = 0
    words: int = 0
    segments: int = 0
    differing_segments: int = 0
    """Segments whose committed text is not the text of their final."""

    def add(self, others: "LiveFigures") -> None:
        """What was seen elsewhere."""
        for name, values in others.delays.items():
            self.delays[name] += values
        self.unnecessary_edits += others.unnecessary_edits
        self.edits += others.edits
        self.unstable += others.unstable
        self.words += others.words
        self.segments += others.segments
        self.differing_segments += others.differing_segments

    def summary(self) -> dict[str, Any]:
        """p50, p95 and maximum of every delay, and the stability of the text."""
        delays = {
            name: {
                "p50": round(percentile(values, 0.5), 1),
                "p95": round(percentile(values, 0.95), 1),
                "max": round(max(values), 1),
                "n": len(values),
            }
            for name, values in self.delays.items()
            if values
        }
        if self.delays["loop_lag"]:
            delays["loop_lag"]["p99"] = round(percentile(self.delays["loop_lag"], 0.99), 1)
        return {
            "delays_ms": delays,
            "edit_overhead": round(self.unnecessary_edits / self.edits, 4) if self.edits else 0.0,
            "unstable_partial_word_ratio": round(self.unstable / self.words, 4) if self.words else 0.0,
            "words": self.words,
            "segments": self.segments,
            "segments_where_committed_differs_from_final": self.differing_segments,
        }


async def measure(
    stream: Stream, source: AsyncIterator[Float32Array], figures: LiveFigures, *, loop_lag: bool = True
) -> list[Transcript]:
    """Play one recording through a stream and add what was seen to the figures.

    Args:
        stream: a fresh one.
        source: gives the recording at the speed of speech.
        figures: to add to.
        loop_lag: whether the event loop is watched too.

    Returns:
        The finals.

    Raises:
        LiveasrError: the stream failed.
    """
    begun = time.monotonic()
    seen: dict[int, _Seen] = {}
    finals: list[Transcript] = []

    def now_ms() -> float:
        return (time.monotonic() - begun) * 1000

    async def watch() -> None:
        open_segment = 0
        async for output in stream.outputs():
            if isinstance(output, LiveTranscript):
                _look(seen.setdefault(output.segment_id, _Seen()), output, now_ms(), figures)
                finals.extend([output.final] if output.final else [])
            elif isinstance(output, SpeechEnd):
                seen.setdefault(open_segment, _Seen()).ended_ms = output.confirmed_at / SAMPLES_PER_MS
                open_segment += 1

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            ticking = group.create_task(watch_loop(figures.delays["loop_lag"])) if loop_lag else None
            async for block in source:
                await stream.feed(block)
            await stream.finish()
            await watching
            if ticking is not None:
                ticking.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return finals


def _look(seen: _Seen, transcript: LiveTranscript, now_ms: float, figures: LiveFigures) -> None:
    words = (transcript.committed + transcript.tentative).split()
    if words and seen.first_ms is None:
        seen.first_ms = now_ms
    committed = len(transcript.committed.split())
    seen.committed_at_ms += [now_ms] * (committed - len(seen.committed_at_ms))
    if not seen.shown or seen.shown[-1] != words:
        seen.shown.append(words)
    if transcript.final is None:
        return
    final = transcript.final
    figures.segments += 1
    if not final.words:
        return
    figures.differing_segments += transcript.committed.split() != final.text.split()
    unnecessary, edits = edit_overhead(seen.shown)
    figures.unnecessary_edits += unnecessary
    figures.edits += edits
    unstable, count = unstable_words(seen.shown)
    figures.unstable += unstable
    figures.words += count
    if seen.first_ms is not None:
        figures.delays["first_partial"].append(seen.first_ms - final.words[0].start_ms)
    figures.delays["commit"] += _commit_delays(transcript.committed.split(), seen.committed_at_ms, final.words)
    figures.delays["final_after_speech"].append(now_ms - final.words[-1].end_ms)
    figures.delays["final_after_segment"].append(now_ms - seen.ended_ms)


def _commit_delays(committed: list[str], at_ms: list[float], words: tuple[Word, ...]) -> list[float]:
    """From the end of each word to its commit, for the words that committed text and final begin with."""
    same = common_prefix(committed, [word.text for word in words])
    return [at - word.end_ms for at, word in zip(at_ms[:same], words[:same], strict=True)]


async def watch_loop(lags: list[float]) -> None:
    """Note how late the event loop wakes, in ms, again and again."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(_LOOP_TICK_S)
        lags.append((time.monotonic() - before - _LOOP_TICK_S) * 1000)


def table(summary: dict[str, Any]) -> list[str]:
    """Lines of a table."""
    lines = [f"{'delay, ms':<22} {'p50':>9} {'p95':>9} {'max':>9} {'n':>7}"]
    for name, row in summary["delays_ms"].items():
        tail = f"   p99 {row['p99']}" if "p99" in row else ""
        lines.append(f"{name:<22} {row['p50']:>9.0f} {row['p95']:>9.0f} {row['max']:>9.0f} {row['n']:>7}{tail}")
    lines += [f"{key}: {value}" for key, value in summary.items() if key != "delays_ms"]
    return lines

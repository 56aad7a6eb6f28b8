"""Where the time goes: each stage of the chain over a recording, alone and together."""

import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from liveasr.clients.file import segments, transcribe
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import Detector
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLE_RATE_HZ, Hypothesis

STAGES = ("fbank", "vad", "encoder", "head", "end_to_end")
_BLOCK_SAMPLES = SAMPLE_RATE_HZ  # fed at a time, as a file is


@dataclass(frozen=True, slots=True)
class Writing:
    """How an engine writes that goes token by token; best of all runs."""

    first_token_s: float
    """From the beginning of a decode to its first token, the encoder included; median of the segments."""
    tokens_per_s: float
    """After the first."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One recording."""

    path: str
    audio_s: float
    segments: int
    speech_s: float
    """In segments: what encoder and head had to do."""
    seconds: dict[str, float]
    """Best of all runs, by the names of STAGES."""
    writing: Writing | None = None
    """None for engines that do not write."""

    @property
    def real_time_factors(self) -> dict[str, float]:
        """Seconds of work for a second of audio; for encoder and head, of audio in segments."""
        share = {"encoder": self.speech_s, "head": self.speech_s}
        return {stage: s / (share.get(stage, self.audio_s) or float("inf")) for stage, s in self.seconds.items()}


class _Chain:
    """The chain over one recording, to be run stage by stage."""

    def __init__(self, path: Path, recognizer: Recognizer, new_detector: Callable[[], Detector]) -> None:
        self._path, self._recognizer, self._new_detector = path, recognizer, new_detector
        with AudioFile(path) as audio:
            samples = np.concatenate(list(audio.blocks()))
        self._blocks = [samples[start : start + _BLOCK_SAMPLES] for start in range(0, samples.size, _BLOCK_SAMPLES)]
        self.audio_s = samples.size / SAMPLE_RATE_HZ
        self.found = list(segments(self._blocks, new_detector()))
        self._features = [recognizer.features(segment) for segment in self.found]

    def fbank(self) -> None:
        online = OnlineFbank()
        for block in self._blocks:
            online.accept(block)

    def fbank_and_vad(self) -> None:
        for _ in segments(self._blocks, self._new_detector()):
            pass

    def encode(self) -> None:
        for stacked in self._features:
            self._recognizer.encode(stacked)

    def decode(self) -> None:
        for stacked in self._features:
            self._recognizer.decode(stacked)

    def write(self) -> Writing | None:
        """Time the tokens of every segment; None where there are none."""
        firsts: list[float] = []
        seconds, tokens = 0.0, 0
        for stacked in self._features:
            times = [time.perf_counter()]

            def note(draft: Hypothesis, times: list[float] = times) -> bool:
                if draft.token_ids:
                    times.append(time.perf_counter())
                return True

            self._recognizer.write(stacked, note)
            if len(times) > 1:
                firsts.append(times[1] - times[0])
                seconds += times[-1] - times[1]
                tokens += len(times) - 1
        if not firsts:
            return None
        later = tokens - len(firsts)
        return Writing(statistics.median(firsts), later / seconds if seconds else 0.0, tokens)

    def end_to_end(self) -> None:
        with AudioFile(self._path) as audio:
            for _ in transcribe(audio.blocks(), self._recognizer, self._new_detector()):
                pass


def measure(path: Path, recognizer: Recognizer, new_detector: Callable[[], Detector], runs: int) -> Measurement:
    """Time one recording; every stage runs `runs` times, on all of its audio, and its best time stands."""
    chain = _Chain(path, recognizer, new_detector)
    works = (chain.fbank, chain.fbank_and_vad, chain.encode, chain.decode, chain.end_to_end)
    seconds = {stage: min(_time(work) for _ in range(runs)) for stage, work in zip(STAGES, works, strict=True)}
    seconds["vad"] = max(0.0, seconds["vad"] - seconds["fbank"])
    seconds["head"] = max(0.0, seconds["head"] - seconds["encoder"])
    speech_s = sum(segment.end_sample - segment.start_sample for segment in chain.found) / SAMPLE_RATE_HZ
    writing = None
    if recognizer.writes:
        found = [each for _ in range(runs) if (each := chain.write()) is not None]
        if found:
            first_token_s = min(each.first_token_s for each in found)
            writing = Writing(first_token_s, max(each.tokens_per_s for each in found), found[0].tokens)
    return Measurement(str(path), chain.audio_s, len(chain.found), speech_s, seconds, writing)


def peak_memory_mb() -> float:
    """The most that this process ever had in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes; on macOS bytes
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def helpers_peak_memory_mb() -> float | None:
    """The most that the processes that this one started, and that still run, ever had together; None if unknown.

    Only Linux tells. (What getrusage has of ended ones begins with what the process that started them had.)
    """
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return None
    children = [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in children]
    peaks = [line.split()[1] for status in statuses for line in status.splitlines() if line.startswith("VmHWM")]
    return sum(map(int, peaks)) / 1e3


def machine() -> dict[str, Any]:
    """What the figures depend on besides the program."""
    return {"processor": _processor(), "system": platform.platform(), "python": platform.python_version()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def _time(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def table(measurements: Sequence[Measurement]) -> list[str]:
    """Lines of a table of real-time factors (seconds of work a second of audio), 80 columns wide."""
    names = " ".join(f"{stage:>10}" for stage in STAGES)
    lines = [f"{'recording':<13} {'audio':>9} {names}"]
    for item in measurements:
        factors = " ".join(f"{item.real_time_factors[stage]:>10.4f}" for stage in STAGES)
        lines.append(f"{Path(item.path).name[:13]:<13} {item.audio_s:>7.1f} s {factors}")
    return lines


def writing_line(item: Measurement) -> list[str]:
    """How its tokens came, if they came one by one: one line or none."""
    if item.writing is None:
        return []
    first_ms, rate = item.writing.first_token_s * 1000, item.writing.tokens_per_s
    return [f"{'':<13} first token after {first_ms:.0f} ms, then {rate:.1f} tokens/s ({item.writing.tokens} tokens)"]

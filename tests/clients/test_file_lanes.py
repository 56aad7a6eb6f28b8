"""A recording by several lanes at the same time: as by one, in order, and no worse when something goes wrong."""

import itertools
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from liveasr.clients.file import transcribe
from liveasr.engines.base import DecodeOptions
from liveasr.engines.lanes import more_lanes
from liveasr.engines.registry import open_engine
from liveasr.errors import AudioError, EngineError
from liveasr.stream.detect import FsmnDetector, WindowDetector
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Hypothesis, Transcript
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.fakes import FakeEngine, said
from tests.sounds import load, white

SEGMENTS = 12
LANES = 3


class Counting(FakeEngine):
    """Says the loudness of a segment, after a pause of its own; or what a segment is told to say."""

    def __init__(self, plan: "Plan") -> None:
        super().__init__([said("nothing")])
        self._plan = plan

    def decode(self, features: Float32Array, _options: DecodeOptions) -> Hypothesis:
        return self._plan.decode(self, features)


class Plan:
    """What engines do with segments that are told apart by their level: silence, then louder and louder."""

    def __init__(self, pauses_s: Sequence[float], fails_at: int | None = None) -> None:
        self.pauses_s = pauses_s
        self.fails_at = fails_at
        self.at_work: set[Counting] = set()
        self.most_at_once = 0
        self.decoded = 0
        self._lock = threading.Lock()

    def decode(self, engine: Counting, features: Float32Array) -> Hypothesis:
        with self._lock:
            assert engine not in self.at_work, "a lane was used by two threads"
            self.at_work.add(engine)
            self.most_at_once = max(self.most_at_once, len(self.at_work))
        index = int(np.rint((features.mean() - LEVELS[0]) / (LEVELS[1] - LEVELS[0])))
        time.sleep(self.pauses_s[index])
        with self._lock:
            self.at_work.discard(engine)
            self.decoded += 1
        if index == self.fails_at:
            raise EngineError(f"segment {index}")
        return said(f"segment {index}")


def samples_of(count: int = SEGMENTS) -> Float32Array:
    """Seconds of noise, each twice as loud as the last."""
    return np.concatenate([white(1, 1e-4) * np.float32(2**index) for index in range(count)])


def levels() -> list[float]:
    seen: list[float] = []

    class Listening(FakeEngine):
        def decode(self, features: Float32Array, _options: DecodeOptions) -> Hypothesis:
            seen.append(float(features.mean()))
            return said("x")

    list(transcribe([samples_of(2)], Recognizer(Listening([said("x")]), DecodeOptions()), windows()))
    return seen


def windows() -> WindowDetector:
    return WindowDetector(VadConfig(max_segment_ms=1000))


LEVELS = levels()


def lanes(plan: Plan, count: int = LANES) -> list[Recognizer]:
    return [Recognizer(Counting(plan), DecodeOptions()) for _ in range(count)]


def heard_by(plan: Plan, blocks: Sequence[Float32Array] | Iterator[Float32Array]) -> Iterator[Transcript]:
    first, *others = lanes(plan)
    return transcribe(blocks, first, windows(), more=others)


def collect(transcripts: Iterator[Transcript], into: list[str]) -> None:
    """Their texts, as far as they come."""
    for transcript in transcripts:
        into.append(transcript.text)  # noqa: PERF401 - an error must not take those before it away


def test_transcripts_come_in_order_whoever_is_ready_first() -> None:
    pauses_s = np.random.default_rng(3).uniform(0, 0.05, SEGMENTS).tolist()
    plan = Plan(pauses_s)
    assert [each.text for each in heard_by(plan, [samples_of()])] == [f"segment {index}" for index in range(SEGMENTS)]
    assert plan.most_at_once == LANES


def test_real_lanes_hear_what_one_hears(data: Path, fsmn: FsmnWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liveasr.engines.lanes.available_cores", lambda: LANES)
    samples = np.concatenate([load(data / "digits-clean.wav"), load(data / "digits-noisy.wav")] * 3)
    engine = open_engine(store.built_in("digits"))
    others = more_lanes(engine)
    assert len(others) == LANES - 1
    options = DecodeOptions()
    alone = list(transcribe([samples], Recognizer(engine, options), FsmnDetector(fsmn, VadConfig())))
    found = transcribe(
        [samples], Recognizer(engine, options), FsmnDetector(fsmn, VadConfig()),
        more=[Recognizer(other, options) for other in others],
    )  # fmt: skip
    assert list(found) == alone
    assert len(alone) == 18
    for each in (*others, engine):
        each.close()


def test_an_error_of_one_lane_comes_after_what_was_said_before_it() -> None:
    plan = Plan([0.02] * SEGMENTS, fails_at=4)
    found: list[str] = []
    with pytest.raises(EngineError, match="segment 4"):
        collect(heard_by(plan, [samples_of()]), found)
    assert found == [f"segment {index}" for index in range(4)]
    assert not plan.at_work


def test_a_damaged_recording_is_heard_as_far_as_it_was_read() -> None:
    def damaged() -> Iterator[Float32Array]:
        yield samples_of(5)
        raise AudioError("x", "is damaged")

    found: list[str] = []
    with pytest.raises(AudioError, match="is damaged"):
        collect(heard_by(Plan([0.02] * SEGMENTS), damaged()), found)
    assert found == [f"segment {index}" for index in range(5)]


def test_ctrl_c_gives_what_is_being_decoded_and_tells_how_far_that_is() -> None:
    def interrupted() -> Iterator[Float32Array]:
        yield samples_of(6)
        raise KeyboardInterrupt

    plan = Plan([0.2] * SEGMENTS)
    told_ms: list[int] = []
    first, *others = lanes(plan)
    found: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        collect(transcribe(interrupted(), first, windows(), told_ms.append, others), found)
    assert found == [f"segment {index}" for index in range(len(found))]
    assert LANES <= len(found) < 6
    assert told_ms[-1] == 1000 * len(found)
    assert not plan.at_work


def test_ctrl_c_ends_it_though_a_lane_fails_behind_that() -> None:
    def interrupted() -> Iterator[Float32Array]:
        yield samples_of(6)
        raise KeyboardInterrupt

    told_ms: list[int] = []
    first, *others = lanes(Plan([0.2] * SEGMENTS, fails_at=1))
    found: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        collect(transcribe(interrupted(), first, windows(), told_ms.append, others), found)
    assert found == ["segment 0"]
    assert told_ms[-1] == 1000


def test_a_reader_that_goes_away_leaves_no_lane_at_work() -> None:
    plan = Plan([0.02] * SEGMENTS)
    found = heard_by(plan, [samples_of()])
    assert next(found).text == "segment 0"
    found.close()  # type: ignore[attr-defined] # a generator
    assert not plan.at_work


def test_no_more_is_read_than_the_lanes_soon_need() -> None:
    read: list[int] = []

    def blocks() -> Iterator[Float32Array]:
        for index in range(SEGMENTS):
            read.append(index)
            yield samples_of()[index * SAMPLE_RATE_HZ :][:SAMPLE_RATE_HZ]

    found = heard_by(Plan([0.05] * SEGMENTS), blocks())
    next(found)
    assert len(read) < SEGMENTS
    found.close()  # type: ignore[attr-defined] # a generator


def test_ctrl_c_behind_the_end_of_a_recording_gives_what_is_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    is_read = threading.Event()
    main = threading.get_ident()
    all_at_work = threading.Barrier(LANES, lambda: signal.pthread_kill(main, signal.SIGINT))
    begun = itertools.count()
    decode = Plan.decode

    def interrupting(plan: Plan, engine: Counting, features: Float32Array) -> Hypothesis:
        is_read.wait()
        if next(begun) < LANES:
            all_at_work.wait()
        return decode(plan, engine, features)

    def blocks() -> Iterator[Float32Array]:
        yield samples_of(6)
        is_read.set()

    monkeypatch.setattr(Plan, "decode", interrupting)
    plan = Plan([0.2] * SEGMENTS)
    told_ms: list[int] = []
    first, *others = lanes(plan)
    found: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        collect(transcribe(blocks(), first, windows(), told_ms.append, others), found)
    assert found == [f"segment {index}" for index in range(len(found))]
    assert LANES <= len(found) < 6
    assert told_ms[-1] == 1000 * len(found)
    assert not plan.at_work


@pytest.mark.parametrize("fails", [False, True])
def test_what_nobody_waits_for_any_more_is_not_decoded(fails: bool) -> None:
    plan = Plan([0.3, *[1.0] * SEGMENTS], fails_at=0 if fails else None)
    found = heard_by(plan, [samples_of()])
    if fails:
        with pytest.raises(EngineError, match="segment 0"):
            next(found)
    else:
        next(found)
        found.close()  # type: ignore[attr-defined] # a generator
    assert plan.decoded <= LANES + 1

"""What is measured and how it is told; how fast it is depends on the machine, and is no test."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from liveasr import store
from liveasr.clients import bench
from liveasr.clients.bench import STAGES, Measurement, measure, table
from liveasr.engines.base import DecodeOptions
from liveasr.errors import AudioError
from liveasr.stream.detect import Detector, WebrtcDetector, WindowDetector
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLE_RATE_HZ
from liveasr.vad.config import VadConfig
from liveasr.vad.webrtc import WebrtcScorer
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, said
from tests.sounds import white


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two and a half seconds, as stereo at another rate."""
    path = tmp_path / "talk.wav"
    soundfile.write(path, np.stack((white(2.5, 0.1), white(2.5, 0.1)), axis=1), SAMPLE_RATE_HZ)
    return path


def windows() -> Detector:
    return WindowDetector(VadConfig(max_segment_ms=1000))


def test_every_stage_has_a_time(recording: Path) -> None:
    found = measure(recording, Recognizer(FakeEngine([said("x")]), DecodeOptions()), windows, runs=1)
    assert (found.path, found.audio_s, found.segments, found.speech_s) == (str(recording), 2.5, 3, 2.5)
    assert tuple(found.seconds) == STAGES
    assert all(seconds >= 0 for seconds in found.seconds.values())
    assert found.seconds["fbank"] > 0
    assert found.seconds["end_to_end"] > 0


@pytest.mark.parametrize("runs", [1, 3])
def test_every_stage_runs_so_many_times_over_all_segments(runs: int, recording: Path) -> None:
    engine = FakeEngine([said("x")])
    measure(recording, Recognizer(engine, DecodeOptions()), windows, runs)
    assert len(engine.heard) == runs * 3 * 2  # decode alone, and end to end
    assert len(engine.options) == runs * 3 * 3  # and encode


def test_the_best_of_all_runs_counts(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    lengths = iter([5.0, 3.0, 4.0, 9.0, 8.0, 7.0, 1.0, 2.0, 3.0, 6.0, 6.0, 6.0, 20.0, 30.0, 10.0])
    now = 0.0

    def tick() -> float:
        nonlocal now
        if next(clock) % 2:
            now += next(lengths)
        return now

    monkeypatch.setattr(time, "perf_counter", tick)
    found = measure(recording, Recognizer(FakeEngine([said("x")]), DecodeOptions()), windows, runs=3)
    assert found.seconds == {"fbank": 3.0, "vad": 4.0, "encoder": 1.0, "head": 5.0, "end_to_end": 10.0}


def test_what_is_written_token_by_token_is_timed_so(recording: Path) -> None:
    engine = FakeAutoregressiveEngine([said("a b c d")])
    found = measure(recording, Recognizer(engine, DecodeOptions()), windows, runs=2)
    assert found.writing is not None
    assert found.writing.tokens == 3 * 4
    assert found.writing.first_token_s > 0
    assert found.writing.tokens_per_s > 0
    (line,) = bench.writing_line(found)
    assert line.endswith("tokens/s (12 tokens)")


def test_what_writes_nothing_or_all_at_once_has_no_such_times(recording: Path) -> None:
    for engine in (FakeAutoregressiveEngine([said("")]), FakeEngine([said("a b")])):
        found = measure(recording, Recognizer(engine, DecodeOptions()), windows, runs=1)
        assert found.writing is None
        assert bench.writing_line(found) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a child holds; run it on Linux")
def test_what_helpers_hold_is_told_while_they_run() -> None:
    before = bench.helpers_peak_memory_mb()
    script = "import sys; held = bytearray(50_000_000); sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
        assert helper.stdout is not None
        helper.stdout.read(1)
        during = bench.helpers_peak_memory_mb()
    assert before is not None
    assert during is not None
    assert before + 45 < during < before + 200


def test_a_factor_of_a_stage_counts_a_second_of_what_the_stage_had_to_do() -> None:
    found = Measurement("x", audio_s=10.0, segments=2, speech_s=4.0, seconds=dict.fromkeys(STAGES, 2.0))
    assert found.real_time_factors == {"fbank": 0.2, "vad": 0.2, "encoder": 0.5, "head": 0.5, "end_to_end": 0.2}


def test_a_recording_without_speech_is_measured_too(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(SAMPLE_RATE_HZ, np.float32), SAMPLE_RATE_HZ)

    def new_detector() -> Detector:
        return WebrtcDetector(WebrtcScorer(), VadConfig())

    found = measure(tmp_path / "x.wav", Recognizer(FakeEngine([said("x")]), DecodeOptions()), new_detector, runs=1)
    assert (found.segments, found.speech_s) == (0, 0)
    assert found.real_time_factors["encoder"] == found.real_time_factors["head"] == 0.0


def test_a_recording_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="no such file"):
        measure(tmp_path / "x.wav", Recognizer(FakeEngine([said("x")]), DecodeOptions()), windows, runs=1)


def test_the_table_fits_a_terminal() -> None:
    seconds = dict.fromkeys(STAGES, 99.0)
    rows = [
        Measurement("folder/a very long name of a recording.wav", 36_000.0, 100, 100.0, seconds),
        Measurement("x.wav", 1.25, 0, 0.0, dict.fromkeys(STAGES, 0.01)),
    ]
    lines = table(rows)
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80
    assert lines[0].split() == ["recording", "audio", *STAGES]
    assert lines[2].split() == ["x.wav", "1.2", "s", "0.0080", "0.0080", "0.0000", "0.0000", "0.0080"]
    assert lines[1].startswith("a very long n ")


def test_the_machine_is_told() -> None:
    about = bench.machine()
    assert set(about) == {"processor", "system", "python"}
    assert all(about.values())
    assert about["python"] == ".".join(map(str, sys.version_info[:3]))
    assert 10 < bench.peak_memory_mb() < 100_000


@pytest.mark.parametrize("model", store.DEMONSTRATION_MODELS)
def test_the_command_prints_one_json_document(recording: Path, model: str) -> None:
    command = [sys.executable, "-m", "liveasr", "bench", "--model", model, "--runs", "1", "--json", str(recording)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    document = json.loads(result.stdout)
    assert document["model"] == model
    assert document["threads"] >= 1
    assert document["peak_memory_mb"] > 10
    (row,) = document["recordings"]
    assert row["path"] == str(recording)
    assert set(row["seconds"]) == set(row["real_time_factors"]) == set(STAGES)

import io
import json
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import soundfile

from liveasr.clients import batch
from liveasr.clients.targets import STDIN, Job, OutputFile
from liveasr.clients.writers import Format
from liveasr.engines.base import DecodeOptions
from liveasr.errors import EngineError, LiveasrError, OutputError
from liveasr.stream.detect import WindowDetector
from liveasr.stream.recognize import Recognizer
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, Hypothesis
from liveasr.vad.config import VadConfig
from tests.fakes import FakeEngine, said
from tests.sounds import white

SECONDS = 2.5
"""Three windows a recording."""
FORMATS: tuple[Format, ...] = ("txt", "json", "srt", "vtt", "tsv")

Answer: TypeAlias = Hypothesis | LiveasrError | type[KeyboardInterrupt]


class Engine(FakeEngine):
    """May be interrupted by Ctrl-C in place of an answer."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._plan = list(answers)
        super().__init__([said("nothing")])

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:
        answer = self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]
        if isinstance(answer, type):
            raise answer
        self._answers = [answer]
        return super().decode(features, options)


Run: TypeAlias = Callable[..., int]


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    """Three of them."""
    paths = [tmp_path / f"{name}.wav" for name in ("a", "b", "c")]
    for path in paths:
        soundfile.write(path, white(SECONDS, 0.1), SAMPLE_RATE_HZ)
    return paths


def run(engine: FakeEngine, jobs: list[Job], *, words: bool = False) -> int:
    """Every window of a second is a segment."""
    config = VadConfig(max_segment_ms=1000)
    recognizer = Recognizer(engine, DecodeOptions())
    return batch.run(jobs, [recognizer], lambda: WindowDetector(config), "digits", words=words)


def to_files(paths: Iterable[Path], folder: Path, formats: Iterable[Format] = FORMATS) -> list[Job]:
    return [Job(path, tuple((format_, folder / f"{path.stem}.{format_}") for format_ in formats)) for path in paths]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def segments_of(path: Path) -> list[str]:
    """Texts in a JSON transcript, which must be whole."""
    return [segment["text"] for segment in json.loads(path.read_text(encoding="utf-8"))["segments"]]


def error_of(path: Path) -> str | None:
    error: str | None = json.loads(path.read_text(encoding="utf-8"))["error"]
    return error


def test_every_recording_gets_all_its_formats(recordings: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(Engine([said("one two")]), to_files(recordings, out)) == 0
    assert names(out) == sorted(f"{stem}.{format_}" for stem in "abc" for format_ in FORMATS)
    for stem in "abc":
        assert segments_of(out / f"{stem}.json") == ["one two"] * 3
        for format_ in FORMATS:
            assert (out / f"{stem}.{format_}").read_text(encoding="utf-8").count("one two") == 3


def test_times_of_every_recording_begin_anew(recordings: list[Path], tmp_path: Path) -> None:
    run(Engine([said("x")]), to_files(recordings, tmp_path / "out", ["tsv"]))
    written = {path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert written == {"start_ms\tend_ms\ttext\n0\t1000\tx\n1000\t2000\tx\n2000\t2500\tx\n"}


def test_a_bad_recording_is_told_and_the_others_are_done(
    recordings: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recordings[1].write_text("nobody speaks here\n" * 50, encoding="utf-8")
    out = tmp_path / "out"
    assert run(Engine([said("x")]), to_files(recordings, out)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"{recordings[1]}: is not a recording that can be decoded"
    ]
    assert segments_of(out / "a.json") == segments_of(out / "c.json") == ["x"] * 3
    assert {path.stem for path in out.iterdir()} == {"a", "c"}  # nothing was heard in b


def test_what_was_heard_before_a_recording_broke_off_is_kept(
    recordings: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = recordings[0].read_bytes()
    recordings[0].write_bytes(content[: len(content) * 6 // 10])
    assert run(Engine([said("x")]), to_files(recordings, tmp_path / "out")) == 1
    assert segments_of(tmp_path / "out" / "a.json") == ["x"] * 2
    assert error_of(tmp_path / "out" / "a.json") == caplog.records[0].getMessage()
    assert "is cut off: it holds 1.5 s of the 2.5 s that it announces" in caplog.text


def test_an_error_of_the_engine_ends_its_recording_only(
    recordings: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine([said("x"), EngineError("out of memory"), said("y")])
    assert run(engine, to_files(recordings[:2], tmp_path / "out")) == 1
    assert segments_of(tmp_path / "out" / "a.json") == ["x"]
    assert error_of(tmp_path / "out" / "a.json") == "out of memory"
    assert segments_of(tmp_path / "out" / "b.json") == ["y"] * 3
    assert len(caplog.records) == 1


def test_ctrl_c_completes_what_was_begun_and_begins_nothing_more(recordings: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    engine = Engine([*[said("x")] * 4, KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        run(engine, to_files(recordings, out))
    assert names(out) == sorted(f"{stem}.{format_}" for stem in "ab" for format_ in FORMATS)
    assert segments_of(out / "b.json") == ["x"]
    assert error_of(out / "b.json") == "interrupted"
    assert (out / "b.tsv").read_text(encoding="utf-8").endswith("0\t1000\tx\n")


def test_the_length_told_after_ctrl_c_covers_what_was_heard(recordings: list[Path], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Engine([said("x"), KeyboardInterrupt]), to_files(recordings, tmp_path))
    document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert document["duration_ms"] >= document["segments"][-1]["end_ms"]


def test_an_output_that_cannot_be_written_keeps_no_other_from_being_written(
    recordings: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = to_files(recordings, tmp_path / "out", ["json"])
    jobs[1] = Job(recordings[1], (("json", recordings[0] / "b.json"),))
    assert run(Engine([said("x")]), jobs) == 1
    assert names(tmp_path / "out") == ["a.json", "c.json"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{recordings[0] / 'b.json'}: cannot be written: {recordings[0]} is no folder"
    ]


def test_when_the_disk_is_full_what_was_written_stays_in_its_part(
    recordings: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = OutputFile.write
    written = 0

    def until_full(self: OutputFile, text: str) -> None:
        nonlocal written
        written += 1
        if self.path.name == "b.tsv" and written > 8:  # behind its heading
            raise OutputError(self.path, "cannot be written: No space left on device")
        write(self, text)

    monkeypatch.setattr(OutputFile, "write", until_full)
    out = tmp_path / "out"
    assert run(Engine([said("x")]), to_files(recordings, out, ["tsv", "txt"])) == 1
    assert names(out) == ["a.tsv", "a.txt", "b.tsv.part", "b.txt.part", "c.tsv", "c.txt"]
    assert (out / "b.tsv.part").read_text(encoding="utf-8").startswith("start_ms\tend_ms\ttext\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"{out / 'b.tsv'}: cannot be written: No space left on device"
    ]


def test_one_recording_on_stdout_has_no_heading(recordings: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(Engine([said("x")]), [Job(recordings[0], (("txt", None),))])
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "[00:00.000 --> 00:01.000]  x"
    assert err == ""  # no bar where nobody watches


def test_several_recordings_on_stdout_have_one_each(recordings: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(Engine([said("x")]), [Job(path, (("txt", None),)) for path in recordings])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("#")] == [f"# {path}" for path in recordings]
    assert len(lines) == 3 * 4


def test_words_are_shown_if_asked(recordings: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(Engine([said("one two")]), [Job(recordings[0], (("txt", None),))], words=True)
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "    00:00.000 - 00:00.100  one",
        "    00:00.100 - 00:00.200  two",
    ]


def test_stdin_is_a_recording_too(recordings: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(recordings[0].read_bytes())))
    assert run(Engine([said("x")]), [Job(STDIN, (("json", tmp_path / "out.json"),))]) == 0
    assert segments_of(tmp_path / "out.json") == ["x"] * 3


def test_nothing_said_gives_whole_files(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(16_000, np.float32), SAMPLE_RATE_HZ)
    assert run(Engine([said("")]), to_files([tmp_path / "a.wav"], tmp_path / "out")) == 0
    assert segments_of(tmp_path / "out" / "a.json") == []
    assert names(tmp_path / "out") == sorted(f"a.{format_}" for format_ in FORMATS)


@pytest.fixture(autouse=True)
def errors_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "liveasr")

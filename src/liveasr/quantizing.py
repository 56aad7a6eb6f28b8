"""`liveasr models quantize`: a smaller file, what it lost tensor by tensor, and what that changes in recordings."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from liveasr import store
from liveasr.clients import compare
from liveasr.clients.batch import open_audio
from liveasr.clients.render import timecode
from liveasr.engines import nano_files, qwen3_layout
from liveasr.engines.base import DecodeOptions
from liveasr.engines.quantize import QuantizedType, QuantizeReport, default_output
from liveasr.engines.quantize import quantize as write_smaller
from liveasr.engines.registry import open_engine
from liveasr.engines.tensor_errors import TensorClass
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.options import check_output
from liveasr.stream.detect import detectors
from liveasr.stream.recognize import Recognizer
from liveasr.vad.config import VadConfig

_NAME_COLUMNS = 44
_MOST_TEXTS = 10
"""Changed segments that are shown."""


def quantize(
    model: str, type_: QuantizedType, output: Path | None, force: bool, recordings: Sequence[Path], threads: int | None
) -> int:
    """`liveasr models quantize`; every conflict is found before anything is written."""
    source = store.find(model)
    target = output or default_output(source, type_)
    is_source = target.exists() and target.samefile(source)  # which is refused in words of its own, whatever is forced
    check_output(target, force=force or is_source)
    _check_recordings(source, recordings)
    report = write_smaller(source, target, type_)
    sys.stdout.write("\n".join(_table(report)) + "\n")
    _tell_fallbacks(report)
    _tell_language_model(source, target, type_)
    sys.stdout.flush()
    if recordings:
        compared = _compare(source, target, recordings, threads)
        sys.stdout.write("\n".join(["", *compare.table(compared), *_texts(compared)]) + "\n")
    return 0


def _check_recordings(source: Path, recordings: Sequence[Path]) -> None:
    if not recordings:
        return
    with GgufFile(source) as file:
        if file.architecture == qwen3_layout.ARCHITECTURE:
            raise UsageError(
                f"{source}: a language model hears nothing by itself; quantize it without --check, and compare by: "
                "liveasr transcribe --model ENCODER.gguf"
            )
    for path in recordings:
        if path == Path("-"):
            raise UsageError("--check -: stdin cannot be heard twice; give a file")
        with open_audio(path):
            pass


def _table(report: QuantizeReport) -> list[str]:
    lines = [f"{'tensors':<{_NAME_COLUMNS + 4}} {'type':>5} {'MB':>8} {'MB now':>8} {'error':>7}"]
    lines += map(_line, report.classes)
    before, after = report.bytes_before / 1e6, report.bytes_after / 1e6
    lines.append(f"{report.output}: {before:.1f} MB became {after:.1f} MB ({after / before:.0%})")
    return lines


def _line(each: TensorClass) -> str:
    name, error = (each.name, f"{each.error:>7.2%}") if each.name else ("all others, as they were", f"{'-':>7}")
    if len(name) > _NAME_COLUMNS:
        name = f"...{name[3 - _NAME_COLUMNS :]}"
    return (
        f"{each.tensors:>3} {name:<{_NAME_COLUMNS}} {each.kind:>5} "
        f"{each.bytes_before / 1e6:>8.2f} {each.bytes_after / 1e6:>8.2f} {error}"
    )


def _tell_fallbacks(report: QuantizeReport) -> None:
    if report.fallbacks:
        parts = (f"{each.tensors} with rows of {each.row_values} in {each.kind}" for each in report.fallbacks)
        sys.stdout.write(f"note: rows that do not divide into the blocks of that type: {', '.join(parts)}\n")


def _tell_language_model(source: Path, output: Path, type_: QuantizedType) -> None:
    """An encoder whose language model goes by the encoder's name needs one that goes by the new name."""
    with GgufFile(output) as file:
        if file.architecture != store.NANO_ARCHITECTURE:
            return
        try:
            nano_files.language_model_beside(file)
        except ModelFileError:
            own, wanted = (str(store.language_model_path(path)) for path in (source, output))
            command = shlex.join(["liveasr", "models", "quantize", own, type_, "-o", wanted])
            sys.stdout.write(f"note: it needs its language model beside it: {command}\n")


def _compare(source: Path, output: Path, recordings: Sequence[Path], threads: int | None) -> list[compare.Comparison]:
    hearings = []
    for path in (source, output):  # one after the other: two in memory would be too much for some
        engine = open_engine(path, threads)
        try:
            recognizer = Recognizer(engine, DecodeOptions())
            new_detector = detectors("fsmn", VadConfig(max_segment_ms=engine.max_segment_ms))
            hearings.append([compare.hear(recording, recognizer, new_detector) for recording in recordings])
        finally:
            engine.close()
    return [
        compare.Comparison(recording, before, after)
        for recording, before, after in zip(recordings, *hearings, strict=True)
    ]


def _texts(compared: Sequence[compare.Comparison]) -> list[str]:
    """The first segments whose text changed."""
    changed = [(item.path.name, old, new) for item in compared for old, new in item.texts_changed]
    lines = []
    for name, old, new in changed[:_MOST_TEXTS]:
        lines += [f"{name} at {timecode(old.start_ms)}", f"  before: {old.text}", f"  after:  {new.text}"]
    if len(changed) > _MOST_TEXTS:
        lines.append(f"and {len(changed) - _MOST_TEXTS} more")
    return lines

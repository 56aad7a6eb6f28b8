"""`liveasr models verify`: whether a model file is whole, and computes here what its numbers say.

The known input is a recording of digits that a synthetic voice speaks; what is said in it, and where the reference's
VAD finds speech, stands beside it. Of the built-in models the words are known. Of every model the encoder's output is
compared with that of plain float32 arithmetic over the same file (engines/plain.py): nobody has answers for every file.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import chain
from pathlib import Path

import numpy as np

from liveasr import store
from liveasr.clients.batch import open_audio
from liveasr.clients.compare import changes
from liveasr.clients.file import segments
from liveasr.engines import funasr_nano, nano_files
from liveasr.engines.base import DecodeOptions, Engine
from liveasr.engines.plain import plain_lane
from liveasr.engines.registry import open_engine
from liveasr.gguf_file import GgufFile
from liveasr.stream.detect import detectors
from liveasr.stream.recognize import Recognizer
from liveasr.stream.segmenter import Segment
from liveasr.types import SAMPLES_PER_MS, Float32Array
from liveasr.vad.config import VadConfig

_LABEL_COLUMNS = 10
_LEAST_COSINE = {"f32": 0.99999, "f16": 0.9999, "bf16": 0.9999}
_LEAST_COSINE_OF_BLOCKS = 0.99
"""Between a frame of the encoder here and by plain arithmetic. ggml rounds what meets f16 weights to f16, and what
meets blocks to 8 bits: over 70 random blocks of full size f16 stays above 0.999999 and q8_0 above 0.9996, and an error
of arithmetic is far below all of this."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    words: str
    passed: bool | None
    """None: it is told, and cannot be judged."""


@dataclass(frozen=True, slots=True)
class _KnownInput:
    segments: list[Segment]
    spoken: list[str]
    segments_ms: list[list[int]]


def verify(model: str, as_json: bool, threads: int | None) -> int:
    """`liveasr models verify`."""
    path = store.find(model)
    checks: list[Check] = []
    for check in _checks(path, threads):
        checks.append(check)
        if not as_json:
            sys.stdout.write(f"{check.name:<{_LABEL_COLUMNS}}{check.words}\n")
            sys.stdout.flush()
    passed = all(check.passed is not False for check in checks)
    if as_json:
        told = {"path": str(path), "passed": passed, "checks": [asdict(check) for check in checks]}
        sys.stdout.write(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    else:
        wrong = ", ".join(check.name for check in checks if check.passed is False)
        sys.stdout.write(f"{'result':<{_LABEL_COLUMNS}}{'passed' if passed else f'FAILED: {wrong}'}\n")
    return 0 if passed else 1


def _checks(path: Path, threads: int | None) -> Iterator[Check]:
    with GgufFile(path) as file:
        is_vad = path.samefile(store.built_in(store.VAD_MODEL))
        is_nano = file.architecture == funasr_nano.ARCHITECTURE
        least = _least_cosine(file)
        yield Check("file", f"{path}: {len(file) / 1e6:,.1f} MB, whole", passed=True)
    yield _checksum(path)
    known = _known_input()
    if is_vad:
        yield _where(known)
        return
    engine = open_engine(path, threads)
    try:
        plain, options = plain_lane(engine), DecodeOptions()
        recognizer = Recognizer(engine, options)
        features_of_segments = [recognizer.features(segment) for segment in known.segments]
        yield _arithmetic(engine, plain, features_of_segments[0], least)
        texts = []
        ids, changed = 0, 0
        for features in features_of_segments:
            heard = engine.decode(features, options)
            texts.append(heard.text)
            if not is_nano:  # whose language model would run twice, on llama.cpp each time
                ids += len(heard.token_ids)
                changed += changes(plain.decode(features, options).token_ids, heard.token_ids)
        if not is_nano:
            yield Check("ids", f"{changed} of {ids} other than by plain arithmetic", passed=None)
    finally:
        engine.close()
    is_known = store.is_demonstration(path)
    yield Check("heard", " | ".join(texts), passed=texts == known.spoken if is_known else None)
    yield Check("spoken", " | ".join(known.spoken), passed=None)


def _least_cosine(file: GgufFile) -> float:
    """As the coarsest of its weights has it: a small model quantised is mostly f32 still, and computes with blocks."""
    kinds = {info.type_name for info in file.tensors.values() if info.name != nano_files.PACKED}
    return min((_LEAST_COSINE.get(kind, _LEAST_COSINE_OF_BLOCKS) for kind in kinds), default=_LEAST_COSINE_OF_BLOCKS)


def _checksum(path: Path) -> Check:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    expected = _registered_sha256(path)
    if expected is None:
        return Check("sha256", f"{found} (the registry has none to compare it with)", passed=None)
    if found == expected:
        return Check("sha256", f"{found}, as the registry says", passed=True)
    return Check("sha256", f"{found}; the registry says {expected}", passed=False)


def _registered_sha256(path: Path) -> str | None:
    model = store.model_of(path)
    for file in chain.from_iterable(model.variants.values() if model else ()):
        if file.sha256 and store.is_installed([file]) and store.installed_path(file).samefile(path):
            return file.sha256
    return None


def _known_input() -> _KnownInput:
    folder = Path(str(resources.files("liveasr.models")))
    told = json.loads((folder / "known-input.json").read_text(encoding="utf-8"))
    with open_audio(folder / "known-input.flac") as audio:
        found = list(segments(audio.blocks(), detectors("fsmn", VadConfig())()))
    return _KnownInput(found, told["spoken"], told["segments_ms"])


def _where(known: _KnownInput) -> Check:
    found = [[each.start_sample // SAMPLES_PER_MS, each.end_sample // SAMPLES_PER_MS] for each in known.segments]
    words = ", ".join(f"{start / 1000:.2f}-{end / 1000:.2f} s" for start, end in found)
    if found == known.segments_ms:
        return Check("speech", f"{words}, as the reference", passed=True)
    return Check("speech", f"{words}; the reference finds it at {known.segments_ms} ms", passed=False)


def _arithmetic(engine: Engine, plain: Engine, features: Float32Array, least: float) -> Check:
    options = DecodeOptions()
    ours, theirs = engine.encode(features, options), plain.encode(features, options)
    lowest = _lowest_cosine(ours, theirs)
    words = f"lowest cosine {lowest:.7f} over {len(ours)} frames of the encoder to plain arithmetic; at least {least}"
    return Check("numbers", words, passed=bool(lowest >= least))


def _lowest_cosine(ours: Float32Array, theirs: Float32Array) -> float:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / norms).min())

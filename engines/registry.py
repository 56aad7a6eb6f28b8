"""From a model file to an engine, by the architecture that the file names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liveasr import store
from liveasr.engines import cmvn, funasr_nano, nano_files, paraformer, sensevoice, streaming_model
from liveasr.engines.base import RECOGNISER_FRONT_END, Engine
from liveasr.engines.cores import available_cores
from liveasr.engines.paraformer_streaming import ParaformerStreaming
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile

_SMALL_MODEL_BYTES = 32 << 20


def default_threads(model_bytes: int) -> int:
    """As many threads as this process may use cores, at most four: segments are too short to feed more.

    A small model gets one: its threads would mostly wait for each other.
    """
    if model_bytes < _SMALL_MODEL_BYTES:
        return 1
    return min(4, available_cores())


def open_engine(path: Path, threads: int | None = None, cmvn_path: Path | None = None) -> Engine:
    """The engine for a model file, ready to decode. Closing it frees everything.

    Args:
        path: a GGUF file.
        threads: for one decode; by default what `default_threads` says.
        cmvn_path: an `am.mvn` to use instead of what the file holds.

    Raises:
        ModelFileError: the file is corrupt, incomplete, or of an architecture that this program does not run.
    """
    file = GgufFile(path)
    try:
        opener = _family(file).opener
        return opener(file, threads or default_threads(len(file)), cmvn_path)
    except BaseException:
        file.close()
        raise


def check(file: GgufFile) -> None:
    """Raise what `open_engine` would raise for a file, without a native library, and without what lies beside it.

    Raises:
        ModelFileError: the file is incomplete, or of an architecture that this program does not run.
    """
    _family(file).check(file)


def _family(file: GgufFile) -> "_Family":
    family = _FAMILIES.get(file.architecture)
    if file.architecture == store.LANGUAGE_MODEL_ARCHITECTURE:
        raise ModelFileError(
            file.path,
            "is a language model, as one is part of Fun-ASR-Nano; name the encoder, which finds it beside itself",
        )
    if family is None:
        raise ModelFileError(file.path, f"is a {file.architecture} model; liveasr runs {', '.join(ARCHITECTURES)}")
    return family


def _normalisation(file: GgufFile, cmvn_path: Path | None) -> cmvn.Cmvn | None:
    dims = RECOGNISER_FRONT_END.dims
    return cmvn.from_kaldi(cmvn_path, dims) if cmvn_path else cmvn.from_gguf(file, dims)


def _open_sensevoice(file: GgufFile, threads: int, cmvn_path: Path | None) -> Engine:
    normalisation = _normalisation(file, cmvn_path)
    return sensevoice.SenseVoice(sensevoice.load(file, normalisation), threads, owns_model=True)


def _open_paraformer(file: GgufFile, threads: int, cmvn_path: Path | None) -> Engine:
    normalisation = _normalisation(file, cmvn_path)
    return paraformer.Paraformer(paraformer.load(file, normalisation), threads, owns_model=True)


def _open_paraformer_streaming(file: GgufFile, threads: int, cmvn_path: Path | None) -> Engine:
    normalisation = _normalisation(file, cmvn_path)
    return ParaformerStreaming(streaming_model.load(file, normalisation), threads, owns_model=True)


def _open_nano(file: GgufFile, threads: int, cmvn_path: Path | None) -> Engine:
    if cmvn_path is not None:
        raise UsageError(f"--cmvn {cmvn_path}: Fun-ASR-Nano takes its features as they are")
    found = nano_files.language_model_of(file)
    model = funasr_nano.load(file, found.path, threads, found.offset_bytes)
    return funasr_nano.FunAsrNano(model, threads, owns_model=True)


@dataclass(frozen=True, slots=True)
class _Family:
    opener: Callable[[GgufFile, int, Path | None], Engine]
    check: Callable[[GgufFile], object]


_FAMILIES = {
    sensevoice.ARCHITECTURE: _Family(_open_sensevoice, sensevoice.check),
    paraformer.ARCHITECTURE: _Family(_open_paraformer, paraformer.check),
    streaming_model.ARCHITECTURE: _Family(_open_paraformer_streaming, streaming_model.check),
    funasr_nano.ARCHITECTURE: _Family(_open_nano, funasr_nano.check),
}
ARCHITECTURES = tuple(_FAMILIES)
"""The first is the best where several are installed: SenseVoice knows more languages, and punctuation; Fun-ASR-Nano,
the last, is slow on most computers, and is for those who ask for it."""

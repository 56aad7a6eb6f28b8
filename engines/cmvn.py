"""Mean and variance normalisation that comes with a model: y = (x + shift) * scale."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from liveasr.engines import small_files
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array

_log = logging.getLogger("liveasr")


@dataclass(frozen=True, slots=True, eq=False)
class Cmvn:
    """Both vectors, (dims,) each."""

    shift: Float32Array
    scale: Float32Array

    def apply(self, features: Float32Array) -> Float32Array:
        """(T, dims) normalised."""
        return (features + self.shift) * self.scale


CmvnState: TypeAlias = Literal["applied", "missing", "misexported", "unusable"]
"""Of the normalisation in a file: misexported is what the upstream SenseVoice exporter writes."""


def state_of(file: GgufFile, dims: int) -> CmvnState:
    """What becomes of the normalisation in a file, for a model that takes so many features.

    Raises:
        ModelFileError: it is stored in a type that no exporter uses.
    """
    if "cmvn.shift" not in file.tensors or "cmvn.scale" not in file.tensors:
        return "missing"
    shift, scale = file.array("cmvn.shift"), file.array("cmvn.scale")
    if shift.shape == scale.shape == (dims,) and _is_usable(shift, scale):
        return "applied"
    return "misexported" if shift.shape == (1,) and scale.shape == (dims,) else "unusable"


def from_gguf(file: GgufFile, dims: int) -> Cmvn | None:
    """The normalisation in a file, or None, with a warning, where it is unusable.

    The upstream SenseVoice exporter writes the wrong blocks of `am.mvn` (a shift of one value, and the shift as
    scale), and the upstream runtime therefore leaves normalisation out. A file like that still recognises speech
    without it, a little worse; anything in between would be nonsense.
    """
    if state_of(file, dims) == "applied":
        return Cmvn(file.array("cmvn.shift"), file.array("cmvn.scale"))
    _log.warning(
        "%s has no usable feature normalisation (a known fault of published files) and runs without it, a little less "
        "accurate; pass --cmvn am.mvn, or convert the checkpoint again with: liveasr models convert",
        file.path,
    )
    return None


def _is_usable(shift: Float32Array, scale: Float32Array) -> bool:
    return bool(np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all())


def read_kaldi(path: Path) -> tuple[Float32Array, Float32Array]:
    """(shift, scale) of a Kaldi nnet `am.mvn`, each (dims,), found by the names of their blocks, as FunASR finds them.

    Raises:
        ModelFileError: the file is missing, lacks one of the two blocks, or has values that normalise nothing.
    """
    try:
        text = small_files.read(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def block(tag: str) -> Float32Array:
        found = re.search(rf"<{tag}>[^\[]*\[([^\]]*)\]", text)
        if found is None:
            raise ModelFileError(path, f"has no <{tag}> block")
        try:
            return np.array(found.group(1).split(), np.float32)
        except ValueError as error:
            raise ModelFileError(path, f"its <{tag}> block is not a list of numbers") from error

    shift, scale = block("AddShift"), block("Rescale")
    if shift.size != scale.size:
        raise ModelFileError(path, f"shift has {shift.size} values, scale has {scale.size}")
    if not _is_usable(shift, scale):
        raise ModelFileError(path, "has a scale that is not positive, or a value that is not finite")
    return shift, scale


def from_kaldi(path: Path, dims: int) -> Cmvn:
    """The normalisation in an `am.mvn`.

    Raises:
        ModelFileError: the file is missing, broken, or made for another number of features.
    """
    shift, scale = read_kaldi(path)
    if shift.size != dims:
        raise ModelFileError(path, f"has {shift.size} values; the model takes {dims}")
    return Cmvn(shift, scale)

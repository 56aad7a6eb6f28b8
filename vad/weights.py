"""Weights of the FSMN-VAD from a GGUF file in the published layout (architecture `fsmn-vad`, keys `vad.*`)."""

from dataclasses import dataclass

import numpy as np

from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float64Array

ARCHITECTURE = "fsmn-vad"
_MEL_BINS = 80


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """y = x @ weight + bias."""

    weight: Float64Array
    """(inputs, outputs)"""
    bias: Float64Array
    """(outputs,)"""


@dataclass(frozen=True, slots=True, eq=False)
class FsmnLayer:
    """Projection, memory over the past, expansion."""

    projection: Float64Array
    """(linear_dim, proj_dim), no bias"""
    taps: Float64Array
    """(lorder, proj_dim), oldest frame first"""
    expansion: Affine


@dataclass(frozen=True, slots=True, eq=False)
class FsmnWeights:
    """Everything the network needs, as float64 (fsmn.py says why)."""

    lfr_m: int
    lfr_n: int
    shift: Float64Array
    """(inputs,) CMVN: y = (x + shift) * scale"""
    scale: Float64Array
    in_linear1: Affine
    in_linear2: Affine
    layers: tuple[FsmnLayer, ...]
    out_linear1: Affine
    out_linear2: Affine


def load(file: GgufFile) -> FsmnWeights:
    """Read and check all weights. The arrays are copies: the file may be closed afterwards.

    Raises:
        ModelFileError: the file is of another architecture, or a tensor is missing, or has the wrong shape
            or values that are no numbers.
    """
    if file.architecture != ARCHITECTURE:
        raise ModelFileError(file.path, f"is a {file.architecture} model; a {ARCHITECTURE} model was expected")
    size = {name: file.integer(f"vad.{name}") for name in (
        "input_dim", "input_affine_dim", "linear_dim", "proj_dim", "fsmn_layers", "lorder", "output_affine_dim",
        "output_dim", "n_mels", "lfr_m", "lfr_n",
    )}  # fmt: skip
    inputs, linear, proj = size["input_dim"], size["linear_dim"], size["proj_dim"]
    if inputs != size["n_mels"] * size["lfr_m"]:
        raise ModelFileError(file.path, f"vad.input_dim {inputs} is not n_mels x lfr_m")
    if size["n_mels"] != _MEL_BINS or size["lfr_m"] % 2 == 0 or size["lfr_n"] != 1:
        front = f"{size['n_mels']} mels, {size['lfr_m']} frames stacked every {size['lfr_n']}"
        raise ModelFileError(
            file.path, f"wants features of {front}; {_MEL_BINS} mels, an odd number, every 1 are made here"
        )
    if size["fsmn_layers"] > len(file.tensors):
        raise ModelFileError(file.path, f"vad.fsmn_layers is {size['fsmn_layers']}, more than there are tensors")

    def array(name: str, *shape: int) -> Float64Array:
        values = file.array(name, shape)
        if not np.isfinite(values).all():  # its scores would be NaN, and every recording silent
            raise ModelFileError(file.path, f"tensor {name} has values that are no numbers")
        return values.astype(np.float64)

    def affine(name: str, inputs: int, outputs: int) -> Affine:
        weight = array(f"encoder.{name}.linear.weight", outputs, inputs)
        return Affine(np.ascontiguousarray(weight.T), array(f"encoder.{name}.linear.bias", outputs))

    def layer(index: int) -> FsmnLayer:
        projection = array(f"encoder.fsmn.{index}.linear.linear.weight", proj, linear)
        return FsmnLayer(
            np.ascontiguousarray(projection.T),
            array(f"encoder.fsmn.{index}.fsmn_block.conv_left.weight", size["lorder"], proj),
            affine(f"fsmn.{index}.affine", proj, linear),
        )

    return FsmnWeights(
        lfr_m=size["lfr_m"],
        lfr_n=size["lfr_n"],
        shift=array("cmvn.shift", inputs),
        scale=array("cmvn.scale", inputs),
        in_linear1=affine("in_linear1", inputs, size["input_affine_dim"]),
        in_linear2=affine("in_linear2", size["input_affine_dim"], linear),
        layers=tuple(layer(index) for index in range(size["fsmn_layers"])),
        out_linear1=affine("out_linear1", linear, size["output_affine_dim"]),
        out_linear2=affine("out_linear2", size["output_affine_dim"], size["output_dim"]),
    )

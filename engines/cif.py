"""Continuous integrate-and-fire (CIF): how many tokens a segment has, where they are, and an embedding of each.

Every step of the encoder gets a weight between 0 and 1. The weights are added up; each time their sum passes a whole
number a token fires, and its embedding is the mean of the steps since the last one, weighted: the weight of the step
that fires is shared between both tokens. This is version 2 of the predictor, for whole segments. Source:
`funasr/models/paraformer/cif_predictor.py`, `CifPredictorV2.forward`, `cif_v1` and `cif_wo_hidden_v1`.
"""

from dataclasses import dataclass

import numpy as np

from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.types import Float32Array

_TAPS = 3  # l_order + r_order + 1 of every released config; the file does not repeat them


@dataclass(frozen=True, slots=True, eq=False)
class Fired:
    """What `integrate` found in T steps."""

    embeddings: Float32Array
    """(N, D), one for each token."""
    alphas: Float32Array
    """(T + 1,) weights, that of the tail frame last."""
    peaks: Float32Array
    """(T + 1,) sums, each without the whole numbers that fired in earlier steps: a step fires where it is 1 or more."""


@dataclass(frozen=True, slots=True, eq=False)
class CifPredictor:
    """Gives every step of the encoder its weight: a convolution over three steps, ReLU, a product, sigmoid."""

    conv_weight: Float32Array
    """(3 * D, D): the inputs of the step before, of the step itself and of the one behind it."""
    conv_bias: Float32Array
    """(D,)"""
    output_weight: Float32Array
    """(D,)"""
    output_bias: Float32Array
    """(1,)"""

    def alphas(self, hidden: Float32Array) -> Float32Array:
        """(T,) weights of the steps (T, D), with zeros around."""
        padded = np.pad(hidden, ((1, 1), (0, 0)))
        windows = np.concatenate([padded[tap : tap + len(hidden)] for tap in range(_TAPS)], axis=1)
        mixed = np.maximum(windows @ self.conv_weight + self.conv_bias, 0)
        logits = mixed @ self.output_weight + self.output_bias
        sigmoid: Float32Array = np.float32(0.5) * (np.float32(1) + np.tanh(np.float32(0.5) * logits))  # exp overflows
        np.nan_to_num(sigmoid, copy=False)  # where a damaged model computes no number, nothing fires
        return sigmoid


def load(file: GgufFile, prefix: str, size: int) -> CifPredictor:
    """The predictor of a file.

    Args:
        file: a validated file.
        prefix: before the names of its tensors: "predictor.".
        size: D, of a row of the encoder's output.

    Raises:
        ModelFileError: a tensor is missing, or has another shape, or a value that is no number.
    """
    conv = file.array(f"{prefix}cif_conv1d.weight", (size, size, _TAPS))
    predictor = CifPredictor(
        conv_weight=np.ascontiguousarray(conv.transpose(2, 1, 0).reshape(_TAPS * size, size)),
        conv_bias=file.array(f"{prefix}cif_conv1d.bias", (size,)),
        output_weight=file.array(f"{prefix}cif_output.weight", (1, size))[0],
        output_bias=file.array(f"{prefix}cif_output.bias", (1,)),
    )
    weights = (predictor.conv_weight, predictor.conv_bias, predictor.output_weight, predictor.output_bias)
    if not all(np.isfinite(values).all() for values in weights):
        raise ModelFileError(file.path, f"a tensor {prefix}cif_* has a value that is not finite")
    return predictor


def integrate(hidden: Float32Array, alphas: Float32Array, tail: float) -> Fired:
    """Fire the tokens of a whole segment.

    Behind the last step stands one of zeros with the weight `tail`, so that a token that has almost all of its weight
    still fires. The number of tokens is the sum of the weights in float32, rounded down. The fires come from sums in
    float64: in rare cases they are fewer, and the last embedding is zeros, or more, and the last fire is left out.

    Args:
        hidden: (T, D) output of the encoder.
        alphas: (T,) weights between 0 and 1.
        tail: `tail_threshold` of the model, 0.45 in all that were released.
    """
    alphas = np.append(alphas, np.float32(tail))
    hidden = np.pad(hidden, ((0, 1), (0, 0)))
    sums = np.cumsum(alphas, dtype=np.float64).astype(np.float32)
    whole = np.floor(sums)
    fires = np.diff(whole, prepend=np.float32(0)) > 0
    rest = sums - whole  # what a step that fires leaves to the next token
    count = int(alphas.sum())
    mixed = np.cumsum(alphas[:, None] * hidden, axis=0, dtype=np.float64)
    ends = mixed[fires] - rest[fires, None] * hidden[fires]
    fired = np.diff(ends, axis=0, prepend=np.zeros((1, hidden.shape[1])))[:count]
    embeddings = np.zeros((count, hidden.shape[1]), np.float32)
    embeddings[: len(fired)] = fired
    return Fired(embeddings, alphas, fires + rest)

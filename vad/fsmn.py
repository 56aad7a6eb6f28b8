"""The FSMN-VAD network (Deep-FSMN, https://arxiv.org/abs/1803.05030) in numpy, frame by frame with explicit caches.

Each FSMN layer looks `lorder` frames back and none ahead, so exact streaming is a matter of keeping the last lorder - 1
projected rows of every layer. numpy is faster here than a ggml graph: 2 to 20 frames a call are too few.

Arithmetic is float64 and scores are rounded to float32, so that they do not depend on how many frames a call carries;
float32 matrix products do.
"""

import numpy as np

from liveasr.types import Float32Array, Float64Array
from liveasr.vad.weights import Affine, FsmnWeights

SILENCE = 0
"""Column of the silence score among the outputs."""
_FEW_FRAMES = 10  # below this the number of numpy calls decides the time, above it the memory they touch


class FsmnScorer:
    """Scores of a stream of stacked feature frames."""

    def __init__(self, weights: FsmnWeights) -> None:
        self.weights = weights
        self.reset()

    def reset(self) -> None:
        """Forget the past; afterwards this equals a new object."""
        self._past = [np.zeros((len(layer.taps) - 1, layer.taps.shape[1])) for layer in self.weights.layers]

    def accept(self, features: Float32Array) -> Float32Array:
        """Posteriors of the next frames.

        Args:
            features: (n, inputs) stacked frames before CMVN.

        Returns:
            (n, outputs), each row summing to 1; column 0 is silence.
        """
        w = self.weights
        if len(features) == 0:
            return np.empty((0, w.out_linear2.bias.size), np.float32)
        x = (features + w.shift) * w.scale
        x = _relu(_affine(_affine(x, w.in_linear1), w.in_linear2))
        for index, layer in enumerate(w.layers):
            projected = x @ layer.projection
            history = np.concatenate((self._past[index], projected))
            self._past[index] = history[len(projected) :].copy()
            x = _relu(_affine(projected + _memory(history, layer.taps), layer.expansion))
        logits = _affine(_affine(x, w.out_linear1), w.out_linear2)
        logits -= logits.max(axis=1, keepdims=True)
        scores = np.exp(logits, out=logits)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores.astype(np.float32)


def _affine(x: Float64Array, layer: Affine) -> Float64Array:
    y = x @ layer.weight
    y += layer.bias
    return y


def _relu(x: Float64Array) -> Float64Array:
    np.maximum(x, 0.0, out=x)
    return x


def _memory(history: Float64Array, taps: Float64Array) -> Float64Array:
    """(n, dims): row t is the weighted sum of the rows t .. t + lorder - 1 of history, (lorder - 1 + n, dims)."""
    lorder, dims = taps.shape
    count = len(history) - lorder + 1
    if count <= _FEW_FRAMES:  # one product over a view of all windows: fewer calls of numpy
        step = history.itemsize * dims
        windows = np.ndarray((count, lorder, dims), np.float64, history, strides=(step, step, history.itemsize))
        memory: Float64Array = (windows * taps).sum(axis=1)
        return memory
    total: Float64Array = history[:count] * taps[0]
    term = np.empty_like(total)
    for k in range(1, lorder):
        np.multiply(history[k : k + count], taps[k], out=term)
        total += term
    return total

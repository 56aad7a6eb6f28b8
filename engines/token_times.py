"""When the tokens of a Paraformer were spoken, from the curve of its CIF predictor.

The weights are trained to sum up to the number of tokens, not to mark their ends; the reference therefore scales the
curve to one token more and integrates it again: each token lasts from one fire to the next. Source:
`funasr/utils/timestamp_tools.py`, `ts_prediction_lfr6_standard`, as `funasr/models/paraformer/model.py` calls it:
with curve and weights in each other's place, so that what is integrated is the curve and not the weights.
"""

import numpy as np

from liveasr.types import Float32Array, Float64Array

_THRESHOLD = np.float32(1.0 - 1e-4)
_SHIFT_STEPS = -1.5  # a token fires late
_MAX_TOKEN_STEPS = 12
_MAX_TAIL_STEPS = 5  # a longer stretch behind the last fire is half silence


def token_spans(peaks: Float32Array, count: int) -> Float64Array:
    """(count, 2) start and end of each token, in steps of the encoder from the start of the segment.

    The first may start before 0, the last ends with the tail frame at most.

    Args:
        peaks: (T + 1,) curve of the predictor, tail frame included.
        count: of the tokens, without those that the text leaves out.
    """
    if count == 0:
        return np.zeros((0, 2))
    steps = len(peaks)
    fires = _fires(peaks / (peaks.sum() / np.float32(count + 1)))[: count + 1]
    bounds = np.array([fire + _SHIFT_STEPS for fire in fires] or [0.0])
    # A step fires once, so that tokens are left over in a segment of a few steps, where the reference gives no times.
    left_over = np.linspace(bounds[-1], steps, count + 2 - len(bounds))[1:]
    bounds = np.append(bounds, left_over)
    ends = np.minimum(bounds[1:], bounds[:-1] + _MAX_TOKEN_STEPS)
    if ends[-1] == bounds[-1]:  # not cut, so the last token may last longer
        behind = steps - bounds[-1]
        ends[-1] = bounds[-1] + behind / 2 if behind > _MAX_TAIL_STEPS else steps
    return np.stack((bounds[:-1], ends), axis=1)


def _fires(weights: Float32Array) -> list[int]:
    """Steps in which the sum passes the threshold, added up in float32 as the reference does."""
    fires = []
    total = np.float32(0)
    for step, weight in enumerate(weights):
        total += weight
        if total >= _THRESHOLD:
            fires.append(step)
            total -= _THRESHOLD
    return fires

"""Low frame rate: `m` neighbouring frames stacked into one, every `n` frames.

Row i holds the frames n i - (m - 1) / 2 .. n i + (m - 1) / 2; frames before the first repeat the first, frames behind
the last repeat the last, and there are ceil(T / n) rows. FunASR's `apply_lfr` (`funasr/frontends/wav_frontend.py`)
equals this for every length. Recognisers use 7/6, the FSMN-VAD 5/1.
"""

import numpy as np

from liveasr.errors import UsageError
from liveasr.types import FeatureFrames, Float32Array


def stack(frames: Float32Array, m: int, n: int) -> Float32Array:
    """All rows of a whole recording or segment.

    Args:
        frames: (T, dims).
        m: frames in a row, odd.
        n: frames between rows.

    Returns:
        (ceil(T / n), m * dims)
    """
    count = -(-len(frames) // n)
    indices = n * np.arange(count)[:, None] + np.arange(m) - (m - 1) // 2
    rows: Float32Array = frames[np.clip(indices, 0, max(len(frames) - 1, 0))].reshape(count, m * frames.shape[1])
    return rows


class OnlineLfr:
    """`stack` for a stream. A row comes out as soon as its last frame is there; `finish` gives the rest.

    Keeps fewer than m + n frames.
    """

    def __init__(self, m: int, n: int, dims: int) -> None:
        self.m = m
        self.n = n
        self.dims = dims
        self.reset()

    def reset(self) -> None:
        """Forget everything; afterwards this equals a new object."""
        self._frames = np.empty((0, self.dims), np.float32)
        self._first_frame = 0  # absolute index of self._frames[0]
        self._next_row = 0
        self._finished = False

    @property
    def end_frame(self) -> int:
        """How many frames came so far."""
        return self._first_frame + len(self._frames)

    def accept(self, frames: FeatureFrames) -> FeatureFrames:
        """The rows that these frames, which follow those of the last call, complete."""
        if self._finished:
            raise UsageError("frames were fed after finish(); call reset() for a new stream")
        if frames.start_frame != self.end_frame:
            raise UsageError(f"frame {self.end_frame} was expected next, not {frames.start_frame}")
        self._frames = np.concatenate((self._frames, frames.data))
        ahead = (self.m - 1) // 2
        complete = max(0, -(-(self.end_frame - ahead) // self.n))  # rows i with n i + ahead < end
        return self._rows(complete)

    def finish(self) -> FeatureFrames:
        """The last rows, their missing frames filled with copies of the last frame."""
        if self._finished:
            raise UsageError("finish() was called twice")
        self._finished = True
        return self._rows(-(-self.end_frame // self.n))

    def _rows(self, end_row: int) -> FeatureFrames:
        """Rows from the next one up to end_row, then drop the frames that no later row needs."""
        start_row = self._next_row
        behind = (self.m - 1) // 2
        rows = np.arange(start_row, max(start_row, end_row))
        indices = self.n * rows[:, None] + np.arange(self.m) - behind - self._first_frame
        # Clipping is the padding: before the stream's first frame, and behind its last one once it has ended.
        clipped = np.clip(indices, 0, max(len(self._frames) - 1, 0))
        data = self._frames[clipped].reshape(len(rows), self.m * self.dims)
        self._next_row = start_row + len(rows)
        drop = max(0, self.n * self._next_row - behind - self._first_frame)
        drop = min(drop, max(0, len(self._frames) - 1))  # the last frame may have to be repeated
        if drop:
            self._frames = self._frames[drop:].copy()
            self._first_frame += drop
        return FeatureFrames(data, start_row)

"""Frames of a stream by their absolute index; old ones are dropped, none is ever renumbered."""

import numpy as np

from liveasr.types import FeatureFrames, Float32Array

_FIRST_CAPACITY = 256


class FrameRing:
    """A window over a stream of frames. Its memory follows the frames it holds, not those it has seen."""

    def __init__(self, dims: int) -> None:
        self._store = np.empty((_FIRST_CAPACITY, dims), np.float32)
        self._offset = 0  # row of the first frame in the store
        self.start_frame = 0
        """The first frame held."""
        self.end_frame = 0
        """The first frame that is not here yet."""

    def __len__(self) -> int:
        """Frames held."""
        return self.end_frame - self.start_frame

    def append(self, frames: FeatureFrames) -> None:
        """Add the frames that follow the last one."""
        assert frames.start_frame == self.end_frame, "frames of a stream follow each other"
        held, new = len(self), len(frames.data)
        if self._offset + held + new > len(self._store):
            # Twice what is needed, so that a frame is moved once on average, however it comes.
            capacity = max(_FIRST_CAPACITY, 2 * (held + new))
            store = np.empty((capacity, self._store.shape[1]), np.float32)
            store[:held] = self._store[self._offset : self._offset + held]
            self._store, self._offset = store, 0
        end = self._offset + held
        self._store[end : end + new] = frames.data
        self.end_frame += new

    def slice(self, start_frame: int, end_frame: int) -> Float32Array:
        """A copy of the frames [start_frame, end_frame), which must be held; of no frame, wherever that lies."""
        is_held = self.start_frame <= start_frame <= end_frame <= self.end_frame
        assert is_held or start_frame == end_frame, "these frames are not held"
        first = self._offset + start_frame - self.start_frame
        return self._store[first : first + end_frame - start_frame].copy()

    def drop_before(self, frame: int) -> None:
        """Forget the frames before this one; nothing happens if they are gone already."""
        drop = min(frame, self.end_frame) - self.start_frame
        if drop > 0:
            self._offset += drop
            self.start_frame += drop

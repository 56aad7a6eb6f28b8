"""No detection at all: the audio in windows of fixed length, each a segment."""

from liveasr.types import SAMPLES_PER_MS, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import FRAME_MS

_HOP_SAMPLES = FRAME_MS * SAMPLES_PER_MS


class FixedWindows:
    """Cuts a stream every `window_ms`; every cut but the last is forced."""

    def __init__(self, window_ms: int) -> None:
        self._window_samples = window_ms // FRAME_MS * FRAME_MS * SAMPLES_PER_MS  # cuts lie on the grid of the frames
        self.reset()

    def reset(self) -> None:
        """Forget everything; afterwards this equals a new object."""
        self._heard = 0  # samples
        self._start = 0  # of the open window
        self._open = False

    @property
    def earliest_start(self) -> int:
        """No event to come points before this sample."""
        return self._start

    @property
    def open_samples(self) -> int:
        """Length of the open window so far."""
        return self._heard - self._start

    def accept(self, samples: int) -> list[SpeechEvent]:
        """Events of the next so many samples."""
        events: list[SpeechEvent] = []
        if samples and not self._open:
            self._open = True
            events.append(SpeechStart(self._start, self._heard + 1))
        self._heard += samples
        while self._heard > self._start + self._window_samples:
            self._start += self._window_samples
            known_at = self._start + 1  # the sample that did not fit, however many came with it
            events += [SpeechEnd(self._start, known_at, forced_cut=True), SpeechStart(self._start, known_at)]
        return events

    def flush(self) -> list[SpeechEvent]:
        """End the open window at the last whole frame, if it holds one; the next begins there."""
        end = self._heard // _HOP_SAMPLES * _HOP_SAMPLES
        if not self._open or end == self._start:
            return []
        self._start = end
        self._open = self._heard > end
        ended: list[SpeechEvent] = [SpeechEnd(end, self._heard)]
        return [*ended, SpeechStart(end, self._heard)] if self._open else ended

    def finish(self) -> list[SpeechEvent]:
        """The end of the last window, if there was any audio."""
        return [SpeechEnd(self._heard, self._heard)] if self._open else []

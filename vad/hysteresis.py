"""From frames that flicker to a state that holds: speech or silence, by the last 200 ms.

FunASR's `WindowDetector` (`funasr/models/fsmn_vad_streaming/model.py`): 150 ms of the window must be speech for silence
to become speech, and no more than 150 ms for speech to become silence.
"""

from collections import deque

from liveasr.vad.config import FRAME_MS, SPEECH_TO_SILENCE_MS

WINDOW_FRAMES = 200 // FRAME_MS  # window_size_ms
_CHANGE_FRAMES = SPEECH_TO_SILENCE_MS // FRAME_MS  # sil_to_speech_time_thres = speech_to_sil_time_thres


class SpeechWindow:
    """The state after the last frame."""

    def __init__(self) -> None:
        self._window: deque[bool] = deque(maxlen=WINDOW_FRAMES)
        self.speaking = False
        self.silent_frames = 0
        """Frames since the one that changed the state to silence; 0 while speaking."""

    @property
    def voiced_frames(self) -> int:
        """Frames of speech among those of the window."""
        return sum(self._window)

    def update(self, speech: bool) -> None:
        """Take the next frame."""
        self._window.append(speech)
        if not self.speaking and self.voiced_frames >= _CHANGE_FRAMES:
            self.speaking = True
            self.silent_frames = 0
        elif self.speaking and self.voiced_frames <= _CHANGE_FRAMES:
            self.speaking = False
        elif not self.speaking:
            self.silent_frames += 1

    def clear(self) -> None:
        """Back to silence, with nothing heard."""
        self._window.clear()
        self.speaking = False
        self.silent_frames = 0

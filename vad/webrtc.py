"""WebRTC's voice activity detector as a source of scores: the fallback where the FSMN weights are missing.

It decides by energy in six bands and hears only speech or not; music and babble pass for speech. Its decisions become
scores of 0 and 1 on the same 10 ms grid, so all that comes after (hysteresis, end silence, cuts, padding) is the same.
"""

from typing import Literal, TypeAlias

import numpy as np
import webrtcvad

from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Float32Array
from liveasr.vad.config import FRAME_MS

WindowMs: TypeAlias = Literal[10, 20, 30]
Aggressiveness: TypeAlias = Literal[0, 1, 2, 3]


class WebrtcScorer:
    """Silence scores of a stream of samples. Keeps less than one window of audio.

    Args:
        window_ms: what it decides over; one decision stands for 1 to 3 frames.
        aggressiveness: how readily it calls a window silent.
    """

    def __init__(self, window_ms: WindowMs = 20, aggressiveness: Aggressiveness = 2) -> None:
        self.window_samples = window_ms * SAMPLES_PER_MS
        self._frames = window_ms // FRAME_MS
        self._vad = webrtcvad.Vad(aggressiveness)
        self._rest = np.empty(0, np.int16)

    def accept(self, samples: Float32Array) -> Float32Array:
        """Silence scores, 0 or 1, of the 10 ms frames that these samples complete; any split gives the same.

        Args:
            samples: (n,) float32 in [-1, 1], 16 kHz, mono.
        """
        scaled = np.clip(np.rint(samples * 32_768.0), -32_768, 32_767).astype(np.int16)
        pending = np.concatenate((self._rest, scaled))
        windows = pending.size // self.window_samples
        self._rest = pending[windows * self.window_samples :].copy()
        decisions = [
            self._vad.is_speech(window.tobytes(), SAMPLE_RATE_HZ)
            for window in pending[: windows * self.window_samples].reshape(windows, self.window_samples)
        ]
        return np.repeat(np.array([not speech for speech in decisions], np.float32), self._frames)

"""Where speech begins and ends: a pure state machine over one score a frame.

Restated from FunASR's `FsmnVADStreaming` (`funasr/models/fsmn_vad_streaming/model.py`) with the settings of the
released model. A window of 200 ms decides between speech and silence, with 150 ms of either needed to change. From
there:

    state       on                                   becomes     says
    waiting     the window turns to speech           speaking    SpeechStart, 400 ms back, never before the last end
    speaking    silence for end_silence_ms           waiting     SpeechEnd, 100 ms into the silence
    speaking    longer than max_segment_ms           speaking    SpeechEnd(forced_cut) and SpeechStart at the cut
                the same, nothing said since the cut paused      SpeechEnd(forced_cut)
    paused      the window turns to speech           speaking    SpeechStart at the cut
    paused      silence for end_silence_ms           waiting
    speaking    the end of the stream                            SpeechEnd

The reference cuts a long segment at the frame where it becomes too long; this machine cuts at the lowest speech score
of the last 5 s, which is where a pause is most likely. Times are frames of 10 ms; a segment [a, b) covers samples
[160 a, 160 b).
"""

from collections import deque

from liveasr.errors import UsageError
from liveasr.types import SAMPLES_PER_MS, Float32Array, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import FRAME_MS, SPEECH_TO_SILENCE_MS, VadConfig

_HOP_SAMPLES = FRAME_MS * SAMPLES_PER_MS
_WINDOW_SAMPLES = 25 * SAMPLES_PER_MS
_LOOK_AHEAD_FRAMES = 2  # the score of a frame needs this many after it (LFR 5/1)
_WINDOW_FRAMES = 200 // FRAME_MS  # window_size_ms
_CHANGE_FRAMES = SPEECH_TO_SILENCE_MS // FRAME_MS  # sil_to_speech_time_thres = speech_to_sil_time_thres
_LOOK_BACK_FRAMES = _WINDOW_FRAMES + 200 // FRAME_MS  # lookback_time_start_point
_EXTEND_FRAMES = 100 // FRAME_MS  # lookahead_time_end_point
_CUT_FRAMES = 5_000 // FRAME_MS
_SPEECH_NOISE_THRESHOLD = 0.6  # speech_noise_thres: how much more likely than silence speech must be


class Endpointer:
    """Turns silence scores into speech events. Call `accept` any number of times, then `finish` once."""

    def __init__(self, config: VadConfig) -> None:
        self.config = config
        self._end_frames = (config.end_silence_ms - SPEECH_TO_SILENCE_MS) // FRAME_MS
        self._max_frames = config.max_segment_ms // FRAME_MS
        self.reset()

    def reset(self) -> None:
        """Forget everything; afterwards this equals a new object."""
        self._frame = 0  # the next one
        self._last_end = 0
        self._start: int | None = None  # of the open segment
        self._resume_at: int | None = None  # where a forced cut waits for speech to go on ("paused")
        self._scores: deque[float] = deque(maxlen=_CUT_FRAMES)  # silence scores of the last frames
        self._finished = False
        self._window: deque[bool] = deque()  # which of the last 200 ms are speech
        self._speaking = False  # what the window says
        self._silent_frames = 0  # since it says silence

    @property
    def earliest_start_frame(self) -> int:
        """No event to come points before this frame, so older frames may be dropped."""
        if self._start is not None:
            return self._start
        if self._resume_at is not None:
            return self._resume_at
        return self._look_back(self._frame)

    def accept(self, silence: Float32Array) -> list[SpeechEvent]:
        """Events of the next frames.

        Args:
            silence: (n,) posterior of silence of each frame.

        Raises:
            UsageError: after finish.
        """
        if self._finished:
            raise UsageError("scores were fed after finish(); call reset() for a new stream")
        events: list[SpeechEvent] = []
        for score in silence.tolist():
            events += self._step(score)
        return events

    def finish(self) -> list[SpeechEvent]:
        """End the stream; an open segment ends with its last frame."""
        if self._finished:
            raise UsageError("finish() was called twice")
        self._finished = True
        if self._start is None:
            return []
        return [self._end(self._frame)]

    def _step(self, silence: float) -> list[SpeechEvent]:
        frame = self._frame
        self._frame += 1
        self._scores.append(silence)
        self._update_window(1.0 - silence >= silence + _SPEECH_NOISE_THRESHOLD)
        if self._start is None:
            if self._speaking:
                return [self._begin(self._look_back(frame) if self._resume_at is None else self._resume_at)]
            if self._resume_at is not None and self._silent_long_enough():
                self._resume_at = None
                self._clear_window()
            return []
        if self._silent_long_enough():
            end = frame + 1 - max(0, self._end_frames - _EXTEND_FRAMES - 1)
            self._clear_window()
            return [self._end(end)]
        if frame - self._start + 1 > self._max_frames:
            return self._cut()
        return []

    def _look_back(self, frame: int) -> int:
        return max(self._last_end, frame - _LOOK_BACK_FRAMES)

    def _silent_long_enough(self) -> bool:
        return not self._speaking and self._silent_frames >= max(1, self._end_frames)

    def _update_window(self, speech: bool) -> None:
        """Hysteresis over the last 200 ms; silent_frames counts from the frame after a change to silence."""
        self._window.append(speech)
        if len(self._window) > _WINDOW_FRAMES:
            self._window.popleft()
        voiced = sum(self._window)
        if not self._speaking and voiced >= _CHANGE_FRAMES:
            self._speaking = True
            self._silent_frames = 0
        elif self._speaking and voiced <= _CHANGE_FRAMES:
            self._speaking = False
            self._silent_frames = 0
        elif not self._speaking:
            self._silent_frames += 1

    def _clear_window(self) -> None:
        self._window.clear()
        self._speaking = False
        self._silent_frames = 0

    def _begin(self, start: int) -> SpeechStart:
        self._start = start
        self._resume_at = None
        return SpeechStart(start * _HOP_SAMPLES, self._heard())

    def _end(self, end: int, *, forced_cut: bool = False) -> SpeechEnd:
        self._start = None
        self._last_end = end
        return SpeechEnd(end * _HOP_SAMPLES, self._heard(), forced_cut)

    def _cut(self) -> list[SpeechEvent]:
        """End the segment at its quietest recent frame; go on there at once if something was said since."""
        cut = self._quietest_frame()
        end = self._end(cut, forced_cut=True)
        if not self._speaking and self._frame - self._silent_frames <= cut:
            self._resume_at = cut
            return [end]
        return [end, self._begin(cut)]

    def _quietest_frame(self) -> int:
        """The frame of the highest silence score of the last 5 s, the latest of equals, not in the first half."""
        length = min(len(self._scores), self._max_frames // 2)
        recent = list(self._scores)[-length:]
        best = max(range(length), key=lambda i: (recent[i], i))
        return self._frame - length + best

    def _heard(self) -> int:
        """Sample behind the audio that the decision needed."""
        return (self._frame - 1 + _LOOK_AHEAD_FRAMES) * _HOP_SAMPLES + _WINDOW_SAMPLES

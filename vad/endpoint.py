"""Where speech begins and ends: a pure state machine over one score a frame.

Restated from FunASR's `FsmnVADStreaming` (`funasr/models/fsmn_vad_streaming/model.py`) with the settings of the
released model. A window of 200 ms decides between speech and silence (hysteresis.py). From there:

    state       on                                   becomes     says
    waiting     the window turns to speech           speaking    SpeechStart, 400 ms back, never before the last end
    speaking    silence for the end silence          waiting     SpeechEnd, 100 ms into the silence
    speaking    longer than max_segment_ms           speaking    SpeechEnd(forced_cut) and SpeechStart at the cut
                the same, nothing said since the cut paused      SpeechEnd(forced_cut)
    paused      speech, and the window says speech   speaking    SpeechStart at the cut
    paused      silence for the end silence          waiting
                or for half of max_segment_ms
    speaking    the end of the stream, or a flush   waiting     SpeechEnd

With min_speech_ms a SpeechStart waits until so much speech was heard; a segment that ends before is never spoken of.

The reference cuts a long segment at the frame where it becomes too long; this machine cuts at the lowest speech score
of the last 5 s, which is where a pause is most likely. Times are frames of 10 ms; a segment [a, b) covers samples
[160 a, 160 b).
"""

from collections import deque

from liveasr.errors import UsageError
from liveasr.types import SAMPLES_PER_MS, Float32Array, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import FRAME_MS, SPEECH_TO_SILENCE_MS, VadConfig
from liveasr.vad.hysteresis import WINDOW_FRAMES, SpeechWindow

_HOP_SAMPLES = FRAME_MS * SAMPLES_PER_MS
_LOOK_BACK_FRAMES = WINDOW_FRAMES + 200 // FRAME_MS  # lookback_time_start_point
_EXTEND_FRAMES = 100 // FRAME_MS  # lookahead_time_end_point
_CUT_FRAMES = 5_000 // FRAME_MS
# The reference moves its schedule once a chunk of 60 ms; the first chunk of audio holds two scored frames (a window of
# 25 ms and two frames of look-ahead are missing), every later one six.
_SCHEDULE_STEP_FRAMES = 6
_SCHEDULE_FIRST_FRAMES = 2


class Endpointer:
    """Turns silence scores into speech events. Call `accept` any number of times, then `finish` once.

    Args:
        config: what ends, cuts and pads a segment.
        score_delay_samples: how far behind the start of a frame the audio reaches that its score needs.
    """

    def __init__(self, config: VadConfig, score_delay_samples: int) -> None:
        self.config = config
        self._score_delay_samples = score_delay_samples
        self._max_frames = config.max_segment_ms // FRAME_MS
        self._min_speech_frames = config.min_speech_ms // FRAME_MS
        # A start further back would make the segment too long before anything is said in it.
        self._look_back_frames = min(_LOOK_BACK_FRAMES + config.pad_before_ms // FRAME_MS, self._max_frames // 2)
        self._pad_after_frames = config.pad_after_ms // FRAME_MS
        self.reset()

    def reset(self) -> None:
        """Forget everything; afterwards this equals a new object."""
        self._frame = 0  # the next one
        self._last_end = 0
        self._start: int | None = None  # of the open segment
        self._told = False  # whether its start was announced
        self._speech_frames = 0  # in the open segment
        self._resume_at: int | None = None  # where a forced cut waits for speech to go on ("paused")
        self._scores: deque[float] = deque(maxlen=_CUT_FRAMES)  # silence scores of the last frames
        self._window = SpeechWindow()
        self._scheduled_ms = 0  # of the open segment, as the schedule counts
        self._end_frames = self._silence_frames(0)
        self._finished = False

    @property
    def earliest_start_frame(self) -> int:
        """No event to come points before this frame, so older frames may be dropped."""
        if self._start is not None:
            return self._start
        return self._look_back(self._frame) if self._resume_at is None else self._resume_at

    @property
    def speech_frames(self) -> int:
        """Frames of speech in the open segment so far; 0 if none is open."""
        return 0 if self._start is None else self._speech_frames

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

    def flush(self) -> list[SpeechEvent]:
        """End the open segment with the last frame, as if the pause behind it had come; the stream goes on.

        Raises:
            UsageError: after finish.
        """
        if self._finished:
            raise UsageError("flush() was called after finish()")
        if self._start is None:
            return []
        self._window.clear()
        return self._end(self._frame)

    def finish(self) -> list[SpeechEvent]:
        """End the stream; an open segment ends with its last frame."""
        if self._finished:
            raise UsageError("finish() was called twice")
        self._finished = True
        return [] if self._start is None else self._end(self._frame)

    def _step(self, silence: float) -> list[SpeechEvent]:
        self._follow_schedule()
        self._frame += 1
        self._scores.append(silence)
        speech = self._is_speech(silence)
        self._window.update(speech)
        if self._start is None:
            return self._wait(speech=speech)
        self._speech_frames += speech
        return self._speak()

    def _is_speech(self, silence: float) -> bool:
        return 1.0 - silence >= silence + self.config.threshold

    def _wait(self, *, speech: bool) -> list[SpeechEvent]:
        """A frame outside of any segment."""
        if self._window.speaking and speech:
            voiced = self._window.voiced_frames
            if self._resume_at is None:
                self._begin(self._look_back(self._frame - 1), told=False, speech_frames=voiced)
                return self._tell()
            self._begin(self._resume_at, told=True, speech_frames=voiced)
            return [self._start_event()]
        if self._resume_at is not None and self._silent_long_enough():
            self._resume_at = None
            self._window.clear()
        elif self._resume_at is not None and self._frame - self._resume_at > self._max_frames // 2:
            self._resume_at = None  # what begins at the cut would be too long before anything is said in it
        return []

    def _speak(self) -> list[SpeechEvent]:
        """A frame of the open segment."""
        assert self._start is not None
        events = self._tell()
        if self._silent_long_enough():
            end = self._frame - max(0, self._end_frames - _EXTEND_FRAMES - 1)
            self._window.clear()
            return events + self._end(min(end + self._pad_after_frames, self._frame, self._start + self._max_frames))
        if self._frame - self._start > self._max_frames:
            return events + self._cut()
        return events

    def _follow_schedule(self) -> None:
        """Move the end silence on, on the grid of the reference's chunks."""
        if self._frame % _SCHEDULE_STEP_FRAMES == _SCHEDULE_FIRST_FRAMES:
            if self._start is not None:
                self._scheduled_ms += _SCHEDULE_STEP_FRAMES * FRAME_MS
            self._end_frames = self._silence_frames(self._scheduled_ms)

    def _silence_frames(self, speech_ms: int) -> int:
        """Silent frames that end a segment, counted from when the window turns to silence."""
        return max(0, self.config.end_silence_after(speech_ms) - SPEECH_TO_SILENCE_MS) // FRAME_MS

    def _silent_long_enough(self) -> bool:
        return self._window.silent_frames >= max(1, self._end_frames)

    def _look_back(self, frame: int) -> int:
        """Where a segment begins that is found with this frame."""
        return max(self._last_end, frame - self._look_back_frames)

    def _begin(self, start: int, *, told: bool, speech_frames: int) -> None:
        self._start = start
        self._told = told
        self._speech_frames = speech_frames
        self._resume_at = None

    def _tell(self) -> list[SpeechEvent]:
        """The start of the open segment, once it has enough speech."""
        if self._told or self._speech_frames < self._min_speech_frames:
            return []
        self._told = True
        return [self._start_event()]

    def _start_event(self) -> SpeechStart:
        assert self._start is not None
        return SpeechStart(self._start * _HOP_SAMPLES, self._heard())

    def _end(self, end: int, *, forced_cut: bool = False) -> list[SpeechEvent]:
        told = self._told
        self._start = None
        self._scheduled_ms = 0
        self._last_end = end
        return [SpeechEnd(end * _HOP_SAMPLES, self._heard(), forced_cut)] if told else []

    def _cut(self) -> list[SpeechEvent]:
        """End the segment at its quietest recent frame; go on there at once if something was said since."""
        cut = self._quietest_frame()
        events = self._end(cut, forced_cut=True)
        if self._silent_since(cut):
            self._resume_at = cut
            return events
        self._begin(cut, told=True, speech_frames=0)
        return [*events, self._start_event()]

    def _silent_since(self, frame: int) -> bool:
        """Whether the window has said silence since this frame, or is about to: no frame of speech came."""
        if not self._window.speaking and self._frame - self._window.silent_frames <= frame:
            return True
        return not any(self._is_speech(score) for score in list(self._scores)[frame - self._frame :])

    def _quietest_frame(self) -> int:
        """The frame of the highest silence score of the last 5 s, the latest of equals, not in the first half."""
        length = min(len(self._scores), self._max_frames // 2)
        recent = list(self._scores)[-length:]
        best = max(range(length), key=lambda i: (recent[i], i))
        return self._frame - length + best

    def _heard(self) -> int:
        """Sample behind the audio that the decision needed."""
        return (self._frame - 1) * _HOP_SAMPLES + self._score_delay_samples

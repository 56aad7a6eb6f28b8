"""One stream out of several sessions: what a server says of a session, told as of the whole stream. No I/O.

A session that was lost is followed by one that begins where the audio was not settled, and says the segments anew that
had no final. To whoever listens they are the same segments: their ids and times go on, their revisions rise, what was
committed stays, and their beginning and end are told once.
"""

from dataclasses import dataclass

from liveasr.stream.live import Output
from liveasr.stream.messages import Done, SpeechEnded, SpeechStarted, Transcript
from liveasr.types import SAMPLES_PER_MS, LiveTranscript, SpeechEnd, SpeechStart, Word
from liveasr.types import Transcript as Final


@dataclass(slots=True)
class _Told:
    """What was told of a segment that has no final yet."""

    start_ms: int
    end_ms: int
    started: bool = False
    ended: bool = False
    revision: int = 0
    revision_before: int = 0
    """The last one of the sessions before."""
    committed: str = ""
    tentative: str = ""


class Continuation:
    """The sessions of one stream. Call `begin` for every session but the first, and `finish` at the end."""

    def __init__(self) -> None:
        self._begin_ms = 0
        self._first_id = 0  # of the session
        self._segments = 0  # with a final
        self._speech_ms = 0
        self._told: dict[int, _Told] = {}

    def begin(self, begin_ms: int) -> None:
        """A new session begins there in the stream."""
        self._begin_ms = begin_ms
        self._first_id = self._segments
        for told in self._told.values():
            told.revision_before = told.revision

    def take(self, message: SpeechStarted | SpeechEnded | Transcript) -> Output | None:
        """What a message of the session tells, or None if that is known."""
        segment_id = self._first_id + message.segment_id
        if isinstance(message, Transcript):
            return self._transcript(segment_id, message)
        ms = self._begin_ms + (message.start_ms if isinstance(message, SpeechStarted) else message.end_ms)
        confirmed_at = (self._begin_ms + message.heard_ms) * SAMPLES_PER_MS
        told = self._told.setdefault(segment_id, _Told(ms, ms))
        if isinstance(message, SpeechStarted):
            known, told.started = told.started, True
            return None if known else SpeechStart(ms * SAMPLES_PER_MS, confirmed_at)
        known, told.ended = told.ended, True
        told.end_ms = ms
        return None if known else SpeechEnd(ms * SAMPLES_PER_MS, confirmed_at, message.forced_cut)

    def finish(self) -> list[Output]:
        """The ends of segments that the last session, unlike those before, did not hear; their committed text stays."""
        outputs: list[Output] = []
        for segment_id, told in sorted(self._told.items()):
            if not told.ended:
                outputs.append(SpeechEnd(told.end_ms * SAMPLES_PER_MS, told.end_ms * SAMPLES_PER_MS))
            final = Final(segment_id, told.committed, (), told.start_ms, told.end_ms)
            outputs.append(
                LiveTranscript(
                    segment_id, told.revision + 1, told.committed, "", told.start_ms, told.end_ms, final=final
                )
            )
            self._count(final)
        self._told.clear()
        return outputs

    def summary(self, done: Done, frames: int) -> Done:
        """What was counted in all sessions, after `finish`.

        Args:
            done: of the last.
            frames: of audio, in all.
        """
        return Done(
            reason=done.reason,
            number=frames,
            heard_ms=self._begin_ms + done.heard_ms,
            speech_ms=self._speech_ms,
            segments=self._segments,
        )

    def _transcript(self, segment_id: int, message: Transcript) -> LiveTranscript | None:
        start_ms, end_ms = self._begin_ms + message.start_ms, self._begin_ms + message.end_ms
        told = self._told.setdefault(segment_id, _Told(start_ms, end_ms))
        committed, tentative = _continued(told.committed, message.committed, message.tentative)
        if not message.final and told.revision and (committed, tentative) == (told.committed, told.tentative):
            return None
        told.revision = told.revision_before + message.revision
        told.committed, told.tentative, told.end_ms = committed, tentative, end_ms
        final = None
        if message.final:
            final = self._final(segment_id, message)
            self._count(final)
            del self._told[segment_id]
        return LiveTranscript(segment_id, told.revision, committed, tentative, start_ms, end_ms, final)

    def _final(self, segment_id: int, message: Transcript) -> Final:
        begin_ms = self._begin_ms
        return Final(
            segment_id=segment_id,
            text=message.text or "",
            words=tuple(Word(word.text, begin_ms + word.start_ms, begin_ms + word.end_ms) for word in message.words),
            start_ms=begin_ms + message.start_ms,
            end_ms=begin_ms + message.end_ms,
            forced_cut=message.forced_cut,
            language=message.language,
            emotion=message.emotion,
            event=message.event,
        )

    def _count(self, final: Final) -> None:
        self._segments += 1
        self._speech_ms += final.end_ms - final.start_ms


def _continued(stands: str, committed: str, tentative: str) -> tuple[str, str]:
    """New text behind the committed text that stands already; what does not agree with that is held back."""
    if committed.startswith(stands):
        return committed, tentative
    text = committed + tentative
    return stands, text[len(stands) :] if text.startswith(stands) else ""

"""Several sessions, told as one stream."""

from typing import Any

from liveasr.stream.continued import Continuation
from liveasr.stream.messages import Done, SpeechEnded, SpeechStarted, Transcript, WireWord
from liveasr.types import LiveTranscript, SpeechEnd, SpeechStart, Word
from liveasr.types import Transcript as Final


def partial(segment_id: int, revision: int, committed: str, tentative: str = "") -> Transcript:
    return Transcript(
        segment_id=segment_id,
        revision=revision,
        final=False,
        committed=committed,
        tentative=tentative,
        start_ms=1000 * segment_id,
        end_ms=1000 * segment_id + 500,
    )


def final(segment_id: int, revision: int, committed: str, text: str) -> Transcript:
    begin_ms = 1000 * segment_id
    return Transcript(
        segment_id=segment_id,
        revision=revision,
        final=True,
        committed=committed,
        tentative="",
        start_ms=begin_ms,
        end_ms=begin_ms + 800,
        text=text,
        words=(WireWord(text=text, start_ms=begin_ms + 10, end_ms=begin_ms + 700),),
    )


def take(continuation: Continuation, *told: Any) -> list[Any]:
    return [output for message in told if (output := continuation.take(message)) is not None]


def test_a_stream_of_one_session_is_told_as_it_is() -> None:
    continuation = Continuation()
    outputs = take(
        continuation,
        SpeechStarted(segment_id=0, start_ms=0, heard_ms=200),
        partial(0, 1, "", "one"),
        SpeechEnded(segment_id=0, end_ms=800, heard_ms=1600, forced_cut=True),
        final(0, 2, "one", "One."),
    )
    assert outputs == [
        SpeechStart(0, 3_200),
        LiveTranscript(0, 1, "", "one", 0, 500),
        SpeechEnd(12_800, 25_600, forced_cut=True),
        LiveTranscript(0, 2, "one", "", 0, 800, Final(0, "One.", (Word("One.", 10, 700),), 0, 800)),
    ]
    assert continuation.finish() == []
    done = Done(seq=9, reason="stop", number=10, heard_ms=1000, speech_ms=800, segments=1)
    assert continuation.summary(done, 10) == Done(reason="stop", number=10, heard_ms=1000, speech_ms=800, segments=1)


def test_segments_that_had_no_final_are_said_anew_under_their_ids() -> None:
    continuation = Continuation()
    take(
        continuation,
        SpeechStarted(segment_id=0, start_ms=0, heard_ms=200),
        SpeechEnded(segment_id=0, end_ms=800, heard_ms=1600, forced_cut=False),
    )
    take(continuation, final(0, 1, "one", "one"))
    take(continuation, SpeechStarted(segment_id=1, start_ms=1000, heard_ms=1200), partial(1, 5, "two", " th"))
    take(continuation, SpeechEnded(segment_id=1, end_ms=1800, heard_ms=2600, forced_cut=False))
    take(continuation, SpeechStarted(segment_id=2, start_ms=2000, heard_ms=2200))
    continuation.begin(900)
    outputs = take(
        continuation,
        SpeechStarted(segment_id=0, start_ms=100, heard_ms=300),
        partial(0, 1, "", "to"),
        partial(0, 2, "", "two th"),
        partial(0, 3, "", "two three"),
        SpeechEnded(segment_id=0, end_ms=900, heard_ms=1700, forced_cut=False),
        final(0, 4, "two three", "two three"),
        SpeechStarted(segment_id=1, start_ms=1100, heard_ms=1300),
        final(1, 1, "four", "four"),
        SpeechStarted(segment_id=2, start_ms=2000, heard_ms=2200),
    )
    assert outputs == [
        LiveTranscript(1, 6, "two", "", 900, 1400),
        LiveTranscript(1, 7, "two", " th", 900, 1400),
        LiveTranscript(1, 8, "two", " three", 900, 1400),
        LiveTranscript(
            1, 9, "two three", "", 900, 1700, Final(1, "two three", (Word("two three", 910, 1600),), 900, 1700)
        ),
        LiveTranscript(2, 1, "four", "", 1900, 2700, Final(2, "four", (Word("four", 1910, 2600),), 1900, 2700)),
        SpeechStart(2900 * 16, 3100 * 16),
    ]


def test_committed_text_is_never_taken_back_and_the_final_has_it_right() -> None:
    continuation = Continuation()
    take(continuation, partial(0, 3, "wreck a nice"))
    continuation.begin(0)
    outputs = take(continuation, partial(0, 1, "recognise", " speech"), final(0, 2, "recognise", "recognise speech"))
    assert [(each.revision, each.committed, each.tentative) for each in outputs] == [(5, "wreck a nice", "")]
    assert outputs[-1].final.text == "recognise speech"


def test_what_is_the_same_as_before_is_not_told_again() -> None:
    continuation = Continuation()
    take(continuation, partial(0, 2, "one"))
    continuation.begin(0)
    assert take(continuation, partial(0, 1, "", "one")) == []
    assert [each.revision for each in take(continuation, partial(0, 2, "one", " two"))] == [4]


def test_a_segment_that_the_last_session_did_not_hear_gets_its_end_and_keeps_its_text() -> None:
    continuation = Continuation()
    take(continuation, SpeechStarted(segment_id=0, start_ms=0, heard_ms=200), partial(0, 2, "one", " two"))
    continuation.begin(0)
    assert continuation.finish() == [
        SpeechEnd(8000, 8000),
        LiveTranscript(0, 3, "one", "", 0, 500, Final(0, "one", (), 0, 500)),
    ]
    assert continuation.finish() == []
    done = Done(reason="stop", number=3, heard_ms=700, speech_ms=0, segments=0)
    assert continuation.summary(done, 12) == Done(reason="stop", number=12, heard_ms=700, speech_ms=500, segments=1)

"""Any message of the wire, for hypothesis; one of each type, for tables."""

from typing import Any, get_args

from hypothesis import strategies as st

from liveasr.stream.messages import (
    Ack,
    AudioFormat,
    ClientMessage,
    Done,
    Error,
    Flush,
    Flushed,
    Lag,
    Limits,
    ModelInfo,
    Overload,
    Ping,
    Pong,
    Ready,
    Resume,
    Resumed,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Stop,
    Transcript,
    VadSettings,
    WireWord,
)
from liveasr.types import Language

READY = Ready(
    session="s1",
    model="digits",
    limits=Limits(message_bytes=1 << 20, idle_s=60.0, resume_s=30.0, session_s=86_400.0),
    models=(ModelInfo(name="digits", languages=("auto", "en"), hotwords=False, demonstration=True),),
)
DONE = Done(reason="stop", number=3, heard_ms=60, speech_ms=20, segments=1)
FATAL = Error(code="engine_failed", message="the engine failed", fatal=True)
HARMLESS = Error(code="unknown_type", message="there is no message of type 'x'", fatal=False)


def transcript(
    segment_id: int, revision: int, committed: str, *, final: bool = False, text: str | None = None
) -> Transcript:
    """A revision of a segment; the text of a final is what is committed, unless told."""
    return Transcript(
        segment_id=segment_id,
        revision=revision,
        final=final,
        committed=committed,
        tentative="" if final else " and more",
        start_ms=segment_id * 1000,
        end_ms=segment_id * 1000 + 900,
        text=committed if final and text is None else text,
    )


CLIENT_MESSAGES: tuple[ClientMessage, ...] = (
    Start(),
    Resume(session="hT0rP2l9Wc0", seq=3),
    Flush(),
    Stop(),
    Ping(id=7),
)
"""One of each type."""
SERVER_MESSAGES: tuple[ServerMessage, ...] = (
    READY,
    Resumed(session="hT0rP2l9Wc0", number=3, flushes=1, stopping=False),
    Ack(number=3, settled_ms=40, heard_ms=60),
    SpeechStarted(segment_id=0, start_ms=10, heard_ms=210),
    SpeechEnded(segment_id=0, end_ms=50, heard_ms=850, forced_cut=False),
    transcript(0, 1, "three one"),
    transcript(0, 2, "three one", final=True),
    Flushed(),
    Lag(lag_ms=1800),
    Overload(lag_ms=9200),
    Pong(id=7),
    HARMLESS,
    FATAL,
    DONE,
)
"""At least one of each type."""


def tag(message: ClientMessage | ServerMessage | type[Any]) -> str:
    """Its `type` on the wire."""
    return str(message.__struct_config__.tag)


any_text = st.one_of(st.text(), st.text('漢字かなカナ한국어粵語、。😀👩\u200d👧\u0000\u2028\ufeff"\\/\n'))


def texts(*, min_size: int = 0, max_size: int) -> st.SearchStrategy[str]:
    """Any Unicode of some length."""
    return st.text(min_size=min_size, max_size=max_size)


# Whole numbers, across the borders at which languages and libraries change how they hold them.
counts = st.one_of(st.integers(0, 10_000), st.integers(0, 2**53 - 1), st.sampled_from([2**31 - 1, 2**31, 2**32 - 1]))
seconds = st.floats(0, 1e6)
audio_formats = st.builds(
    AudioFormat,
    encoding=st.sampled_from(["s16le", "f32le"]),
    rate_hz=st.sampled_from([8000, 16000, 24000, 44100, 48000]),
    channels=st.integers(1, 8),
)
hotword_chars = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="<>")
hotword_lists = st.lists(
    st.text(hotword_chars, min_size=1, max_size=64).filter(lambda word: bool(word.strip())), max_size=15
).map(tuple)
vad_settings = st.builds(
    VadSettings,
    end_silence_ms=st.none() | st.integers(150, 10_000),
    max_segment_ms=st.none() | st.integers(1000, 60_000),
    speech_threshold=st.none() | st.floats(-1, 1, exclude_min=True, exclude_max=True),
    min_speech_ms=st.integers(0, 10_000),
    pad_before_ms=st.integers(0, 5000),
    pad_after_ms=st.integers(0, 5000),
)
starts = st.builds(
    Start,
    audio=audio_formats,
    model=st.none() | texts(max_size=200),
    language=st.sampled_from(get_args(Language)),
    itn=st.booleans(),
    hotwords=hotword_lists,
    partials=st.booleans(),
    vad=vad_settings,
)
client_messages: st.SearchStrategy[ClientMessage] = st.one_of(
    starts,
    st.builds(Resume, session=texts(max_size=100), seq=st.integers(0, 2**53 - 1)),
    st.just(Flush()),
    st.just(Stop()),
    st.builds(Ping, id=st.integers(0, 2**53 - 1)),
)
words = st.lists(st.builds(WireWord, text=any_text, start_ms=counts, end_ms=counts), max_size=5).map(tuple)
models = st.builds(
    ModelInfo,
    name=any_text,
    languages=st.lists(any_text, max_size=3).map(tuple),
    hotwords=st.booleans(),
    max_segment_ms=counts,
    demonstration=st.booleans(),
)
server_messages: st.SearchStrategy[ServerMessage] = st.one_of(
    st.builds(
        Ready,
        session=any_text,
        model=any_text,
        limits=st.builds(Limits, message_bytes=counts, idle_s=seconds, resume_s=seconds, session_s=seconds),
        models=st.lists(models, max_size=3).map(tuple),
    ),
    st.builds(Resumed, session=any_text, number=counts, flushes=counts, stopping=st.booleans()),
    st.builds(Ack, seq=counts, number=counts, settled_ms=counts, heard_ms=counts),
    st.builds(SpeechStarted, segment_id=counts, start_ms=counts),
    st.builds(SpeechEnded, segment_id=counts, end_ms=counts, forced_cut=st.booleans()),
    st.builds(
        Transcript,
        segment_id=counts,
        revision=counts,
        final=st.booleans(),
        committed=any_text,
        tentative=any_text,
        start_ms=counts,
        end_ms=counts,
        text=st.none() | any_text,
        words=words,
        forced_cut=st.booleans(),
        language=st.none() | any_text,
        emotion=st.none() | any_text,
        event=st.none() | any_text,
    ),
    st.just(Flushed()),
    st.builds(Lag, lag_ms=counts),
    st.builds(Overload, lag_ms=counts),
    st.builds(Pong, id=counts),
    st.builds(Error, code=any_text, message=any_text, fatal=st.booleans()),
    st.builds(Done, reason=any_text, number=counts, heard_ms=counts, speech_ms=counts, segments=counts),
)

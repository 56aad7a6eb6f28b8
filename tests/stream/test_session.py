"""The live session: what it asks for, and what it makes of the answers."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from liveasr.clients.file import transcribe
from liveasr.engines.base import DecodeOptions, Engine, FrontEnd
from liveasr.engines.registry import open_engine
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import FsmnDetector
from liveasr.stream.recognize import Recognizer
from liveasr.stream.session import DecodeRequest, LiveConfig, PartialInput, Session, SessionStep
from liveasr.types import (
    FeatureFrames,
    Float32Array,
    Hypothesis,
    LiveTranscript,
    SpeechEnd,
    SpeechEvent,
    SpeechStart,
    Word,
)
from liveasr.vad.config import VadConfig
from liveasr.vad.weights import FsmnWeights
from tests.chunking import pieces, random_pieces

FRONT = FrontEnd(mel_bins=80, lfr_m=7, lfr_n=6)
SECOND = 16_000


class ScriptedDetector:
    """Speech where it is told, known 200 ms later; every frame in between counts as speech but for pauses."""

    def __init__(self, segments: Iterable[tuple[int, int]], pauses: Iterable[tuple[int, int]] = ()) -> None:
        self._edges: list[SpeechEvent] = []
        for start, end in segments:
            self._edges += [SpeechStart(start, start + 3200), SpeechEnd(end, end + 3200)]
        self._pauses = list(pauses)
        self._start: int | None = None
        self._heard = 0

    @property
    def earliest_start(self) -> int:
        return self._start if self._start is not None else max(0, self._heard - SECOND)

    @property
    def speech_frames(self) -> int:
        if self._start is None:
            return 0
        frames = range(self._start, self._heard, 160)
        return sum(not any(start <= at < end for start, end in self._pauses) for at in frames)

    def accept(self, samples: Float32Array, frames: FeatureFrames) -> list[SpeechEvent]:  # noqa: ARG002 - the contract
        self._heard += samples.size
        events = []
        while self._edges and self._edges[0].confirmed_at <= self._heard:
            event = self._edges.pop(0)
            self._start = event.sample if isinstance(event, SpeechStart) else None
            events.append(event)
        return events

    def flush(self) -> list[SpeechEvent]:
        return self.finish()

    def finish(self) -> list[SpeechEvent]:
        if self._start is None:
            return []
        self._start = None
        return [SpeechEnd(self._heard, self._heard)]


def silence(seconds: float) -> Float32Array:
    return np.zeros(int(seconds * SECOND), np.float32)


def requests(steps: Iterable[SessionStep]) -> list[DecodeRequest]:
    return [step for step in steps if isinstance(step, DecodeRequest)]


def run(session: Session, samples: Float32Array, piece: int = 320) -> Iterator[SessionStep]:
    for block in pieces(samples, piece):
        yield from session.accept(block)
    yield from session.finish()


def answer(request: DecodeRequest, text: str) -> Hypothesis:
    """Words spread evenly over the request."""
    texts = text.split()
    length = request.end_ms - request.start_ms
    words = tuple(
        Word(word, length * index // len(texts), length * (index + 1) // len(texts)) for index, word in enumerate(texts)
    )
    return Hypothesis((), text, words)


def test_the_first_partial_comes_after_about_half_a_second_of_speech() -> None:
    session = Session(ScriptedDetector([(SECOND, 4 * SECOND)]), FRONT, LiveConfig())
    first = next(step for step in run(session, silence(6)) if isinstance(step, DecodeRequest))
    assert not first.is_final
    assert first.start_ms == 1000
    assert first.end_ms == pytest.approx(1480, abs=30)


def test_no_partial_is_made_on_silence_within_a_segment() -> None:
    detector = ScriptedDetector([(SECOND, 9 * SECOND)], pauses=[(3 * SECOND, 8 * SECOND)])
    session = Session(detector, FRONT, LiveConfig())
    ends = [request.end_ms for request in requests(run(session, silence(12))) if not request.is_final]
    assert len([end for end in ends if 1000 < end <= 3100]) >= 4
    assert not [end for end in ends if 3400 < end < 8000]
    assert [end for end in ends if end >= 8000]


def test_no_partial_is_made_outside_of_segments_or_when_they_are_off() -> None:
    assert requests(run(Session(ScriptedDetector([]), FRONT, LiveConfig()), silence(5))) == []
    session = Session(ScriptedDetector([(SECOND, 3 * SECOND)]), FRONT, LiveConfig(partials=False))
    assert [request.is_final for request in requests(run(session, silence(5)))] == [True]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_partial_that_there_was_no_time_for_comes_later_of_all_that_is_there_by_then(streaming: bool) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 4 * SECOND).astype(np.float32)

    def partials(hurried_ms: range) -> list[DecodeRequest]:
        detector = ScriptedDetector([(SECOND // 2, 3 * SECOND)])
        session = Session(detector, FRONT, LiveConfig(), PartialInput(FRONT, streaming))
        found = []
        for index, block in enumerate(pieces(noise, 320)):
            at_ms = index * 20
            steps = requests(session.accept(block, partials=at_ms not in hurried_ms))
            assert at_ms not in hurried_ms or all(step.is_final for step in steps)
            found += [step for step in steps if not step.is_final]
        assert requests(session.finish()) == []
        return found

    always, sometimes = partials(range(0)), partials(range(1200, 2200))
    kept = next(each for each in sometimes if each.end_ms >= 2200)
    assert kept.end_ms <= 2260
    if streaming:
        whole, pieced = (np.concatenate([each.features for each in found]) for found in (always, sometimes))
        rows = min(len(whole), len(pieced))
        assert rows > 30
        np.testing.assert_array_equal(whole[:rows], pieced[:rows])
    else:
        assert kept.start_ms == 500


def answered_partials(session: Session, took_ms: float) -> list[DecodeRequest]:
    """Those of 15 s of speech."""
    found = []
    for step in run(session, silence(16)):
        if isinstance(step, DecodeRequest) and not step.is_final:
            found.append(step)
            session.decoded(step, answer(step, "a b c"), took_ms)
    return found


def fifteen_seconds() -> Session:
    return Session(ScriptedDetector([(0, 15 * SECOND)]), FRONT, LiveConfig())


def test_the_cadence_follows_the_speed_of_the_engine() -> None:
    assert len(answered_partials(fifteen_seconds(), 700)) == pytest.approx(15_000 / (700 / 0.35), abs=2)


def test_the_more_there_is_to_decode_the_longer_it_is_to_the_next_partial() -> None:
    """So that the seconds decoded for a second of speech are as good as bounded."""
    requests = answered_partials(fifteen_seconds(), 10)
    for before, after in pairwise(requests):
        window_ms = after.end_ms - after.start_ms
        waited_ms = after.end_ms - before.end_ms
        longest_ms = min(5000, after.end_ms - before.start_ms)  # its start goes on by words, perhaps only at the end
        assert max(320, window_ms * 0.15) - 10 <= waited_ms <= max(320, longest_ms * 0.15) + 20  # a frame, a block
    for until_ms in (3000, 8000, 15_000):
        decoded_ms = sum(each.end_ms - each.start_ms for each in requests if each.end_ms <= until_ms)
        assert decoded_ms <= until_ms / 0.15


def test_a_partial_never_covers_more_than_its_window() -> None:
    config = LiveConfig(max_segment_ms=60_000)
    session = Session(ScriptedDetector([(0, 50 * SECOND)]), FRONT, config)
    found = []
    for step in run(session, silence(52)):
        if isinstance(step, DecodeRequest) and not step.is_final:
            count = (step.end_ms - step.start_ms) // 1000
            session.decoded(step, answer(step, " ".join(f"w{step.start_ms // 1000 + i}" for i in range(count + 1))), 1)
            found.append(step)
    assert max(request.end_ms - request.start_ms for request in found) <= config.window_ms
    assert max(len(request.features) for request in found) <= config.window_ms // 60 + 1
    assert [request.start_ms for request in found] == sorted(request.start_ms for request in found)


def test_finals_come_out_in_the_order_of_the_stream() -> None:
    detector = ScriptedDetector([(0, SECOND), (2 * SECOND, 3 * SECOND), (4 * SECOND, 5 * SECOND)])
    session = Session(detector, FRONT, LiveConfig(partials=False))
    first, second, third = requests(run(session, silence(7)))
    assert session.finals_pending == 3
    assert session.decoded(third, answer(third, "c"), 1) == []
    assert session.decoded(second, answer(second, "b"), 1) == []
    finals = session.decoded(first, answer(first, "a"), 1)
    assert [(final.segment_id, final.committed, final.is_final) for final in finals] == [
        (0, "a", True),
        (1, "b", True),
        (2, "c", True),
    ]
    assert session.finals_pending == 0


def test_an_answer_that_comes_after_the_final_or_after_a_newer_one_gives_nothing() -> None:
    session = Session(ScriptedDetector([(0, 3 * SECOND)]), FRONT, LiveConfig())
    *partials, final = requests(run(session, silence(5)))
    assert len(partials) >= 3
    assert session.decoded(partials[1], answer(partials[1], "a b"), 1)
    assert session.decoded(partials[0], answer(partials[0], "x"), 1) == []
    assert session.decoded(final, answer(final, "a b c"), 1)
    assert session.decoded(partials[2], answer(partials[2], "x y z"), 1) == []
    assert session.decoded(final, answer(final, "again"), 1) == []


def test_an_empty_stream_gives_nothing() -> None:
    session = Session(ScriptedDetector([]), FRONT, LiveConfig())
    assert session.accept(silence(0)) == []
    assert session.finish() == []


def test_a_segment_without_words_still_gets_its_one_final() -> None:
    session = Session(ScriptedDetector([(0, SECOND)]), FRONT, LiveConfig(partials=False))
    (request,) = requests(run(session, silence(3)))
    (final,) = session.decoded(request, Hypothesis((), "", ()), 1)
    assert final.is_final
    assert (final.committed, final.tentative, final.revision) == ("", "", 1)


# With the real chain.


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = open_engine(store.find("digits"), threads=1)
    yield engine
    engine.close()


@pytest.fixture(params=["digits-clean.wav", "digits-noisy.wav"])
def samples(request: pytest.FixtureRequest, data: Path) -> Float32Array:
    with AudioFile(data / request.param) as audio:
        return np.concatenate(list(audio.blocks()))


def live(blocks: Iterable[Float32Array], engine: Engine, fsmn: FsmnWeights, vad: VadConfig) -> list[LiveTranscript]:
    """All transcripts of a session whose every request is answered at once."""
    session = Session(FsmnDetector(fsmn, vad), engine.front_end, LiveConfig(max_segment_ms=vad.max_segment_ms))
    found: list[LiveTranscript] = []

    def take(steps: list[SessionStep]) -> None:
        for request in requests(steps):
            found.extend(session.decoded(request, engine.decode(request.features, DecodeOptions()), 20))

    for block in blocks:
        take(session.accept(block))
    take(session.finish())
    assert session.finals_pending == 0
    return found


@pytest.mark.parametrize("max_segment_ms", [20_000, 1_000])
@pytest.mark.parametrize("piece", [160, 320, 960, 16_000, 10**9, None])
def test_live_finals_equal_the_file_transcribers(
    samples: Float32Array, engine: Engine, fsmn: FsmnWeights, piece: int | None, max_segment_ms: int
) -> None:
    vad = VadConfig(max_segment_ms=max_segment_ms)
    expected = list(transcribe([samples], Recognizer(engine, DecodeOptions()), FsmnDetector(fsmn, vad)))
    blocks = random_pieces(samples, seed=1) if piece is None else pieces(samples, piece)
    finals = [transcript.final for transcript in live(blocks, engine, fsmn, vad)]
    assert [final for final in finals if final is not None and final.text] == expected
    assert expected


@pytest.mark.parametrize("max_segment_ms", [20_000, 1_000])
def test_committed_text_is_append_only_and_there_is_one_final_a_segment(
    samples: Float32Array, engine: Engine, fsmn: FsmnWeights, max_segment_ms: int
) -> None:
    found = live(pieces(samples, 320), engine, fsmn, VadConfig(max_segment_ms=max_segment_ms))
    segments = sorted({transcript.segment_id for transcript in found})
    assert segments == list(range(len(segments)))
    for segment in segments:
        own = [transcript for transcript in found if transcript.segment_id == segment]
        assert [transcript.revision for transcript in own] == list(range(1, len(own) + 1))
        assert [transcript.is_final for transcript in own] == [False] * (len(own) - 1) + [True]
        for before, after in pairwise(own):
            assert after.committed.startswith(before.committed)
        assert own[-1].tentative == ""
        assert [transcript.end_ms for transcript in own[:-1]] == sorted(transcript.end_ms for transcript in own[:-1])


def test_the_committed_text_of_the_recordings_is_what_is_said(
    samples: Float32Array, engine: Engine, fsmn: FsmnWeights
) -> None:
    for transcript in live(pieces(samples, 320), engine, fsmn, VadConfig()):
        if transcript.final is not None:
            assert transcript.committed == transcript.final.text


def test_words_are_committed_while_the_segment_is_open(
    samples: Float32Array, engine: Engine, fsmn: FsmnWeights
) -> None:
    found = live(pieces(samples, 320), engine, fsmn, VadConfig())
    assert any(transcript.committed and not transcript.is_final for transcript in found)

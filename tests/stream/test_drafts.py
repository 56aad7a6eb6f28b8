"""What a session shows of a segment while its final is written token by token."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from liveasr.stream.detect import WindowDetector
from liveasr.stream.session import DecodeRequest, LiveConfig, Session
from liveasr.types import Hypothesis, LiveTranscript
from liveasr.vad.config import VadConfig
from tests.chunking import pieces
from tests.fakes import FakeEngine, said
from tests.stream.written import assert_sound, spread

FRONT = FakeEngine.front_end
SECOND = 16_000


class Talk:
    """One segment of two seconds in a session, with its final asked for."""

    def __init__(self, config: LiveConfig | None = None, partials: Sequence[str] = ()) -> None:
        self.session = Session(WindowDetector(VadConfig()), FRONT, config or LiveConfig())
        self.shown: list[LiveTranscript] = []
        heard = list(partials)
        for block in pieces(np.zeros(2 * SECOND, np.float32), 320):
            for step in self.session.accept(block):
                if isinstance(step, DecodeRequest) and heard:
                    self.shown += self.session.decoded(step, spread(heard.pop(0), step.end_ms), 1)
        assert not heard
        self.final = next(step for step in self.session.flush() if isinstance(step, DecodeRequest))

    def draft(self, text: str) -> list[LiveTranscript]:
        found = self.session.drafted(self.final, spread(text, 2000))
        self.shown += found
        return found

    def end(self, text: str) -> LiveTranscript:
        (found,) = self.session.decoded(self.final, spread(text, 2000), 1)
        self.shown.append(found)
        return found


def test_drafts_are_tentative_and_the_final_has_the_last_word() -> None:
    talk = Talk(LiveConfig(partials=False))
    for text in ("one", "one two", "one two three"):
        (each,) = talk.draft(text)
        assert (each.committed, each.tentative, each.is_final) == ("", text, False)
        assert (each.start_ms, each.end_ms) == (0, 2000)
    assert talk.end("one two three").committed == "one two three"
    assert_sound(talk.shown)


def test_a_draft_overwrites_the_partials_from_the_left_and_keeps_the_rest() -> None:
    talk = Talk(partials=["one too", "one too free", "one too free for"])
    before = talk.shown[-1]
    assert (before.committed, before.tentative) == ("one too", " free for")
    assert talk.draft("one") == []
    assert talk.draft("won two") == []
    assert talk.draft("won two three")[0].tentative == " three for"
    assert talk.draft("won two three four five")[0].tentative == " three four five"
    final = talk.end("won two three four five")
    assert final.committed == "one too three four five"
    assert final.final is not None
    assert final.final.text == "won two three four five"
    assert_sound(talk.shown)


def test_a_draft_that_shows_nothing_new_makes_no_revision() -> None:
    talk = Talk(LiveConfig(partials=False))
    assert talk.draft("") == []
    assert talk.draft("one")
    assert talk.draft("one") == []


def test_a_partial_that_comes_during_the_drafts_lies_under_them() -> None:
    session = Session(WindowDetector(VadConfig()), FRONT, LiveConfig())
    requests = [
        step
        for block in pieces(np.zeros(2 * SECOND, np.float32), 320)
        for step in session.accept(block)
        if isinstance(step, DecodeRequest)
    ]
    final = next(step for step in session.flush() if isinstance(step, DecodeRequest))
    session.drafted(final, spread("won", 2000))
    (late,) = session.decoded(requests[-1], spread("one two three", 1900), 1)
    assert late.tentative == "won two three"
    assert late.end_ms == 2000


def test_a_draft_after_the_final_shows_nothing() -> None:
    talk = Talk()
    talk.end("one")
    assert talk.draft("one two") == []


def test_who_wants_only_finals_sees_no_drafts() -> None:
    talk = Talk(LiveConfig(partials=False, drafts=False))
    assert talk.draft("one") == []
    assert talk.end("one two").revision == 1


def test_the_request_for_a_final_says_what_the_partials_agreed_on() -> None:
    heard = Talk(partials=["one too", "one too free", "one too free for"]).final.heard
    assert heard is not None
    assert heard.text == "one too free"
    assert [word.text for word in heard.words] == ["one", "too", "free"]
    assert Talk(LiveConfig(partials=False)).final.heard is None
    assert Talk(partials=["one two"]).final.heard is None


def test_what_was_heard_behind_a_forced_cut_is_not_of_the_segment() -> None:
    session = Session(WindowDetector(VadConfig(max_segment_ms=1000)), FRONT, LiveConfig(max_segment_ms=1000))
    (request,) = [step for step in session.accept(np.zeros(SECOND, np.float32)) if isinstance(step, DecodeRequest)]
    for end_ms in (1400, 1500):  # as if it had been made before the cut was known
        session.decoded(replace(request, end_ms=end_ms), said("a b c d e f g h i j k l m"), 1)
    final = next(step for step in session.accept(np.zeros(SECOND, np.float32)) if isinstance(step, DecodeRequest))
    assert final.is_final
    assert final.heard is not None
    assert final.heard.text == "a b c d e f g h i j"


@settings(max_examples=60)
@given(
    partials=st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=6), max_size=5),
    drafts=st.lists(st.lists(st.sampled_from(["a", "b", "x"]), max_size=8), max_size=6),
    final=st.lists(st.sampled_from(["a", "b", "x"]), max_size=8),
    late=st.lists(st.integers(0, 5), max_size=3),
)
def test_whatever_is_heard_and_written_committed_text_only_grows(
    partials: list[list[str]], drafts: list[list[str]], final: list[str], late: list[int]
) -> None:
    session = Session(WindowDetector(VadConfig()), FRONT, LiveConfig())
    shown: list[LiveTranscript] = []
    kept: list[tuple[DecodeRequest, Hypothesis]] = []
    heard = [" ".join(each) for each in partials]
    for block in pieces(np.zeros(3 * SECOND, np.float32), 320):
        for step in session.accept(block):
            if isinstance(step, DecodeRequest) and heard:
                answer = spread(heard.pop(0), step.end_ms)
                if len(heard) in late:
                    kept.append((step, answer))
                else:
                    shown += session.decoded(step, answer, 1)
    request = next(step for step in session.flush() if isinstance(step, DecodeRequest))
    for texts in drafts:
        before = shown[-1].committed if shown else ""
        found = session.drafted(request, spread(" ".join(texts), 3000))
        assert all(each.committed == before for each in found)
        shown += found
        if kept:
            shown += session.decoded(*kept.pop(0), 1)
    shown += session.decoded(request, spread(" ".join(final), 3000), 1)
    for each in kept:
        assert session.decoded(*each, 1) == []
    assert_sound(shown)

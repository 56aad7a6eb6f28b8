"""Finals that cannot be right are looked at again, and never made worse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liveasr.engines.base import DecodeOptions
from liveasr.stream import lfr
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.recognize import Recognizer
from liveasr.stream.second_look import Verdict, quietest_frame, spoken_length, write
from liveasr.stream.segmenter import Segment
from liveasr.types import Float32Array, Hypothesis
from tests.fakes import FakeAutoregressiveEngine, said
from tests.sounds import silence, white

OPTIONS = DecodeOptions()
LONG = "one two three four five six seven eight"


def frames_of(samples: Float32Array) -> Float32Array:
    return OnlineFbank().accept(samples).data


NOISE = frames_of(np.concatenate([white(1.8, 0.1), silence(0.4), white(1.8, 0.1)]))
"""A pause in the middle of four seconds."""


def looped(text: str) -> Hypothesis:
    return replace(said(text), complete=False)


def look(*answers: Hypothesis, heard: str | None = None, frames: Float32Array = NOISE) -> tuple[Verdict, list[str]]:
    """The verdict, and all drafts on the way."""
    drafts: list[str] = []

    def draft(written: Hypothesis) -> bool:
        drafts.append(written.text)
        return True

    engine = FakeAutoregressiveEngine(answers)
    features = lfr.stack(frames, 7, 6)
    return write(engine, features, frames, OPTIONS, draft, None if heard is None else said(heard)), drafts


@pytest.mark.parametrize("heard", [None, "one two", LONG])
def test_what_is_whole_is_looked_at_once(heard: str | None) -> None:
    verdict, drafts = look(said("one two three four"), heard=heard)
    assert verdict == Verdict(said("one two three four"))
    assert drafts[-1] == "one two three four"


def test_a_loop_is_written_again_in_two_halves() -> None:
    verdict, drafts = look(looped("one one one one"), said("one two"), said("three four"))
    assert verdict.second_look == "halves"
    assert verdict.hypothesis.text == "one two three four"
    assert verdict.hypothesis.complete
    assert drafts[:4] == ["one", "one one", "one one one", "one one one one"]
    assert drafts[4:] == ["one", "one two", "one two three", "one two three four"]


def test_the_halves_hold_every_frame_once_and_part_at_the_pause() -> None:
    engine = FakeAutoregressiveEngine([looped("a a"), said("b"), said("c")])
    features = lfr.stack(NOISE, 7, 6)
    verdict = write(engine, features, NOISE, OPTIONS, lambda _written: True, None)
    cut = quietest_frame(NOISE)
    assert 180 <= cut <= 220
    assert [len(each) for each in engine.heard] == [len(features), -(-cut // 6), -(-(len(NOISE) - cut) // 6)]
    assert np.array_equal(engine.heard[1], lfr.stack(NOISE[:cut], 7, 6))
    assert np.array_equal(engine.heard[2], lfr.stack(NOISE[cut:], 7, 6))
    assert [(word.text, word.start_ms) for word in verdict.hypothesis.words] == [("b", 0), ("c", cut * 10)]


def test_a_final_that_collapsed_is_written_again() -> None:
    verdict, _ = look(said("one"), said("one two three four"), said("five six seven"), heard=LONG)
    assert (verdict.hypothesis.text, verdict.second_look) == ("one two three four five six seven", "halves")


@pytest.mark.parametrize("second", [said("one"), looped("five five five five five five")])
def test_what_the_partials_heard_stands_where_the_halves_are_no_better(second: Hypothesis) -> None:
    first = replace(said("one"), language="zh", emotion="happy")
    verdict, _ = look(first, said(""), second, heard=LONG)
    assert verdict.second_look == "partial"
    assert verdict.hypothesis.words == said(LONG).words
    assert (verdict.hypothesis.text, verdict.hypothesis.language, verdict.hypothesis.emotion) == (LONG, "zh", "happy")


def test_without_partials_two_halves_are_better_than_a_loop_over_all_of_it() -> None:
    verdict, _ = look(looped("one one one"), said("one two"), looped("three three three"))
    assert (verdict.hypothesis.text, verdict.second_look) == ("one two three three three", "halves")


def test_a_loop_is_better_than_nothing() -> None:
    verdict, _ = look(looped("one one one"), looped(""))
    assert (verdict.hypothesis.text, verdict.second_look) == ("one one one", "first")


def test_what_is_too_short_to_cut_is_not_written_again() -> None:
    short = NOISE[:90]
    verdict, drafts = look(looped("one one"), said("never"), frames=short)
    assert (verdict.hypothesis.text, verdict.second_look) == ("one one", "first")
    verdict, _ = look(looped("one one"), said("never"), heard="two", frames=short)
    assert (verdict.hypothesis.text, verdict.second_look) == ("two", "partial")
    assert drafts == ["one", "one one"]


@pytest.mark.parametrize("last", [1, 2, 3, 5])
def test_whoever_says_stop_is_asked_no_more(last: int) -> None:
    engine = FakeAutoregressiveEngine([looped("a b"), said("c d"), said("e f")])
    drafts = []

    def draft(written: Hypothesis) -> bool:
        drafts.append(written.text)
        return len(drafts) < last

    write(engine, lfr.stack(NOISE, 7, 6), NOISE, OPTIONS, draft, None)
    assert len(drafts) == engine.written == last


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 0),
        ("one two three", 3),
        ("One, two... three!", 3),
        ("123", 3),
        ("it's 20:15", 5),
        ("今天天气很好。", 6),
        ("我用 iPhone 12", 5),
        ("- … 。", 0),
    ],
)
def test_length_is_counted_in_what_is_said(text: str, length: int) -> None:
    assert spoken_length(text) == length


def test_numbers_written_as_digits_are_no_collapse() -> None:
    verdict, _ = look(said("314159"), heard="three one four one five nine")
    assert verdict.second_look is None
    verdict, _ = look(said("twenty 24"), heard="two thousand and twenty four years")
    assert verdict.second_look is None


def test_a_short_partial_makes_no_collapse() -> None:
    verdict, _ = look(said("yes"), heard="uh well yes yes yes")
    assert verdict.second_look is None


def test_nothing_written_of_three_words_is_a_collapse_and_of_two_a_noise() -> None:
    verdict, _ = look(said(""), said("one"), said("five nine"), heard="one five nine")
    assert (verdict.hypothesis.text, verdict.second_look) == ("one five nine", "halves")
    verdict, _ = look(said(""), said(""), said(""), heard="one five nine")
    assert (verdict.hypothesis.text, verdict.second_look) == ("one five nine", "partial")
    verdict, _ = look(said(""), said("never"), heard="uh well")
    assert (verdict.hypothesis.text, verdict.second_look) == ("", None)


@given(st.integers(30, 400))
def test_a_cut_lies_in_the_middle_third(count: int) -> None:
    flat = np.zeros((count, 80), np.float32)
    assert abs(quietest_frame(flat) - count // 2) <= max(1, count // 6)
    falling = flat - np.arange(count, dtype=np.float32)[:, None]
    assert count // 3 <= quietest_frame(falling) < count - count // 3


def test_files_get_the_second_look_too() -> None:
    engine = FakeAutoregressiveEngine([looped("a a a"), said("b c"), said("d")])
    segment = Segment(3, 16_000, 80_000, False, NOISE)
    transcript = Recognizer(engine, OPTIONS).transcript(segment)
    assert transcript.text == "b c d"
    assert transcript.words[0].start_ms == 1000
    assert transcript.words[2].start_ms == 1000 + 10 * quietest_frame(NOISE)

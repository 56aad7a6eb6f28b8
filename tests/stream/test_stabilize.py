"""Committed text is append-only, whatever the hypotheses do."""

from hypothesis import given
from hypothesis import strategies as st

from liveasr.stream.stabilize import HOLD_BACK_MS, MAX_REPEATS, Stabilizer
from liveasr.types import Word

WORD_MS = 300
FOREVER = 10**9


def words(text: str, start_ms: int = 0) -> list[Word]:
    """Spaced words, WORD_MS each."""
    return [
        Word((" " if index else "") + word, start_ms + index * WORD_MS, start_ms + (index + 1) * WORD_MS)
        for index, word in enumerate(text.split())
    ]


def heard(count: int) -> int:
    """The end of audio that holds so many words, all of them old enough to be committed."""
    return count * WORD_MS + HOLD_BACK_MS


def test_nothing_is_committed_on_one_hypothesis() -> None:
    stabilizer = Stabilizer()
    stabilizer.accept(words("three one"), heard(2), FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("", "three one")


def test_what_two_hypotheses_agree_on_is_committed() -> None:
    stabilizer = Stabilizer()
    stabilizer.accept(words("three one"), heard(2), FOREVER)
    stabilizer.accept(words("three one for"), heard(3), FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("three one", " for")


def test_the_last_words_are_held_back() -> None:
    stabilizer = Stabilizer()
    stabilizer.accept(words("three one"), 2 * WORD_MS, FOREVER)
    stabilizer.accept(words("three one"), 2 * WORD_MS, FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("", "three one")


def test_nothing_is_committed_beyond_the_limit() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("three one four"), heard(3), commit_until_ms=2 * WORD_MS)
    assert (stabilizer.committed, stabilizer.tentative) == ("three one", " four")


def test_a_hypothesis_that_hears_the_past_otherwise_changes_nothing_committed() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("three one"), heard(2), FOREVER)
    stabilizer.accept(words("free won four"), heard(3), FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("three one", " four")
    stabilizer.accept(words("free won four five"), heard(4), FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("three one four", " five")


def test_agreement_ignores_case_and_ends_at_the_first_difference() -> None:
    stabilizer = Stabilizer()
    stabilizer.accept(words("Three one four"), heard(3), FOREVER)
    stabilizer.accept(words("three two four"), heard(3), FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("three", " two four")


def test_words_that_move_are_not_doubled() -> None:
    stabilizer = Stabilizer()
    stabilizer.accept(words("three one"), heard(2), FOREVER)
    stabilizer.accept(words("three one four"), heard(2), FOREVER)
    stabilizer.accept(words("Three one four", start_ms=2 * WORD_MS), heard(5), FOREVER)
    assert stabilizer.committed + stabilizer.tentative == "three one four"
    stabilizer.finish(words("three one four five", start_ms=3 * WORD_MS))
    assert stabilizer.committed == "three one four five"


def test_word_that_is_said_twice_is_kept_twice() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("no"), heard(1), FOREVER)
    stabilizer.accept(words("no no"), heard(2), FOREVER)
    assert (stabilizer.committed, stabilizer.tentative) == ("no", " no")


def test_a_hypothesis_of_the_end_alone_continues_the_text() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("three one"), heard(2), FOREVER)
    for _ in range(2):
        stabilizer.accept(words("four five", start_ms=2 * WORD_MS), heard(4), FOREVER)
    assert stabilizer.committed == "three one four five"


def test_a_window_in_a_script_without_spaces_adds_none() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept([Word("开", 0, 300), Word("放", 300, 600)], 1100, FOREVER)
    for _ in range(2):
        stabilizer.accept([Word("时", 600, 900)], 1400, FOREVER)
    assert stabilizer.committed == "开放时"


def test_repetition_is_not_committed() -> None:
    stabilizer = Stabilizer()
    text = " ".join(["thank you"] * (MAX_REPEATS + 3))
    for _ in range(2):
        stabilizer.accept(words(text), heard(100), FOREVER)
    assert stabilizer.committed.split() == (["thank", "you"] * (MAX_REPEATS + 1))[:-1]
    assert stabilizer.committed + stabilizer.tentative == text


def test_repetition_that_began_in_committed_text_stops_there() -> None:
    stabilizer = Stabilizer()
    for count in range(2, 12):
        stabilizer.accept(words(" ".join(["no"] * count)), heard(count), FOREVER)
    assert stabilizer.committed.split() == ["no"] * 5


def test_the_final_appends_what_comes_after_the_committed_words() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("free one"), heard(2), FOREVER)
    stabilizer.finish(words("three one four"))
    assert (stabilizer.committed, stabilizer.tentative) == ("free one four", "")


def test_an_empty_final_withdraws_nothing() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("three one"), heard(2), FOREVER)
    stabilizer.finish([])
    assert (stabilizer.committed, stabilizer.tentative) == ("three one", "")


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "好", "的"]), max_size=12), max_size=12), st.booleans())
def test_committed_text_only_grows(hypotheses: list[list[str]], ends: bool) -> None:
    stabilizer = Stabilizer()
    before = ""
    for count, hypothesis in enumerate(hypotheses, 1):
        stabilizer.accept(words(" ".join(hypothesis)), heard(count), FOREVER)
        assert stabilizer.committed.startswith(before)
        before = stabilizer.committed
    if ends and hypotheses:
        stabilizer.finish(words(" ".join(hypotheses[-1])))
        assert stabilizer.committed.startswith(before)
        assert stabilizer.tentative == ""


def stable(stabilizer: Stabilizer) -> str:
    return "".join(word.text for word in stabilizer.stable_words)


def test_what_is_agreed_on_is_stable_before_it_is_committed() -> None:
    stabilizer = Stabilizer()
    stabilizer.accept(words("three one four"), 3 * WORD_MS, FOREVER)
    assert stable(stabilizer) == ""
    stabilizer.accept(words("three one five"), 3 * WORD_MS, FOREVER)
    assert (stabilizer.committed, stable(stabilizer)) == ("three", "three one")


def test_a_repetition_is_not_stable() -> None:
    stabilizer = Stabilizer()
    for _ in range(2):
        stabilizer.accept(words("so " * 20), 0, FOREVER)
    assert stabilizer.committed == ""
    assert stable(stabilizer).split() == ["so"] * 5


def test_a_streaming_engine_is_sure_of_all_but_a_word_that_may_go_on() -> None:
    stabilizer = Stabilizer()
    stabilizer.follow(words("three one fo"), WORD_MS)
    assert (stabilizer.committed, stable(stabilizer)) == ("three", "three one")


def test_a_final_without_times_goes_on_behind_as_many_words_as_are_committed() -> None:
    stabilizer = Stabilizer()
    stabilizer.follow(words("three one four x"), FOREVER)
    stabilizer.finish(words("free won for five nine", start_ms=5_000), written=True)
    assert stabilizer.committed == "three one four five nine"

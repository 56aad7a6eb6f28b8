import html
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
import srt
import webvtt
from hypothesis import given
from hypothesis import strategies as st

from liveasr.clients.subtitles import MAX_COLUMNS, MAX_CUE_MS, Cue, columns, cues
from liveasr.clients.writers import Format, writer_for
from liveasr.types import Transcript, Word

READABLE_MS = 800
"""Shorter cues only where the segment has no room."""


def spoken(
    text: str, *, word_ms: int = 200, gap_ms: int = 100, start_ms: int = 0, end_ms: int | None = None
) -> Transcript:
    """A segment whose words follow each other, cut as the engines cut them."""
    texts = re.findall(
        r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]\W*|[^\s\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+", text
    )
    at = [start_ms + 300 + index * (word_ms + gap_ms) for index in range(len(texts))]
    words = tuple(Word(word.strip(), begin, begin + word_ms) for word, begin in zip(texts, at, strict=True))
    return Transcript(0, text, words, start_ms, end_ms or at[-1] + word_ms + 500)


def texts(found: Iterable[Cue]) -> list[str]:
    """One text a cue, a slash between lines."""
    return [" / ".join(cue.lines) for cue in found]


def assert_can_be_shown(found: list[Cue], transcript: Transcript) -> None:
    """Lines that fit, times that rise, do not overlap, stay inside the segment and give time to read."""
    for cue in found:
        assert 1 <= len(cue.lines) <= 2
        for line in cue.lines:
            assert line
            assert line == line.strip()
            assert columns(line) <= MAX_COLUMNS
        assert 0 < cue.end_ms - cue.start_ms <= MAX_CUE_MS
        assert transcript.start_ms <= cue.start_ms
        assert cue.end_ms <= transcript.end_ms
    for earlier, later in pairwise(found):
        assert earlier.end_ms <= later.start_ms
    if len(found) * READABLE_MS <= transcript.end_ms - transcript.start_ms:
        assert all(cue.end_ms - cue.start_ms >= READABLE_MS for cue in found)


def bare(text: str) -> str:
    return "".join(text.split())


# Any words at all.

LATIN = st.text("abcdefgh", min_size=1, max_size=12)
LONG = st.text("abcdefgh-/", min_size=43, max_size=130)
CHARACTER = st.sampled_from("的一是了我不人在他有這个上们来到时大地かなカナ")
HANGUL = st.text("안녕하세요반갑습니다", min_size=1, max_size=4)
PUNCTUATION = st.sampled_from(["", "", "", "", ",", ".", "?", "，", "。", "、", "!”", "。」", "…"])  # noqa: RUF001


@st.composite
def any_text(draw: st.DrawFn) -> list[tuple[str, bool]]:
    """(word, whether a space comes before it): Latin, Chinese and Japanese, Korean, or all of them."""
    kinds = draw(st.sampled_from([[LATIN], [CHARACTER], [HANGUL], [LATIN, LONG], [LATIN, CHARACTER, HANGUL, LONG]]))
    found = []
    for word in draw(st.lists(st.one_of(kinds), max_size=80)):
        before = draw(st.booleans()) if columns(word[0]) > 1 and len(word) == 1 else True
        found.append((word + draw(PUNCTUATION), before))
    return found


@st.composite
def any_transcript(draw: st.DrawFn) -> Transcript:
    """Words in any rhythm: pauses, words of no length, words of 20 s; a few may lie on the end of the segment."""
    parts = draw(any_text())
    text = "".join((" " if before else "") + word for word, before in parts).strip()
    start_ms = draw(st.sampled_from([0, 250, 36_000_000]))
    at = start_ms + draw(st.integers(0, 1000))
    words = []
    for word, _ in parts:
        at += draw(st.sampled_from([0, 0, 0, 60, 200, 400, 5000]))
        length_ms = draw(st.sampled_from([0, 60, 60, 200, 1000, 20_000]))
        words.append(Word(word, at, at + length_ms))
        at += length_ms
    least_ms = 50 * max(1, len(parts))  # nobody speaks faster
    end_ms = max(start_ms + least_ms, at - draw(st.sampled_from([0, 0, 500, 20_000])))
    words = [Word(word.text, min(word.start_ms, end_ms), min(word.end_ms, end_ms)) for word in words]
    return Transcript(0, text, tuple(words) if draw(st.integers(0, 4)) else (), start_ms, end_ms)


@given(any_transcript())
def test_any_segment_gives_cues_that_can_be_shown(transcript: Transcript) -> None:
    assert_can_be_shown(cues(transcript), transcript)


@given(any_transcript())
def test_any_segment_is_shown_whole_and_in_order(transcript: Transcript) -> None:
    shown = "".join("".join(cue.lines) for cue in cues(transcript))
    assert bare(shown) == bare(transcript.text)


@given(any_transcript())
def test_no_word_that_fits_a_line_is_torn(transcript: Transcript) -> None:
    shown = [word for cue in cues(transcript) for line in cue.lines for word in line.split()]
    for word in transcript.text.split():
        if word.isascii() and columns(word) <= MAX_COLUMNS:
            assert word in shown


@given(st.lists(st.tuples(LATIN, st.integers(60, 400), st.integers(0, 1500)), min_size=1, max_size=60))
def test_every_word_is_on_the_screen_when_it_is_spoken(parts: list[tuple[str, int, int]]) -> None:
    words = []
    at = 300
    for text, length_ms, pause_ms in parts:
        words.append(Word(text, at, at + length_ms))
        at += length_ms + pause_ms
    found = cues(Transcript(0, " ".join(word.text for word in words), tuple(words), 0, at + 500))
    shown = [cue for cue in found for line in cue.lines for _ in line.split()]
    for word, cue in zip(words, shown, strict=True):
        assert cue.start_ms - READABLE_MS <= word.start_ms <= cue.end_ms


@given(st.lists(any_transcript(), max_size=4), st.sampled_from(["srt", "vtt"]))
def test_other_programs_read_what_is_written(transcripts: list[Transcript], format_: Format) -> None:
    at = 0
    moved = []
    for index, transcript in enumerate(transcripts):  # one behind the other, the next where the last one ends
        by = at - transcript.start_ms
        words = tuple(Word(word.text, word.start_ms + by, word.end_ms + by) for word in transcript.words)
        moved.append(Transcript(index, transcript.text, words, at, transcript.end_ms + by))
        at = transcript.end_ms + by
    parts: list[str] = []
    writer = writer_for(format_, parts.append, Path("x.wav"), "digits", words=False, heading=False)
    for transcript in moved:
        writer.segment(transcript)
    writer.finish(at, None)
    expected = [cue for transcript in moved for cue in cues(transcript)]
    assert read_back(format_, "".join(parts)) == expected
    for earlier, later in pairwise(expected):
        assert earlier.end_ms <= later.start_ms


def read_back(format_: Format, document: str) -> list[Cue]:
    """The cues of a document, by a parser that others wrote."""
    if format_ == "srt":
        read = list(srt.parse(document))
        assert [item.index for item in read] == list(range(1, len(read) + 1))
        second = srt.timedelta(seconds=1)
        return [
            Cue(round(item.start / second * 1000), round(item.end / second * 1000), tuple(item.content.split("\n")))
            for item in read
        ]
    return [
        Cue(item.start_time.in_milliseconds(), item.end_time.in_milliseconds(), tuple(map(html.unescape, item.lines)))
        for item in webvtt.from_string(document).captions
    ]


@pytest.mark.parametrize("format_", ["srt", "vtt"])
def test_signs_that_mean_something_in_a_subtitle_file_come_back_as_they_are(format_: Format) -> None:
    transcript = spoken("1 < 2 & 3 > 2, <b>bold</b> &amp; --> 5")
    parts: list[str] = []
    writer_for(format_, parts.append, Path("x.wav"), "digits", words=False, heading=False).segment(transcript)
    (cue,) = read_back(format_, "".join(parts))
    assert cue.lines == (transcript.text,)


# Where cues and lines break.


def test_a_short_segment_is_one_line() -> None:
    assert texts(cues(spoken("three one four"))) == ["three one four"]


def test_two_lines_are_about_as_long_as_each_other() -> None:
    (cue,) = cues(spoken("one two three four five six seven eight nine ten eleven"))
    assert cue.lines == ("one two three four five six", "seven eight nine ten eleven")


def test_a_line_breaks_at_a_mark_rather_than_in_the_middle() -> None:
    (cue,) = cues(spoken("when the rain had stopped at last, we went out into the garden"))
    assert cue.lines == ("when the rain had stopped at last,", "we went out into the garden")


def test_a_cue_ends_with_the_sentence_rather_than_when_it_is_full() -> None:
    text = "we went out into the garden when it was over. then my brother came home and brought a dog"
    assert texts(cues(spoken(text))) == [
        "we went out into the / garden when it was over.",
        "then my brother came / home and brought a dog",
    ]


def test_a_mark_counts_inside_its_closing_quotes() -> None:
    text = '"we went out into the garden when it was over." then my brother came home and brought a dog'
    assert texts(cues(spoken(text)))[0].endswith('over."')


def test_a_cue_ends_at_a_clause_rather_than_between_words() -> None:
    text = "we went out into the garden when it was over, then my brother came home and brought a dog"
    assert texts(cues(spoken(text)))[0].endswith("over,")


def test_a_cue_ends_at_a_pause_where_there_are_no_marks() -> None:
    before = spoken("we went out into the garden when it was over")
    after = spoken("then my brother came home and brought a dog", start_ms=before.end_ms)
    joined = Transcript(0, f"{before.text} {after.text}", before.words + after.words, 0, after.end_ms)
    assert texts(cues(joined)) == [
        "we went out into the / garden when it was over",
        "then my brother came / home and brought a dog",
    ]


def test_gaps_that_are_behind_every_word_are_no_pauses() -> None:
    text = "and so my fellow americans, ask not what your country can do for you, ask what you can do for your country"
    for gap_ms in (100, 320, 500):
        assert all(cue.lines[-1][-1] in ",y" for cue in cues(spoken(text, word_ms=60, gap_ms=gap_ms)))


def test_a_cue_more_is_better_than_a_clause_torn() -> None:
    text = "今天天气很好，我们一起去公园散步吧。然后再去吃饭看电影，最后回家休息一下，明天还要上班呢。"  # noqa: RUF001
    assert texts(cues(spoken(text, word_ms=200, gap_ms=100))) == [
        "今天天气很好，我们一起去公园散步吧。",  # noqa: RUF001
        "然后再去吃饭看电影，",  # noqa: RUF001
        "最后回家休息一下，明天还要上班呢。",  # noqa: RUF001
    ]


def test_chinese_has_21_characters_a_line() -> None:
    text = "今天天气很好我们一起去公园散步吧然后再去吃饭看电影最后回家休息一下明天还要上班呢"
    found = cues(spoken(text, word_ms=60, gap_ms=60))
    assert [len(line) for cue in found for line in cue.lines] == [20, 20]
    assert bare("".join(texts(found))).replace("/", "") == text


def test_chinese_breaks_at_its_marks() -> None:
    text = "今天天气很好，我们一起去公园散步吧。然后再去吃饭看电影，最后回家休息一下，明天还要上班呢。"  # noqa: RUF001
    found = cues(spoken(text, word_ms=100, gap_ms=60))
    assert texts(found) == [
        "今天天气很好，我们一起去公园散步吧。",  # noqa: RUF001
        "然后再去吃饭看电影， / 最后回家休息一下，明天还要上班呢。",  # noqa: RUF001
    ]


def test_korean_comes_by_the_character_and_breaks_between_words() -> None:
    text = "안녕하세요 저는 서울에 사는 학생이고 매일 아침 일찍 일어나서 학교에 걸어서 갑니다"
    lines = [line for cue in cues(spoken(text, word_ms=60, gap_ms=40)) for line in cue.lines]
    assert len(lines) > 1
    assert [word for line in lines for word in line.split()] == text.split()


def test_scripts_that_meet_without_a_space_stay_without_one() -> None:
    assert texts(cues(spoken("我的iPhone15很好用 really good"))) == ["我的iPhone15很好用 really good"]


def test_a_word_wider_than_a_line_is_cut_and_nothing_of_it_is_lost() -> None:
    word = "abcdefghij" * 10
    found = cues(spoken(f"so {word} it is"))
    assert_can_be_shown(found, spoken(f"so {word} it is"))
    assert bare("".join("".join(cue.lines) for cue in found)) == f"so{word}itis"


# When they are shown.


def test_a_cue_comes_before_its_first_word_and_stays_behind_its_last() -> None:
    (cue,) = cues(Transcript(0, "one two", (Word("one", 1000, 1100), Word("two", 2000, 2100)), 500, 4000))
    assert (cue.start_ms, cue.end_ms) == (800, 2500)


def test_a_cue_stays_inside_its_segment() -> None:
    (cue,) = cues(Transcript(0, "one two", (Word("one", 600, 700), Word("two", 2000, 2100)), 500, 2150))
    assert (cue.start_ms, cue.end_ms) == (500, 2150)


def test_a_cue_makes_way_for_the_next_one() -> None:
    words = (Word("first.", 1000, 2000), Word("second.", 2300, 3000))
    long = list("abcdefghijklmnopqrstuvwxyz")
    more = tuple(Word(letter, 3000 + 200 * index, 3100 + 200 * index) for index, letter in enumerate(long))
    found = cues(Transcript(0, "first. second. " + " ".join(long), words + more, 0, 9000))
    for earlier, later in pairwise(found):
        assert earlier.end_ms <= later.start_ms
    assert_can_be_shown(found, Transcript(0, "", (), 0, 9000))


@pytest.mark.parametrize("length_ms", [6_400, 6_401, 7_000, 30_000])
def test_a_word_that_lasts_too_long_is_shown_for_7_s(length_ms: int) -> None:
    (cue,) = cues(Transcript(0, "hmm", (Word("hmm", 1000, 1000 + length_ms),), 0, 60_000))
    assert (cue.start_ms, cue.end_ms) == (800, 7_800)


def test_a_segment_of_minutes_without_a_break_is_shown_in_parts() -> None:
    transcript = spoken("one two " * 200, word_ms=300, gap_ms=0)
    found = cues(transcript)
    assert len(found) > 15
    assert_can_be_shown(found, transcript)
    for cue in found:  # what is said is shown while it is said
        word = next(word for word in transcript.words if word.start_ms >= cue.start_ms)
        assert word.start_ms - cue.start_ms <= 600


def test_words_that_all_fall_on_the_end_of_the_segment_are_shown_before_it() -> None:
    text = "one two three four five six seven eight nine ten eleven twelve " * 4
    transcript = Transcript(0, text.strip(), tuple(Word(word, 5000, 5000) for word in text.split()), 1000, 5000)
    found = cues(transcript)
    assert len(found) > 1
    assert_can_be_shown(found, transcript)


def test_without_word_times_the_text_is_spread_over_the_segment() -> None:
    text = "when the rain had stopped at last, we went out into the garden. " * 4
    transcript = Transcript(0, text.strip(), (), 1000, 21_000)
    found = cues(transcript)
    assert len(found) == 4
    assert {" ".join(cue.lines) for cue in found} == {text[: text.index(".") + 1]}
    assert_can_be_shown(found, transcript)
    starts_ms = [cue.start_ms for cue in found]
    assert starts_ms == pytest.approx([1000, 6000, 11_000, 16_000], abs=300)


def test_without_word_times_no_line_begins_with_a_mark_or_ends_with_an_opening_bracket() -> None:
    text = "今天天气很好，我们一起去“公园”散步吧。（然后）再去吃饭、看电影，最后回家《休息》一下，明天还要上班呢。" * 5  # noqa: RUF001
    transcript = Transcript(0, text, (), 0, 60_000)
    lines = [line for cue in cues(transcript) for line in cue.lines]
    assert "".join(lines) == text
    assert not [line for line in lines if line[0] in "，。、”）》" or line[-1] in "“（《"]  # noqa: RUF001


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_no_text_gives_no_cue(text: str) -> None:
    assert cues(Transcript(0, text, (), 0, 1000)) == []

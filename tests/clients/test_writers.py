import json
from pathlib import Path
from typing import Any, get_args

import pytest

from liveasr.clients.render import as_json
from liveasr.clients.writers import JSON_VERSION, Emit, Format, JsonWriter, TextWriter, Writer, writer_for
from liveasr.types import Transcript, Word

PATH = Path("talks/first talk.wav")


def transcript(text: str, start_ms: int, end_ms: int) -> Transcript:
    words = tuple(Word(word, start_ms, end_ms) for word in text.split())
    return Transcript(0, text, words, start_ms, end_ms)


ONE = transcript("three one four", 250, 2150)
TWO = transcript('she said "<b>&\\"\n你好', 2790, 5150)
ALL_FORMATS: tuple[Format, ...] = get_args(Format.__value__ if hasattr(Format, "__value__") else Format)


class Page:
    """What a writer has written; it may be interrupted while, or just after, it writes."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.parts: list[str] = []
        self._interrupt_at = interrupt_at

    def __call__(self, text: str) -> None:
        self.parts.append(text)
        if len(self.parts) - 1 == self._interrupt_at:
            raise KeyboardInterrupt

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text)
        return document


def json_writer(emit: Emit) -> Writer:
    return JsonWriter(emit, PATH, "digits")


# Text.


def test_text_is_a_line_a_segment() -> None:
    page = Page()
    writer = TextWriter(page, words=False)
    writer.segment(ONE)
    writer.segment(TWO)
    writer.finish(8000, None)
    assert page.text.startswith("[00:00.250 --> 00:02.150]  three one four\n[00:02.790 --> 00:05.150]  she said")


def test_text_shows_words_and_the_name_if_asked() -> None:
    page = Page()
    writer = TextWriter(page, words=True, heading="a.wav")
    writer.segment(ONE)
    assert page.text.splitlines()[:3] == [
        "# a.wav",
        "[00:00.250 --> 00:02.150]  three one four",
        "    00:00.250 - 00:02.150  three",
    ]


# JSON.


def test_json_is_one_document() -> None:
    page = Page()
    writer = json_writer(page)
    writer.segment(ONE)
    writer.segment(TWO)
    writer.finish(8628, None)
    assert page.document == {
        "version": JSON_VERSION,
        "path": str(PATH),
        "model": "digits",
        "segments": [as_json(ONE), as_json(TWO)],
        "duration_ms": 8628,
        "error": None,
    }
    assert page.text.endswith("\n")


@pytest.mark.parametrize("segments", [0, 1, 2, 3])
@pytest.mark.parametrize("error", [None, "interrupted", 'x.wav: is "damaged"\\'])
def test_json_is_whole_after_any_number_of_segments_and_any_error(segments: int, error: str | None) -> None:
    page = Page()
    writer = json_writer(page)
    for _ in range(segments):
        writer.segment(TWO)
    writer.finish(1234, error)
    assert page.document["error"] == error
    assert page.document["duration_ms"] == 1234
    assert page.document["segments"] == [as_json(TWO)] * segments


@pytest.mark.parametrize("interrupt_at", [1, 2, 3])
def test_json_is_whole_when_the_writing_of_a_segment_was_interrupted(interrupt_at: int) -> None:
    page = Page(interrupt_at)
    writer = json_writer(page)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - one of them
        for _ in range(3):
            writer.segment(ONE)
    writer.finish(500, "interrupted")
    assert page.document["segments"] == [as_json(ONE)] * interrupt_at
    assert page.document["error"] == "interrupted"


def test_every_json_segment_is_written_before_the_next_is_known() -> None:
    page = Page()
    writer = json_writer(page)
    writer.segment(ONE)
    before = page.text
    assert json.loads(before + "]}")["segments"] == [as_json(ONE)]
    writer.segment(TWO)
    assert page.text.startswith(before)


def test_json_shows_other_scripts_as_they_are() -> None:
    page = Page()
    json_writer(page).segment(TWO)
    assert "你好" in page.text


# All of them.


@pytest.mark.parametrize("format_", ALL_FORMATS)
def test_every_format_has_a_writer_that_writes_each_segment_at_once(format_: Format) -> None:
    page = Page()
    writer = writer_for(format_, page, PATH, "digits", words=False, heading=False)
    sizes = [len(page.text)]
    for item in (ONE, TWO):
        writer.segment(item)
        sizes.append(len(page.text))
    writer.finish(8628, None)
    assert sizes[0] < sizes[1] < sizes[2]
    assert "three one four" in page.text
    assert "你好" in page.text


@pytest.mark.parametrize("format_", ALL_FORMATS)
def test_nothing_said_is_a_document_too(format_: Format) -> None:
    page = Page()
    writer_for(format_, page, PATH, "digits", words=False, heading=False).finish(1000, None)
    empty = {"txt": "", "srt": "", "vtt": "WEBVTT\n\n", "tsv": "start_ms\tend_ms\ttext\n"}
    if format_ == "json":
        assert page.document["segments"] == []
    else:
        assert page.text == empty[format_]


def test_srt_numbers_its_cues_and_writes_commas() -> None:
    page = Page()
    writer = writer_for("srt", page, PATH, "digits", words=False, heading=False)
    writer.segment(ONE)
    writer.segment(transcript("six five", 5830, 7510))
    cues = page.text.strip().split("\n\n")
    assert [cue.splitlines()[0] for cue in cues] == ["1", "2"]
    assert cues[0].splitlines()[1] == "00:00:00,250 --> 00:00:02,150"


def test_vtt_escapes_what_would_be_a_tag() -> None:
    page = Page()
    writer_for("vtt", page, PATH, "digits", words=False, heading=False).segment(TWO)
    assert "&lt;b&gt;&amp;" in page.text
    assert "-->" in page.text


def test_tsv_keeps_a_segment_on_its_line() -> None:
    page = Page()
    writer_for("tsv", page, PATH, "digits", words=False, heading=False).segment(
        transcript("tab\there\nand a line", 100, 200)
    )
    assert page.text.splitlines() == ["start_ms\tend_ms\ttext", "100\t200\ttab here and a line"]

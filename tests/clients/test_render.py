import json

import pytest

from liveasr.clients.render import as_json, text_lines, timecode
from liveasr.types import Transcript, Word

HELLO = Transcript(
    segment_id=3,
    text="你好 world",
    words=(Word("你", 61_000, 61_250), Word("好", 61_250, 61_500), Word("world", 61_600, 62_000)),
    start_ms=60_900,
    end_ms=62_345,
    forced_cut=True,
    language="zh",
    emotion=None,
    event="speech",
)


@pytest.mark.parametrize(
    ("ms", "code"),
    [
        (0, "00:00.000"),
        (7, "00:00.007"),
        (12_345, "00:12.345"),
        (59_999, "00:59.999"),
        (60_000, "01:00.000"),
        (3_599_999, "59:59.999"),
        (3_600_000, "01:00:00.000"),
        (36_061_001, "10:01:01.001"),
        (360_000_000, "100:00:00.000"),
    ],
)
def test_hours_appear_when_there_are_any(ms: int, code: str) -> None:
    assert timecode(ms) == code


@pytest.mark.parametrize(("ms", "code"), [(0, "00:00:00.000"), (61_001, "00:01:01.001"), (3_600_000, "01:00:00.000")])
def test_hours_appear_when_they_are_asked_for(ms: int, code: str) -> None:
    assert timecode(ms, hours=True) == code


def test_a_segment_is_one_line() -> None:
    assert list(text_lines(HELLO, words=False)) == ["[01:00.900 --> 01:02.345]  你好 world"]


def test_words_follow_a_line_each() -> None:
    assert list(text_lines(HELLO, words=True)) == [
        "[01:00.900 --> 01:02.345]  你好 world",
        "    01:01.000 - 01:01.250  你",
        "    01:01.250 - 01:01.500  好",
        "    01:01.600 - 01:02.000  world",
    ]


def test_json_has_everything_but_the_number() -> None:
    assert as_json(HELLO) == {
        "start_ms": 60_900,
        "end_ms": 62_345,
        "forced_cut": True,
        "text": "你好 world",
        "language": "zh",
        "emotion": None,
        "event": "speech",
        "words": [
            {"text": "你", "start_ms": 61_000, "end_ms": 61_250},
            {"text": "好", "start_ms": 61_250, "end_ms": 61_500},
            {"text": "world", "start_ms": 61_600, "end_ms": 62_000},
        ],
    }
    assert json.loads(json.dumps(as_json(HELLO))) == as_json(HELLO)

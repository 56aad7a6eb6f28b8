import pytest

from liveasr.stream.spelling import joined, put_together, spaced
from liveasr.types import Word


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("three one four", ["three", "one", "four"]),
        ("开放时间", ["开", "放", "时", "间"]),
        ("我用 iPhone 拍照", ["我", "用", "iPhone", "拍", "照"]),
        ("我用iPhone拍照。", ["我", "用", "iPhone", "拍", "照。"]),
        ("one one  one", ["one", "one", "one"]),
        ("", []),
    ],
)
def test_words_get_the_spaces_of_their_text(text: str, words: list[str]) -> None:
    found = spaced(text, [Word(word, index, index + 1) for index, word in enumerate(words)])
    assert joined(found) == " ".join(text.split())
    assert [word.text.strip() for word in found] == words
    assert [(word.start_ms, word.end_ms) for word in found] == [(index, index + 1) for index in range(len(words))]


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("three one", "four", "three one four"),
        ("今天", "很好", "今天很好"),
        ("今天。", "Fine", "今天。Fine"),
        ("Fine.", "今天", "Fine.今天"),
        ("café", "olé", "café olé"),
        ("안녕", "하세요", "안녕 하세요"),
        ("", "four", "four"),
        ("three", "", "three"),
    ],
)
def test_texts_are_put_together_as_their_scripts_are_written(first: str, second: str, whole: str) -> None:
    assert put_together(first, second) == whole

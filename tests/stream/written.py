"""What tests of engines that write share: a gate before each word, words without own times, sound revisions."""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from itertools import pairwise
from typing import Any

from liveasr.types import Hypothesis, LiveTranscript, Word
from tests.fakes import FakeAutoregressiveEngine


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def gated(*answers: Hypothesis) -> FakeAutoregressiveEngine:
    """It writes a word only when its gate is released."""
    engine = FakeAutoregressiveEngine(answers)
    engine.gate = threading.Semaphore(0)
    return engine


def spread(text: str, length_ms: int) -> Hypothesis:
    """Words evenly over the time, as an engine gives them that knows none."""
    texts = text.split()
    words = [
        Word(word, length_ms * index // len(texts), length_ms * (index + 1) // len(texts))
        for index, word in enumerate(texts)
    ]
    return Hypothesis((), text, tuple(words))


def assert_sound(shown: Iterable[LiveTranscript]) -> None:
    """Of one segment: revisions rise, committed text only grows, nothing is said twice, the final comes last."""
    revisions = list(shown)
    assert [each.revision for each in revisions] == list(range(1, len(revisions) + 1))
    assert [each.is_final for each in revisions] == [False] * (len(revisions) - 1) + [True]
    for before, after in pairwise(revisions):
        assert after.committed.startswith(before.committed)
        assert after.is_final or (before.committed, before.tentative) != (after.committed, after.tentative)
        assert after.is_final or after.end_ms >= before.end_ms

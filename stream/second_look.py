"""Finals of an engine that writes, looked at again where they cannot be right.

Such an engine may repeat itself to no end, or end long before the speaker did. The first it tells: its hypothesis is
not `complete`. The second shows only beside what the partials heard: much less is said. Both happen on long segments
more than on short ones. So the segment is cut in two at its quietest point near the middle, and both halves are
written. If that is no better, what the partials agreed on stands; where there are none, the two halves stand after all.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from liveasr.engines.base import AutoregressiveEngine, DecodeOptions, Draft
from liveasr.engines.tokens import is_character
from liveasr.stream import lfr
from liveasr.stream.fbank import HOP_SAMPLES
from liveasr.stream.spelling import put_together
from liveasr.types import SAMPLES_PER_MS, Float32Array, Hypothesis, Word

COLLAPSED_BELOW = 0.5
"""Of what the partials heard. Without fillers and stutters, which such engines leave out, some two thirds are left; a
collapsed final is a word or a sentence of many."""
MIN_HEARD = 6
"""Below so much heard by the partials, a filler or two may be the half that is missing."""
MIN_HEARD_OF_NOTHING = 3
"""The same where nothing is written at all: a word or two may be what the partials made of a noise."""
_MIN_FRAMES = 100  # of a segment worth cutting: halves of half a second still hold a word
_PAUSE_FRAMES = 10  # 100 ms: longer than the closure of a stop within a word
_FRAME_MS = HOP_SAMPLES // SAMPLES_PER_MS

Outcome: TypeAlias = Literal["halves", "partial", "first"]
"""What stands after a second look: the two halves, what the partials heard, or what there was."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What stands as said in a segment."""

    hypothesis: Hypothesis
    second_look: Outcome | None = None
    """How a second look came out, if there was one."""


def write(
    engine: AutoregressiveEngine,
    features: Float32Array,
    frames: Float32Array,
    options: DecodeOptions,
    draft: Draft,
    heard: Hypothesis | None,
) -> Verdict:
    """Recognise one segment, with a second look where that is needed.

    Args:
        engine: what writes.
        features: (rows, dims) the frames stacked as the engine takes them.
        frames: (T, 80) log-mel frames of the segment.
        options: what the caller wants.
        draft: sees all that is written; in a second look, with what was written of the first half in front.
        heard: what the partials of the segment agreed on, if there were any; words count from its start.

    Returns:
        The verdict; what it holds is of no use once the draft has said False.
    """
    wanted = True

    def watched(hypothesis: Hypothesis) -> bool:
        nonlocal wanted
        wanted = wanted and draft(hypothesis)
        return wanted

    first = engine.write(features, options, watched)
    if not wanted or _is_sound(first, heard):
        return Verdict(first)
    halves = _write_halves(engine, frames, options, watched, lambda: wanted)
    if halves is not None and _is_sound(halves, heard):
        return Verdict(halves, "halves")
    if heard is not None:
        told = replace(heard, language=first.language, emotion=first.emotion, event=first.event)
        return Verdict(told, "partial")
    if halves is not None and halves.words:  # a loop spoils one half of it, not all
        return Verdict(halves, "halves")
    return Verdict(first, "first")


def spoken_length(text: str) -> int:
    """How much is said: words, or characters in the scripts that write no spaces; each digit counts as a word.

    Marks count nothing. So "one two three" is as long as "123", which inverse text normalisation makes of it.
    """
    length = 0
    in_word = False
    for character in text:
        if character.isdigit() or is_character(character):
            length += 1
            in_word = False
        elif character.isalpha():
            length += not in_word
            in_word = True
        elif character.isspace():
            in_word = False
    return length


def quietest_frame(frames: Float32Array) -> int:
    """Where to cut: the middle of the quietest 100 ms in the middle third, of equals the one nearest to the middle.

    Args:
        frames: (T, 80) log-mel frames, T at least 30.
    """
    energy = np.convolve(frames.mean(axis=1, dtype=np.float64), np.full(_PAUSE_FRAMES, 1 / _PAUSE_FRAMES), "same")
    third = len(frames) // 3
    middle = len(frames) // 2
    return min(range(third, len(frames) - third), key=lambda frame: (energy[frame], abs(frame - middle)))


def _is_sound(hypothesis: Hypothesis, heard: Hypothesis | None) -> bool:
    """Whether it came to its end, and not long before the speaker did."""
    length = 0 if heard is None else spoken_length(heard.text)
    written = spoken_length(hypothesis.text)
    least = MIN_HEARD if written else MIN_HEARD_OF_NOTHING
    collapsed = length >= least and written < COLLAPSED_BELOW * length
    return hypothesis.complete and not collapsed


def _write_halves(
    engine: AutoregressiveEngine,
    frames: Float32Array,
    options: DecodeOptions,
    draft: Draft,
    wanted: Callable[[], bool],
) -> Hypothesis | None:
    """Both halves of a segment as one hypothesis; None where it is too short to be cut, or nobody wants it any more."""
    if len(frames) < _MIN_FRAMES:
        return None
    front = engine.front_end
    cut = quietest_frame(frames)
    cut_ms = cut * _FRAME_MS
    first = engine.write(lfr.stack(frames[:cut], front.lfr_m, front.lfr_n), options, draft)
    if not wanted():
        return None
    second = engine.write(
        lfr.stack(frames[cut:], front.lfr_m, front.lfr_n), options, lambda half: draft(_joined(first, half, cut_ms))
    )
    return _joined(first, second, cut_ms)


def _joined(first: Hypothesis, second: Hypothesis, cut_ms: int) -> Hypothesis:
    """Two hypotheses that follow each other, the second from cut_ms on."""
    earlier = [Word(word.text, min(word.start_ms, cut_ms), min(word.end_ms, cut_ms)) for word in first.words]
    later = [Word(word.text, cut_ms + word.start_ms, cut_ms + word.end_ms) for word in second.words]
    return Hypothesis(
        token_ids=first.token_ids + second.token_ids,
        text=put_together(first.text, second.text),
        words=(*earlier, *later),
        language=first.language or second.language,
        emotion=first.emotion or second.emotion,
        event=first.event or second.event,
        complete=first.complete and second.complete,
    )

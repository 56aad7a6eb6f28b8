"""Silence scores for the endpoint machine: told, and any at all; and what its events always are."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from liveasr.types import Float32Array, SpeechEnd, SpeechEvent, SpeechStart
from liveasr.vad.config import VadConfig

HOP = 160
DELAY = 720
"""Samples of audio behind the start of a frame that its score needs: two frames and a window."""

SPEECH, QUIET = 0.0, 1.0
"""Silence scores."""


def scores(*runs: tuple[float, int]) -> Float32Array:
    """(score, frames) one after the other."""
    return np.concatenate([np.full(frames, score, np.float32) for score, frames in runs])


def assert_well_formed(events: list[SpeechEvent], frames: int) -> None:
    """Start and end in turn, on the grid, rising, never overlapping, inside the audio, confirmed in order."""
    for index, event in enumerate(events):
        assert isinstance(event, SpeechEnd if index % 2 else SpeechStart)
        assert event.sample % HOP == 0
        assert 0 <= event.sample <= frames * HOP
    assert len(events) % 2 == 0
    for earlier, later in pairwise(events):
        assert earlier.sample <= later.sample
        assert earlier.confirmed_at <= later.confirmed_at
    for start, end in zip(events[::2], events[1::2], strict=True):
        assert start.sample < end.sample


@st.composite
def any_scores(draw: st.DrawFn) -> Float32Array:
    """Runs of all lengths around those that the machine counts, then a stretch where each frame is another."""
    levels = st.sampled_from([0.0, 0.1, 0.19, 0.21, 0.5, 0.9, 1.0])
    runs = draw(st.lists(st.tuples(levels, st.integers(1, 130)), min_size=1, max_size=14))
    seed = draw(st.integers(0, 1000))
    random = np.random.default_rng(seed).uniform(0, 0.3, draw(st.integers(0, 300))).astype(np.float32)
    return np.concatenate((scores(*runs), random))


@st.composite
def any_config(draw: st.DrawFn) -> VadConfig:
    return VadConfig(
        end_silence_ms=draw(st.sampled_from([None, 150, 160, 260, 270, 500, 800, 3000])),
        max_segment_ms=draw(st.sampled_from([1000, 1500, 2005, 5000, 20_000])),
        min_speech_ms=draw(st.sampled_from([0, 0, 300])),
        pad_before_ms=draw(st.sampled_from([0, 0, 100, 3000])),
        pad_after_ms=draw(st.sampled_from([0, 0, 100, 3000])),
    )

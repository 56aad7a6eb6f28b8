import dataclasses
import math

import pytest

from liveasr.errors import UsageError
from liveasr.vad.config import VadConfig


def test_a_segment_ends_after_800_ms_and_is_cut_after_20_s() -> None:
    config = VadConfig()
    assert (config.end_silence_ms, config.max_segment_ms, config.min_speech_ms) == (800, 20_000, 0)
    assert (config.pad_before_ms, config.pad_after_ms) == (0, 0)


def test_the_threshold_is_that_of_the_released_model_and_lower_with_the_schedule() -> None:
    assert VadConfig().threshold == 0.6
    assert VadConfig(end_silence_ms=None).threshold == 0.5


@pytest.mark.parametrize("end_silence_ms", [None, 800])
@pytest.mark.parametrize("threshold", [-0.99, 0.0, 0.3, 0.99])
def test_a_threshold_that_is_set_is_in_force(threshold: float, end_silence_ms: int | None) -> None:
    assert VadConfig(end_silence_ms, speech_threshold=threshold).threshold == threshold


@pytest.mark.parametrize("threshold", [-1.0, 1.0, 1.5, math.nan, math.inf])
def test_a_threshold_that_every_frame_or_none_could_reach_is_refused(threshold: float) -> None:
    with pytest.raises(UsageError, match="it lies between -1 and 1"):
        VadConfig(speech_threshold=threshold)


def test_a_negative_shortest_speech_is_refused() -> None:
    with pytest.raises(UsageError, match="-1 ms; it cannot be negative"):
        VadConfig(min_speech_ms=-1)


@pytest.mark.parametrize("padding_ms", [-1, 5001])
def test_padding_out_of_range_is_refused(padding_ms: int) -> None:
    for names in ({"pad_before_ms": padding_ms}, {"pad_after_ms": padding_ms}):
        with pytest.raises(UsageError, match=f"padding of {padding_ms} ms; it lies between 0 and 5000 ms"):
            VadConfig(**names)


def test_the_bounds_themselves_are_taken() -> None:
    config = VadConfig(150, 1000, -0.999, 0, 5000, 5000)
    assert dataclasses.astuple(config) == (150, 1000, -0.999, 0, 5000, 5000)


@pytest.mark.parametrize("speech_ms", [0, 15_000, 70_000])
def test_a_fixed_end_silence_is_the_same_for_all_lengths(speech_ms: int) -> None:
    assert VadConfig(end_silence_ms=430).end_silence_after(speech_ms) == 430


@pytest.mark.parametrize(
    ("speech_ms", "end_silence_ms"),
    [
        (0, 2000),
        (10_000, 2000),
        (10_001, 1000),
        (20_000, 1000),
        (20_001, 800),
        (30_000, 800),
        (30_001, 600),
        (40_000, 600),
        (40_001, 400),
        (50_000, 400),
        (50_001, 200),
        (60_000, 200),
        (60_001, 100),
        (1_000_000, 100),
    ],
)
def test_the_schedule_takes_shorter_pauses_the_longer_one_speaks(speech_ms: int, end_silence_ms: int) -> None:
    assert VadConfig(end_silence_ms=None).end_silence_after(speech_ms) == end_silence_ms


def test_settings_do_not_change_under_a_machine_that_uses_them() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        VadConfig().end_silence_ms = 1  # type: ignore[misc]

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from liveasr.vad.hysteresis import WINDOW_FRAMES, SpeechWindow

CHANGE_FRAMES = 15
"""Of the 20 in the window."""


def states(frames: Iterable[bool], window: SpeechWindow | None = None) -> list[bool]:
    """The state after each frame."""
    window = window or SpeechWindow()
    found = []
    for frame in frames:
        window.update(frame)
        found.append(window.speaking)
    return found


def speaking_window() -> SpeechWindow:
    """A window full of speech."""
    window = SpeechWindow()
    states([True] * WINDOW_FRAMES, window)
    assert window.speaking
    return window


def test_the_window_holds_200_ms() -> None:
    assert WINDOW_FRAMES == 20


def test_it_begins_in_silence() -> None:
    window = SpeechWindow()
    assert not window.speaking
    assert (window.voiced_frames, window.silent_frames) == (0, 0)


def test_silence_becomes_speech_with_the_15th_frame_of_speech() -> None:
    assert states([True] * CHANGE_FRAMES) == [False] * (CHANGE_FRAMES - 1) + [True]


def test_the_15_frames_may_lie_anywhere_in_the_window() -> None:
    assert states([False, True, True, True] * 5) == [False] * 19 + [True]


def test_frames_that_have_left_the_window_count_no_more() -> None:
    assert not any(states([True] * 14 + [False] * 6 + [True]))


def test_speech_becomes_silence_with_the_5th_silent_frame() -> None:
    assert states([False] * 6, speaking_window()) == [True] * 4 + [False] * 2


def test_speech_that_has_just_begun_lasts_no_longer_than_its_15_frames() -> None:
    """The reference compares with >= on the way up and with <= on the way down, on the same number."""
    window = SpeechWindow()
    states([True] * CHANGE_FRAMES, window)
    assert states([False], window) == [False]


def test_a_click_of_silence_does_not_end_speech() -> None:
    assert all(states([False, True] * 2 + [True] * 20, speaking_window()))


def test_silent_frames_are_counted_behind_the_one_that_changed_the_state() -> None:
    window = speaking_window()
    counts = []
    for _ in range(8):
        window.update(speech=False)
        counts.append(window.silent_frames)
    assert counts == [0, 0, 0, 0, 0, 1, 2, 3]


def test_the_count_goes_on_through_speech_that_is_too_short_to_count() -> None:
    window = speaking_window()
    states([False] * 10 + [True] * 8, window)
    assert not window.speaking
    assert window.silent_frames == 13


def test_the_count_begins_anew_with_speech() -> None:
    window = speaking_window()
    states([False] * 10 + [True] * 20, window)
    assert window.speaking
    assert window.silent_frames == 0


def test_clearing_makes_it_new() -> None:
    window = speaking_window()
    states([False] * 10, window)
    window.clear()
    assert (window.speaking, window.voiced_frames, window.silent_frames) == (False, 0, 0)
    assert states([True] * CHANGE_FRAMES, window) == states([True] * CHANGE_FRAMES)


@given(st.lists(st.booleans() | st.sampled_from([True, True, False]), max_size=200))
def test_any_frames_change_the_state_as_the_sum_of_the_window_says(frames: list[bool]) -> None:
    window = SpeechWindow()
    speaking = False
    for index, frame in enumerate(frames):
        window.update(frame)
        voiced = sum(frames[max(0, index - WINDOW_FRAMES + 1) : index + 1])
        speaking = voiced > CHANGE_FRAMES if speaking else voiced >= CHANGE_FRAMES
        assert (window.speaking, window.voiced_frames) == (speaking, voiced)
        assert window.silent_frames == 0 or not speaking

"""Recordings that come through a pipe: soon, and whole as far as it goes."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from liveasr.stream.decode import AudioFile
from liveasr.types import SAMPLE_RATE_HZ
from tests.sounds import white
from tests.stream.media import Sound, clicks, heard, pipe_of, wav, whole, write


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Four seconds of WAV."""
    return wav(tmp_path / "x.wav", white(4, 0.1)).read_bytes()


def test_what_comes_through_a_pipe_is_given_at_most_some_seconds_later(tmp_path: Path) -> None:
    content = wav(tmp_path / "x.wav", white(20, 0.1)).read_bytes()
    read = 0

    def pieces() -> Iterator[bytes]:
        nonlocal read
        for start in range(0, len(content), 3200):
            read += 1600
            yield content[start : start + 3200]

    given = 0
    with AudioFile(pipe_of(pieces())) as audio:
        for block in audio.blocks():
            given += block.size
            assert read - given <= 4 * SAMPLE_RATE_HZ  # FFmpeg looks that far ahead to know what it is
    assert given == 20 * SAMPLE_RATE_HZ


@pytest.mark.parametrize("what", ["a recording", "text", "nothing"])
def test_a_named_pipe_is_read_once_as_stdin_is(what: str, content: bytes, tmp_path: Path) -> None:
    sent = {"a recording": content, "text": b"nobody speaks here\n" * 100, "nothing": b""}[what]
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(path.write_bytes, sent)
        samples, fault = heard(path)
    expected_samples, expected_fault = heard(pipe_of([sent]))
    assert fault == expected_fault
    np.testing.assert_array_equal(samples, expected_samples)


def test_an_empty_pipe_is_told() -> None:
    assert heard(pipe_of([]))[1] == "is empty"


def test_text_in_a_pipe_is_told() -> None:
    assert heard(pipe_of([b"nobody speaks here\n" * 100]))[1] == "is not a recording that can be decoded"


def test_a_pipe_that_breaks_is_told_after_what_came_through(content: bytes) -> None:
    samples, reason = heard(pipe_of([content[:80_000], OSError(5, "Input/output error")]))
    assert reason == "cannot be read: Input/output error"
    assert samples.size == pytest.approx(40_000, abs=1100)


def test_a_pipe_that_breaks_at_once_is_told() -> None:
    assert heard(pipe_of([OSError(5, "Input/output error")]))[1] == "cannot be read: Input/output error"


@pytest.mark.parametrize("before", [0, 80_000])
def test_ctrl_c_while_a_pipe_is_silent_is_not_lost(before: int, content: bytes) -> None:
    given = 0
    source = pipe_of([content[:before], KeyboardInterrupt()] if before else [KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt), AudioFile(source) as audio:  # noqa: PT012 - blocks come before it
        for block in audio.blocks():
            given += block.size
    assert max(0, before / 2 - SAMPLE_RATE_HZ - 1100) <= given <= before / 2  # a second may be waiting for its end


def test_mp4_in_a_pipe_needs_its_index_in_front(tmp_path: Path) -> None:
    sound = Sound(clicks(20, 0.5), "aac")  # longer than what FFmpeg holds in its hands
    behind = write(tmp_path / "behind.m4a", sound)
    front = write(tmp_path / "front.m4a", sound, options={"movflags": "faststart"})
    assert np.array_equal(whole(pipe_of([front.read_bytes()])), whole(front))
    samples, reason = heard(pipe_of([behind.read_bytes()]))
    assert samples.size == 0
    assert reason == "cannot be read from a pipe, as its index stands at the end; name the file"
    with behind.open("rb") as file:  # as in: liveasr transcribe - <behind.m4a
        assert np.array_equal(whole(file), whole(behind))

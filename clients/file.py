"""A recording to transcripts, each as soon as its segment ends."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeAlias

from liveasr.errors import AudioError
from liveasr.stream.detect import Detector
from liveasr.stream.recognize import Recognizer
from liveasr.stream.segmenter import Segment, Segmenter
from liveasr.types import SAMPLES_PER_MS, Float32Array, Transcript

_READ_AHEAD = 2
"""Segments for each lane that are found before they are needed."""
_Waiting: TypeAlias = deque[tuple[Segment, Future[Transcript]]]
"""In the order of the recording."""


def segments(
    blocks: Iterable[Float32Array], detector: Detector, heard: Callable[[int], None] = lambda _ms: None
) -> Iterator[Segment]:
    """The segments of a recording.

    Args:
        blocks: its samples, as `AudioFile.blocks` gives them.
        detector: a fresh one.
        heard: called with the milliseconds of audio read so far.

    Raises:
        AudioError: the file is damaged. The segments of what could be read have been given by then.
    """
    segmenter = Segmenter(detector)
    samples = 0
    try:
        for block in blocks:
            samples += block.size
            heard(samples // SAMPLES_PER_MS)
            yield from segmenter.accept(block)
    except AudioError:
        yield from segmenter.finish()
        raise
    yield from segmenter.finish()


def transcribe(
    blocks: Iterable[Float32Array],
    recognizer: Recognizer,
    detector: Detector,
    heard: Callable[[int], None] = lambda _ms: None,
    more: Sequence[Recognizer] = (),
) -> Iterator[Transcript]:
    """The transcripts of a recording, in order; arguments and errors as in `segments`.

    Segments in which the recogniser hears no words are left out. With `more`, which are other lanes over its model,
    several segments are decoded at the same time, and some are read ahead. Ctrl-C is raised after those that are being
    decoded have been given, and `heard` is told where what was read ahead begins.
    """
    found = segments(blocks, detector, heard)
    transcripts = _by_lanes(found, [recognizer, *more], heard) if more else map(recognizer.transcript, found)
    return (transcript for transcript in transcripts if transcript.text)


def _by_lanes(
    found: Iterable[Segment], lanes: Sequence[Recognizer], heard: Callable[[int], None]
) -> Iterator[Transcript]:
    decode = _by_a_free_one(lanes)
    waiting: _Waiting = deque()
    with ThreadPoolExecutor(len(lanes), "liveasr-decode") as pool:
        try:
            try:
                for segment in found:
                    waiting.append((segment, pool.submit(decode, segment)))
                    yield from _ready(waiting, _READ_AHEAD * len(lanes))
            except AudioError:
                yield from _ready(waiting, 0)
                raise
            yield from _ready(waiting, 0)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for segment, decoded in waiting:
                if decoded.cancelled() or decoded.exception() is not None:
                    heard(segment.start_sample // SAMPLES_PER_MS)
                    break
                yield decoded.result()
            raise
        except BaseException:  # a lane failed, or nobody wants the rest
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _by_a_free_one(lanes: Sequence[Recognizer]) -> Callable[[Segment], Transcript]:
    """What decodes a segment, on as many threads as there are lanes."""
    free: SimpleQueue[Recognizer] = SimpleQueue()
    for lane in lanes:
        free.put(lane)

    def decode(segment: Segment) -> Transcript:
        lane = free.get()
        try:
            return lane.transcript(segment)
        finally:
            free.put(lane)

    return decode


def _ready(waiting: _Waiting, most: int) -> Iterator[Transcript]:
    """The first ones that are decoded, waiting for them as long as there are more than `most`."""
    while waiting and (waiting[0][1].done() or len(waiting) > most):
        yield waiting[0][1].result()
        waiting.popleft()

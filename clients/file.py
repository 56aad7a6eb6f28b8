"""A recording to transcripts, each as soon as its segment ends."""

from collections.abc import Callable, Iterable, Iterator

from liveasr.errors import AudioError
from liveasr.stream.detect import Detector
from liveasr.stream.recognize import Recognizer
from liveasr.stream.segmenter import Segment, Segmenter
from liveasr.types import SAMPLES_PER_MS, Float32Array, Transcript


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
) -> Iterator[Transcript]:
    """The transcripts of a recording, in order; arguments and errors as in `segments`.

    Segments in which the recogniser hears no words are left out.
    """
    for segment in segments(blocks, detector, heard):
        transcript = recognizer.transcript(segment)
        if transcript.text:
            yield transcript

"""A recording on disk to transcripts, each as soon as its segment ends."""

from collections.abc import Callable, Iterator

from liveasr.engines.base import DecodeOptions, Engine
from liveasr.errors import AudioError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import Detector
from liveasr.stream.recognize import recognize
from liveasr.stream.segmenter import Segment, Segmenter
from liveasr.types import SAMPLES_PER_MS, Transcript


def segments(
    audio: AudioFile, detector: Detector, heard: Callable[[int], None] = lambda _ms: None
) -> Iterator[Segment]:
    """The segments of a recording.

    Args:
        audio: an open file; it is read to its end.
        detector: a fresh one.
        heard: called with the milliseconds of audio read so far.

    Raises:
        AudioError: the file is damaged. The segments of what could be read have been given by then.
    """
    segmenter = Segmenter(detector)
    samples = 0
    try:
        for block in audio.blocks():
            yield from segmenter.accept(block)
            samples += block.size
            heard(samples // SAMPLES_PER_MS)
    except AudioError:
        yield from segmenter.finish()
        raise
    yield from segmenter.finish()


def transcribe(
    audio: AudioFile,
    engine: Engine,
    detector: Detector,
    options: DecodeOptions,
    heard: Callable[[int], None] = lambda _ms: None,
) -> Iterator[Transcript]:
    """The transcripts of a recording, in order; arguments and errors as in `segments`.

    Segments in which the engine hears no words are left out.
    """
    for segment in segments(audio, detector, heard):
        transcript = recognize(segment, engine, options)
        if transcript.text:
            yield transcript

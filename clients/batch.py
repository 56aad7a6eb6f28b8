"""Many recordings, one after the other, each to its outputs; what goes wrong with one leaves the others to be done."""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from liveasr.clients.file import transcribe
from liveasr.clients.progress import ProgressBar
from liveasr.clients.targets import STDIN, Job, OutputFile
from liveasr.clients.writers import Writer, writer_for
from liveasr.errors import AudioError, LiveasrError, OutputError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import Detector
from liveasr.stream.recognize import Recognizer
from liveasr.types import Transcript

_log = logging.getLogger("liveasr")


class Outputs:
    """The writers of one recording, and the files behind them.

    Args:
        job: which formats go where.
        model: name of the model, for formats that tell.
        words: whether text shows the time of every word.
        heading: whether text on stdout names the recording.
    """

    def __init__(self, job: Job, model: str, *, words: bool, heading: bool) -> None:
        self.heard_ms = 0
        """How much of the recording was read."""
        self._files: list[OutputFile] = []
        self._writers: list[Writer] = []
        try:
            for format_, path in job.outputs:
                emit = _print if path is None else self._open(path).write
                name = heading and path is None
                self._writers.append(writer_for(format_, emit, job.recording, model, words=words, heading=name))
        except OutputError:
            self.abandon()
            raise

    def segment(self, transcript: Transcript) -> None:
        """Write the next segment to all of them."""
        for writer in self._writers:
            writer.segment(transcript)

    def finish(self, error: str | None) -> None:
        """Complete all documents; files get their names, unless nothing could be heard at all."""
        for writer in self._writers:
            writer.finish(self.heard_ms, error)
        for file in self._files:
            if error is None or self.heard_ms:
                file.commit()
            else:
                file.discard()

    def abandon(self) -> None:
        """Close the files where they stand, after one of them could not be written."""
        for file in self._files:
            file.abandon()

    def _open(self, path: Path) -> OutputFile:
        self._files.append(OutputFile(path))
        return self._files[-1]


def run(
    jobs: Sequence[Job],
    lanes: Sequence[Recognizer],
    new_detector: Callable[[], Detector],
    model: str,
    *,
    words: bool,
) -> int:
    """Transcribe recordings, each by all lanes; errors go to the log, a line each.

    An interruption (Ctrl-C) completes what was begun with what was heard, then is raised again.

    Returns:
        How many recordings failed.
    """
    failures = 0
    with ProgressBar() as progress:
        for job in jobs:
            try:
                with open_audio(job.recording) as audio:
                    outputs = Outputs(job, model, words=words, heading=len(jobs) > 1)
                    failures += not _run_one(audio, job, lanes, new_detector(), outputs, progress)
            except (AudioError, OutputError) as error:  # it cannot be opened, or an output cannot be written
                _log.error("%s", error)
                failures += 1
    return failures


def _run_one(
    audio: AudioFile, job: Job, lanes: Sequence[Recognizer], detector: Detector, outputs: Outputs, progress: ProgressBar
) -> bool:
    """Whether the recording was read to its end; whatever interrupts it, its documents are completed.

    Raises:
        OutputError: one of them cannot be written; what was written is left in its part.
    """
    try:
        heard = progress.begin(job.recording, audio.duration_ms)
        # From a pipe the next segment may be long in coming: what was said is written before it is waited for.
        at_once = lanes if job.recording.is_file() else lanes[:1]
        problem = _transcribe_into(outputs, audio, at_once, detector, heard)
        outputs.finish(problem)
    except OutputError:
        outputs.abandon()
        raise
    except BaseException:  # Ctrl-C, too
        outputs.finish("interrupted")
        raise
    return problem is None


def _transcribe_into(
    outputs: Outputs, audio: AudioFile, lanes: Sequence[Recognizer], detector: Detector, show: Callable[[int], None]
) -> str | None:
    """Write what is said; returns what kept the recording from being read to its end, which is in the log by then."""

    def heard(ms: int) -> None:
        outputs.heard_ms = ms
        show(ms)

    spoke = False
    try:
        for transcript in transcribe(audio.blocks(), lanes[0], detector, heard, lanes[1:]):
            outputs.segment(transcript)
            spoke = True
    except OutputError:
        raise
    except LiveasrError as error:
        _log.error("%s", error)
        return str(error)
    if not spoke:
        _log.warning("%s: no speech was heard", audio.name)
    return None


def open_audio(recording: Path) -> AudioFile:
    """A recording, or what comes in on stdin."""
    if recording != STDIN:
        return AudioFile(recording)
    if sys.stdin is None:
        raise AudioError("stdin", "is closed")
    return AudioFile(sys.stdin.buffer)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()

"""Captions as one speaks: a source of sound, a live stream, a view, and a file to keep."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import soundfile
from rich.console import Console

from liveasr.clients.captions import CaptionLines, CaptionScreen, CaptionView, level_db
from liveasr.clients.targets import FORMAT_OF_SUFFIX, OutputFile
from liveasr.clients.writers import Writer, writer_for
from liveasr.errors import LiveasrError, OutputError, UsageError
from liveasr.stream.capture import Microphone
from liveasr.stream.live import LiveStream
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Float32Array, LiveTranscript

_WAV = ".wav"
_BLOCK_SAMPLES = 20 * SAMPLES_PER_MS


async def paced(blocks: Iterable[Float32Array], *, realtime: bool) -> AsyncIterator[Float32Array]:
    """A recording in blocks of 20 ms, as a microphone gives them; at the speed of speech, or as fast as it is taken."""
    begun = time.monotonic()
    given = 0
    rest = np.empty(0, np.float32)
    for block in blocks:
        rest = np.concatenate((rest, block))
        while rest.size >= _BLOCK_SAMPLES:
            given += _BLOCK_SAMPLES
            await asyncio.sleep(max(0.0, begun + given / SAMPLE_RATE_HZ - time.monotonic()) if realtime else 0.0)
            yield rest[:_BLOCK_SAMPLES]
            rest = rest[_BLOCK_SAMPLES:]
    if rest.size:
        yield rest


def view_for_stdout() -> CaptionView:
    """Moving captions on a terminal, plain lines anywhere else."""
    return CaptionScreen(Console()) if sys.stdout.isatty() else CaptionLines()


async def run(
    stream: LiveStream,
    source: AsyncIterator[Float32Array],
    microphone: Microphone | None,
    view: CaptionView,
    keep: "Keep",
) -> None:
    """Caption until the source ends or Ctrl-C; either way the last words are finished and everything is kept.

    Raises:
        LiveasrError: the source or the engine failed; what was captioned until then has been shown and kept.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, _interrupt, stop, stream)
    shown = asyncio.create_task(_show(stream, view, keep))
    problem: LiveasrError | None = None
    try:
        problem = await _feed(stream, source, microphone, view, keep, stop)
        await stream.finish()
        await shown
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        stream.cancel()
        with suppress(LiveasrError):
            await shown
        view.close()
        keep.finish(stream.heard_ms, str(problem) if problem else None)
    if problem is not None:
        raise problem


class Keep:
    """The files of a live run. Sound and finals are written as they come, and get their names at the end.

    Args:
        paths: .srt, .vtt, .json, .txt, .tsv or .wav.
        source: the recording that is captioned; None for a microphone.
        model: name of the model, for formats that tell.
        force: whether files that exist are replaced.

    Raises:
        UsageError: a file's ending is unknown.
        OutputError: a file exists, or cannot be written.
    """

    def __init__(self, paths: Sequence[Path], source: Path | None, model: str, *, force: bool) -> None:
        self._files: list[OutputFile] = []
        self._writers: list[Writer] = []
        self._sound: soundfile.SoundFile | None = None
        self._sound_path: Path | None = None
        for path in paths:
            suffix = path.suffix.lower()
            if suffix != _WAV and suffix not in FORMAT_OF_SUFFIX:
                endings = " ".join([*FORMAT_OF_SUFFIX, _WAV])
                raise UsageError(f"{path}: its ending must be one of {endings}")
            if path.exists() and not force:
                raise OutputError(path, "exists already; use --force to replace it")
            if source is not None and path.exists() and path.samefile(source):
                raise UsageError(f"{path}: is the recording itself")
        for path in paths:
            if path.suffix.lower() == _WAV:
                self._open_sound(path)
            else:
                self._files.append(OutputFile(path))
                format_ = FORMAT_OF_SUFFIX[path.suffix.lower()]
                self._writers.append(
                    writer_for(
                        format_, self._files[-1].write, source or Path("live"), model, words=False, heading=False
                    )
                )

    def sound(self, samples: Float32Array) -> None:
        """The next samples that were heard."""
        if self._sound is not None:
            self._sound.write(samples)

    def transcript(self, transcript: LiveTranscript) -> None:
        """Keep finals."""
        if transcript.final is not None and transcript.final.text:
            for writer in self._writers:
                writer.segment(transcript.final)

    def finish(self, heard_ms: int, error: str | None) -> None:
        """Complete all files and give them their names."""
        for writer in self._writers:
            writer.finish(heard_ms, error)
        for file in self._files:
            file.commit()
        if self._sound is not None and self._sound_path is not None:
            self._sound.close()
            Path(self._sound.name).replace(self._sound_path)
            self._sound = None

    def _open_sound(self, path: Path) -> None:
        part = path.with_name(path.name + ".part")
        try:
            self._sound = soundfile.SoundFile(part, "w", SAMPLE_RATE_HZ, 1, "PCM_16", format="WAV")
        except (soundfile.SoundFileError, OSError) as error:
            raise OutputError(path, f"cannot be written: {error}") from error
        self._sound_path = path


async def _feed(
    stream: LiveStream,
    source: AsyncIterator[Float32Array],
    microphone: Microphone | None,
    view: CaptionView,
    keep: Keep,
    stop: asyncio.Event,
) -> LiveasrError | None:
    """Feed the source to the stream; returns what ended it before its time."""
    try:
        async for block in source:
            if stop.is_set():
                return None
            keep.sound(block)
            await stream.feed(block)
            view.status(stream.heard_ms, level_db(block), stream.lag_ms, microphone.overflows if microphone else 0)
    except LiveasrError as error:
        return error
    return None


async def _show(stream: LiveStream, view: CaptionView, keep: Keep) -> None:
    async for output in stream.outputs():
        if isinstance(output, LiveTranscript):
            view.show(output)
            keep.transcript(output)


def _interrupt(stop: asyncio.Event, stream: LiveStream) -> None:
    """The first Ctrl-C ends the sound and finishes the last words; the second does not wait for them."""
    if stop.is_set():
        stream.cancel()
    stop.set()

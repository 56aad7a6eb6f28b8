"""Captions as one speaks: a source of sound, a live stream, a view, and a file to keep."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile
from rich.console import Console

from liveasr.clients.captions import CaptionLines, CaptionScreen, CaptionView, level_db
from liveasr.clients.targets import FORMAT_OF_SUFFIX, OutputFile, free_part
from liveasr.clients.writers import Writer, writer_for
from liveasr.errors import LiveasrError, OutputError, UsageError
from liveasr.stream.capture import Microphone
from liveasr.stream.live import LiveStream
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Float32Array, LiveTranscript

_WAV = ".wav"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
        LiveasrError: the source, the engine or a file failed; what was captioned until then has been shown and kept.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, _interrupt, stop, stream)
    shown = asyncio.create_task(_show(stream, view, keep))
    fed = asyncio.create_task(_feed(stream, source, microphone, view, keep, stop))
    try:
        await asyncio.wait({shown, fed}, return_when=asyncio.FIRST_COMPLETED)
        if not fed.done():  # nobody takes the captions any more
            fed.cancel()
        elif fed.exception() is not None and not isinstance(fed.exception(), LiveasrError):
            stream.cancel()
        results = await asyncio.gather(fed, shown, return_exceptions=True)
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
        stream.cancel()
        view.close()
    faults = [result for result in results if isinstance(result, Exception)]
    try:
        keep.finish(stream.heard_ms, str(faults[0]) if faults else None)
    except OutputError as error:
        faults.append(error)
    if faults:
        raise faults[0]


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
        for path in dict.fromkeys(paths):
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
        if self._sound is None or self._sound_path is None:
            return
        try:
            self._sound.write(samples)
        except soundfile.SoundFileError as error:
            raise OutputError(self._sound_path, f"cannot be written: {error}") from error

    def transcript(self, transcript: LiveTranscript) -> None:
        """Keep finals."""
        if transcript.final is not None and transcript.final.text:
            for writer in self._writers:
                writer.segment(transcript.final)

    def finish(self, heard_ms: int, error: str | None) -> None:
        """Complete all files and give them their names; one that cannot be written does not keep back the others.

        Raises:
            OutputError: of the first that cannot be written.
        """
        faults: list[OutputError] = []
        for writer, file in zip(self._writers, self._files, strict=True):
            try:
                writer.finish(heard_ms, error)
                file.commit()
            except OutputError as fault:
                file.abandon()
                faults.append(fault)
        if self._sound is not None and self._sound_path is not None:
            try:
                self._sound.close()
                Path(self._sound.name).replace(self._sound_path)
            except (soundfile.SoundFileError, OSError) as fault:
                faults.append(OutputError(self._sound_path, f"cannot be written: {fault}"))
            self._sound = None
        if faults:
            raise faults[0]

    def _open_sound(self, path: Path) -> None:
        part = free_part(path)
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
) -> None:
    """Feed the source to the stream, and end the stream with it, whatever ends it."""
    try:
        async for block in source:
            if stop.is_set():
                break
            keep.sound(block)
            await stream.feed(block)
            view.status(stream.heard_ms, level_db(block), stream.lag_ms, microphone.overflows if microphone else 0)
    finally:
        await stream.finish()


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

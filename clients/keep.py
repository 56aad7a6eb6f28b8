"""The files of a live run: its captions, and its sound."""

from collections.abc import Sequence
from pathlib import Path

import soundfile

from liveasr.clients.targets import FORMAT_OF_SUFFIX, OutputFile, free_part
from liveasr.clients.writers import Writer, writer_for
from liveasr.errors import OutputError, UsageError
from liveasr.types import SAMPLE_RATE_HZ, Float32Array, LiveTranscript

_WAV = ".wav"


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

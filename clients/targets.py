"""Which recordings are to be read, and where what is said in each goes."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from liveasr.clients.writers import Format
from liveasr.errors import AudioError, OutputError, UsageError

STDIN = Path("-")
_DEFAULT_FORMAT: Format = "txt"
FORMAT_OF_SUFFIX: dict[str, Format] = {".txt": "txt", ".json": "json", ".srt": "srt", ".vtt": "vtt", ".tsv": "tsv"}
# fmt: off
_MEDIA_SUFFIXES = frozenset((
    ".3gp", ".aac", ".ac3", ".aif", ".aiff", ".amr", ".ape", ".au", ".avi", ".caf", ".dts", ".eac3", ".flac",
    ".flv", ".gsm", ".m2ts", ".m4a", ".m4b", ".m4v", ".mka", ".mkv", ".mov", ".mp2", ".mp3", ".mp4", ".mpeg",
    ".mpg", ".mts", ".oga", ".ogg", ".ogv", ".opus", ".ra", ".rm", ".snd", ".spx", ".ts", ".tta", ".vob", ".voc",
    ".w64", ".wav", ".wave", ".weba", ".webm", ".wma", ".wmv", ".wv",
))
# fmt: on
"""What counts as a recording inside a folder; a file that is named is always read."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One input, with its place below the folder that it was found in."""

    path: Path
    relative: Path
    """Its name, or its path below the folder that was given."""


@dataclass(frozen=True, slots=True)
class Job:
    """One recording and the file for each format; no file stands for stdout."""

    recording: Path
    outputs: tuple[tuple[Format, Path | None], ...]


def find_recordings(paths: Iterable[Path]) -> tuple[list[AudioError], list[Recording]]:
    """The recordings that are meant: files as they are named, folders with all recordings below them, sorted.

    What is hidden inside a folder is left out, as shells do; macOS leaves a hidden "._talk.mp3" beside each recording.

    Returns:
        What is wrong with folders (nothing to read in them, or no permission), and all recordings.
    """
    problems: list[AudioError] = []
    recordings: list[Recording] = []
    for path in paths:
        if not _is_folder(path):
            recordings.append(Recording(path, Path("stdin") if path == STDIN else Path(path.name)))
            continue
        unreadable: list[AudioError] = []
        below = sorted(found for found in _walk(path, unreadable) if found.suffix.lower() in _MEDIA_SUFFIXES)
        if not below and not unreadable:
            problems.append(AudioError(path, "has no recordings in it"))
        problems += unreadable
        recordings += [Recording(found, found.relative_to(path)) for found in below]
    return problems, recordings


def plan(recordings: Sequence[Recording], formats: Sequence[Format], output: str | None, *, force: bool) -> list[Job]:
    """The work to be done, with every conflict found before any of it begins.

    Without an output, or with "-", everything goes to stdout. An output is a folder if it is one, if it ends with a
    slash, or if several files have to go there; they are named after their recordings. Where no format is asked for,
    the ending of an output file names it, and text is the default.

    Raises:
        UsageError: several formats on stdout, a file whose ending tells no format, two recordings for one file, or an
            output over its own recording.
        OutputError: a file exists and may not be replaced, or stands where a folder is needed.
    """
    if output is None or output == "-":
        if len(formats) > 1:
            raise UsageError("several formats need files to go to: add --output FOLDER")
        return [Job(recording.path, (((*formats, _DEFAULT_FORMAT)[0], None),)) for recording in recordings]
    path = Path(output)
    named = FORMAT_OF_SUFFIX.get(path.suffix.lower())
    if path.suffix and not (named or formats or _is_folder(path) or output.endswith(os.sep)):
        endings = ", ".join(FORMAT_OF_SUFFIX)
        raise UsageError(
            f"{path}: what is written there? {endings} tell it by their ending; else add --format, or a slash"
        )
    if len(recordings) == 1 and len(formats) <= 1 and not (_is_folder(path) or output.endswith(os.sep)):
        jobs = [Job(recordings[0].path, (((*formats, named or _DEFAULT_FORMAT)[0], path),))]
    elif (_exists(path) or (named and not output.endswith(os.sep))) and not _is_folder(path):
        raise OutputError(path, "is a file; several recordings or formats need a folder")
    else:
        jobs = list(_in_folder(recordings, formats or [_DEFAULT_FORMAT], path))
    files = [file for job in jobs for _, file in job.outputs if file is not None]
    for file, count in Counter(files).items():
        if count > 1:
            raise UsageError(f"{file}: several recordings would be written there; transcribe them one folder at a time")
        if any(_same_file(file, job.recording) for job in jobs):
            raise UsageError(f"{file}: is one of the recordings")
        if _exists(file) and not force:
            raise OutputError(file, "exists already; use --force to replace it")
    return jobs


class OutputFile:
    """A file that appears under its name only when it is complete; until then it is `NAME.part` beside it.

    Raises:
        OutputError: it cannot be created or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))  # a link stays, what it points at is replaced
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.part = self.path if _is_special(self.path) else free_part(self.path)
            # Names of recordings need not be UTF-8; what stands for such a byte is JSON too.
            self._file: IO[str] = self.part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
        except (FileExistsError, NotADirectoryError) as error:
            file = next(parent for parent in path.parents if _exists(parent))
            raise OutputError(path, f"cannot be written: {file} is no folder") from error
        except OSError as error:
            raise OutputError(path, f"cannot be written: {error.strerror}") from error

    def write(self, text: str) -> None:
        """Write text and hand it to the system at once, so that a crash loses none of it."""
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise OutputError(
                self.path, f"cannot be written: {error.strerror}; what was written is in {self.part}"
            ) from error

    def commit(self) -> None:
        """Complete the file and give it its name, replacing what had it."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if self.part != self.path:
                self.part.replace(self.path)
        except OSError as error:
            raise OutputError(
                self.path, f"cannot be written: {error.strerror}; what was written is in {self.part}"
            ) from error

    def abandon(self) -> None:
        """Close the file as it is, under the name of its part."""
        with contextlib.suppress(OSError):  # the flush of a full disk; write() has told it
            self._file.close()

    def discard(self) -> None:
        """Close the file and remove it."""
        self.abandon()
        if self.part != self.path:
            with contextlib.suppress(OSError):  # an empty part does no harm
                self.part.unlink()


def free_part(path: Path) -> Path:
    """A new, empty file beside path to write in until it is complete; nothing that exists is touched."""
    for name in (f"{path.name}.part", f"{path.name}.{os.getpid()}.part"):
        part = path.with_name(name)
        with contextlib.suppress(FileExistsError):
            part.open("x").close()
            return part
    raise OutputError(path, f"cannot be written: {part} exists already")


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, which is written to and never replaced."""
    return _exists(path) and not path.is_file() and not path.is_dir()


def _walk(folder: Path, unreadable: list[AudioError]) -> Iterator[Path]:
    """Files below a folder; what is wrong with folders is added to the list."""

    def note(error: OSError) -> None:
        unreadable.append(AudioError(error.filename, f"cannot be read: {error.strerror}"))

    for parent, folders, names in os.walk(folder, onerror=note):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found = (Path(parent) / name for name in names if not name.startswith("."))
        yield from (path for path in found if not _is_special(path))  # a pipe would be waited for without end


def _in_folder(recordings: Sequence[Recording], formats: Sequence[Format], folder: Path) -> Iterator[Job]:
    stems = Counter(recording.relative.with_suffix("") for recording in recordings)
    for recording in recordings:
        stem = recording.relative.with_suffix("")
        # talk.mp3 beside talk.wav: keep the endings of both.
        name = recording.relative if stems[stem] > 1 else stem
        yield Job(recording.path, tuple((format_, folder / f"{name}.{format_}") for format_ in formats))


def _same_file(a: Path, b: Path) -> bool:
    return _exists(a) and _exists(b) and a.samefile(b)


# Where there is no permission to ask, the attempt to read or to write tells it better, with the reason.


def _is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.is_dir()
    return False


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.exists()
    return False

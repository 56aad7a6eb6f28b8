"""What the first bytes of a file tell, where FFmpeg does not say it, or not well."""

from pathlib import Path

from liveasr.errors import AudioError

_RIFF_UNKNOWN = (range(0x7FFF_0000, 0x8000_0100), range(0xFFFF_0000, 1 << 32))  # from those who write to a pipe


def check_file(path: Path, name: str) -> None:
    """Name the most common mistakes better than a decoder does.

    Raises:
        AudioError: there is no such file, it may not be read, or it is empty.
    """
    try:
        if path.is_dir():
            raise AudioError(name, "is a folder; name the recordings in it")
        with path.open("rb") as file:
            if path.is_file() and not file.read(1):
                raise AudioError(name, "is empty")
    except FileNotFoundError as error:
        raise AudioError(name, "no such file") from error
    except OSError as error:
        raise AudioError(name, f"cannot be read: {error.strerror}") from error


def missing_riff_bytes(path: Path) -> int:
    """How many bytes a WAV file lacks of what its header announces; FFmpeg corrects the header without a word."""
    head = _read(path, 0, 12)
    announced = int.from_bytes(head[4:8], "little")
    if head[:4] != b"RIFF" or head[8:] != b"WAVE" or announced == 0 or any(announced in r for r in _RIFF_UNKNOWN):
        return 0
    return max(0, announced + 8 - path.stat().st_size)


def has_mp3_length(path: Path) -> bool:
    """Whether an MP3 file tells its length, which FFmpeg otherwise guesses from its size."""
    head = _read(path, 0, 10)
    tag_bytes = 10 + sum(byte << 7 * (3 - index) for index, byte in enumerate(head[6:]))
    first_frames = _read(path, tag_bytes if head[:3] == b"ID3" else 0, 4096)
    return b"Xing" in first_frames or b"Info" in first_frames


def begins_as_mp4(path: Path) -> bool:
    """Whether a file begins as MP4, M4A and MOV do."""
    return _read(path, 4, 4) == b"ftyp"


def _read(path: Path, start: int, size: int) -> bytes:
    """Some bytes of a file."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)

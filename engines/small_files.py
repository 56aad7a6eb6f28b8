"""Reading the small files of a checkpoint's folder, which may be a stranger's: none without an end, and no pipes."""

from pathlib import Path

from liveasr.errors import ModelFileError

MAX_BYTES = 64 << 20
"""The largest of released ones, a tokenizer of 150,000 pieces, has 11 MB."""


def read(path: Path) -> bytes:
    """All of a file that is small.

    Raises:
        OSError: it cannot be read.
        ModelFileError: it is not small.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ModelFileError(path, f"is larger than {MAX_BYTES >> 20} MiB, which no file of its kind is")
    return path.read_bytes()


def require_files(folder: Path) -> None:
    """Refuse a folder in which there are pipes, which would be waited for, or devices, which need not end.

    Raises:
        ModelFileError: it names the first, or the folder if that cannot be read.
    """
    try:
        for path in sorted(folder.iterdir()):
            if path.exists() and not path.is_file() and not path.is_dir():
                raise ModelFileError(path, "is a pipe or a device, and no file")
    except OSError as error:
        raise ModelFileError(folder, f"cannot be read: {error.strerror}") from error

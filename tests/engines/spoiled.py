"""Ways to break a checkpoint folder, and to let its tensors be others."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from liveasr.engines.stored_tensor import StoredTensor
from liveasr.engines.weight_files import Weights, open_weights
from liveasr.types import Float32Array


def drop(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def setting(old: str, new: str, name: str = "config.yaml") -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return change


def into_folder(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def linked(name: str, target: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def pipe(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def sparse(name: str) -> Callable[[Path], object]:
    """As many bytes as no memory has, of which the disk holds none."""
    return lambda folder: os.truncate(folder / name, 1 << 42)


def half(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return change


def with_state(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, StoredTensor]], object]) -> None:
    """Let convert see other tensors than the checkpoint's."""

    @contextlib.contextmanager
    def changed(folder: Path) -> Iterator[Weights]:
        with open_weights(folder) as weights:
            state = dict(weights.tensors)
            change(state)
            yield Weights(weights.path, state)

    monkeypatch.setattr("liveasr.engines.convert.open_weights", changed)


def in_memory(array: Float32Array) -> StoredTensor:
    return StoredTensor(array.shape, array.copy)

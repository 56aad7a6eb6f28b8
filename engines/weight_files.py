"""The weights of a folder: in a `model.pt`, in a `model.safetensors`, or in shards that an index lists.

Where a folder has several, `model.pt` is read, since that is the one which FunASR itself loads.
"""

import contextlib
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liveasr.engines.checkpoint import open_state
from liveasr.engines.safetensors_file import MAX_HEADER_BYTES, open_safetensors, read_json
from liveasr.engines.stored_tensor import StoredTensor
from liveasr.errors import ModelFileError

_ENDING = ".safetensors"
_INDEX = f"model{_ENDING}.index.json"
_FILES = ("model.pt", f"model{_ENDING}", _INDEX)
"""What is read first first."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a folder, open."""

    path: Path
    """Their file, or the index of their files: for messages."""
    tensors: Mapping[str, StoredTensor]
    """By name, in the order of the file."""


def has_weights(folder: Path) -> bool:
    """Whether there are any in a folder."""
    return any((folder / name).exists() for name in _FILES)


@contextlib.contextmanager
def open_weights(folder: Path) -> Iterator[Weights]:
    """The weights of a folder, to be read one by one while they are open.

    Raises:
        ModelFileError: there are none, or their file is broken.
    """
    path = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if path is None:
        raise ModelFileError(folder, f"has no weights: none of {', '.join(_FILES)}")
    if path.name == _INDEX:
        with _open_shards(path) as tensors:
            yield Weights(path, tensors)
    elif path.suffix == _ENDING:
        with open_safetensors(path) as file:
            yield Weights(path, file.tensors)
    else:
        with open_state(path) as tensors:
            yield Weights(path, tensors)


@contextlib.contextmanager
def _open_shards(index: Path) -> Iterator[dict[str, StoredTensor]]:
    places = _places(index)
    with contextlib.ExitStack() as stack:
        shards = {
            name: stack.enter_context(open_safetensors(index.parent / name)) for name in dict.fromkeys(places.values())
        }
        for tensor, shard in places.items():
            if tensor not in shards[shard].names:
                reason = f"has no tensor {reprlib.repr(tensor)}, which {index.name} says it has"
                raise ModelFileError(index.parent / shard, reason)
        weights = {name: file.tensors for name, file in shards.items()}
        yield {tensor: weights[shard][tensor] for tensor, shard in places.items() if tensor in weights[shard]}


def _places(index: Path) -> dict[str, str]:
    """The shard that each tensor is in."""
    try:
        with index.open("rb") as file:
            data = file.read(MAX_HEADER_BYTES + 1)
    except OSError as error:
        raise ModelFileError(index, f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_HEADER_BYTES:
        raise ModelFileError(index, f"is larger than {MAX_HEADER_BYTES} bytes, and thus no list of tensors")
    table = read_json(index, data)
    places = table.get("weight_map") if isinstance(table, dict) else None
    if not isinstance(places, dict) or not places:
        raise ModelFileError(index, "has no table weight_map of tensors and their files")
    for shard in places.values():
        if not _is_file_name(shard):
            raise ModelFileError(index, f"{reprlib.repr(shard)} is not the name of a {_ENDING} file beside it")
    return places


def _is_file_name(text: Any) -> bool:
    """Whether it names a file of the same folder: an index must not lead anywhere else."""
    return isinstance(text, str) and text.isprintable() and text.endswith(_ENDING) and Path(text).name == text

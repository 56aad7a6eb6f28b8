"""Model files that hold no model, for tests of which file is taken, and registries that know some."""

import os
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from liveasr import store

_COLUMNS = 64


def write_model(
    path: Path, architecture: str, kind: str, rows: int = 4, *, metadata: Mapping[str, int] | None = None
) -> Path:
    """Write a file whose matrix has one type; its vector is f32, as in every released file.

    Args:
        path: of the file.
        architecture: what it says that it is; an empty one is left out.
        kind: of the matrix: "f32", "q8_0", ...
        rows: of the matrix.
        metadata: more, in whole numbers.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (metadata or {}).items():
        writer.add_uint32(key, value)
    raw = gguf.GGMLQuantizationType[kind.upper()]
    writer.add_tensor("norm", np.zeros(8, np.float32))
    writer.add_tensor("matrix", gguf.quants.quantize(np.zeros((rows, _COLUMNS), np.float32), raw), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def register(place: str, *, name: str = "mine", file: str | None = None) -> None:
    """Add a model of one file to the user's registry; `place` says where it lies, in TOML."""
    assert "XDG_CONFIG_HOME" in os.environ, "a test writes nothing into the home of whoever runs it"
    path = store.registry_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    files = f'[{{ name = "{file or f"{name}.gguf"}", {place} }}]'
    with path.open("a", encoding="utf-8") as registry:
        registry.write(f'[{name}]\nlanguages = ["en"]\nlicence = "MIT"\nvariants.f32 = {files}\n')

"""`liveasr models convert`: a checkpoint's folder becomes model files, which tell where they are from."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from liveasr import provenance
from liveasr.engines.convert import WeightType, output_files
from liveasr.engines.convert import convert as write_gguf
from liveasr.errors import UsageError
from liveasr.gguf_file import GgufFile
from liveasr.options import check_output
from liveasr.provenance import Provenance, of_page


def convert(
    folder: Path,
    weight_type: WeightType,
    output: Path,
    force: bool,
    name: str | None,
    author: str | None,
    licence: str | None,
    source: str | None,
    revision: str | None,
) -> int:
    """`liveasr models convert`; a file that exists is found before anything is read."""
    told = Provenance(name=name, author=author, licence=licence, revision=revision)
    if source is not None:
        told = told.or_else(of_page(source))
    for path in output_files(folder, output):
        if _is_part(path, folder):
            raise UsageError(f"{path}: is a part of the checkpoint; write to another file with -o")
        check_output(path, force=force)
    for path, tensors in write_gguf(folder, output, weight_type, told).items():
        sys.stdout.write(f"{path}: {tensors} tensors, {path.stat().st_size / 1e6:.1f} MB\n")
    if missing := list(_missing(output)):
        options = " ".join(f"--{what}" for what in missing)
        sys.stdout.write(f"note: {folder} does not tell the model's {', '.join(missing)}; say it with {options}\n")
    return 0


def _is_part(path: Path, folder: Path) -> bool:
    """Whether an output would replace a file of the checkpoint; an earlier output may well lie in its folder."""
    place = Path(os.path.realpath(path))
    if place.suffix == ".gguf" or not place.is_file():
        return False
    return any(part.is_file() and place.samefile(part) for part in folder.rglob("*"))


def _missing(model: Path) -> Iterator[str]:
    """What a file does not say of itself, and a reader of it will want to know."""
    with GgufFile(model) as file:
        said = provenance.read(file)
    if not said.name:
        yield "name"
    if not said.licence_words:
        yield "licence"
    if not (said.source or said.repository):
        yield "source"

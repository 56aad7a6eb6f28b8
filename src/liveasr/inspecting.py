"""`liveasr models inspect`: what a model file is, on one screen."""

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from liveasr import store
from liveasr.engines.inspection import CmvnPolicy, Inspection, Origin
from liveasr.engines.inspection import inspect as look_into
from liveasr.gguf_file import GgufFile

_COLUMNS = 80
_LABEL_COLUMNS = 14
_LONGEST_VALUE = 300
"""Characters, so that a reason does not fill the screen."""
_CMVN_WORDS: dict[CmvnPolicy, str] = {
    "applied": "applied",
    "missing": "missing: the model runs without it, a little less accurate; pass --cmvn am.mvn",
    "misexported": "not applied: the upstream exporter wrote the wrong blocks of am.mvn, a known fault of published "
    "files; the model runs without it, a little less accurate; pass --cmvn am.mvn, or convert the checkpoint again",
    "unusable": "not applied: its values normalise nothing; pass --cmvn am.mvn, or convert the checkpoint again",
    "not used": "none: the model takes its features as they are",
}
_LANGUAGE_WORDS: dict[str, str] = {
    "zh": "Mandarin",
    "en": "English",
    "yue": "Cantonese",
    "ja": "Japanese",
    "ko": "Korean",
}
_ORIGIN_WORDS: dict[Origin | None, str] = {
    "registry": " (as the registry says; the file does not)",
    "family": " (of the released model; the file does not say)",
}
_UNTOLD = "not in the file"


def inspect(model: str, as_json: bool) -> int:
    """`liveasr models inspect`."""
    with GgufFile(store.find(model)) as file:
        found = look_into(file)
    if as_json:
        sys.stdout.write(json.dumps({**asdict(found), "runs": found.reason is None}, indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(_screen(found)) + "\n")
    return 0


def _screen(found: Inspection) -> Iterator[str]:
    yield from _entry("file", found.path)
    yield from _entry("architecture", f"{found.words} ({found.architecture})")
    yield from _entry("sizes", _sizes(found))
    yield from _entry("weights", f"{found.parameters / 1e6:,.2f} million parameters, {found.size_bytes / 1e6:,.1f} MB")
    yield from _tensors(found)
    yield from _entry("front end", _front_end(found))
    yield from _entry("CMVN", _CMVN_WORDS[found.cmvn])
    said = found.provenance
    yield from _entry("name", said.name or _UNTOLD)
    yield from _entry("author", said.author or said.organization or _UNTOLD)
    yield from _entry("licence", _with_origin(found.licence or _UNTOLD, found.licence_origin))
    yield from _entry("source", said.source or said.repository or _UNTOLD)
    if said.revision:
        yield from _entry("revision", said.revision)
    yield from _entry("languages", _languages(found))
    if made := ", ".join(filter(None, (found.converter, found.quantized))):
        yield from _entry("made by", made)
    if found.packed_bytes:
        yield from _entry("other part", f"a language model in this file, {found.packed_bytes / 1e6:,.1f} MB")
    elif found.companion is not None:
        yield from _entry("other part", found.companion)
    yield from _entry("runs here", "yes" if found.reason is None else f"no: {found.reason}")


def _entry(label: str, text: str) -> list[str]:
    """A labelled text of as many lines as it takes, names in one piece, without what a terminal would obey."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    if len(shown) > _LONGEST_VALUE:
        shown = f"{shown[:_LONGEST_VALUE]} ..."
    return textwrap.wrap(
        shown, _COLUMNS, initial_indent=f"{label:<{_LABEL_COLUMNS}}", subsequent_indent=" " * _LABEL_COLUMNS,
        break_on_hyphens=False,
    )  # fmt: skip


def _sizes(found: Inspection) -> str:
    parts = [f"{number} {name}" for name, number in found.layers.items()]
    for number, words in ((found.width, "width {}"), (found.heads, "{} heads"), (found.vocabulary, "{:,} tokens")):
        if number is not None:
            parts.append(words.format(number))
    return ", ".join(parts) or _UNTOLD


def _tensors(found: Inspection) -> Iterator[str]:
    total = sum(share.bytes for share in found.types)
    label = "tensors"
    for share in found.types:
        yield (
            f"{label:<{_LABEL_COLUMNS}}{share.tensors:>5} {share.type:<5} {share.bytes / 1e6:>9,.2f} MB "
            f"{share.bytes / total:>6.1%}"
        )
        label = ""


def _front_end(found: Inspection) -> str:
    front = found.front_end
    if front is None:
        return "none of its own"
    return (
        f"{front.mel_bins} mel bins every 10 ms of 16 kHz, {front.lfr_m} frames stacked: "
        f"{front.dims} features every {front.lfr_n * 10} ms"
    )


def _languages(found: Inspection) -> str:
    if found.languages:
        names = ", ".join(_LANGUAGE_WORDS.get(code, code) for code in found.languages)
        return _with_origin(names, found.languages_origin)
    return "any" if found.front_end else "not known"


def _with_origin(text: str, origin: Origin | None) -> str:
    return f"{text}{_ORIGIN_WORDS.get(origin, '')}"

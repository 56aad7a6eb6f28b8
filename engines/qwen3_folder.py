"""What the folder of a Qwen3 says besides its weights: the sizes in `config.json`, and the vocabulary of its tokenizer.

The vocabulary is in `tokenizer.json`, or, as older releases have it, in `vocab.json`, `merges.txt` and
`tokenizer_config.json`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from liveasr.engines import small_files
from liveasr.errors import ModelFileError

_MAX_UINT32 = 2**32 - 1
_CLASS = "Qwen3ForCausalLM"
_USUAL: Mapping[str, object] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
    "rope_scaling": None,
}
"""What llama.cpp takes for granted of a `qwen3`; a setting that is missing has this value."""
_ROPE_KIND = "default"
_MERGED_PIECES = 2


class AddedToken(NamedTuple):
    """A token beside those of the merges."""

    text: str
    is_control: bool


class Vocabulary(NamedTuple):
    """A byte-level BPE."""

    pieces: dict[int, str]
    """By id, without the added ones."""
    added: dict[int, AddedToken]
    merges: list[str]
    """Two pieces each, parted by a space, the first merged first."""


class Qwen3Folder:
    """A folder with a Qwen3. Whatever is missing or makes no sense is a ModelFileError that names it.

    Args:
        path: holds `config.json` and the tokenizer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        small_files.require_files(path)
        self._config = _table(self.config_path)
        self._require_architecture()

    def integer(self, key: str) -> int:
        """A whole number above 0."""
        return _integer(self.config_path, key, self._config.get(key))

    def number(self, key: str) -> float:
        """A number above 0."""
        return _number(self.config_path, key, self._config.get(key))

    @property
    def rope_theta(self) -> float:
        """Base of the frequencies of the positions; newer configurations have it in a table of its own."""
        rope = self._config.get("rope_parameters")
        value = self._config.get("rope_theta") or (rope.get("rope_theta") if isinstance(rope, dict) else None)
        return _number(self.config_path, "rope_theta", value)

    @property
    def has_tied_embeddings(self) -> bool:
        """Whether the output matrix is the input's."""
        return self._config.get("tie_word_embeddings") is True

    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the tokenizer; its ids are below the `vocab_size` of the configuration."""
        if (self.path / "tokenizer.json").exists() or not (self.path / "vocab.json").exists():
            vocabulary = self._one_file()
        else:
            vocabulary = self._many_files()
        limit = self.integer("vocab_size")
        if not vocabulary.pieces or not all(0 <= index < limit for index in (*vocabulary.pieces, *vocabulary.added)):
            raise ModelFileError(self.path, f"its tokenizer has ids outside the vocab_size of {limit}, or none at all")
        return vocabulary

    def _one_file(self) -> Vocabulary:
        path = self.path / "tokenizer.json"
        if not path.exists():
            raise ModelFileError(self.path, "has no tokenizer: neither tokenizer.json nor vocab.json and merges.txt")
        table = _table(path)
        model = table.get("model")
        if not isinstance(model, dict) or model.get("type") != "BPE":
            raise ModelFileError(path, "is not the tokenizer of a byte-level BPE")
        merges = model.get("merges")
        added = table.get("added_tokens", [])
        if not isinstance(merges, list) or not isinstance(added, list):
            raise ModelFileError(path, "has no list of merges or of added tokens")
        return Vocabulary(
            _pieces(path, model.get("vocab")),
            _added(path, [(entry.get("id") if isinstance(entry, dict) else None, entry) for entry in added]),
            [_merge(path, merge) for merge in merges],
        )

    def _many_files(self) -> Vocabulary:
        merges_path, extra_path = self.path / "merges.txt", self.path / "tokenizer_config.json"
        lines = _text(merges_path).split("\n")
        extra = _table(extra_path).get("added_tokens_decoder")
        if not isinstance(extra, dict):
            raise ModelFileError(extra_path, "has no table added_tokens_decoder, and there is no tokenizer.json")
        entries = [(int(key) if key.isascii() and key.isdigit() else None, entry) for key, entry in extra.items()]
        return Vocabulary(
            _pieces(self.path / "vocab.json", _table(self.path / "vocab.json")),
            _added(extra_path, entries),
            [_merge(merges_path, line) for line in lines if line.strip() and not line.startswith("#version")],
        )

    def _require_architecture(self) -> None:
        classes = self._config.get("architectures")
        if classes != [_CLASS]:
            raise ModelFileError(self.config_path, f"has the architectures {classes}; only {_CLASS} is known")
        for key, usual in _USUAL.items():
            value = self._config.get(key, usual)
            if value != usual:
                raise ModelFileError(self.config_path, f"has {key} {value}; only {usual} is known")
        rope = self._config.get("rope_parameters")
        kind = rope.get("rope_type", _ROPE_KIND) if isinstance(rope, dict) else _ROPE_KIND
        if kind != _ROPE_KIND:
            raise ModelFileError(self.config_path, f"has the rope_type {kind}; only {_ROPE_KIND} is known")


def _text(path: Path) -> str:
    try:
        return small_files.read(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ModelFileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _table(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(path, f"cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise ModelFileError(path, "is not a table")
    return table


def _integer(path: Path, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_UINT32:
        raise ModelFileError(path, f"has no whole number {key}")
    return value


def _number(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ModelFileError(path, f"has no number {key}")
    return float(value)


def _is_text(value: object) -> bool:
    """Whether it is a string that UTF-8 can hold: JSON can escape halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _pieces(path: Path, vocab: Any) -> dict[int, str]:
    if not isinstance(vocab, dict) or not all(_is_text(text) and type(index) is int for text, index in vocab.items()):
        raise ModelFileError(path, "has no table from pieces to ids")
    return {index: text for text, index in vocab.items()}


def _added(path: Path, entries: list[tuple[Any, Any]]) -> dict[int, AddedToken]:
    added = {}
    for index, entry in entries:
        if type(index) is not int or not isinstance(entry, dict) or not _is_text(entry.get("content")):
            raise ModelFileError(path, "has an added token without an id or a text")
        added[index] = AddedToken(entry["content"], entry.get("special") is True)
    return added


def _merge(path: Path, merge: Any) -> str:
    """Of two pieces as a list, or as a text with a space between."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list) or len(pair) != _MERGED_PIECES or not all(map(_is_text, pair)):
        raise ModelFileError(path, f"has a merge that is not of two pieces: {merge!r}")
    return " ".join(pair)

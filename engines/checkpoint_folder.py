"""What a checkpoint folder says besides its weights: the settings in `config.yaml`, and the vocabulary."""

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import sentencepiece
import yaml

from liveasr.engines import small_files
from liveasr.errors import ModelFileError

Settings: TypeAlias = Mapping[tuple[str, str], int | str | None]
"""Values by section and key."""
_MAX_UINT32 = 2**32 - 1
_SHORT = reprlib.Repr()
_MAX_SHOWN = 80
_SHORT.maxlevel = 2  # YAML can refer to one list a billion times


class CheckpointFolder:
    """A folder as FunASR releases it. Whatever is missing or makes no sense is a ModelFileError that names it.

    Args:
        path: holds `config.yaml`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._config_path = path / "config.yaml"
        self._config = self._load()

    @property
    def model_class(self) -> str:
        """The name of the class that the reference builds, or what stands in its place, fit for a message."""
        value = self._config.get("model")
        return value if isinstance(value, str) else _shown(value)

    def integer(self, section: str, key: str, default: int | None = None) -> int:
        """A whole number."""
        return self._integer(section, key, self._value(section, key, default))

    def text(self, section: str, key: str) -> str | None:
        """A text, if there is one."""
        value = self._value(section, key)
        return value if isinstance(value, str) else None

    def last_integer(self, section: str, key: str) -> int:
        """The last of a list of whole numbers."""
        values = self._value(section, key)
        if not isinstance(values, list) or not values:
            raise ModelFileError(self._config_path, f"has no list of whole numbers {section}.{key}")
        return self._integer(section, key, values[-1])

    def fraction(self, section: str, key: str) -> float:
        """A number from 0 to 1."""
        value = self._value(section, key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ModelFileError(self._config_path, f"has no number from 0 to 1 {section}.{key}")
        return float(value)

    def stacked_size(self) -> int:
        """Values in one stacked feature frame."""
        return self.integer("frontend_conf", "n_mels") * self.integer("frontend_conf", "lfr_m")

    def require_parts(self, parts: Mapping[str, str | tuple[str, ...]]) -> None:
        """Refuse a model that is made of other classes; where several are given, each will do."""
        for key, kinds in parts.items():
            known = (kinds,) if isinstance(kinds, str) else kinds
            if self._config.get(key) not in known:
                reason = f"has the {key} {_shown(self._config.get(key))}; only {' or '.join(known)} is known"
                raise ModelFileError(self._config_path, reason)

    def require_settings(self, settings: Settings, even_if_missing: bool = False) -> None:
        """Refuse other values; a setting that is missing has this one, unless it must be there."""
        for (section, key), usual in settings.items():
            value = self._value(section, key, None if even_if_missing else usual)
            if value != usual:
                raise ModelFileError(self._config_path, f"has {section}.{key} {_shown(value)}; only {usual} is known")

    def tokens(self) -> list[str]:
        """The vocabulary in `tokens.json`, in the order of its ids."""
        path = self.path / "tokens.json"
        try:
            tokens = json.loads(small_files.read(path).decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelFileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if not isinstance(tokens, list) or not tokens or not all(map(_is_text, tokens)):
            raise ModelFileError(path, "is not a list of tokens")
        return tokens

    def pieces(self) -> list[str]:
        """The pieces of the SentencePiece model, in the order of their ids."""
        paths = sorted(self.path.glob("*.bpe.model"))
        if not paths:
            raise ModelFileError(self.path, "has no *.bpe.model")
        try:
            processor = sentencepiece.SentencePieceProcessor()
            processor.LoadFromSerializedProto(small_files.read(paths[0]))
        except OSError as error:
            raise ModelFileError(paths[0], f"cannot be read: {error.strerror}") from error
        except RuntimeError as error:
            raise ModelFileError(paths[0], "is not a SentencePiece model") from error
        return [processor.id_to_piece(index) for index in range(processor.get_piece_size())]

    def _load(self) -> dict[str, Any]:
        path = self._config_path
        if not self.path.is_dir():
            raise ModelFileError(self.path, "is no folder" if self.path.exists() else "no such folder")
        small_files.require_files(self.path)
        try:
            config = yaml.safe_load(small_files.read(path).decode("utf-8"))
        except FileNotFoundError as error:
            raise ModelFileError(self.path, "is not a checkpoint folder: it has no config.yaml") from error
        except ModelFileError:
            raise
        except Exception as error:  # a value that is not what its tag says raises almost anything
            raise ModelFileError(path, f"cannot be read: {fault_of(error)}") from error
        if not isinstance(config, dict):
            raise ModelFileError(path, "is not a table of settings")
        return config

    def _value(self, section: str, key: str, default: Any = None) -> Any:
        table = self._config.get(section)
        return table.get(key, default) if isinstance(table, dict) else default

    def _integer(self, section: str, key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_UINT32:
            raise ModelFileError(self._config_path, f"has no whole number {section}.{key}")
        return value


def fault_of(error: Exception) -> str:
    """What is wrong with a file of text, in one line: of YAML also in which line of it."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem or error.context} in line {error.problem_mark.line + 1}"
    return str(getattr(error, "strerror", None) or error or type(error).__name__).partition("\n")[0]


def _shown(value: object) -> str:
    """A setting in a message: short, whatever it is, and a text told from a number."""
    text = _SHORT.repr(value)  # of lists in lists it may still be long
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _is_text(token: object) -> bool:
    """Whether it is a string that UTF-8 can hold: JSON can escape halves of characters."""
    return isinstance(token, str) and not any("\ud800" <= character <= "\udfff" for character in token)

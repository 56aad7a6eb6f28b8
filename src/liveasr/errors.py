"""Every error that liveasr raises on purpose. Each message names the thing, the cause and the way out.

LiveasrError
  UsageError            the caller's mistake: feeding after finish, an unknown language
  AudioError            a recording that cannot be read, or that holds no audio
  OutputError           a file that cannot be written, or must not be replaced
  ModelError
    ModelNotFoundError  no model of that name is installed
    ModelFileError      a file that is not a model this program can run: corrupt, foreign, incomplete
  RegistryError         a list of models that is malformed
  FetchError            a model cannot be fetched from where it lies: no network, refused, broken off, damaged
  EngineError           the native library failed
  MissingExtraError     an optional part is not installed
  LinkError             there is no connection to a server, though there may be one in a moment
  WireError             the other side of a connection broke the protocol, or refused
"""

from pathlib import Path


class LiveasrError(Exception):
    """Base of all errors of this package; its text is one line for a person."""


class UsageError(LiveasrError):
    """The caller did something in the wrong order, or asked for something that does not exist."""


class AudioError(LiveasrError):
    """A recording cannot be read, or holds no audio."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class OutputError(LiveasrError):
    """A file cannot be written, or must not be replaced."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ModelError(LiveasrError):
    """A model cannot be used."""


class ModelNotFoundError(ModelError):
    """No model of that name is installed, or no such file exists."""


class ModelFileError(ModelError):
    """A file is not a model that this program can run."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class RegistryError(LiveasrError):
    """A registry of models is malformed."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FetchError(LiveasrError):
    """A model cannot be fetched from where it lies."""

    def __init__(self, reason: str, way_out: str = "") -> None:
        super().__init__(f"{reason}; {way_out}" if way_out else reason)
        self.reason = reason
        self.way_out = way_out
        """In the words of the command line."""


class EngineError(LiveasrError):
    """The native library refused or failed."""


class MissingExtraError(LiveasrError):
    """An optional part of liveasr is not installed."""

    def __init__(self, extra: str, package: str, purpose: str, *, note: str = "") -> None:
        super().__init__(
            f"{package}, which {purpose}, is not installed; install it with: pip install 'liveasr[{extra}]'"
            f"{note and f' ({note})'}"
        )
        self.extra = extra


class LinkError(LiveasrError):
    """There is no connection to a server, or not any more; trying again may help."""


class WireError(LiveasrError):
    """The other side of a connection broke the protocol, or refused; `code` is one of docs/protocol.md."""

    def __init__(self, code: str, message: str, *, fatal: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.fatal = fatal
        """Whether the connection ends with it."""

"""What the process of the language model and the rest of the program say to each other.

A link is a pair of connected sockets. Over the first one the process says `Ready` or `Failed` once its model is
loaded, and then gets one end of a new pair for each lane. On a lane, every `Begin` or `Next` is answered by `Written`
or `Failed`. A lane ends when its link is closed; the process ends when the first link is.
"""

from multiprocessing.connection import Connection
from typing import TypeAlias

import msgspec
import numpy as np

from liveasr.types import Float32Array


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """Read a prompt and write the first token after it."""

    before: str
    rows: bytes
    """(R, width) float32 embeddings."""
    after: str
    most_new: int
    """Tokens that may be asked for, the first included."""

    def embeddings(self, width: int) -> Float32Array:
        """The rows as an array (R, width)."""
        return np.frombuffer(self.rows, np.float32).reshape(-1, width)


class Next(msgspec.Struct, tag="next", frozen=True):
    """Write the next token."""


class Written(msgspec.Struct, tag="written", frozen=True):
    """A token."""

    id: int
    piece: bytes
    """UTF-8, perhaps only a part of a character; empty for a special token."""
    ends: bool
    """The model says that the text is complete; the token is none of it."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The model is loaded."""

    width: int
    """Of an embedding."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """What was asked for did not work."""

    reason: str
    is_file: bool = False
    """The model's file is the reason."""


Request: TypeAlias = Begin | Next
Reply: TypeAlias = Written | Ready | Failed


def send(link: Connection, message: Request | Reply) -> None:
    """Send a message."""
    link.send_bytes(msgspec.msgpack.encode(message))


def receive_request(link: Connection) -> Request:
    """The next message of a lane; EOFError where there is none any more."""
    return msgspec.msgpack.decode(link.recv_bytes(), type=Request)


def receive_reply(link: Connection) -> Reply:
    """The next message of the process; EOFError where there is none any more."""
    return msgspec.msgpack.decode(link.recv_bytes(), type=Reply)

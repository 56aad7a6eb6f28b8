"""The language model as the rest of the program sees it: a process that answers, and that may die.

A process of its own, because llama.cpp brings another ggml than the encoder runs on, and so that whatever ends it ends
no session: the lane that was at work hears `LanguageModelDiedError`, and the next request starts the process anew.
"""

import importlib.util
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from liveasr.engines import llm_running
from liveasr.engines._library import missing_extra
from liveasr.engines.llm_running import LanguageModelDiedError, Link, RunningModel
from liveasr.engines.llm_wire import Begin, Failed, Next, Request, Written, receive_reply, send
from liveasr.engines.prompt import Prompt
from liveasr.errors import EngineError
from liveasr.types import Float32Array

_ASK_AGAIN_S = 0.25
"""How soon it is seen that nobody waits any more."""
Wanted: TypeAlias = Callable[[], bool]


class NobodyWaitsError(EngineError):
    """What the language model was at is not wanted any more."""


class LlmProcess:
    """One language model. Any number of lanes over it; each is used by one thread at a time.

    Args:
        path: a GGUF file of architecture `qwen3`, or a file that such a file lies in.
        threads: for one lane.
        offset_bytes: where it begins in it.

    Raises:
        MissingExtraError: llama-cpp-python is not installed.
        ModelFileError: llama.cpp does not take the file.
        EngineError: the process cannot be started.
    """

    def __init__(self, path: Path, threads: int, offset_bytes: int = 0) -> None:
        if importlib.util.find_spec("llama_cpp") is None:
            raise missing_extra()
        self.path = path
        self.deaths = 0
        """In a row, with no token between them."""
        self._threads = threads
        self._offset_bytes = offset_bytes
        self._lock = threading.Lock()
        self._closed = False
        self._running = RunningModel(path, threads, offset_bytes)
        self.width = self._running.width
        """Of an embedding."""

    @property
    def pid(self) -> int:
        """Of the process that runs now, or ran last."""
        return self._running.process.pid

    def lane(self) -> "LlmLane":
        """A new lane."""
        return LlmLane(self)

    def connect(self) -> Link:
        """A link for a lane, to a process that runs: it is started anew where it does not.

        Raises:
            EngineError: it cannot be started, or was closed.
        """
        with self._lock:
            if self._closed:
                raise EngineError("the language model was used after close()")
            try:
                return self._running.connect()
            except ConnectionError:  # nobody is there
                self._running.close()
                self._running = RunningModel(self.path, self._threads, self._offset_bytes)
            try:
                return self._running.connect()
            except ConnectionError as error:
                raise LanguageModelDiedError(f"the language model {self._running.bury()}") from error

    def close(self) -> None:
        """End the process. Closing twice is fine."""
        with self._lock:
            self._closed = True
            self._running.close()


class LlmLane:
    """Writes one sequence at a time: `begin`, then `next` as often as wanted. To stop is to ask no more.

    Args:
        process: what computes.
    """

    def __init__(self, process: LlmProcess) -> None:
        self._process = process
        self._link: Link | None = None

    def begin(self, prompt: Prompt, rows: Float32Array, most_new: int, wanted: Wanted = lambda: True) -> Written:
        """Read a prompt with the embeddings of the audio (R, width), R > 0, and write the first token.

        Args:
            prompt: what stands on both sides of the audio.
            rows: the audio.
            most_new: tokens that may be asked for, the first included.
            wanted: asked again and again while the model is at work: whether somebody still waits for it.

        Raises:
            NobodyWaitsError: `wanted` said so.
            LanguageModelDiedError: the process ended over it; trying again starts a new one.
            EngineError: the model cannot read that.
        """
        if self._link is None:
            self._link = self._process.connect()
        packed = np.ascontiguousarray(rows, np.float32).tobytes()
        return self._ask(self._link, Begin(prompt.before, packed, prompt.after, most_new), wanted)

    def next(self, wanted: Wanted = lambda: True) -> Written:
        """The next token. `wanted` and errors as of `begin`."""
        assert self._link is not None
        return self._ask(self._link, Next(), wanted)

    def close(self) -> None:
        """Free the lane. Closing twice is fine."""
        if self._link is not None:
            self._link.connection.close()
            self._link = None

    def _ask(self, link: Link, request: Request, wanted: Wanted) -> Written:
        until_s = time.monotonic() + llm_running.ANSWER_S
        try:
            send(link.connection, request)
            while not link.connection.poll(_ASK_AGAIN_S):
                if not wanted():
                    self.close()
                    raise NobodyWaitsError("nobody waits for the language model")
                if time.monotonic() >= until_s:
                    raise TimeoutError
            reply = receive_reply(link.connection)
        except (EOFError, OSError) as error:
            self.close()
            self._process.deaths += 1
            raise LanguageModelDiedError(f"the language model {link.running.bury()}") from error
        if isinstance(reply, Failed):
            raise EngineError(reply.reason)
        assert isinstance(reply, Written)
        self._process.deaths = 0
        return reply

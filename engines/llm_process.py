"""The language model as the rest of the program sees it: a process that answers, and that may die.

A process of its own, because llama.cpp brings another ggml than the encoder runs on, and so that whatever ends it ends
no session: the lane that was at work hears `LanguageModelDiedError`, and the next request starts the process anew.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from liveasr.engines.llm_wire import Begin, Failed, Next, Ready, Reply, Request, Written, receive_reply, send
from liveasr.engines.nano_files import missing_extra
from liveasr.engines.prompt import Prompt
from liveasr.errors import EngineError, ModelFileError
from liveasr.types import Float32Array

_MODULE = "liveasr.engines.llm_server"
_START_S = 120.0
"""To load a model, from a slow disk."""
_REPLY_S = 60.0
"""For a prompt or a token; a process that needs longer is taken for dead."""
_ASK_AGAIN_S = 0.25
"""How soon it is seen that nobody waits any more."""
_DEATH_S = 1.0
"""Between the end of a link and that of the process."""
Wanted: TypeAlias = Callable[[], bool]


class LanguageModelDiedError(EngineError):
    """The process of the language model ended, as it wrote or as it was started anew, or does not answer."""


class NobodyWaitsError(EngineError):
    """What the language model was at is not wanted any more."""


class LlmProcess:
    """One language model. Any number of lanes over it; each is used by one thread at a time.

    Args:
        path: a GGUF file of architecture `qwen3`.
        threads: for one lane.

    Raises:
        MissingExtraError: llama-cpp-python is not installed.
        ModelFileError: llama.cpp does not take the file.
        EngineError: the process cannot be started.
    """

    def __init__(self, path: Path, threads: int) -> None:
        if importlib.util.find_spec("llama_cpp") is None:
            raise missing_extra()
        self.path = path
        self.deaths = 0
        """In a row, with no token between them."""
        self._threads = threads
        self._lock = threading.Lock()
        self._closed = False
        self._running = _Running(path, threads)
        self.width = self._running.width
        """Of an embedding."""

    @property
    def pid(self) -> int:
        """Of the process that runs now, or ran last."""
        return self._running.process.pid

    def lane(self) -> "LlmLane":
        """A new lane."""
        return LlmLane(self)

    def connect(self) -> "_Link":
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
                self._running = _Running(self.path, self._threads)
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
        self._link: _Link | None = None

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

    def _ask(self, link: "_Link", request: Request, wanted: Wanted) -> Written:
        until_s = time.monotonic() + _REPLY_S
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


@dataclass(frozen=True, slots=True)
class _Link:
    """A lane's connection to one run of the process."""

    connection: Connection
    running: "_Running"


class _Running:
    """The process, from its start to its end."""

    def __init__(self, path: Path, threads: int) -> None:
        self._ending = threading.Lock()  # several lanes may find it dead at the same time
        self._fate: str | None = None
        with contextlib.ExitStack() as opened:
            try:
                self._said = opened.enter_context(_scratch())
                self._control, there = socket.socketpair()
                opened.enter_context(self._control)
                with there:
                    # -P: a file in the working directory must not stand in for a module; what this process can import,
                    # however it was started, that one can. A session of its own, since the signals of a terminal are
                    # for whoever started it.
                    self.process = subprocess.Popen(  # noqa: S603 - a part of this program
                        [sys.executable, "-P", "-m", _MODULE, str(there.fileno()), str(threads), os.fspath(path)],
                        pass_fds=[there.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=self._said,
                        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))},
                        start_new_session=True,
                    )
            except OSError as error:
                raise EngineError(f"the language model cannot be started: {error.strerror}") from error
            opened.pop_all()
        self._finalizer = weakref.finalize(self, _end, self.process, self._control, self._said)
        greeting = Connection(self._control.dup().detach())
        try:
            reply = _receive(greeting, _START_S)
        except TimeoutError as error:
            raise EngineError(f"the language model {path} cannot be started: it {self.bury()}") from error
        except (EOFError, OSError) as error:  # killed for want of memory, say: another time it may start
            raise LanguageModelDiedError(f"the language model {path} cannot be started: it {self.bury()}") from error
        finally:
            greeting.close()
        if isinstance(reply, Failed):
            self.close()
            raise ModelFileError(path, reply.reason) if reply.is_file else EngineError(reply.reason)
        assert isinstance(reply, Ready)
        self.width = reply.width

    def connect(self) -> _Link:
        """A new lane; ConnectionError where the process is gone."""
        try:
            here, there = socket.socketpair()
        except OSError as error:  # no reason to end the process, which others use
            raise EngineError(f"the language model cannot be reached: {error.strerror}") from error
        with here, there:
            # A prompt may be more than the sockets hold, and a process that is stopped reads none of it.
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_REPLY_S))
            try:
                socket.send_fds(self._control, [b"+"], [there.fileno()])
            except OSError as error:
                raise ConnectionError from error
            return _Link(Connection(here.detach()), self)

    def bury(self) -> str:
        """Close it after it died or fell silent, and say what became of it; every lane is told the same."""
        with self._ending:
            if self._fate is None:
                self._fate = self._bury()
            return self._fate

    def _bury(self) -> str:
        try:
            code = self.process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            self._finalizer()
            return "did not answer, and was stopped"
        last = ""
        if not self._said.closed:  # by close()
            self._said.seek(0)
            last = self._said.read().decode(errors="replace").strip().rpartition("\n")[2]
        self._finalizer()
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"{how}: {last}" if last else how

    def close(self) -> None:
        """End the process. Closing twice is fine."""
        with self._ending:
            self._finalizer()


def _end(process: subprocess.Popen[bytes], control: socket.socket, said: IO[bytes]) -> None:
    control.close()
    process.kill()  # it holds nothing that could be lost
    process.wait()
    said.close()


def _receive(connection: Connection, within_s: float) -> Reply:
    """The next message of the process; EOFError where it is gone, TimeoutError (an OSError) where it says nothing."""
    if not connection.poll(within_s):
        raise TimeoutError
    return receive_reply(connection)


def _scratch() -> IO[bytes]:
    """A file for the last words of a process; where none can be made, one that keeps nothing is no reason to fail."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return Path(os.devnull).open("r+b")


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))


def _signal_name(number: int) -> str:
    """As in SIGKILL; those for real time have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

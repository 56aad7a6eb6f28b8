"""One run of the language model's process, from its start to its end: links to it, and what became of it."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from liveasr.engines.llm_wire import Failed, Ready, Reply, receive_reply
from liveasr.errors import EngineError, ModelFileError

ANSWER_S = 60.0
"""For a prompt or a token; a process that needs longer is taken for dead."""
_MODULE = "liveasr.engines.llm_server"
_START_S = 120.0
"""To load a model, from a slow disk."""
_DEATH_S = 1.0
"""Between the end of a link and that of the process."""


class LanguageModelDiedError(EngineError):
    """The process of the language model ended, as it wrote or as it was started anew, or does not answer."""


@dataclass(frozen=True, slots=True)
class Link:
    """A lane's connection to one run of the process."""

    connection: Connection
    running: "RunningModel"


class RunningModel:
    """The process, from its start to its end."""

    def __init__(self, path: Path, threads: int, offset_bytes: int) -> None:
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
                    numbers = map(str, (there.fileno(), threads))
                    self.process = subprocess.Popen(  # noqa: S603 - a part of this program
                        [sys.executable, "-P", "-m", _MODULE, *numbers, os.fspath(path), str(offset_bytes)],
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

    def connect(self) -> Link:
        """A new lane; ConnectionError where the process is gone."""
        try:
            here, there = socket.socketpair()
        except OSError as error:  # no reason to end the process, which others use
            raise EngineError(f"the language model cannot be reached: {error.strerror}") from error
        with here, there:
            # A prompt may be more than the sockets hold, and a process that is stopped reads none of it.
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(ANSWER_S))
            try:
                socket.send_fds(self._control, [b"+"], [there.fileno()])
            except OSError as error:
                raise ConnectionError from error
            return Link(Connection(here.detach()), self)

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

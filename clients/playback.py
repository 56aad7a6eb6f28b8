"""Recordings as if they were being spoken: sources of sound for a live stream, as the microphone is one."""

import asyncio
import contextlib
import io
import sys
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from liveasr.clients.targets import STDIN
from liveasr.errors import AudioError
from liveasr.stream.decode import AudioFile
from liveasr.types import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Float32Array

_BLOCK_MS = 20
_BLOCKS_AHEAD = 2  # of a second; what is read of stdin before it is wanted


async def paced(
    blocks: Iterable[Float32Array] | AsyncIterable[Float32Array], *, realtime: bool, block_ms: int = _BLOCK_MS
) -> AsyncIterator[Float32Array]:
    """A recording in blocks of 20 ms, as a microphone gives them; at the speed of speech, or as fast as it is taken."""
    block_samples = block_ms * SAMPLES_PER_MS
    begun = time.monotonic()
    given = 0
    rest = np.empty(0, np.float32)
    async for block in blocks if isinstance(blocks, AsyncIterable) else _each(blocks):
        rest = np.concatenate((rest, block))
        while rest.size >= block_samples:
            given += block_samples
            await asyncio.sleep(max(0.0, begun + given / SAMPLE_RATE_HZ - time.monotonic()) if realtime else 0.0)
            yield rest[:block_samples]
            rest = rest[block_samples:]
    if rest.size:
        yield rest


async def _each(blocks: Iterable[Float32Array]) -> AsyncIterator[Float32Array]:
    for block in blocks:
        yield block


class Recording:
    """A recording, or what comes in on stdin. Open it before the event loop runs: only there Ctrl-C ends the wait.

    Args:
        file: "-" is stdin.

    Raises:
        AudioError: as AudioFile.
    """

    def __init__(self, file: Path) -> None:
        self._is_file = file != STDIN
        if self._is_file:
            self._audio = AudioFile(file)
        elif sys.stdin is None:
            raise AudioError("stdin", "is closed")
        else:
            # Not sys.stdin.buffer: a thread that waits for it would hold its lock when the program ends.
            self._audio = AudioFile(io.FileIO(sys.stdin.fileno(), closefd=False))
        self._reader: threading.Thread | None = None
        self._closed = False
        self._room = threading.Semaphore(_BLOCKS_AHEAD)

    async def blocks(self, *, realtime: bool) -> AsyncIterator[Float32Array]:
        """The sound, once, in blocks of 20 ms: (n,) float32, 16 kHz, mono.

        Raises:
            AudioError: it is damaged or cut off, told after all that could be read.
        """
        source = self._audio.blocks() if self._is_file else self._read_apart()
        async for block in paced(source, realtime=realtime):
            yield block

    async def _read_apart(self) -> AsyncIterator[Float32Array]:
        """As AudioFile.blocks, but stdin may be silent for as long as it likes: a thread waits for it."""
        ready: asyncio.Queue[Float32Array | Exception | None] = asyncio.Queue()
        # A daemon, because nothing ends its wait if nothing comes.
        self._reader = threading.Thread(target=self._read, args=(asyncio.get_running_loop(), ready), daemon=True)
        self._reader.start()
        while (item := await ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            self._room.release()
            yield item

    def _read(self, loop: asyncio.AbstractEventLoop, ready: "asyncio.Queue[Float32Array | Exception | None]") -> None:
        end: Exception | None = None
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and nobody listens any more
            try:
                for block in self._audio.blocks():
                    self._room.acquire()
                    if self._closed:
                        break
                    loop.call_soon_threadsafe(ready.put_nowait, block)
            except AudioError as error:
                end = error
            finally:
                self._audio.close()
            loop.call_soon_threadsafe(ready.put_nowait, end)

    def close(self) -> None:
        """Close the recording; what waits for stdin does so itself, once it is woken. Closing twice is fine."""
        self._closed = True
        if self._reader is None:
            self._audio.close()
        else:
            self._room.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

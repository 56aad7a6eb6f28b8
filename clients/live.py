"""Captions as one speaks: a source of sound, a stream that finds the words, a view, and a file to keep."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

from rich.console import Console

from liveasr.clients.captions import CaptionLines, CaptionScreen, CaptionView, level_db
from liveasr.clients.keep import Keep
from liveasr.clients.ws import Disconnected, Output, Reconnected
from liveasr.errors import LiveasrError, OutputError
from liveasr.stream.capture import Microphone
from liveasr.types import Float32Array, LiveTranscript

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stream(Protocol):
    """Where sound becomes text: a LiveStream in this process, or a RemoteStream on a server."""

    @property
    def heard_ms(self) -> int:
        """How much audio was fed."""
        ...

    @property
    def lag_ms(self) -> int:
        """How far the text is behind."""
        ...

    async def feed(self, samples: Float32Array) -> None:
        """Take the next samples."""
        ...

    async def finish(self) -> None:
        """End the stream: every segment gets its final, then the outputs end."""
        ...

    def cancel(self) -> None:
        """Drop what is not done; the outputs end."""
        ...

    def outputs(self) -> AsyncIterator[Output]:
        """Events and transcripts as they come, and how the connection is, if there is one."""
        ...


def view_for_stdout() -> CaptionView:
    """Moving captions on a terminal, plain lines anywhere else."""
    return CaptionScreen(Console()) if sys.stdout.isatty() else CaptionLines()


async def run(
    stream: Stream,
    source: AsyncIterator[Float32Array],
    microphone: Microphone | None,
    view: CaptionView,
    keep: Keep,
) -> None:
    """Caption until the source ends or Ctrl-C; either way the last words are finished and everything is kept.

    Raises:
        LiveasrError: the source, the stream or a file failed; what was captioned until then has been shown and kept.
    """
    stop, cut_off = asyncio.Event(), asyncio.Event()
    unsaid: list[LiveasrError] = []
    loop = asyncio.get_running_loop()
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    stop_signals = [number for number in _STOP_SIGNALS if not (is_nohup and number == signal.SIGHUP)]
    for number in stop_signals:
        loop.add_signal_handler(number, _interrupt, stop, cut_off, stream, unsaid)
    shown = asyncio.create_task(_show(stream, view, keep, cut_off))
    fed = asyncio.create_task(_feed(stream, source, microphone, view, keep, stop))
    try:
        await asyncio.wait({shown, fed}, return_when=asyncio.FIRST_COMPLETED)
        if not fed.done():  # nobody takes the captions any more
            fed.cancel()
        elif fed.exception() is not None and not isinstance(fed.exception(), LiveasrError):
            stream.cancel()
        results = await asyncio.gather(fed, shown, return_exceptions=True)
    finally:
        for number in stop_signals:
            loop.remove_signal_handler(number)
        stream.cancel()
        view.close()
    faults = [*(result for result in results if isinstance(result, Exception)), *unsaid]
    try:
        keep.finish(stream.heard_ms, str(faults[0]) if faults else None)
    except OutputError as error:
        faults.append(error)
    if faults:
        raise faults[0]


async def _feed(
    stream: Stream,
    source: AsyncIterator[Float32Array],
    microphone: Microphone | None,
    view: CaptionView,
    keep: Keep,
    stop: asyncio.Event,
) -> None:
    """Feed the source to the stream, and end the stream with it, whatever ends it."""
    try:
        async with contextlib.aclosing(_until(stop, source)) as blocks:
            async for block in blocks:
                keep.sound(block)
                await stream.feed(block)
                view.status(stream.heard_ms, level_db(block), stream.lag_ms, microphone.overflows if microphone else 0)
    finally:
        await stream.finish()


async def _until(stop: asyncio.Event, source: AsyncIterator[Float32Array]) -> AsyncGenerator[Float32Array]:
    """The source as long as it shall go on; it need not bring anything for that to end."""
    stopping = asyncio.ensure_future(stop.wait())
    coming = asyncio.ensure_future(anext(source, None))
    try:
        while True:
            either: tuple[asyncio.Future[Any], ...] = (stopping, coming)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set() or (block := coming.result()) is None:
                return
            yield block
            coming = asyncio.ensure_future(anext(source, None))
    finally:
        stopping.cancel()
        coming.cancel()
        await asyncio.gather(stopping, coming, return_exceptions=True)


async def _show(stream: Stream, view: CaptionView, keep: Keep, cut_off: asyncio.Event) -> None:
    async for output in stream.outputs():
        match output:
            case LiveTranscript():
                view.show(output)
                keep.transcript(output)
            case Disconnected():
                cut_off.set()
                view.connection(output.reason)
            case Reconnected():
                cut_off.clear()
                view.connection(None)


def _interrupt(stop: asyncio.Event, cut_off: asyncio.Event, stream: Stream, unsaid: list[LiveasrError]) -> None:
    """The first Ctrl-C ends the sound and finishes the last words; the second does not wait for them.

    While there is no connection to a server, nor does the first.
    """
    if cut_off.is_set():
        unsaid.append(LiveasrError("ended without a connection to the server; what was said last has no text"))
    if stop.is_set() or cut_off.is_set():
        stream.cancel()
    stop.set()

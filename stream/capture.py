"""The microphone: blocks of mono float32 at 16 kHz, from whatever rate and channels the device has.

PortAudio calls back from a thread of its own and must not wait: the callback copies and returns. Between it and the
event loop there is a bounded queue; what does not fit is counted as an overflow, never waited for.
"""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import soxr

from liveasr.errors import AudioError, LiveasrError, MissingExtraError
from liveasr.types import SAMPLE_RATE_HZ, Float32Array

_BLOCK_MS = 20
_QUEUE_BLOCKS = 500  # 10 s: longer than any pause of the event loop, short enough to be bounded
_SILENT_S = 3.0  # a device that delivers nothing for so long is gone
PORTAUDIO_HINT = "on Debian: apt-get install libportaudio2; on macOS: brew install portaudio"


@dataclass(frozen=True, slots=True)
class Device:
    """A sound input."""

    index: int
    name: str
    channels: int
    rate_hz: int
    is_default: bool


def input_devices() -> list[Device]:
    """All sound inputs of this computer.

    Raises:
        MissingExtraError: sounddevice is not installed.
        LiveasrError: PortAudio is not installed.
    """
    sounddevice = _sounddevice()
    default = sounddevice.default.device[0]
    return [
        Device(index, info["name"], info["max_input_channels"], int(info["default_samplerate"]), index == default)
        for index, info in enumerate(sounddevice.query_devices())
        if info["max_input_channels"] > 0
    ]


def find_device(wanted: str | None) -> Device:
    """The device of that number or with that in its name; the default one if none is named.

    Raises:
        LiveasrError: there is no such device, or none at all.
    """
    devices = input_devices()
    if not devices:
        raise LiveasrError("no microphone: this computer has no sound input; plug one in and see: liveasr devices")
    if wanted is None:
        return next((device for device in devices if device.is_default), devices[0])
    for device in devices:
        if wanted == str(device.index):
            return device
    matches = [device for device in devices if wanted.casefold() in device.name.casefold()]
    if not matches:
        raise LiveasrError(f"no sound input is called {wanted}; see: liveasr devices")
    return matches[0]


class Microphone:
    """An open device. Iterate over `blocks` inside the event loop that made it.

    Raises:
        LiveasrError: the device cannot be opened; the message says why.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.overflows = 0
        """Blocks that the system or the program lost, since the beginning."""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Float32Array] = asyncio.Queue(_QUEUE_BLOCKS)
        self._resampler = None
        if device.rate_hz != SAMPLE_RATE_HZ:
            self._resampler = soxr.ResampleStream(device.rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32")
        sounddevice = _sounddevice()
        self._error_type: type[Exception] = sounddevice.PortAudioError
        try:
            self._stream: Any = sounddevice.InputStream(
                device=device.index,
                samplerate=device.rate_hz,
                channels=min(2, device.channels),
                blocksize=device.rate_hz * _BLOCK_MS // 1000,
                dtype="float32",
                callback=self._called,
            )
        except (self._error_type, ValueError) as error:
            raise LiveasrError(f"{device.name}: cannot be opened: {error}") from error

    async def blocks(self) -> AsyncIterator[Float32Array]:
        """The sound as it comes, (n,) float32, 16 kHz, mono.

        Raises:
            AudioError: the device stopped delivering, as when it is unplugged.
        """
        try:
            self._stream.start()
        except self._error_type as error:
            raise AudioError(self.device.name, f"cannot be started: {error}") from error
        while True:
            try:
                block = await asyncio.wait_for(self._queue.get(), _SILENT_S)
            except TimeoutError as error:
                raise AudioError(self.device.name, "stopped delivering sound; is it still plugged in?") from error
            yield block if self._resampler is None else self._resampler.resample_chunk(block)

    def close(self) -> None:
        """Stop and close the device. Closing twice is fine."""
        self._stream.close(ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _called(self, indata: Float32Array, _frames: int, _time: object, status: Any) -> None:
        """PortAudio's callback, in its own thread."""
        block = indata.mean(axis=1) if indata.shape[1] > 1 else indata[:, 0].copy()
        with contextlib.suppress(RuntimeError):  # the event loop is closed; the stream will be too
            self._loop.call_soon_threadsafe(self._accept, block, bool(status and status.input_overflow))

    def _accept(self, block: Float32Array, overflow: bool) -> None:
        """Back in the event loop."""
        self.overflows += overflow
        try:
            self._queue.put_nowait(np.asarray(block, np.float32))
        except asyncio.QueueFull:
            self.overflows += 1


def _sounddevice() -> Any:
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise MissingExtraError("mic", "sounddevice", "records from the microphone") from error
    except OSError as error:  # what it raises where the PortAudio library is missing
        raise LiveasrError(
            f"PortAudio, which records from the microphone, is not installed; {PORTAUDIO_HINT}"
        ) from error

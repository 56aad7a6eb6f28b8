"""The microphone over a PortAudio made of Python: what its callback does, and what is said when things go wrong."""

import asyncio
import importlib
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from liveasr.errors import AudioError, LiveasrError, MissingExtraError
from liveasr.stream import capture
from liveasr.stream.capture import Device, Microphone, find_device, input_devices
from liveasr.types import Float32Array


class PortAudioError(Exception):
    """What sounddevice raises."""


class FakeStream:
    """Calls back from a thread, as PortAudio does, once for each block that it was given."""

    blocks: tuple[Float32Array, ...] = ()
    overflow_at: frozenset[int] = frozenset()
    refuses: str | None = None

    def __init__(self, *, callback: Any, channels: int, **_settings: Any) -> None:
        if self.refuses:
            raise PortAudioError(self.refuses)
        self._callback = callback
        self._channels = channels
        self._thread = threading.Thread(target=self._run)
        self.closed = 0

    def start(self) -> None:
        self._thread.start()

    def close(self, *, ignore_errors: bool) -> None:
        assert ignore_errors
        if self._thread.is_alive():
            self._thread.join()
        self.closed += 1

    def _run(self) -> None:
        for index, block in enumerate(self.blocks):
            shared = np.repeat(block[:, None], self._channels, axis=1)
            self._callback(shared, len(block), None, SimpleNamespace(input_overflow=index in self.overflow_at))
            shared[:] = np.nan  # PortAudio uses its buffer again: who did not copy is caught


DEVICES = (
    {"name": "HDMI", "max_input_channels": 0, "default_samplerate": 48_000.0},
    {"name": "Built-in Microphone", "max_input_channels": 2, "default_samplerate": 48_000.0},
    {"name": "USB Headset", "max_input_channels": 1, "default_samplerate": 16_000.0},
)


@pytest.fixture
def portaudio(monkeypatch: pytest.MonkeyPatch) -> type[FakeStream]:
    class Stream(FakeStream):
        pass

    module = ModuleType("sounddevice")
    vars(module).update(
        PortAudioError=PortAudioError,
        InputStream=Stream,
        default=SimpleNamespace(device=(2, 0)),
        query_devices=lambda: list(DEVICES),
    )
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return Stream


def device(rate_hz: int = 16_000, channels: int = 1) -> Device:
    return Device(2, "USB Headset", channels, rate_hz, True)


def record(blocks: int, rate_hz: int = 16_000, channels: int = 1) -> tuple[list[Float32Array], Microphone]:
    """The first blocks that a microphone gives, and the microphone."""

    async def work() -> tuple[list[Float32Array], Microphone]:
        found = []
        with Microphone(device(rate_hz, channels)) as microphone:
            async for block in microphone.blocks():
                found.append(block)
                if len(found) == blocks:
                    break
        return found, microphone

    return asyncio.run(asyncio.wait_for(work(), 20))


def test_only_inputs_are_listed_and_the_default_is_marked(portaudio: type[FakeStream]) -> None:  # noqa: ARG001
    assert input_devices() == [
        Device(1, "Built-in Microphone", 2, 48_000, False),
        Device(2, "USB Headset", 1, 16_000, True),
    ]


@pytest.mark.parametrize(("wanted", "index"), [(None, 2), ("1", 1), ("2", 2), ("headset", 2), ("BUILT", 1)], ids=str)
def test_a_device_is_found_by_number_or_name(portaudio: type[FakeStream], wanted: str | None, index: int) -> None:  # noqa: ARG001
    assert find_device(wanted).index == index


def test_an_unknown_device_and_no_device_are_told_with_the_way_out(
    portaudio: type[FakeStream],  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(LiveasrError, match="no sound input is called tape; see: liveasr devices"):
        find_device("tape")
    monkeypatch.setattr(sys.modules["sounddevice"], "query_devices", lambda: [DEVICES[0]])
    with pytest.raises(LiveasrError, match="no microphone"):
        find_device(None)


def test_what_is_recorded_is_copied_and_comes_in_order(portaudio: type[FakeStream]) -> None:
    portaudio.blocks = tuple(np.full(320, index / 100, np.float32) for index in range(50))
    blocks, microphone = record(50)
    assert [float(block[0]) for block in blocks] == pytest.approx([index / 100 for index in range(50)])
    assert all(block.dtype == np.float32 and block.shape == (320,) for block in blocks)
    assert microphone.overflows == 0


def test_channels_are_averaged_and_other_rates_resampled(portaudio: type[FakeStream]) -> None:
    portaudio.blocks = tuple(np.full(960, 0.5, np.float32) for _ in range(100))
    blocks, _ = record(100, rate_hz=48_000, channels=2)
    samples = np.concatenate(blocks)
    assert samples.size == pytest.approx(100 * 320, abs=2000)  # what the resampler still holds
    assert samples[5000:10_000] == pytest.approx(0.5, abs=1e-3)


def test_overflows_of_the_device_are_counted(portaudio: type[FakeStream]) -> None:
    portaudio.blocks = tuple(np.zeros(320, np.float32) for _ in range(10))
    portaudio.overflow_at = frozenset({2, 5})
    assert record(10)[1].overflows == 2


def test_a_program_that_does_not_keep_up_loses_blocks_and_counts_them(portaudio: type[FakeStream]) -> None:
    surplus = 40
    portaudio.blocks = tuple(np.zeros(320, np.float32) for _ in range(capture._QUEUE_BLOCKS + surplus))

    async def work() -> int:
        with Microphone(device()) as microphone:
            blocks = microphone.blocks()
            await anext(blocks)
            microphone.close()  # waits for the thread: everything was delivered
            await asyncio.sleep(0.1)
            assert microphone._queue.qsize() <= capture._QUEUE_BLOCKS
            return microphone.overflows

    assert asyncio.run(work()) in (surplus - 1, surplus)


def test_a_device_that_stops_delivering_is_told(portaudio: type[FakeStream], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_SILENT_S", 0.1)
    portaudio.blocks = (np.zeros(320, np.float32),)
    with pytest.raises(AudioError, match="USB Headset: stopped delivering sound; is it still plugged in"):
        record(2)


def test_a_device_that_cannot_be_opened_is_told(portaudio: type[FakeStream]) -> None:
    portaudio.refuses = "Invalid sample rate [PaErrorCode -9997]"
    with pytest.raises(LiveasrError, match="USB Headset: cannot be opened: Invalid sample rate"):
        record(1)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (ImportError("No module named 'sounddevice'"), MissingExtraError, r"pip install 'liveasr\[mic\]'"),
        (OSError("PortAudio library not found"), LiveasrError, "apt-get install libportaudio2"),
    ],
)
def test_missing_parts_are_named_with_the_command_that_brings_them(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, kind: type[Exception], words: str
) -> None:
    real = importlib.import_module

    def fail(name: str, package: str | None = None) -> ModuleType:
        if name == "sounddevice":
            raise fault
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(kind, match=words):
        input_devices()

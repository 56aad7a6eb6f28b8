"""The server over real sockets, as a process of its own, with the built-in model and a real recording."""

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import soundfile
import soxr
from websockets.exceptions import ConnectionClosed, WebSocketException

from liveasr import store
from liveasr.clients.file import transcribe
from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine
from liveasr.stream.access import Access
from liveasr.stream.app import create_app
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import WindowDetector, detectors
from liveasr.stream.messages import (
    AudioFormat,
    Done,
    Encoding,
    Error,
    Ping,
    Pong,
    Ready,
    ServerMessage,
    Start,
    Transcript,
    encode,
)
from liveasr.stream.pcm import encode_pcm
from liveasr.stream.recognize import Recognizer
from liveasr.stream.server import Server, listen
from liveasr.stream.service import OfferedModel, Service, ServiceConfig
from liveasr.types import Float32Array
from liveasr.vad.config import VadConfig
from tests.fakes import FakeEngine, said
from tests.servers import ServerProcess, dial, finals, frames, heard, talk

SAID = ["three one four", "one five nine two", "six five"]
TOKEN = "s3cret"  # noqa: S105 - of servers that live for one test


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    models = (argument for name in store.DEMONSTRATION_MODELS for argument in ("--model", name))
    with ServerProcess(*models) as process:
        yield process
        code, _out, err = process.stop()
    assert code == 0, err
    assert "Traceback" not in err, err


@pytest.fixture(scope="module")
def samples() -> Float32Array:
    found: Float32Array = soundfile.read(Path(__file__).parents[1] / "data" / "digits-clean.wav", dtype="float32")[0]
    return found


def words(messages: list[ServerMessage]) -> list[tuple[str, int, int, tuple[object, ...]]]:
    return [(each.text or "", each.start_ms, each.end_ms, each.words) for each in finals(messages)]


def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


@pytest.mark.parametrize("model", store.DEMONSTRATION_MODELS)
def test_finals_over_the_wire_equal_those_of_the_file(server: ServerProcess, samples: Float32Array, model: str) -> None:
    engine = open_engine(store.find(model), threads=1)
    with AudioFile(Path(__file__).parents[1] / "data" / "digits-clean.wav") as audio:
        recognizer = Recognizer(engine, DecodeOptions())
        offline = list(transcribe(audio.blocks(), recognizer, detectors("fsmn", VadConfig())()))
    engine.close()
    payload = encode_pcm(samples, "s16le")
    for frame_bytes in (40, 640, 3_202, 1 << 18):
        found = finals(talk(server.ws_url, Start(model=model), payload, frame_bytes))
        assert [(each.text, each.start_ms, each.end_ms) for each in found] == [
            (each.text, each.start_ms, each.end_ms) for each in offline
        ]
        assert [[(w.text, w.start_ms, w.end_ms) for w in each.words] for each in found] == [
            [(w.text, w.start_ms, w.end_ms) for w in each.words] for each in offline
        ]


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 44100, 48000])
@pytest.mark.parametrize(("encoding", "channels"), [("s16le", 1), ("f32le", 2)])
def test_every_format_is_understood(
    server: ServerProcess, samples: Float32Array, rate_hz: int, encoding: Encoding, channels: int
) -> None:
    resampled = soxr.resample(samples, 16_000, rate_hz)
    many = np.repeat(resampled[:, None], channels, axis=1)
    format_ = AudioFormat(encoding=encoding, rate_hz=rate_hz, channels=channels)  # type: ignore[arg-type]
    frame_bytes = rate_hz // 25 * format_.frame_bytes
    found = finals(talk(server.ws_url, Start(audio=format_), encode_pcm(many, encoding), frame_bytes))
    assert [each.text for each in found] == SAID


def test_several_clients_at_once_each_get_their_own_words(server: ServerProcess, samples: Float32Array) -> None:
    payload = encode_pcm(samples, "s16le")
    cuts = [len(payload), len(payload) // 2 // 2 * 2, len(payload) // 4 // 2 * 2] * 2
    results: dict[int, list[ServerMessage]] = {}

    def one(index: int) -> None:
        results[index] = talk(server.ws_url, Start(), payload[: cuts[index]], 640)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(cuts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(3):
        assert words(results[index]) == words(results[index + 3])
    assert [each.text for each in finals(results[0])] == SAID
    assert finals(results[1])[0].text == SAID[0]
    assert len({message.session for each in results.values() for message in each if isinstance(message, Ready)}) == 6


def test_a_client_that_vanishes_in_the_middle_of_a_word_leaves_no_connection(
    server: ServerProcess, samples: Float32Array
) -> None:
    host, port = urlsplit(server.url).netloc.split(":")
    with socket.create_connection((host, int(port))) as raw, dial(server.ws_url, sock=raw) as socket_:
        socket_.send(encode(Start()))
        socket_.send(next(frames(encode_pcm(samples[:20_000], "s16le"), 1 << 18)))
        assert isinstance(next(heard(socket_)), Ready)
        assert httpx.get(f"{server.url}/ready").json()["sessions"] == 1
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        raw.close()  # a reset, no goodbye
        until(lambda: "liveasr_connections 0.0" in httpx.get(f"{server.url}/metrics").text)


def test_bytes_that_are_no_http_disturb_nobody(server: ServerProcess) -> None:
    host, port = urlsplit(server.url).netloc.split(":")
    for garbage in (
        b"\0" * 1000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0",
        b"GET /v1/stream HTTP/1.1\r\nUpgrade: x",
    ):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(garbage)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_frame_that_is_too_large_closes_with_1009(server: ServerProcess) -> None:
    with dial(server.ws_url) as socket_:
        socket_.send(encode(Start()))
        socket_.send(bytes((1 << 20) + 1))
        with pytest.raises(ConnectionClosed) as closed:
            list(heard(socket_))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_a_fatal_error_is_told_before_its_close_code(server: ServerProcess) -> None:
    with dial(server.ws_url) as socket_:
        socket_.send("nonsense")
        messages = heard(socket_)
        assert isinstance(next(messages), Error)
        with pytest.raises(ConnectionClosed) as closed:
            next(messages)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400


def test_sigterm_finishes_the_open_segment_and_takes_nobody_new(samples: Float32Array) -> None:
    with ServerProcess() as server, dial(server.ws_url) as socket_:
        socket_.send(encode(Start()))
        for frame in frames(encode_pcm(samples[: 16_000 * 2], "s16le"), 640):
            socket_.send(frame)
        socket_.send(encode(Ping(id=7)))  # answered once the server has all the frames: what it has not is not finished
        messages = heard(socket_)
        awaited: set[type[ServerMessage]] = {Pong, Transcript}
        while awaited:
            message = next(messages)
            assert not isinstance(message, Done)
            awaited.discard(type(message))
        server.process.terminate()
        last = list(messages)
        assert [each.text for each in finals(last)] == [SAID[0]]
        assert isinstance(last[-1], Done)
        assert last[-1].reason == "shutdown"
        with pytest.raises((OSError, WebSocketException)), dial(server.ws_url, open_timeout=5):
            pytest.fail("a session was taken after SIGTERM")
        code, _out, err = server.stop()
        assert code == 0, err
        assert "Traceback" not in err


def test_a_second_ctrl_c_does_not_wait_for_sessions_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_service: Service, _within_s: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Service, "drain", never)

    async def work() -> None:
        app = create_app(
            lambda: Service([OfferedModel("fake", [FakeEngine([said("one")])])], WindowDetector, ServiceConfig()),
            Access(),
            Path(),
        )
        started = asyncio.Event()
        server = Server(app, started.set, None)
        serving = asyncio.create_task(server.serve(listen("127.0.0.1", 0)))
        await started.wait()
        server.handle_exit(signal.SIGINT, None)
        await asyncio.sleep(0.3)
        assert not serving.done()
        server.handle_exit(signal.SIGINT, None)
        await asyncio.wait_for(serving, 10)

    asyncio.run(work())


def test_messages_are_json_with_the_documented_types(server: ServerProcess, samples: Float32Array) -> None:
    with dial(server.ws_url) as socket_:
        socket_.send('{"type": "start"}')
        for frame in frames(encode_pcm(samples[: 16_000 * 3], "s16le"), 6400):
            socket_.send(frame)
        socket_.send('{"type": "stop"}')
        kinds = {json.loads(frame)["type"] for frame in socket_}
    assert kinds >= {"ready", "ack", "speech_start", "speech_end", "transcript", "done"}

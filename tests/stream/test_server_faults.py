"""Clients as they should not be, against a real server; afterwards it is as it was before."""

import contextlib
import itertools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed

from liveasr.stream.messages import Audio, Done, Ready, Start, Stop, encode, encode_audio
from liveasr.stream.pcm import encode_pcm
from liveasr.types import Float32Array
from tests.servers import DeafClient, ServerProcess, dial, finals, frames, heard, talk

SAID = ["three one four", "one five nine two", "six five"]
PING = '{"type": "ping", "id": 9007199254740991}'
RESET = b"\x01\0\0\0\0\0\0\0"  # SO_LINGER: on, 0 s: closing is a reset

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts what the process holds in /proc")


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """One that forgets broken sessions soon, and has served one client, so that everything is loaded."""
    with ServerProcess("--resume-s", "0.2", "--max-sessions", "120") as process:
        talk(process.ws_url, Start(), bytes(32_000), 640)
        until(lambda: holds(process)["sessions"] == 0)
        yield process
        _code, _out, err = process.stop()
    assert "Traceback" not in err, err


@pytest.fixture(scope="module")
def samples() -> Float32Array:
    found: Float32Array = soundfile.read(Path(__file__).parents[1] / "data" / "digits-clean.wav", dtype="float32")[0]
    return found


def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def holds(server: ServerProcess) -> dict[str, int]:
    """What the server holds on to."""
    figures = dict(
        line.rsplit(" ", 1)
        for line in httpx.get(f"{server.url}/metrics").text.splitlines()
        if line.startswith(("liveasr_sessions ", "liveasr_connections "))
    )
    process = Path(f"/proc/{server.process.pid}")
    return {
        "sessions": int(float(figures["liveasr_sessions"])),
        "connections": int(float(figures["liveasr_connections"])),
        "files": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
    }


def resident_mb(server: ServerProcess) -> float:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def raw_connection(server: ServerProcess) -> socket.socket:
    host, port = urlsplit(server.url).netloc.split(":")
    return socket.create_connection((host, int(port)))


def test_a_hundred_clients_that_vanish_in_the_middle_of_a_word_leave_nothing(
    server: ServerProcess, samples: Float32Array
) -> None:
    before = holds(server)
    payload = encode_pcm(samples[: int(16_000 * 1.2)], "s16le")
    with contextlib.ExitStack() as clients:
        connections = []
        for _ in range(100):
            raw = raw_connection(server)
            client = clients.enter_context(dial(server.ws_url, sock=raw))
            client.send(encode(Start()))
            for frame in frames(payload, 6400):
                client.send(frame)
            connections.append((raw, client))
        for _raw, client in connections:
            assert isinstance(next(heard(client)), Ready)
        assert holds(server)["sessions"] == 100
        for raw, _client in connections:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            raw.close()
    until(lambda: holds(server) == before)
    assert [each.text for each in finals(talk(server.ws_url, Start(), encode_pcm(samples, "s16le"), 6400))] == SAID


def test_a_client_that_sends_as_fast_as_it_can_waits_and_costs_no_memory(
    server: ServerProcess, samples: Float32Array
) -> None:
    payload = encode_pcm(np.pad(samples, (0, -samples.size % 160)), "s16le")
    talk(server.ws_url, Start(partials=False), payload * 2, 6400)
    before_mb = resident_mb(server)
    repetitions = 60  # nine minutes; soak.py sends a day
    found = talk(server.ws_url, Start(partials=False), payload * repetitions, 1 << 16)
    assert [each.text for each in finals(found)] == SAID * repetitions
    assert isinstance(found[-1], Done)
    # 17 MB were sent; of audio at most 2 MiB may wait, the frames of a segment and what the sockets hold come on top.
    assert resident_mb(server) - before_mb < 12


def test_a_client_that_never_reads_is_cut_off_and_its_neighbour_served(
    server: ServerProcess, samples: Float32Array
) -> None:
    before = holds(server)
    with DeafClient(server.ws_url) as deaf, contextlib.suppress(ConnectionError):
        deaf.send(encode(Start()))
        for count in itertools.count():
            deaf.send(*[PING] * 500)  # fewer than may wait, so that the server has its turn to send the answers
            if count % 20 == 0 and holds(server)["sessions"] == 0:
                break
    # Either too many answers wait, or the system has waited too long for its own to be taken.
    assert re.search(rb'reason="(slow_reader|gone)"', httpx.get(f"{server.url}/metrics").content)
    assert [each.text for each in finals(talk(server.ws_url, Start(), encode_pcm(samples, "s16le"), 6400))] == SAID
    until(lambda: holds(server) == before)


def test_twenty_minutes_of_silence_and_then_speech(server: ServerProcess, samples: Float32Array) -> None:
    silence = np.zeros(16_000 * 60 * 20, np.float32)
    found = talk(server.ws_url, Start(), encode_pcm(np.concatenate((silence, samples)), "s16le"), 1 << 16)
    assert [each.text for each in finals(found)] == SAID
    starts_ms = [each.start_ms - 20 * 60_000 for each in finals(found)]
    # What the detector heard before moves a start by a frame of 10 ms.
    assert starts_ms == [pytest.approx(start_ms, abs=20) for start_ms in (250, 2790, 5830)]


def test_empty_huge_and_misordered_frames_end_one_session_and_no_other(
    server: ServerProcess, samples: Float32Array
) -> None:
    good = list(frames(encode_pcm(samples, "s16le"), 6400))
    bad: list[list[str | bytes]] = [
        [b""], [""], ["{}"], [bytes(1 << 20)], [encode_audio(Audio(2, b""))], [encode_audio(Audio(0, b""))],
        [encode(Stop()), encode_audio(Audio(1, b""))], ["x" * (1 << 19)], ['{"type":"start"}'], [bytes(3)],
        [bytes((1 << 20) + 1)],
    ]  # fmt: skip
    with dial(server.ws_url) as neighbour:
        neighbour.send(encode(Start()))
        for frame in good[:10]:
            neighbour.send(frame)
        for wrong in bad:
            with dial(server.ws_url) as client, contextlib.suppress(ConnectionClosed):
                client.send(encode(Start()))
                for each in wrong:
                    client.send(each)
                assert not any(isinstance(message, Done) and message.heard_ms for message in heard(client))
        for frame in good[10:]:
            neighbour.send(frame)
        neighbour.send(encode(Stop()))
        assert [each.text for each in finals(list(heard(neighbour)))] == SAID

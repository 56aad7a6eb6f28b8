"""Many clients at once, few of them here: what is counted, and what is called too many."""

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from liveasr.clients import bench_load as load_measuring
from liveasr.clients.bench_load import find_most, own_server, table
from liveasr.clients.load_clients import Clients, LoadFigures, Recording
from liveasr.commands import bench_load
from liveasr.errors import LiveasrError
from liveasr.stream.messages import Stop
from liveasr.types import Transcript
from tests.clients.scripted import Client, scripted
from tests.sounds import load, silence


@pytest.mark.parametrize("first", [1, 3, 10])
@pytest.mark.parametrize("limit", [0, 1, 2, 7, 10, 100, 1000])
def test_the_most_clients_are_found_within_a_tenth(first: int, limit: int) -> None:
    tried: list[int] = []

    async def holds(clients: int) -> bool:
        tried.append(clients)
        return clients <= limit

    most = asyncio.run(find_most(holds, first))
    assert most <= limit <= most + max(1, most // 10)
    assert len(set(tried)) == len(tried)
    assert len(tried) < 20


def test_a_server_holds_while_finals_come_soon_and_nothing_fails() -> None:
    figures = LoadFigures(5)
    assert not figures.holds  # nothing came at all
    figures.live.delays["final_after_segment"] = [10.0] * 96 + [5000.0] * 4
    assert figures.holds
    assert str(figures) == "5 clients: finals 10 ms after their segment (p95), 0 errors"
    figures.live.delays["final_after_segment"] += [1001.0] * 3
    assert not figures.holds
    figures.live.delays["final_after_segment"] = [10.0]
    figures.errors.append("lost")
    assert not figures.holds


def test_the_table_has_every_delay_and_leaves_out_what_is_not_known() -> None:
    figures = LoadFigures(2, plays=3, lags_ms=[0.0, 1500.0])
    figures.live.delays["commit"] = [100.0, 300.0]
    lines = table(figures.summary())
    assert lines[1].split() == ["commit", "100", "300", "300", "2"]
    assert "lag_ms: p95 1500, max 1500" in lines
    assert not any(line.startswith(("server_cores", "first_errors")) for line in lines)
    figures.server_cores = 0.123
    figures.errors.append("lost")
    assert {"server_cores: 0.12", "first_errors: ['lost']"} <= set(table(figures.summary()))


def test_clients_that_speak_at_once_hear_what_transcribe_hears(data: Path) -> None:
    clean = load(data / "digits-clean.wav")[: 3 * 16_000]
    expected = [Transcript(0, "not that", (), 0, 1)]

    async def work(url: str) -> LoadFigures:
        recordings = [Recording(clean, None), Recording(clean, expected), Recording(silence(0.5), [])]
        return await load_measuring.load(Clients(url, None, "digits", recordings, 0, 3, range(3)), cpu_s)

    with own_server("digits", 1) as (url, cpu_s):
        figures = asyncio.run(work(url))
    assert (figures.plays, figures.errors, figures.differing) == (3, [], 1)
    assert figures.live.segments == 2
    assert len(figures.live.delays["final_after_segment"]) == 2
    assert len(figures.lags_ms) == 3
    assert figures.live.delays["loop_lag"]
    if sys.platform == "linux":
        assert figures.server_cores is not None
        assert 0 < figures.server_cores < 64


def test_a_segment_in_which_no_words_are_heard_is_no_difference_to_transcribe() -> None:
    chance = np.random.default_rng(0)
    noise = chance.normal(0, 0.3, 16_000).astype(np.float32)  # speech to the detector, no words to the model
    samples = np.concatenate([silence(0.5), noise, silence(1.5)])

    async def work(url: str) -> LoadFigures:
        clients = Clients(url, None, "digits", [Recording(samples, [])], 0, 1, range(1))
        return await clients.play()

    with own_server("digits", 1) as (url, _cpu_s):
        figures = asyncio.run(work(url))
    assert (figures.compared, figures.differing, figures.errors) == (1, 0, [])


def test_more_clients_than_one_process_plays_are_shared_out_and_all_of_them_counted(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_measuring, "CLIENTS_A_PROCESS", 2)
    clean = load(data / "digits-clean.wav")[: 3 * 16_000]
    recordings = [Recording(clean, [Transcript(0, "not that", (), 0, 1)]), Recording(silence(0.5), [])]

    async def work(url: str) -> LoadFigures:
        return await load_measuring.load(Clients(url, None, "digits", recordings, 0, 5, range(5)))

    with own_server("digits", 1) as (url, _cpu_s):
        figures = asyncio.run(work(url))
    assert (figures.clients, figures.plays, figures.compared, figures.errors) == (5, 5, 5, [])
    assert (figures.differing, figures.live.segments, len(figures.lags_ms)) == (3, 3, 5)
    assert len(figures.live.delays["final_after_segment"]) == 3


def test_a_process_of_clients_that_fails_is_told_and_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_measuring, "CLIENTS_A_PROCESS", 1)
    processes: list[Process] = []
    begin = asyncio.create_subprocess_exec

    async def noted(*args: Any, **options: Any) -> Process:
        processes.append(await begin(*args, **options))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def script(client: Client) -> None:
        await client.welcome()
        begun.put_nowait(None)
        await client.until(Stop)

    async def work() -> None:
        async with scripted(script) as url:
            hours = Recording(np.zeros(3600 * 16_000, np.float32), [])
            loading = asyncio.create_task(load_measuring.load(Clients(url, None, None, [hours], 0, 2, range(2))))
            await begun.get()
            await begun.get()
            processes[0].kill()
            await loading

    with pytest.raises(LiveasrError, match="a process of clients failed, with exit code -9"):
        asyncio.run(asyncio.wait_for(work(), 60))
    assert [each.returncode for each in processes] == [-9, -9]


def test_sessions_that_fail_are_counted_and_the_others_go_on() -> None:
    async def script(client: Client) -> None:
        await client.welcome()
        await client.next()
        client.connection.transport.abort()

    async def work() -> LoadFigures:
        async with scripted(script) as url:
            return await Clients(url, None, None, [Recording(silence(0.3), None)], 0, 2, range(2)).play()

    figures = asyncio.run(work())
    assert (figures.plays, len(figures.errors)) == (2, 2)
    assert not figures.holds
    assert "the connection was lost" in figures.summary()["first_errors"][0]


def test_clients_begin_anew_until_the_time_is_over() -> None:
    sessions = 0

    async def script(client: Client) -> None:
        nonlocal sessions
        sessions += 1
        await client.welcome()
        await client.until(Stop)
        await client.done()

    async def work() -> LoadFigures:
        async with scripted(script) as url:
            return await Clients(url, None, None, [Recording(np.zeros(1600, np.float32), [])], 0.5, 2, range(2)).play()

    assert asyncio.run(work()).plays == sessions > 2


def test_a_server_that_does_not_start_is_told() -> None:
    with pytest.raises(LiveasrError, match="the server did not start"), own_server("parrot", None):
        pass


def test_the_search_tells_how_it_goes_and_prints_the_table_of_the_most(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "talk.wav"
    soundfile.write(recording, load(data / "digits-clean.wav")[: 2 * 16_000], 16_000)
    held = iter([True, False])
    monkeypatch.setattr(LoadFigures, "holds", property(lambda _figures: next(held)))
    assert bench_load([recording], None, None, "digits", 1, clients=1, find=True, seconds=0, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["1 clients", "2 clients"]
    assert lines[2].startswith("delay, ms")
    assert "clients: 1" in lines
    assert "plays_unlike_transcribe: 0" in lines


def test_the_command_prints_one_json_document(data: Path) -> None:
    command = [sys.executable, "-m", "liveasr", "bench", "load", "--model", "digits", "-n", "2", "--seconds", "0",
               "--json", str(data / "digits-clean.wav")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    document = json.loads(done.stdout)
    assert (document["clients"], document["plays"], document["errors"]) == (2, 2, 0)
    assert document["plays_unlike_transcribe"] == 0
    assert document["segments"] == 6
    assert set(document["delays_ms"]["final_after_segment"]) == {"p50", "p95", "max", "n"}

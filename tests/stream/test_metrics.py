"""The figures agree with what happened."""

import asyncio
import json
import re
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from liveasr.errors import EngineError
from liveasr.stream import metrics
from liveasr.stream.connection import Connection
from liveasr.stream.messages import Ack, Audio, Flush, Ready, Start, Stop, Transcript, encode, encode_audio
from liveasr.stream.metrics import Metrics
from liveasr.stream.service import HURRIED_LOOP_S, LATE_LOOP_S, Service
from tests.channels import MemoryChannel, serving
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, said

START, STOP = encode(Start(partials=False)), encode(Stop())
DOCS = Path(__file__).parents[2] / "docs"


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 30)

    asyncio.run(bounded())


def figures(service: Service) -> dict[str, float]:
    """name or name{label,...} -> value, without histogram buckets."""
    found = {}
    for family in text_string_to_metric_families(service.measured().decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                labels = ",".join(sample.labels.values())
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def audio(seconds: int, first: int = 1) -> list[bytes]:
    return [encode_audio(Audio(number, bytes(3200))) for number in range(first, first + seconds * 10)]


def test_a_session_is_counted_from_its_start_to_its_end() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one two")])) as service:
            assert figures(service)["liveasr_sessions"] == 0
            channel = MemoryChannel()
            channel.say(START, *audio(2))
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Ack)
            during = figures(service)
            assert (during["liveasr_sessions"], during["liveasr_connections"]) == (1, 1)
            channel.say(STOP)
            await running
            after = figures(service)
            assert (after["liveasr_sessions"], after["liveasr_connections"]) == (0, 0)
            assert after["liveasr_sessions_started_total{fake}"] == 1
            assert after["liveasr_sessions_ended_total{stop}"] == 1
            assert after["liveasr_audio_seconds_total{fake}"] == pytest.approx(2.0)
            assert after["liveasr_speech_seconds_total{fake}"] == pytest.approx(2.0)
            assert after["liveasr_decoded_audio_seconds_total{final,fake}"] == pytest.approx(2.0)
            assert after["liveasr_decode_seconds_count{final,fake}"] == 1
            assert after["liveasr_queue_seconds_count{final,fake}"] == 1
            assert after["liveasr_first_partial_seconds_count{fake}"] == 1
            assert after["liveasr_final_seconds_count{fake}"] == 1
            assert after["liveasr_decodes_waiting{fake}"] == 0
            assert after["liveasr_lag_seconds"] == 0

    run(work())


def test_silence_is_no_text() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("")])) as service:
            channel = MemoryChannel()
            channel.say(START, *audio(1), STOP)
            await Connection(channel, service).run()
            assert "liveasr_first_partial_seconds_count{fake}" in figures(service)
            assert figures(service)["liveasr_first_partial_seconds_count{fake}"] == 0
            assert figures(service)["liveasr_final_seconds_count{fake}"] == 1

    run(work())


def test_every_end_has_its_reason() -> None:
    async def work() -> None:
        async with serving(FakeEngine([EngineError("no memory")]), resume_s=0.01, max_sessions=1) as service:
            ends: dict[str, list[bytes | str | None]] = {
                "engine_failed": [*audio(1), STOP],
                "bad_message": ["nonsense"],
                "gone": [None],
            }
            for frames in ends.values():
                channel = MemoryChannel()
                channel.say(START, *frames)
                await Connection(channel, service).run()
            for _ in range(1000):
                if "liveasr_sessions_ended_total{gone}" in figures(service):
                    break
                await asyncio.sleep(0.01)
            refused = MemoryChannel()
            refused.say(encode(Start(model="parrot")))
            await Connection(refused, service).run()
            found = figures(service)
            assert {reason: found[f"liveasr_sessions_ended_total{{{reason}}}"] for reason in ends} == dict.fromkeys(
                ends, 1
            )
            assert found["liveasr_refused_total{unsupported}"] == 1

    run(work())


def test_partials_that_were_overtaken_are_counted() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channel = MemoryChannel()
            channel.say(encode(Start()), *audio(5))
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Transcript)
            channel.say(STOP)
            await running
            found = figures(service)
            asked = found["liveasr_decode_seconds_count{partial,fake}"] + found["liveasr_partials_dropped_total{fake}"]
            assert asked >= 1
            again = figures(service)
            assert again["liveasr_partials_dropped_total{fake}"] == found["liveasr_partials_dropped_total{fake}"]

    run(work())


def test_second_looks_are_counted_by_how_they_came_out() -> None:
    async def work() -> None:
        looped = replace(said("one one"), complete=False)
        async with serving(FakeAutoregressiveEngine([looped, said("one"), said("two"), said("three")])) as service:
            channel = MemoryChannel()
            channel.say(START, *audio(2), encode(Flush()), *audio(2, first=21), STOP)
            await Connection(channel, service).run()
            found = figures(service)
            assert found["liveasr_second_looks_total{fake,halves}"] == 1
            assert found["liveasr_decode_seconds_count{final,fake}"] == 2

    run(work())


def test_the_loop_is_watched() -> None:
    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            channel = MemoryChannel()
            channel.say(START)
            running = asyncio.create_task(Connection(channel, service).run())
            await channel.until(Ready)
            await asyncio.sleep(0.25)
            assert figures(service)["liveasr_loop_lag_seconds_count"] >= 1
            channel.say(STOP)
            await running

    run(work())


def recent_lags(monkeypatch: pytest.MonkeyPatch, lags_s: Sequence[float]) -> list[float]:
    """The average after each tick of a loop that wakes so late."""
    measured = Metrics()
    now_s = 0.0
    late, found = iter(lags_s), []

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        found.append(measured.recent_loop_lag_s)
        if (lag_s := next(late, None)) is None:
            raise asyncio.CancelledError
        now_s += seconds + lag_s

    monkeypatch.setattr(metrics, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now_s))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(measured.watch_loop())
    return found[1:]


@pytest.mark.parametrize("stopped_s", [1.0, 5.0, 30.0, 3600.0])
def test_however_long_the_event_loop_stood_still_a_few_seconds_later_that_is_over(
    stopped_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP, or on a machine that was asleep: nothing has to be waited for any more."""
    after = recent_lags(monkeypatch, [stopped_s, *[0.0] * 50])
    assert after[0] >= HURRIED_LOOP_S
    assert max(after[25:]) < LATE_LOOP_S
    assert after[50] < HURRIED_LOOP_S


def test_a_loop_that_is_late_again_and_again_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    for lag_s in (0.3, 0.6, 2.0):
        assert min(recent_lags(monkeypatch, [lag_s] * 60)[30:]) >= LATE_LOOP_S


def names() -> set[str]:
    """Of all metrics, without the endings of their samples."""
    found: set[str] = set()

    async def work() -> None:
        async with serving(FakeEngine([said("one")])) as service:
            found.update(family.name for family in text_string_to_metric_families(service.measured().decode()))

    run(work())
    return found


def test_the_page_for_operators_explains_every_figure() -> None:
    page = (DOCS / "operating.md").read_text(encoding="utf-8")
    explained = {name.removesuffix("_total") for name in re.findall(r"^\| `(liveasr_\w+)", page, re.MULTILINE)}
    assert explained == names()


def test_the_board_asks_only_for_figures_that_exist() -> None:
    board = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
    asked = set(re.findall(r"liveasr_\w+", json.dumps(board["panels"])))
    bare = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked}
    assert bare <= names()
    assert len(board["panels"]) >= 8

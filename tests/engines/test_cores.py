"""What each of several computations gets of the cores."""

import threading
from pathlib import Path

import numpy as np
import pytest

from liveasr import store
from liveasr.engines import cores, native
from liveasr.engines.base import DecodeOptions
from liveasr.engines.cores import CoreShare
from liveasr.engines.lanes import more_lanes
from liveasr.engines.quantize import quantize
from liveasr.engines.registry import open_engine


@pytest.mark.parametrize(
    ("available", "most", "shares"),
    [(2, 2, [2, 1, 1]), (8, 4, [4, 4, 2, 2, 1]), (1, 1, [1, 1]), (4, 1, [1, 1]), (2, 6, [6, 3, 2, 1])],
)
def test_cores_are_divided_among_what_runs(
    available: int, most: int, shares: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: available)
    share = CoreShare()
    running = [share.part(most) for _ in shares]
    assert [each.__enter__() for each in running] == shares
    for each in running:
        each.__exit__(None, None, None)
    with share.part(most) as threads:
        assert threads == shares[0]


def test_a_computation_that_fails_gives_its_part_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 4)
    share = CoreShare()
    with pytest.raises(KeyError), share.part(4):
        raise KeyError
    with share.part(4) as threads:
        assert threads == 4


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_results_do_not_depend_on_the_part(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.built_in("digits")
    if kind == "q8_0":
        path = tmp_path / "digits.gguf"
        quantize(store.built_in("digits"), path, "q8_0")
    monkeypatch.setattr(cores, "available_cores", lambda: 4)
    share = CoreShare()
    monkeypatch.setattr(native, "CORES", share)
    engine = open_engine(path, 4)
    features = np.random.default_rng(2).normal(12, 3, (70, 560)).astype(np.float32)
    alone = engine.encode(features, DecodeOptions())
    with share.part(4), share.part(4):
        np.testing.assert_array_equal(engine.encode(features, DecodeOptions()), alone)
    engine.close()


def test_lanes_at_the_same_time_compute_what_each_does_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liveasr.engines.lanes.available_cores", lambda: 4)
    engine = open_engine(store.built_in("digits"), 4)
    lanes = [engine, *more_lanes(engine)]
    inputs = [np.random.default_rng(n).normal(12, 3, (20 + 9 * n, 560)).astype(np.float32) for n in range(len(lanes))]
    alone = [engine.encode(each, DecodeOptions()) for each in inputs]
    failures: list[int] = []

    def work(number: int) -> None:
        found = [lanes[number].encode(inputs[number], DecodeOptions()) for _ in range(20)]
        failures.extend(number for each in found if not np.array_equal(each, alone[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(lanes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lanes) == 4
    assert failures == []
    for lane in reversed(lanes):
        lane.close()

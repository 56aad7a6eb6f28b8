"""A little of what tests/fuzz_wire.py does at length: nothing breaks, nothing hangs, nothing is left."""

import asyncio
import random

import pytest

from tests.fuzz_frames import conversation, mutated, raw_bytes
from tests.fuzz_server import fuzz
from tests.fuzz_wire import fuzz_codec, fuzz_service
from tests.servers import ServerProcess


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_codec_takes_what_comes_or_says_what_is_wrong(seed: int) -> None:
    tally = fuzz_codec(700, seed)
    assert tally.messages > 5_000
    assert {"bad_message", "misnumbered", "wrong_order", "client bad_message"} <= tally.codes.keys()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_service_ends_every_session_and_none_disturbs_another(seed: int) -> None:
    tally = asyncio.run(fuzz_service(500, seed))
    assert tally.steady > 0
    assert {"ready", "resumed", "done"} == tally.kinds.keys()
    assert {"bad_message", "misnumbered", "wrong_order", "gone", "unsupported"} <= tally.codes.keys()


def test_a_server_outlives_bytes_of_any_kind() -> None:
    with ServerProcess() as server:
        tally = fuzz(server, 60, 1)
        assert tally.sequences == 60
        code, _out, err = server.stop()
    assert code == 0, err
    assert "Traceback" not in err, err


def test_a_seed_makes_the_same_again() -> None:
    for make in (lambda chance: mutated(conversation(chance), chance), raw_bytes):
        assert make(random.Random(5)) == make(random.Random(5))  # noqa: S311

"""The process of the language model: fresh for every sequence, and no harm to anybody when it dies."""

import errno
import importlib.util
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from liveasr.engines import llm_running
from liveasr.engines.base import DecodeOptions
from liveasr.engines.llm_process import LlmLane, LlmProcess, NobodyWaitsError
from liveasr.engines.llm_running import LanguageModelDiedError
from liveasr.engines.prompt import Prompt, prompt_for
from liveasr.errors import EngineError, MissingExtraError, ModelFileError
from liveasr.types import Float32Array
from tests.engines.conftest import ConvertedNano

TOKENS = 12
PROMPT = prompt_for(DecodeOptions())
WITH_HOTWORDS = prompt_for(DecodeOptions("zh", hotwords=("开放时间", "liveasr")))


def segment(seed: int, rows: int) -> Float32Array:
    return np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)


SEGMENTS = [(PROMPT, segment(1, 3)), (WITH_HOTWORDS, segment(2, 30)), (PROMPT, segment(3, 11))]


def written(lane: LlmLane, prompt: Prompt, rows: Float32Array, count: int = TOKENS) -> list[int]:
    ids = [lane.begin(prompt, rows, count).id]
    while len(ids) < count:
        ids.append(lane.next().id)
    return ids


@pytest.fixture
def process(tiny_nano: ConvertedNano) -> Iterator[LlmProcess]:
    process = LlmProcess(tiny_nano.language_model(), 1)
    yield process
    process.close()


@pytest.fixture(scope="module")
def alone(tiny_nano: ConvertedNano) -> list[list[int]]:
    """What is written of each segment alone in a process of its own."""
    ids = []
    for prompt, rows in SEGMENTS:
        process = LlmProcess(tiny_nano.language_model(), 1)
        ids.append(written(process.lane(), prompt, rows))
        process.close()
    return ids


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone_or_dead(pid: int) -> bool:
    """Whether a process ends within a few seconds, waited for or not."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
        if not state or state.startswith("Z"):
            return True
        time.sleep(0.02)
    return False


def stop(pid: int) -> None:
    """Stop a process, and wait until it is: what it has been asked meanwhile it may still answer."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        if subprocess.run(command, capture_output=True, text=True, check=False).stdout.startswith("T"):
            return
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process ends within a few seconds."""
    until = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_running(pid)


def test_the_segments_differ(alone: list[list[int]]) -> None:
    assert len({tuple(ids) for ids in alone}) == len(SEGMENTS)


def test_every_order_of_segments_is_written_as_each_alone(process: LlmProcess, alone: list[list[int]]) -> None:
    lane = process.lane()
    for order in permutations(range(len(SEGMENTS))):
        for index in (*order, order[-1]):
            assert written(lane, *SEGMENTS[index]) == alone[index]


def test_a_sequence_given_up_in_the_middle_leaves_nothing(process: LlmProcess, alone: list[list[int]]) -> None:
    lane = process.lane()
    written(lane, *SEGMENTS[1], 5)
    lane.begin(*SEGMENTS[2], TOKENS)
    assert written(lane, *SEGMENTS[0]) == alone[0]


def test_lanes_at_the_same_time_write_as_each_alone(process: LlmProcess, alone: list[list[int]]) -> None:
    found: dict[int, list[list[int]]] = {}

    def work(index: int) -> None:
        lane = process.lane()
        found[index] = [written(lane, *SEGMENTS[index]) for _ in range(8)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(SEGMENTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {index: [ids] * 8 for index, ids in enumerate(alone)}


def test_a_prompt_that_needs_a_larger_context_changes_nothing(process: LlmProcess, alone: list[list[int]]) -> None:
    lane = process.lane()
    long_prompt = prompt_for(DecodeOptions(hotwords=tuple(f"word{index}" for index in range(100))))
    assert written(lane, *SEGMENTS[0]) == alone[0]
    longest = written(lane, long_prompt, segment(4, 100))
    assert written(lane, *SEGMENTS[0]) == alone[0]
    assert written(process.lane(), long_prompt, segment(4, 100)) == longest


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_an_error_and_poison_nothing_that_follows(
    process: LlmProcess, alone: list[list[int]], value: float
) -> None:
    lane = process.lane()
    rows = np.full((5, 64), value, np.float32)
    with pytest.raises(EngineError, match="numbers that are none"):
        written(lane, PROMPT, rows)
    assert [written(lane, *each) for each in SEGMENTS] == alone


def test_huge_numbers_poison_nothing_that_follows(process: LlmProcess, alone: list[list[int]]) -> None:
    lane = process.lane()
    written(lane, PROMPT, np.full((5, 64), 1e30, np.float32))
    assert [written(lane, *each) for each in SEGMENTS] == alone


def test_more_than_the_model_can_hold_is_an_error_that_says_what_to_do(process: LlmProcess) -> None:
    with pytest.raises(EngineError, match="the language model holds 40960: fewer hot words or shorter segments"):
        process.lane().begin(PROMPT, segment(1, 5), 50_000)


def test_a_killed_process_fails_what_it_was_at_and_is_started_anew(process: LlmProcess, alone: list[list[int]]) -> None:
    lane, other = process.lane(), process.lane()
    written(other, *SEGMENTS[1])
    lane.begin(*SEGMENTS[0], TOKENS)
    before = process.pid
    os.kill(before, signal.SIGKILL)
    with pytest.raises(LanguageModelDiedError, match="was killed by SIGKILL"):
        written(lane, *SEGMENTS[0])
    assert written(lane, *SEGMENTS[0]) == alone[0]
    with pytest.raises(LanguageModelDiedError):
        written(other, *SEGMENTS[1])
    assert written(other, *SEGMENTS[1]) == alone[1]
    assert process.pid != before
    assert gone(before)


def test_a_process_that_dies_while_it_starts_can_be_tried_again(
    process: LlmProcess, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(process.pid, signal.SIGKILL)
    assert gone_or_dead(process.pid)
    monkeypatch.setattr(llm_running, "_MODULE", "liveasr.engines.no_such_module")
    lane = process.lane()
    with pytest.raises(LanguageModelDiedError, match="cannot be started"):
        written(lane, *SEGMENTS[0])
    monkeypatch.undo()
    assert written(lane, *SEGMENTS[0]) == alone[0]


def test_a_process_that_falls_silent_is_replaced(
    process: LlmProcess, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = process.lane()
    lane.begin(*SEGMENTS[0], TOKENS)
    silent = process.pid
    stop(silent)
    monkeypatch.setattr(llm_running, "ANSWER_S", 0.5)
    with pytest.raises(LanguageModelDiedError, match="did not answer"):
        lane.next()
    assert gone(silent)
    monkeypatch.undo()
    assert written(lane, *SEGMENTS[0]) == alone[0]


def test_a_stopped_process_is_replaced_also_where_the_prompt_is_more_than_the_sockets_hold(
    process: LlmProcess, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_running, "ANSWER_S", 0.5)
    lane = process.lane()
    written(lane, *SEGMENTS[0])
    stopped = process.pid
    stop(stopped)
    with pytest.raises(LanguageModelDiedError, match="did not answer"):
        lane.begin(PROMPT, segment(5, 8_000), TOKENS)
    assert gone(stopped)
    monkeypatch.undo()
    assert written(lane, *SEGMENTS[0]) == alone[0]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGRTMIN + 3])
def test_whatever_signal_kills_it_is_told(process: LlmProcess, number: int) -> None:
    lane = process.lane()
    lane.begin(*SEGMENTS[0], TOKENS)
    os.kill(process.pid, number)
    with pytest.raises(LanguageModelDiedError, match=f"was killed by (SIGSEGV|signal {number})"):
        written(lane, *SEGMENTS[0])


def test_all_lanes_that_find_it_dead_at_the_same_time_are_told_the_same(process: LlmProcess) -> None:
    lanes = [process.lane() for _ in range(8)]
    for lane in lanes:
        lane.begin(*SEGMENTS[0], TOKENS)
    found: list[str] = []
    together = threading.Barrier(len(lanes))

    def work(lane: LlmLane) -> None:
        together.wait()
        try:
            lane.next()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    os.kill(process.pid, signal.SIGKILL)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["LanguageModelDiedError: the language model was killed by SIGKILL"] * len(lanes)


def test_a_lane_for_which_there_is_no_descriptor_leaves_the_others_their_process(
    process: LlmProcess, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    lane = process.lane()
    lane.begin(*SEGMENTS[0], TOKENS)
    pid = process.pid
    monkeypatch.setattr(socket, "socketpair", none_left)
    with pytest.raises(EngineError, match="the language model cannot be reached: Too many open files"):
        process.lane().begin(*SEGMENTS[0], TOKENS)
    assert process.pid == pid
    assert written(lane, *SEGMENTS[0]) == alone[0]


def test_a_process_for_which_there_is_no_descriptor_is_an_error_of_one_line(
    tiny_nano: ConvertedNano, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", none_left)
    with pytest.raises(EngineError, match="the language model cannot be started: Too many open files"):
        LlmProcess(tiny_nano.language_model(), 1)


def test_it_starts_where_no_temporary_file_can_be_made(
    tiny_nano: ConvertedNano, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_usable() -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", none_usable)
    process = LlmProcess(tiny_nano.language_model(), 1)
    lane = process.lane()
    assert written(lane, *SEGMENTS[0]) == alone[0]
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(LanguageModelDiedError, match=r"was killed by SIGKILL$"):
        lane.next()
    process.close()


def test_a_start_that_dies_may_be_tried_again(
    process: LlmProcess, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = process.lane()
    lane.begin(*SEGMENTS[0], TOKENS)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(LanguageModelDiedError):
        lane.next()
    with monkeypatch.context() as patched:
        patched.setattr(llm_running, "_MODULE", "liveasr.engines.no_such_module")
        with pytest.raises(LanguageModelDiedError, match="cannot be started: it ended with exit code 1"):
            lane.begin(*SEGMENTS[0], TOKENS)
    assert written(lane, *SEGMENTS[0]) == alone[0]


def test_whoever_waits_no_more_is_free_at_once_and_the_process_goes_on(
    process: LlmProcess, alone: list[list[int]]
) -> None:
    lane = process.lane()
    written(lane, *SEGMENTS[0])
    pid = process.pid
    stop(pid)
    begun = time.monotonic()
    with pytest.raises(NobodyWaitsError):
        lane.begin(*SEGMENTS[1], TOKENS, lambda: False)
    assert time.monotonic() - begun < 5
    os.kill(pid, signal.SIGCONT)
    assert written(lane, *SEGMENTS[1]) == alone[1]
    assert process.pid == pid


def test_deaths_are_counted_until_something_is_written(process: LlmProcess) -> None:
    lane = process.lane()
    for deaths in (1, 2):
        stop(process.pid)
        killing = threading.Timer(0.3, os.kill, (process.pid, signal.SIGKILL))
        killing.start()
        with pytest.raises(LanguageModelDiedError):
            lane.begin(*SEGMENTS[0], TOKENS)
        killing.join()
        assert process.deaths == deaths
        assert process.lane() is not lane
        if deaths == 1:
            process.connect().connection.close()  # started anew
    written(lane, *SEGMENTS[0])
    assert process.deaths == 0


def test_what_this_process_can_import_the_other_can(
    tiny_nano: ConvertedNano, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere_llm_server.py").write_text("import sys; sys.exit('found')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(llm_running, "_MODULE", "elsewhere_llm_server")
    with pytest.raises(EngineError, match="ended with exit code 1: found"):
        LlmProcess(tiny_nano.language_model(), 1)


def test_closing_ends_the_process_and_what_follows_is_an_error(process: LlmProcess) -> None:
    lane = process.lane()
    written(lane, *SEGMENTS[0])
    pid = process.pid
    process.close()
    process.close()
    assert gone(pid)
    with pytest.raises(EngineError):
        written(lane, *SEGMENTS[0])
    with pytest.raises(EngineError, match="used after close"):
        written(process.lane(), *SEGMENTS[0])
    lane.close()
    lane.close()


def test_a_forgotten_process_ends_with_its_last_reference(tiny_nano: ConvertedNano) -> None:
    pid = LlmProcess(tiny_nano.language_model(), 1).pid
    assert gone(pid)


def test_the_process_does_not_outlive_whoever_started_it(tiny_nano: ConvertedNano) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from liveasr.engines.llm_process import LlmProcess\n"
        "process = LlmProcess(Path(sys.argv[1]), 1)\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tiny_nano.language_model())], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert gone(int(done.stdout))


def test_the_signals_of_a_terminal_do_not_reach_it(process: LlmProcess) -> None:
    assert os.getpgid(process.pid) != os.getpgid(0)


def test_a_module_in_the_working_directory_is_not_run(
    tiny_nano: ConvertedNano, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('caught')")
    model = tiny_nano.language_model()
    monkeypatch.chdir(tmp_path)
    LlmProcess(model, 1).close()


def test_a_file_that_is_no_language_model_is_named(tmp_path: Path, tiny_nano: ConvertedNano) -> None:
    whole = tiny_nano.language_model().read_bytes()
    broken = tmp_path / "broken.gguf"
    for content in (b"", b"GGUF", whole[: len(whole) // 2], whole[:-100]):
        broken.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"broken.gguf: llama.cpp cannot load it: .+"):
            LlmProcess(broken, 1)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"qwen3", b"qwenX", "llama.cpp cannot load it: .*unknown model architecture: 'qwenX'"),
        (b"<|im_start|>", b"<|im_stray|>", r"has no token <\|im_start\|>"),
        (b"<|im_end|>", b"<|im_and|>", r"has no token <\|im_end\|>"),
        (
            b"qwen3.context_length" + struct.pack("<II", 4, 40960),
            b"qwen3.context_length" + struct.pack("<II", 4, 100),
            "holds 100 tokens at a time",
        ),
    ],
)
def test_a_language_model_that_is_not_ours_is_refused_with_the_cause(
    tmp_path: Path, tiny_nano: ConvertedNano, old: bytes, new: bytes, reason: str
) -> None:
    whole = tiny_nano.language_model().read_bytes()
    assert old in whole
    other = tmp_path / "other.gguf"
    other.write_bytes(whole.replace(old, new))
    with pytest.raises(ModelFileError, match=f"other.gguf: {reason}"):
        LlmProcess(other, 1)


def test_an_assertion_that_fails_in_it_has_the_last_word(tmp_path: Path, tiny_nano: ConvertedNano) -> None:
    whole = tiny_nano.language_model().read_bytes()
    key = b"qwen3.block_count"
    at = whole.index(key) + len(key) + 4
    other = tmp_path / "other.gguf"
    other.write_bytes(whole[:at] + struct.pack("<I", 0) + whole[at + 4 :])
    with pytest.raises(
        LanguageModelDiedError, match=r"other.gguf cannot be started: it was killed by SIGABRT: .*ASSERT"
    ):
        LlmProcess(other, 1)


def test_a_process_that_cannot_start_is_an_error_with_its_last_words(
    tiny_nano: ConvertedNano, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_running, "_MODULE", "liveasr.engines.no_such_module")
    with pytest.raises(EngineError, match=r"cannot be started: it ended with exit code 1: .*no_such_module"):
        LlmProcess(tiny_nano.language_model(), 1)


def test_without_llama_cpp_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "llama_cpp" else find(name))
    with pytest.raises(MissingExtraError, match=r"pip install 'liveasr\[nano\]'"):
        LlmProcess(Path("any.gguf"), 1)

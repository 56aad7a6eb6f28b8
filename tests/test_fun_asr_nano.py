"""Fun-ASR-Nano as people use it: commands, a server, and what happens when its language model dies.

One model was trained on spoken digits. The weights of the other are random, so its text is no language, and hardly ever
ends; what it may not do is depend on what else goes on.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from liveasr.engines.convert import convert
from liveasr.stream.messages import Start
from liveasr.types import LiveTranscript
from tests.command import run_process
from tests.servers import ServerProcess, captions

HOTWORDS = ((), ("开放时间",), ("liveasr", "ggml"))


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files, by the names under which they are published."""
    folder = tmp_path_factory.mktemp("published")
    convert(Path(__file__).parent / "golden" / "nano-tiny", folder / "nano.gguf", "f32")
    (folder / "nano-llm.gguf").rename(folder / "qwen3-0.6b-q8_0.gguf")
    return (folder / "nano.gguf").rename(folder / "funasr-encoder-f16.gguf")


@pytest.fixture(scope="module")
def digits_nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on spoken digits, so that its text is what was said."""
    path = tmp_path_factory.mktemp("digits") / "digits-nano.gguf"
    convert(Path(__file__).parent / "golden" / "digits-nano", path, "f16")
    return path


def texts(nano: Path, recording: Path, hotwords: Sequence[str] = ()) -> list[str]:
    """What is written of a recording, in a process of its own."""
    words = [part for word in hotwords for part in ("--hotword", word)]
    result = run_process("transcribe", "--model", str(nano), "-f", "json", *words, str(recording))
    assert result.returncode == 0, result.stderr
    return [segment["text"] for segment in json.loads(result.stdout)["segments"]]


def finals(heard: Sequence[LiveTranscript]) -> list[str]:
    return [each.final.text for each in heard if each.final is not None]


def language_model_of(server: ServerProcess) -> int:
    """The number of the process that a server's language model has."""
    pid = server.process.pid
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    (child,) = found.stdout.split()
    return int(child)


def test_the_published_names_are_found_in_the_models_folder(nano: Path, data: Path) -> None:
    recording = str(data / "digits-clean.wav")
    by_name = run_process("transcribe", "--model", "fun-asr-nano", recording, LIVEASR_MODELS=str(nano.parent))
    by_path = run_process("transcribe", "--model", str(nano), recording)
    assert by_name.returncode == 0, by_name.stderr
    assert by_name.stdout == by_path.stdout
    assert len(by_name.stdout.splitlines()) == 3


def test_what_is_said_is_written_in_files_live_and_by_a_server(digits_nano: Path, data: Path) -> None:
    recording = data / "digits-clean.wav"
    words = ["three one four", "one five nine two", "six five"]
    assert texts(digits_nano, recording) == texts(digits_nano, recording, ["seven"]) == words
    for command in ("transcribe", "live"):
        source = ("--file",) if command == "live" else ()
        result = run_process(command, "--model", str(digits_nano), "--itn", *source, str(recording))
        assert result.returncode == 0, result.stderr
        assert [line.partition("]  ")[2] for line in result.stdout.splitlines()] == ["314", "1592", "65"]
    with ServerProcess("--model", str(digits_nano), "--partials", "digits") as server:
        heard = asyncio.run(asyncio.wait_for(captions(server.url, recording, at_speed=2), 60))
        figures = httpx.get(f"{server.url}/metrics").text
        assert server.stop()[0] == 0
    assert finals(heard) == words
    assert "liveasr_second_looks_total{" not in figures  # each came to its end, and said as much as was heard


def test_tokens_are_shown_as_they_are_written(digits_nano: Path, data: Path) -> None:
    with ServerProcess("--model", str(digits_nano), "--partials", "none") as server:
        heard = asyncio.run(asyncio.wait_for(captions(server.url, data / "digits-clean.wav"), 60))
        assert server.stop()[0] == 0
    first = [each for each in heard if each.segment_id == 0]
    assert {each.committed for each in first[:-1]} <= {""}
    assert {each.tentative for each in first[:-1]} <= {"three", "three one", "three one four"}
    assert (first[-1].committed, first[-1].is_final) == ("three one four", True)
    assert any(not each.is_final for each in heard)


def test_the_order_of_recordings_changes_nothing(nano: Path, data: Path, tmp_path: Path) -> None:
    recordings = [data / "digits-clean.wav", data / "digits-noisy.wav"]
    alone = [texts(nano, each) for each in recordings]
    for order in (recordings, recordings[::-1]):
        folder = tmp_path / order[0].stem
        result = run_process("transcribe", "--model", str(nano), "-f", "json", "-o", f"{folder}/", *map(str, order))
        assert result.returncode == 0, result.stderr
        for recording, expected in zip(recordings, alone, strict=True):
            document = json.loads((folder / f"{recording.stem}.json").read_text())
            assert [segment["text"] for segment in document["segments"]] == expected


def test_sessions_at_the_same_time_get_what_each_gets_alone(nano: Path, data: Path) -> None:
    recording = data / "digits-clean.wav"

    async def all_at_once(url: str) -> list[list[LiveTranscript]]:
        return await asyncio.gather(*(captions(url, recording, Start(hotwords=words)) for words in HOTWORDS * 2))

    with ServerProcess("--model", str(nano), "--partials", "none") as server:
        heard = asyncio.run(asyncio.wait_for(all_at_once(server.url), 60))
        assert server.stop()[0] == 0
    for index, words in enumerate(HOTWORDS):
        alone = texts(nano, recording, words)
        assert finals(heard[index]) == finals(heard[index + len(HOTWORDS)]) == alone
    assert len({tuple(finals(each)) for each in heard}) == len(HOTWORDS)  # hot words do change something
    drafts = [each for each in heard[0] if not each.is_final]
    assert len(drafts) > 3
    assert all(each.tentative for each in drafts)


def test_two_passes_show_the_quick_text_first_and_then_what_is_written(nano: Path, data: Path) -> None:
    with ServerProcess("--model", str(nano), "--partials", "digits") as server:
        heard = asyncio.run(asyncio.wait_for(captions(server.url, data / "digits-clean.wav", at_speed=1), 60))
        figures = httpx.get(f"{server.url}/metrics").text
        code, _, log = server.stop()
        assert code == 0
    assert 'liveasr_decode_seconds_count{kind="final",model="funasr-encoder-f16"} 3.0' not in figures
    assert 'liveasr_decode_seconds_count{kind="final",model="fun-asr-nano"} 3.0' in figures
    assert 'kind="partial",model="digits"' in figures
    said = ["three one four", "one five nine two", "six five"]
    before = [each for each in heard if not each.is_final]
    for segment_id, words in enumerate(said):
        assert any(each.segment_id == segment_id and each.committed == words for each in before)
    assert any(each.committed in said and each.tentative for each in before)  # drafts, behind what was heard first
    # Random weights hardly ever come to an end; then what the partials agreed on stands.
    rescued = [text for text, words in zip(finals(heard), said, strict=True) if text == words]
    assert f'liveasr_second_looks_total{{model="fun-asr-nano",outcome="partial"}} {len(rescued)}.0' in figures
    assert rescued
    assert "Traceback" not in log


def test_a_language_model_that_is_killed_costs_no_session_and_no_text(nano: Path, data: Path) -> None:
    recording = data / "digits-clean.wav"

    async def work(server: ServerProcess) -> list[list[LiveTranscript]]:
        async def kill() -> None:
            for _ in range(2):
                await asyncio.sleep(0.3)
                with_one = await asyncio.to_thread(language_model_of, server)
                os.kill(with_one, signal.SIGKILL)

        killing = asyncio.create_task(kill())
        found = await asyncio.gather(*(captions(server.url, recording) for _ in range(2)))
        await killing
        return found

    alone = texts(nano, recording)
    with ServerProcess("--model", str(nano), "--partials", "none") as server:
        heard = asyncio.run(asyncio.wait_for(work(server), 60))
        again = asyncio.run(asyncio.wait_for(captions(server.url, recording), 60))
        code, _, log = server.stop()
        assert code == 0
    assert [finals(each) for each in (*heard, again)] == [alone] * 3
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_language_model_ends_with_the_server_whatever_ends_it(nano: Path, number: int) -> None:
    with ServerProcess("--model", str(nano), "--partials", "none") as server:
        child = language_model_of(server)
        server.stop(number)
    until = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_without_llama_cpp_everything_else_works_and_it_is_said_how_to_get_it(
    nano: Path, data: Path, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = staticmethod(\n"
        "    lambda name, *rest: None if name == 'llama_cpp' else find(name, *rest)\n"
        ")\n"
    )
    extra = {"PYTHONPATH": str(hidden)}
    recording = str(data / "digits-clean.wav")
    refused = run_process("transcribe", "--model", "fun-asr-nano", recording, LIVEASR_MODELS=str(nano.parent), **extra)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert "pip install 'liveasr[nano]'" in line
    assert "C++ compiler" in line
    for model in ("digits", "digits-paraformer"):
        result = run_process("transcribe", "--model", model, recording, **extra)
        assert result.returncode == 0, result.stderr
        assert "three one four" in result.stdout
    alone = run_process("transcribe", recording, LIVEASR_MODELS=str(nano.parent), **extra)
    assert alone.returncode == 1
    assert "fun-asr-nano is installed, but lacks something; --model fun-asr-nano says what" in alone.stderr

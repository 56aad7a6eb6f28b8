"""Two passes with real engines: one model gives the partials, another has the last word.

The streaming Paraformer has random weights, so its text is no language; what it may not do is change the finals.
"""

import asyncio
from pathlib import Path

import httpx
import pytest

from liveasr import options, store
from liveasr.engines.base import DecodeOptions, StreamingEngine
from liveasr.engines.convert import convert
from liveasr.engines.registry import open_engine
from liveasr.errors import UsageError
from liveasr.stream.decode import AudioFile
from liveasr.stream.detect import detector_maker
from liveasr.stream.live_recognizer import LiveRecognizer
from liveasr.types import LiveTranscript
from liveasr.vad.config import VadConfig
from tests.command import run_process
from tests.fakes import FakeAutoregressiveEngine, said
from tests.servers import ServerProcess, captions

SAID = ["three one four", "one five nine two", "six five"]


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-streaming.gguf"
    convert(Path(__file__).parent / "golden" / "paraformer-streaming-tiny", path, "f32")
    return path


def test_captions_of_two_models_end_as_the_second_says(streaming: Path, data: Path) -> None:
    recording = str(data / "digits-clean.wav")
    result = run_process("live", "--file", recording, "--model", "digits", "--partials", str(streaming))
    assert result.returncode == 0, result.stderr
    alone = run_process("live", "--file", recording, "--model", "digits")
    assert result.stdout == alone.stdout
    assert [line.partition("]  ")[2] for line in result.stdout.splitlines()] == SAID


def test_a_language_that_only_the_second_model_can_be_told_is_told_to_that_one(streaming: Path, data: Path) -> None:
    recording = str(data / "digits-clean.wav")
    result = run_process(
        "live", "--file", recording, "--model", "digits", "--partials", str(streaming), "--language", "en"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert [line.partition("]  ")[2] for line in result.stdout.splitlines()] == SAID


def test_a_model_that_does_not_stream_gives_partials_too(data: Path) -> None:
    recording = str(data / "digits-clean.wav")
    result = run_process("live", "--file", recording, "--model", "digits-paraformer", "--partials", "digits")
    assert result.returncode == 0, result.stderr
    alone = run_process("live", "--file", recording, "--model", "digits-paraformer")
    assert result.stdout == alone.stdout
    with ServerProcess("--model", "digits-paraformer", "--partials", "digits") as server:
        seen = asyncio.run(asyncio.wait_for(captions(server.url, data / "digits-clean.wav"), 60))
        figures = httpx.get(f"{server.url}/metrics").text
        assert server.stop()[0] == 0
    assert 'liveasr_decode_seconds_count{kind="partial",model="digits"}' in figures
    assert 'liveasr_decode_seconds_count{kind="partial",model="digits-paraformer"}' not in figures
    assert 'liveasr_decode_seconds_count{kind="final",model="digits-paraformer"} 3.0' in figures
    assert len([each for each in seen if each.final]) == 3
    assert any(not each.is_final for each in seen)


def test_a_model_that_writes_gives_no_partials_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeAutoregressiveEngine([said("never")])
    monkeypatch.setattr(options, "open_engine", lambda _path, _threads: engine)
    with pytest.raises(UsageError, match=r"--partials digits: .*as paraformer-streaming or sensevoice-small"):
        options.open_partials(Path("digits.gguf"), None)
    assert engine.closed


def test_a_server_has_its_own_partials(streaming: Path, data: Path) -> None:
    result = run_process(
        "live", "--file", str(data / "digits-clean.wav"), "--server", "http://127.0.0.1:1", "--partials", "x"
    )
    assert result.returncode == 1
    assert "--partials cannot be set together with --server" in result.stderr
    with ServerProcess("--model", "digits", "--partials", str(streaming)) as server:
        seen = asyncio.run(asyncio.wait_for(captions(server.url, data / "digits-clean.wav"), 60))
        assert httpx.get(f"{server.url}/ready").status_code == 200
        figures = httpx.get(f"{server.url}/metrics").text
        assert f'liveasr_decode_seconds_count{{kind="partial",model="{streaming.stem}"}}' in figures
        assert 'liveasr_decode_seconds_count{kind="final",model="digits"} 3.0' in figures
        code, _out, err = server.stop()
    assert (code, "Traceback" in err) == (0, False)
    assert [each.final.text for each in seen if each.final] == SAID
    assert any(not each.is_final for each in seen)


def test_a_model_that_streams_gives_its_own_partials_and_finals(streaming: Path, data: Path) -> None:
    """Its finals are those of the whole segment at once, which its partials begin."""
    engine = open_engine(streaming, threads=1)
    assert isinstance(engine, StreamingEngine)
    seen: list[LiveTranscript] = []

    async def work() -> None:
        recognizer = LiveRecognizer([engine], detector_maker("fsmn"))
        stream = recognizer.open(DecodeOptions(), VadConfig())
        with AudioFile(data / "digits-clean.wav") as audio:
            for block in audio.blocks():
                for start in range(0, block.size, 1600):
                    await stream.feed(block[start : start + 1600])
                    await asyncio.sleep(0.01)
        await stream.finish()
        seen.extend([each async for each in stream.outputs() if isinstance(each, LiveTranscript)])
        await recognizer.close()

    asyncio.run(asyncio.wait_for(work(), 60))
    finals = {each.segment_id: each.final for each in seen if each.final}
    assert len(finals) == 3
    for each in seen:
        final = finals[each.segment_id]
        assert final is not None
        assert final.text.startswith(each.committed)


def test_the_built_in_models_do_not_stream() -> None:
    for name in store.DEMONSTRATION_MODELS:
        engine = open_engine(store.built_in(name), threads=1)
        assert not isinstance(engine, StreamingEngine)
        engine.close()

"""What is made of the options of the command line: who gives the partials, which model is taken, what it is asked."""

import logging
from pathlib import Path
from typing import Any

import pytest

from liveasr import options, store
from liveasr.engines import nano_files, paraformer, sensevoice, streaming_model
from liveasr.engines.base import MAX_SEGMENT_MS, DecodeOptions, Engine
from liveasr.errors import ModelNotFoundError, UsageError
from liveasr.vad.config import VadConfig
from tests.fakes import FakeAutoregressiveEngine, FakeEngine, FakeStreamingEngine, said
from tests.helpers import write_gguf
from tests.models import write_model

STREAMING, SENSEVOICE, PARAFORMER = streaming_model.ARCHITECTURE, sensevoice.ARCHITECTURE, paraformer.ARCHITECTURE
WRITER = FakeAutoregressiveEngine([said("a")])
VAD: dict[str, Any] = {
    "end_silence_ms": 800, "schedule": False, "speech_threshold": None, "min_speech_ms": 0, "pad_before_ms": 0,
    "pad_after_ms": 0,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def nano(folder: Path) -> Path:
    """Its two files, as they are published."""
    write_model(folder / "qwen3-0.6b-q8_0.gguf", "qwen3", "q8_0", metadata={"qwen3.embedding_length": 64})
    return write_gguf(folder / "funasr-encoder-f16.gguf", store.NANO_ARCHITECTURE, {"funasr.adp.llm_dim": 64}, {})


# Who gives the partials.


@pytest.mark.parametrize(
    ("installed", "best"),
    [
        ({"a": PARAFORMER, "b": SENSEVOICE, "c": STREAMING}, "c"),
        ({"a": PARAFORMER, "b": SENSEVOICE}, "b"),
        ({"a": PARAFORMER}, "a"),
    ],
)
def test_a_model_that_writes_token_by_token_gets_the_best_other_one_with_a_notice(
    folder: Path, caplog: pytest.LogCaptureFixture, installed: dict[str, str], best: str
) -> None:
    nano(folder)
    for name, architecture in installed.items():
        write_model(folder / f"{name}.gguf", architecture, "f16")
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert options.partials_for(WRITER, "fun-asr-nano", None) == folder / f"{best}.gguf"
    assert [f"comes from {best}, and fun-asr-nano has the last word" in each for each in caplog.messages] == [True]


def test_without_another_model_there_are_no_partials_and_the_notice_says_how_to_get_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nano(folder)
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert options.partials_for(WRITER, "fun-asr-nano", None) is None
    assert len(caplog.messages) == 1
    assert store.download_command() in caplog.messages[0]
    assert "--partials none" in caplog.messages[0]


def test_the_demonstration_helps_a_demonstration_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "DEMONSTRATION_MODELS", (*store.DEMONSTRATION_MODELS, "digits-nano"))
    write_model(folder / "sensevoice-small-q8.gguf", SENSEVOICE, "q8_0")
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert options.partials_for(WRITER, "digits-nano", None) == store.built_in("digits")
    assert ["comes from digits," in each for each in caplog.messages] == [True]


@pytest.mark.parametrize("engine", [FakeEngine([said("a")]), FakeStreamingEngine(["a"], 5)])
def test_other_models_need_none(folder: Path, caplog: pytest.LogCaptureFixture, engine: Engine) -> None:
    write_model(folder / "streaming.gguf", STREAMING, "f16")
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert options.partials_for(engine, "any", None) is None
    assert caplog.messages == []


@pytest.mark.parametrize("engine", [FakeEngine([said("a")]), WRITER])
def test_whoever_names_a_model_or_none_is_heeded(
    folder: Path, caplog: pytest.LogCaptureFixture, engine: Engine
) -> None:
    path = write_model(folder / "mine.gguf", PARAFORMER, "f16")
    write_model(folder / "streaming.gguf", STREAMING, "f16")
    with caplog.at_level(logging.WARNING, "liveasr"):
        assert options.partials_for(engine, "any", "mine") == path
        assert options.partials_for(engine, "any", "digits") == store.built_in("digits")
        assert options.partials_for(engine, "any", "none") is None
    assert caplog.messages == []
    with pytest.raises(ModelNotFoundError, match="no model named other"):
        options.partials_for(engine, "any", "other")


# Which model is taken.


def test_nano_is_taken_when_it_is_all_there_is_and_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "ARCHITECTURES", (SENSEVOICE, PARAFORMER, STREAMING, store.NANO_ARCHITECTURE))
    monkeypatch.setattr(nano_files, "find_spec", lambda _name: object())
    encoder = nano(folder)
    assert options.best_installed() == encoder
    monkeypatch.setattr(nano_files, "find_spec", lambda _name: None)
    with pytest.raises(ModelNotFoundError, match="fun-asr-nano is installed, but lacks something"):
        options.best_installed()
    monkeypatch.setattr(nano_files, "find_spec", lambda _name: object())
    other = write_model(folder / "zulu.gguf", STREAMING, "q4_0")
    assert options.best_installed() == other
    other.unlink()
    (folder / "qwen3-0.6b-q8_0.gguf").unlink()
    with pytest.raises(ModelNotFoundError, match="fun-asr-nano is installed, but lacks something"):
        options.best_installed()


# What it is asked.


def test_hot_words_are_refused_by_a_model_that_takes_none() -> None:
    with pytest.raises(UsageError, match=r"^--hotword: digits takes no hot words; fun-asr-nano does$"):
        options.open_model("digits", None, None, DecodeOptions(hotwords=("Lagrange",)))


def test_languages_are_refused_with_those_that_a_model_knows() -> None:
    with pytest.raises(UsageError, match=r"^--language ko: digits-paraformer takes auto$"):
        options.open_model("digits-paraformer", None, None, DecodeOptions("ko"))


def test_a_hot_word_that_is_none_is_told_with_the_option() -> None:
    assert options.decode_options("zh", True, ["a", "b c"]) == DecodeOptions("zh", True, ("a", "b c"))
    with pytest.raises(UsageError, match=r"^--hotword: a hot word is empty$"):
        options.decode_options("auto", False, [""])


def test_the_longest_segment_is_the_engines_own_unless_someone_insists() -> None:
    assert options.vad_config(15_000, max_segment_ms=None, **VAD) == VadConfig(max_segment_ms=15_000)
    assert options.vad_config(15_000, max_segment_ms=30_000, **VAD) == VadConfig(max_segment_ms=30_000)
    assert options.vad_config(MAX_SEGMENT_MS, max_segment_ms=None, **VAD) == VadConfig()

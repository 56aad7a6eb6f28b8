"""Fun-ASR-Nano: as the reference, and unable to loop, leak or stall."""

import dataclasses
import json
import os
import signal
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveasr.engines.adaptor import audio_rows
from liveasr.engines.base import AutoregressiveEngine, DecodeOptions
from liveasr.engines.convert import WeightType
from liveasr.engines.funasr_nano import FunAsrNano, is_silent
from liveasr.engines.llm_process import Wanted
from liveasr.engines.llm_running import LanguageModelDiedError
from liveasr.engines.llm_wire import Written
from liveasr.engines.prompt import Prompt
from liveasr.engines.registry import open_engine
from liveasr.engines.writing import most_tokens
from liveasr.errors import EngineError, ModelFileError, UsageError
from liveasr.stream import lfr
from liveasr.stream.decode import AudioFile
from liveasr.stream.fbank import OnlineFbank
from liveasr.types import Float32Array, Hypothesis
from tests.engines.conftest import ConvertedNano
from tests.helpers import edited, lowest_cosine

STEMS = ("digits-clean", "digits-noisy")
ITN = DecodeOptions(itn=True)  # as the reference does unless told otherwise


def opened(path: Path) -> FunAsrNano:
    engine = open_engine(path)
    assert isinstance(engine, FunAsrNano)
    return engine


@pytest.fixture(scope="module")
def engine(tiny_nano: ConvertedNano) -> Iterator[FunAsrNano]:
    engine = opened(tiny_nano())
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def arrays(golden: Path) -> Any:
    return np.load(golden / "nano-tiny.npz")


class ScriptedLane:
    """A language model that says what it is told, and then ends; or dies."""

    def __init__(self, ids: Sequence[int], deaths: int = 0) -> None:
        self.ids = ids
        self.deaths = deaths
        self.asked = 0
        """Tokens."""
        self.rows: list[Float32Array] = []

    def begin(self, prompt: Prompt, rows: Float32Array, most_new: int, wanted: Wanted) -> Written:
        assert prompt.before
        assert most_new > 0
        self.asked = 0
        self.rows.append(rows)
        if self.deaths:
            self.deaths -= 1
            raise LanguageModelDiedError("the language model was killed by SIGKILL")
        return self.next(wanted)

    def next(self, wanted: Wanted) -> Written:  # noqa: ARG002 - it answers at once
        self.asked += 1
        if self.asked > len(self.ids):
            return Written(0, b"", ends=True)
        return Written(self.ids[self.asked - 1], b" w%d" % self.ids[self.asked - 1], ends=False)

    def close(self) -> None:
        pass


@pytest.fixture
def scripted(engine: FunAsrNano, monkeypatch: pytest.MonkeyPatch) -> Any:
    def script(ids: Sequence[int], deaths: int = 0) -> ScriptedLane:
        lane = ScriptedLane(ids, deaths)
        monkeypatch.setattr(engine, "_lane", lane)
        return lane

    return script


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("weight_type", ["f32", "f16", "q8_0"])
def test_encoder_and_adaptor_compute_what_the_reference_does(
    tiny_nano: ConvertedNano, arrays: Any, tolerances: dict[str, Any], stem: str, weight_type: WeightType
) -> None:
    engine = opened(tiny_nano(weight_type))
    features = arrays[f"{stem}/features"]
    for stage, found in (("encoder_out", engine.encode(features, ITN)), ("adaptor_out", engine.embeddings(features))):
        expected = arrays[f"{stem}/{stage}"]
        assert lowest_cosine(found, expected) >= tolerances["engines"][f"cosine_{weight_type}"]["value"], stage
        if weight_type == "f32":
            assert np.abs(found - expected).max() <= tolerances["engines"]["nano_stages"]["value"], stage
    engine.close()


@pytest.mark.parametrize("stem", STEMS)
def test_only_the_first_rows_of_the_adaptor_enter_the_language_model(
    engine: FunAsrNano, scripted: Any, arrays: Any, tolerances: dict[str, Any], stem: str
) -> None:
    lane = scripted([1])
    engine.decode(arrays[f"{stem}/features"], ITN)
    before, after = (len(arrays[f"prompt/default/{part}"]) for part in ("before", "after"))
    expected = arrays[f"{stem}/inputs_embeds"][before:-after]
    assert lane.rows[0].shape == expected.shape
    assert np.abs(lane.rows[0] - expected).max() <= tolerances["engines"]["nano_stages"]["value"]


@pytest.mark.parametrize("stem", STEMS)
def test_the_ids_are_those_of_the_reference_up_to_what_the_audio_holds(
    engine: FunAsrNano, arrays: Any, stem: str
) -> None:
    features = arrays[f"{stem}/features"]
    found = engine.decode(features, ITN)
    assert list(found.token_ids) == arrays[f"{stem}/llm_ids"][: most_tokens(len(features))].tolist()
    assert not found.complete  # random weights never end
    text = "".join(" " if unicodedata.category(char) == "Cc" else char for char in str(arrays[f"{stem}/text"]))
    assert " ".join(text.split()).startswith(found.text[:-1])  # the last may end within a character


@pytest.mark.parametrize("weight_type", ["f32", "f16", "q8_0"])
def test_spoken_digits_are_written_as_the_reference_writes_them(
    digits_nano: ConvertedNano, golden: Path, data: Path, weight_type: WeightType
) -> None:
    ways = {"itn": ITN, "words": DecodeOptions(), "language": DecodeOptions("en", itn=True)}
    expected = json.loads((golden / "digits-nano.json").read_text(encoding="utf-8"))
    segments = json.loads((golden / "vad.json").read_text(encoding="utf-8"))
    engine = opened(digits_nano(weight_type))
    for stem in STEMS:
        with AudioFile(data / f"{stem}.wav") as audio:
            samples = np.concatenate(list(audio.blocks()))
        for index, (start_ms, end_ms) in enumerate(segments[stem]["offline/fixed_800"]):
            frames = OnlineFbank().accept(samples[start_ms * 16 : end_ms * 16]).data
            for way, options in ways.items():
                found = engine.decode(lfr.stack(frames, 7, 6), options)
                golden_one = expected[f"{stem}/{index}/{way}"]
                assert found.text == golden_one["text"]
                assert list(found.token_ids) == golden_one["ids"][:-1]  # the last one is the end
                assert found.complete
    engine.close()


def test_every_number_of_frames_is_heard(engine: FunAsrNano, scripted: Any) -> None:
    rng = np.random.default_rng(0)
    for frames in (*range(1, 20), 100, 250):
        lane = scripted([5, 6])
        features = rng.standard_normal((frames, 560)).astype(np.float32) + 15
        assert engine.decode(features, ITN).text == "w5 w6"
        assert len(lane.rows[0]) == audio_rows(frames)


def test_silence_never_reaches_the_language_model(engine: FunAsrNano, scripted: Any) -> None:
    lane = scripted([1, 2, 3])
    rng = np.random.default_rng(0)
    for level in (0.0, 1e-5, 1e-4):  # the last is -80 dBFS
        samples = (rng.standard_normal(48_000) * level).astype(np.float32)
        features = lfr.stack(OnlineFbank().accept(samples).data, 7, 6)
        assert is_silent(features)
        assert engine.decode(features, ITN) == Hypothesis((), "", ())
    assert engine.decode(np.zeros((0, 560), np.float32), ITN) == Hypothesis((), "", ())
    assert lane.rows == []


def test_speech_is_not_silence(arrays: Any) -> None:
    for stem in STEMS:
        features = arrays[f"{stem}/features"]
        assert not is_silent(features)
        assert not is_silent(features - 2 * 2.3)  # a hundred times less power


def test_a_loop_is_stopped_and_said_once(engine: FunAsrNano, scripted: Any, arrays: Any) -> None:
    lane = scripted([7, 8, 9, *[1, 2, 3] * 100])
    found = engine.decode(arrays["digits-clean/features"], ITN)
    assert found.text == "w7 w8 w9 w1 w2 w3"
    assert not found.complete
    assert lane.asked < most_tokens(50)


def test_no_more_is_written_than_the_audio_can_hold(engine: FunAsrNano, scripted: Any, arrays: Any) -> None:
    lane = scripted(range(1000))
    found = engine.decode(arrays["digits-clean/features"], ITN)
    assert lane.asked == len(found.token_ids) == most_tokens(50)
    assert not found.complete


def test_every_token_is_told_and_a_refusal_stops_within_one(engine: FunAsrNano, scripted: Any, arrays: Any) -> None:
    features = arrays["digits-clean/features"]
    lane = scripted(range(1, 9))
    drafts: list[Hypothesis] = []

    def watch(draft: Hypothesis) -> bool:
        drafts.append(draft)
        return True

    whole = engine.write(features, ITN, watch)
    assert whole.complete
    assert [draft.text for draft in drafts] == [" ".join(f"w{i}" for i in range(1, n + 1)) for n in range(9)]
    assert drafts[-1] == whole
    for most in range(4):
        lane.asked = 0
        stopped = engine.write(features, ITN, lambda draft, most=most: len(draft.token_ids) < most)  # type: ignore[misc]
        assert len(stopped.token_ids) == lane.asked == most
        assert not stopped.complete


def test_a_draft_that_ends_within_a_character_waits_for_the_rest(
    engine: FunAsrNano, scripted: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = scripted([])
    pieces = iter([Written(1, b"\xe4\xb8", ends=False), Written(2, b"\xad", ends=False), Written(0, b"", ends=True)])
    monkeypatch.setattr(lane, "next", lambda _wanted: next(pieces))
    texts: list[str] = []

    def watch(draft: Hypothesis) -> bool:
        texts.append(draft.text)
        return True

    found = engine.write(arrays["digits-clean/features"], ITN, watch)
    assert texts == ["", "", "中"]
    assert found.text == "中"


def test_what_a_terminal_would_obey_is_no_text(
    engine: FunAsrNano, scripted: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = scripted([])
    pieces = iter([b"\x1b[2Ja", b" /sil\n", b"\x00b\xc2\x9b"])
    monkeypatch.setattr(lane, "next", lambda _wanted: Written(1, next(pieces, b""), ends=False))
    drafts: list[str] = []

    def watch(draft: Hypothesis) -> bool:
        drafts.append(draft.text)
        return len(draft.token_ids) < 3

    assert engine.write(arrays["digits-clean/features"], ITN, watch).text == "[2Ja b"
    assert drafts == ["", "[2Ja", "[2Ja", "[2Ja b"]


def test_a_language_model_that_dies_once_costs_nothing(engine: FunAsrNano, arrays: Any) -> None:
    features = arrays["digits-clean/features"]
    expected = engine.decode(features, ITN)
    killed = False

    def kill_at_the_third(draft: Hypothesis) -> bool:
        nonlocal killed
        if len(draft.token_ids) == 3 and not killed:
            killed = True
            os.kill(engine.model.language_model.pid, signal.SIGKILL)
        return True

    assert engine.write(features, ITN, kill_at_the_third) == expected
    assert killed


def test_a_segment_that_kills_it_twice_stays_empty_and_the_next_is_heard(
    engine: FunAsrNano, scripted: Any, arrays: Any
) -> None:
    scripted([5], deaths=2)
    features = arrays["digits-clean/features"]
    assert engine.decode(features, ITN) == Hypothesis((), "", (), complete=False)
    assert engine.decode(features, ITN).text == "w5"


def test_a_model_that_dies_over_every_segment_is_to_blame(
    engine: FunAsrNano, scripted: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted([5], deaths=4)
    features = arrays["digits-clean/features"]
    assert not engine.decode(features, ITN).complete
    monkeypatch.setattr(engine.model.language_model, "deaths", 6)
    with pytest.raises(EngineError, match=r"-llm.gguf may be damaged: over every segment .* was killed by SIGKILL"):
        engine.decode(features, ITN)


def test_a_death_over_a_segment_that_nobody_wants_is_not_tried_again(
    engine: FunAsrNano, scripted: Any, arrays: Any
) -> None:
    lane = scripted([5], deaths=2)
    asked: list[bool] = []

    def once(_draft: Hypothesis) -> bool:
        asked.append(not asked)
        return asked[-1]

    assert not engine.write(arrays["digits-clean/features"], ITN, once).complete
    assert lane.deaths == 1


def test_languages_hot_words_and_numbers_change_what_is_said_to_the_model(
    engine: FunAsrNano, scripted: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = scripted([1])
    prompts: list[str] = []
    begin = lane.begin

    def listen(prompt: Prompt, rows: Float32Array, most_new: int, wanted: Wanted) -> Any:
        prompts.append(prompt.before)
        return begin(prompt, rows, most_new, wanted)

    monkeypatch.setattr(lane, "begin", listen)
    for options in (ITN, DecodeOptions(), DecodeOptions("en", itn=True), DecodeOptions(itn=True, hotwords=("a",))):
        engine.decode(arrays["digits-clean/features"], options)
    assert len(set(prompts)) == 4


def test_a_language_that_it_was_not_trained_on_is_refused(engine: FunAsrNano, arrays: Any) -> None:
    assert engine.languages == ("auto", "zh", "en", "ja")
    with pytest.raises(UsageError, match="knows no language ko; it knows auto, zh, en, ja"):
        engine.decode(arrays["digits-clean/features"], DecodeOptions("ko"))


def test_lanes_hear_the_same_and_close_in_any_order(tiny_nano: ConvertedNano, arrays: Any) -> None:
    engine = opened(tiny_nano())
    lane = engine.lane()
    features = arrays["digits-clean/features"]
    assert lane.decode(features, ITN) == engine.decode(features, ITN)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="used after close"):
        lane.decode(features, ITN)
    lane.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped in /proc; run it on Linux")
def test_the_process_of_the_encoder_maps_no_llama_cpp(engine: FunAsrNano, arrays: Any) -> None:
    engine.decode(arrays["digits-clean/features"], ITN)
    mapped = Path("/proc/self/maps").read_text()
    assert "libggml" in mapped
    assert "libllama" not in mapped


def test_it_is_an_engine_that_writes(engine: FunAsrNano) -> None:
    assert isinstance(engine, AutoregressiveEngine)
    assert engine.takes_hotwords
    assert engine.max_segment_ms == 15_000


def test_an_encoder_and_a_language_model_that_do_not_fit_are_refused(tiny_nano: ConvertedNano, tmp_path: Path) -> None:
    for name, metadata, message in (
        ("rate", {"funasr.adp.downsample_rate": 2}, "joins 2 frames; only 1 is known"),
        ("input", {"funasr.enc.input_size": 400}, "takes 400 features a step"),
        ("gone", {"funasr.adp.ffn_dim": None}, "funasr.adp.ffn_dim"),
        ("heads", {"funasr.adp.attention_heads": 0}, "funasr.adp.attention_heads"),
    ):
        broken = edited(tiny_nano(), tmp_path / f"{name}.gguf", metadata=metadata)
        (tmp_path / f"{name}-llm.gguf").write_bytes(tiny_nano.language_model().read_bytes())
        with pytest.raises(ModelFileError, match=message):
            open_engine(broken)


def test_cmvn_is_refused(tiny_nano: ConvertedNano, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes its features as they are"):
        open_engine(tiny_nano(), None, tmp_path / "am.mvn")


def test_hypotheses_are_equal_whoever_asks(engine: FunAsrNano, arrays: Any) -> None:
    first, second = (engine.decode(arrays[f"{stem}/features"], ITN) for stem in STEMS)
    for _ in range(3):
        assert engine.decode(arrays["digits-noisy/features"], ITN) == second
        assert engine.decode(arrays["digits-clean/features"], ITN) == first
    assert dataclasses.replace(first) == first

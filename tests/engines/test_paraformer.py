"""Paraformer from features to words: the reference's ids, texts and times, and the files that are refused."""

import logging
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from liveasr import store
from liveasr.engines.base import DecodeOptions
from liveasr.engines.cif import integrate
from liveasr.engines.convert import WeightType, convert
from liveasr.engines.paraformer import Paraformer
from liveasr.engines.registry import open_engine
from liveasr.engines.token_times import token_spans
from liveasr.errors import EngineError, ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import MetadataValue
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array, Hypothesis
from tests.engines.conftest import Converted
from tests.helpers import edited, lowest_cosine, open_files

STEMS = ("digits-clean", "digits-noisy")
REAL_STEMS = ("zh", "jfk")
STEP_MS = 60
OPTIONS = DecodeOptions()
EMPTY = np.zeros((0, 560), np.float32)
NOTHING = Hypothesis((), "", ())
WEIGHT_TYPES: tuple[WeightType, ...] = ("f32", "f16", "q8_0")


@pytest.fixture(params=WEIGHT_TYPES)
def weight_type(request: pytest.FixtureRequest) -> WeightType:
    kind: WeightType = request.param
    return kind


def opened(path: Path, threads: int = 1) -> Paraformer:
    engine = open_engine(path, threads)
    assert isinstance(engine, Paraformer)
    return engine


@pytest.fixture
def engine(tiny_paraformer: Converted, weight_type: WeightType) -> Iterator[Paraformer]:
    """The tiny model as a caller opens it."""
    made = opened(tiny_paraformer(weight_type))
    yield made
    made.close()


@pytest.fixture
def digits() -> Iterator[Paraformer]:
    """The trained model that ships with the package."""
    made = opened(store.built_in("digits-paraformer"))
    yield made
    made.close()


def noise(steps: int, seed: int = 0) -> Float32Array:
    return np.random.default_rng(seed).standard_normal((steps, 560)).astype(np.float32)


# Against the reference: random weights, which show errors of layout and arithmetic.


def assert_all_stages_match(
    engine: Paraformer, reference: Any, stem: str, features: Float32Array, limits: dict[str, Any], kind: WeightType
) -> None:
    """From features before normalisation to ids; in f32 to the times as well."""
    hidden = engine.encode(features, OPTIONS)
    fired = engine.fire(hidden)
    assert lowest_cosine(hidden, reference[f"{stem}/encoder_out"]) >= limits[f"cosine_{kind}"]["value"]
    assert len(fired.embeddings) == reference[f"{stem}/token_count"]
    ids = engine.best_ids(hidden, fired)
    clear = reference[f"{stem}/margin"] >= limits[f"margin_{kind}"]["value"]
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids[clear], reference[f"{stem}/argmax"][clear])
    assert (~clear).sum() <= clear.size * limits[f"unclear_tokens_{kind}"]["value"]
    if kind == "f32":
        assert np.abs(fired.alphas - reference[f"{stem}/alphas"]).max() <= limits["alphas"]["value"]
        assert engine.hypothesis(ids, fired).token_ids == tuple(reference[f"{stem}/tokens"].tolist())
        spans_ms = token_spans(fired.peaks, len(ids)) * STEP_MS
        assert np.abs(spans_ms - reference[f"{stem}/timestamp_raw"]).max() <= limits["token_times"]["value"]


@pytest.mark.parametrize("stem", STEMS)
def test_everything_from_features_to_ids_is_the_references(
    engine: Paraformer, golden: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    features = np.load(golden / "frontend.npz")[f"{stem}/lfr7_6"]
    reference = np.load(golden / "paraformer-tiny.npz")
    assert_all_stages_match(engine, reference, stem, features, tolerances["engines"], weight_type)


@pytest.mark.parametrize("stem", REAL_STEMS)
def test_ids_of_real_recordings_are_the_references(
    engine: Paraformer, shared: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    reference = np.load(shared / "golden" / "paraformer-tiny.npz")
    assert_all_stages_match(engine, reference, stem, reference[f"{stem}/lfr"], tolerances["engines"], weight_type)


def test_stages_and_ids_agree(engine: Paraformer) -> None:
    hidden = engine.encode(noise(30), OPTIONS)
    fired = engine.fire(hidden)
    stages = engine.stages(hidden, fired)
    assert stages["decoder_out"].shape == fired.embeddings.shape
    np.testing.assert_array_equal(engine.best_ids(hidden, fired), stages["logits"].argmax(axis=1))


def test_epsilon_of_the_norms_is_that_of_the_references_transformer(tiny_paraformer: Converted) -> None:
    """No file names it, and speech hides it; 1e-5, as in SenseVoice, would be another model."""
    engine = opened(tiny_paraformer())
    assert engine.model.encoder.eps == engine.model.decoder.eps == 1e-12
    engine.close()


# Against the reference: trained weights.


def segments(data: Path, golden: Path) -> Iterator[tuple[str, Float32Array]]:
    """(prefix of the golden keys, features) of every segment of the recordings."""
    reference = np.load(golden / "digits.npz")
    for stem in STEMS:
        samples, rate = soundfile.read(data / f"{stem}.wav", dtype="float32")
        assert rate == 16_000
        for index, (start_ms, end_ms) in enumerate(reference[f"{stem}/segments"].tolist()):
            frames = OnlineFbank().accept(samples[16 * start_ms : 16 * end_ms]).data
            yield f"{stem}/seg{index}", stack(frames, 7, 6)


def assert_digits_are_the_references(engine: Paraformer, data: Path, golden: Path, limit_ms: float) -> None:
    reference = np.load(golden / "digits-paraformer.npz")
    for prefix, features in segments(data, golden):
        heard = engine.decode(features, OPTIONS)
        assert heard.token_ids == tuple(reference[f"{prefix}/tokens"].tolist()), prefix
        assert heard.text == str(reference[f"{prefix}/text"])
        assert [word.text for word in heard.words] == heard.text.split()
        spans_ms = token_spans(engine.fire(engine.encode(features, OPTIONS)).peaks, len(heard.words)) * STEP_MS
        assert np.abs(spans_ms - reference[f"{prefix}/timestamp_raw"]).max() <= limit_ms
        assert (heard.language, heard.emotion, heard.event) == (None, None, None)


@pytest.mark.parametrize("kind", WEIGHT_TYPES)
def test_digits_are_heard_and_placed_as_the_reference_hears_and_places_them(
    shared: Path, data: Path, golden: Path, tmp_path: Path, kind: WeightType, tolerances: dict[str, Any]
) -> None:
    convert(shared / "models" / "digits" / "paraformer", tmp_path / "digits.gguf", kind)
    engine = opened(tmp_path / "digits.gguf")
    limit = "token_times_q8_0" if kind == "q8_0" else "token_times"
    assert_digits_are_the_references(engine, data, golden, tolerances["engines"][limit]["value"])
    engine.close()


def test_words_are_placed_where_the_other_model_hears_them(digits: Paraformer, data: Path, golden: Path) -> None:
    """The reference's times are 0.4 s late; ours integrate the weights, as its function was written to."""
    other = open_engine(store.built_in("digits"), threads=1)
    for _prefix, features in segments(data, golden):
        ours, theirs = digits.decode(features, OPTIONS).words, other.decode(features, OPTIONS).words
        assert [word.text for word in ours] == [word.text for word in theirs]
        assert max(abs(one.start_ms - two.start_ms) for one, two in zip(ours, theirs, strict=True)) <= 240
    other.close()


def test_built_in_digits_are_heard_as_the_reference_hears_them(
    digits: Paraformer, data: Path, golden: Path, tolerances: dict[str, Any]
) -> None:
    assert_digits_are_the_references(digits, data, golden, tolerances["engines"]["token_times"]["value"])


# Edges.


def test_no_frames_are_an_empty_hypothesis(engine: Paraformer) -> None:
    assert engine.decode(EMPTY, OPTIONS) == NOTHING
    assert engine.encode(EMPTY, OPTIONS).shape == (0, 32)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_few_steps_are_decoded(engine: Paraformer, steps: int) -> None:
    """Ones and twos are what ggml forgets of a shape."""
    for seed in range(20):
        features = noise(steps, seed)
        assert engine.encode(features, OPTIONS).shape == (steps, 32)
        assert_sound(engine.decode(features, OPTIONS), steps)


def test_a_single_token_is_decoded(tiny_paraformer: Converted) -> None:
    engine = opened(tiny_paraformer())
    hidden = engine.encode(noise(3), OPTIONS)
    fired = integrate(hidden, np.full(3, 0.3, np.float32), 0.45)
    assert fired.embeddings.shape == (1, 32)
    assert engine.best_ids(hidden, fired).shape == (1,)
    assert engine.stages(hidden, fired)["logits"].shape == (1, 256)
    engine.close()


def test_below_one_token_nothing_is_said(tiny_paraformer: Converted, tmp_path: Path) -> None:
    """The weights of a predictor that hears nothing: the tail alone makes no token."""
    path = edited(
        tiny_paraformer(), tmp_path / "m.gguf", tensors={"predictor.cif_output.bias": np.full(1, -50, np.float32)}
    )
    engine = opened(path)
    assert engine.decode(noise(100), OPTIONS) == NOTHING
    engine.close()


def test_twenty_seconds_are_decoded(engine: Paraformer) -> None:
    heard = engine.decode(noise(334), OPTIONS)
    assert len(heard.token_ids) > 5
    assert_sound(heard, 334)


def test_a_token_in_every_step_is_decoded(tiny_paraformer: Converted, tmp_path: Path) -> None:
    path = edited(
        tiny_paraformer(), tmp_path / "m.gguf", tensors={"predictor.cif_output.bias": np.full(1, 50, np.float32)}
    )
    engine = opened(path)
    fired = engine.fire(engine.encode(noise(40), OPTIONS))
    assert len(fired.embeddings) == 40
    assert_sound(engine.decode(noise(40), OPTIONS), 40)
    engine.close()


def assert_sound(heard: Hypothesis, steps: int) -> None:
    """Words are the text, and rise inside the segment."""
    assert "".join(heard.text.split()) == "".join(word.text for word in heard.words)
    assert all(0 <= word.start_ms <= word.end_ms <= steps * STEP_MS for word in heard.words)
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(heard.words))


def test_what_stands_for_nothing_is_left_out(digits: Paraformer) -> None:
    vocabulary = digits.model.vocabulary
    assert vocabulary[:3] == ["<blank>", "<s>", "</s>"]
    fired = digits.fire(np.zeros((30, 96), np.float32))
    best = np.array([0, vocabulary.index("one"), 1, vocabulary.index("two"), 2], np.int32)
    heard = digits.hypothesis(best, fired)
    assert heard.token_ids == (4, 5)
    assert heard.text == "one two"


def test_silence_and_noise_say_nothing(digits: Paraformer) -> None:
    rng = np.random.default_rng(0)
    for level in (0, 1e-4, 1e-2):
        samples = (rng.standard_normal(16_000 * 4) * level).astype(np.float32)
        features = stack(OnlineFbank().accept(samples).data, 7, 6)
        assert digits.decode(features, OPTIONS) == NOTHING


def test_decoding_changes_neither_the_features_nor_the_next_result(
    digits: Paraformer, data: Path, golden: Path
) -> None:
    (_, first), (_, second), *_ = segments(data, golden)
    before = first.copy()
    heard = digits.decode(first, OPTIONS)
    digits.decode(second, DecodeOptions(itn=True))
    assert digits.decode(first, OPTIONS) == heard
    np.testing.assert_array_equal(first, before)


def test_naming_a_language_is_the_callers_mistake(digits: Paraformer) -> None:
    assert digits.languages == ("auto",)
    with pytest.raises(UsageError, match="Paraformer cannot be told the language en; leave it at auto"):
        digits.decode(noise(3), DecodeOptions("en"))
    with pytest.raises(UsageError, match="cannot be told"):
        digits.decode(EMPTY, DecodeOptions("zh"))


def test_lanes_hear_what_one_hears(digits: Paraformer, data: Path, golden: Path) -> None:
    work = list(segments(data, golden))
    alone = {key: digits.decode(features, OPTIONS) for key, features in work}
    lanes = [digits.lane(), digits.lane()]
    heard: list[dict[str, Hypothesis]] = [{}, {}]
    started = threading.Barrier(2)

    def run(lane: int) -> None:
        started.wait(10)
        for _ in range(5):
            for key, features in work[:: 1 if lane else -1]:
                heard[lane][key] = lanes[lane].decode(features, OPTIONS)

    threads = [threading.Thread(target=run, args=(lane,)) for lane in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert heard == [alone, alone]
    assert lanes[0].model.weights is digits.model.weights
    lanes[0].close()
    assert lanes[1].decode(work[0][1], OPTIONS) == alone[work[0][0]]


def test_closing_twice_is_fine_and_use_after_it_an_error(tiny_paraformer: Converted) -> None:
    before = open_files()
    engine = opened(tiny_paraformer())
    lane = engine.lane()
    engine.close()
    engine.close()
    assert engine.model.weights.closed
    for closed in (engine, lane):
        with pytest.raises(EngineError, match="after close"):
            closed.decode(noise(3), OPTIONS)
    lane.close()
    assert open_files() == before


def test_normalisation_may_come_from_an_am_mvn(tiny_paraformer: Converted, tmp_path: Path) -> None:
    bare = edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={"cmvn.shift": None, "cmvn.scale": None})
    heard = []
    for path, mvn in ((tiny_paraformer(), None), (bare, tiny_paraformer.checkpoint / "am.mvn")):
        engine = open_engine(path, 1, mvn)
        heard.append(engine.decode(noise(60), OPTIONS))
        engine.close()
    assert heard[0] == heard[1]
    assert heard[0].token_ids


def test_file_without_normalisation_runs_with_a_warning(
    tiny_paraformer: Converted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={"cmvn.shift": None})
    with caplog.at_level(logging.WARNING, "liveasr"):
        engine = opened(path)
    assert "no usable feature normalisation" in caplog.text
    assert engine.model.cmvn is None
    assert_sound(engine.decode(noise(30), OPTIONS), 30)
    engine.close()


# What is refused.


def refusal(path: Path) -> str:
    """The message of open_engine about a file, which is closed by then."""
    before = open_files()
    with pytest.raises(ModelFileError) as caught:
        open_engine(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert open_files() == before
    return message


MANY = 4_000_000_000
SIZES: dict[str, tuple[dict[str, MetadataValue | None], str]] = {
    "4e9 encoder blocks": ({"pf.enc.num_blocks": MANY}, "blocks were expected, more than tensors"),
    "4e9 decoder blocks": ({"pf.dec.att_layer_num": MANY}, "decoder blocks were expected, more than tensors"),
    "an encoder block too many": ({"pf.enc.num_blocks": 4}, "encoder.encoders.2.feed_forward.w_1.weight is missing"),
    "blocks without attention": ({"pf.dec.num_blocks": 3}, "other blocks than those with attention"),
    "decoders3 of two": ({"pf.dec.decoders3": 2}, "other blocks than those with attention"),
    "decoders3 of none": ({"pf.dec.decoders3": 0}, "pf.dec.decoders3 is 0; at least 1"),
    "encoder heads that do not divide": ({"pf.enc.attention_heads": 3}, "an encoder of width 32 cannot have 3 heads"),
    "decoder heads that do not divide": ({"pf.dec.attention_heads": 5}, "a decoder of width 32 cannot have 5 heads"),
    "another width": ({"pf.enc.output_size": 64}, "was expected"),
    "4e9 wide": ({"pf.enc.output_size": MANY}, "was expected"),
    "4e9 taps": ({"pf.dec.kernel_size": MANY}, "(4000000000, 32) was expected"),
    "another vocabulary": ({"pf.vocab_size": 255}, "pf.vocab has 256 entries"),
    "short vocabulary": ({"pf.vocab": ["a"], "pf.vocab_size": 1}, "has the shape (256, 32); (1, 32) was expected"),
    "vocabulary of numbers": ({"pf.vocab": np.arange(256)}, "no list of texts pf.vocab"),
    "no tail": ({"pf.predictor.tail_threshold": None}, "no number pf.predictor.tail_threshold"),
    "tail of nothing": ({"pf.predictor.tail_threshold": 0.0}, "tail_threshold is 0; above 0 and up to 1"),
    "tail of 2": ({"pf.predictor.tail_threshold": 2}, "tail_threshold is 2; above 0 and up to 1"),
    "tail below zero": ({"pf.predictor.tail_threshold": -0.45}, "tail_threshold is -0.45; above 0"),
    "tail without a value": ({"pf.predictor.tail_threshold": float("nan")}, "no number pf.predictor.tail_threshold"),
    "tail without an end": ({"pf.predictor.tail_threshold": float("inf")}, "no number pf.predictor.tail_threshold"),
    "tail in words": ({"pf.predictor.tail_threshold": "0.45"}, "no number pf.predictor.tail_threshold"),
    "tail of a truth": ({"pf.predictor.tail_threshold": True}, "no number pf.predictor.tail_threshold"),
    **{f"no {key}": ({f"pf.{key}": None}, f"no whole number pf.{key}") for key in (
        "enc.output_size", "enc.attention_heads", "enc.num_blocks", "enc.kernel_size", "dec.num_blocks",
        "dec.att_layer_num", "dec.attention_heads", "dec.kernel_size", "dec.decoders3", "vocab_size",
    )},
    **{f"{key} of 0": ({f"pf.{key}": 0}, f"pf.{key} is 0; at least 1") for key in (
        "enc.output_size", "enc.attention_heads", "enc.num_blocks", "enc.kernel_size", "dec.att_layer_num",
        "dec.attention_heads", "dec.kernel_size",
    )},
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "reason"), SIZES.values(), ids=SIZES)
def test_absurd_size_is_refused(
    tiny_paraformer: Converted, tmp_path: Path, metadata: dict[str, MetadataValue | None], reason: str
) -> None:
    assert reason in refusal(edited(tiny_paraformer(), tmp_path / "m.gguf", metadata=metadata))


def test_any_missing_tensor_is_named_but_normalisation(tiny_paraformer: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny_paraformer()) as file:
        names = [name for name in file.tensors if not name.startswith("cmvn.")]
    assert len(names) == 92
    for name in names:
        path = edited(tiny_paraformer(), tmp_path / "m.gguf", tensors={name: None})
        assert f"tensor {name} is missing" in refusal(path)


def test_sensevoice_file_under_the_name_of_a_paraformer_is_refused(tiny: Converted, tmp_path: Path) -> None:
    path = edited(tiny(), tmp_path / "m.gguf", architecture="paraformer")
    assert "no whole number pf.enc.output_size" in refusal(path)

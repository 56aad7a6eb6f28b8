"""SenseVoice from features to words: the reference's ids, texts and times, and the files that are refused."""

import threading
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import soundfile

from liveasr import store
from liveasr.engines import cmvn, sensevoice
from liveasr.engines.base import DecodeOptions
from liveasr.engines.convert import WeightType, convert
from liveasr.engines.ctc import collapse
from liveasr.engines.registry import open_engine
from liveasr.engines.sensevoice import SenseVoice, SenseVoiceModel
from liveasr.errors import ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import MetadataValue
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array, Hypothesis, Language
from tests.engines.conftest import Converted
from tests.helpers import edited, open_files

STEMS = ("digits-clean", "digits-noisy")
REAL_STEMS = ("zh", "jfk")
LANGUAGES: tuple[Language, ...] = ("auto", "zh", "en")
NORMS = ("withitn", "woitn")
QUERY_ROWS = {"auto": 0, "zh": 3, "en": 4, "yue": 7, "ja": 11, "ko": 12}
STEP_MS = 60
EMPTY = np.zeros((0, 560), np.float32)
WEIGHT_TYPES: tuple[WeightType, ...] = ("f32", "f16", "q8_0")


@pytest.fixture(params=WEIGHT_TYPES)
def weight_type(request: pytest.FixtureRequest) -> WeightType:
    kind: WeightType = request.param
    return kind


@pytest.fixture
def normalised(tiny: Converted, weight_type: WeightType) -> Iterator[SenseVoice]:
    """The tiny model for features that are normalised already."""
    model = sensevoice.load(GgufFile(tiny(weight_type)), None)
    yield SenseVoice(model, 1)
    model.close()


@pytest.fixture
def engine(tiny: Converted) -> Iterator[SenseVoice]:
    """The tiny model as a caller opens it."""
    opened = open_engine(tiny(), threads=1)
    assert isinstance(opened, SenseVoice)
    yield opened
    opened.close()


@pytest.fixture
def digits() -> Iterator[SenseVoice]:
    """The trained model that ships with the package."""
    opened = open_engine(store.built_in("digits"), threads=1)
    assert isinstance(opened, SenseVoice)
    yield opened
    opened.close()


def options(norm: str, language: Language = "auto") -> DecodeOptions:
    return DecodeOptions(language, itn=norm == "withitn")


def segments(data: Path, golden: Path) -> Iterator[tuple[str, Float32Array]]:
    """(prefix of the golden keys, features) of every segment of the recordings."""
    reference = np.load(golden / "digits.npz")
    for stem in STEMS:
        samples, rate = soundfile.read(data / f"{stem}.wav", dtype="float32")
        assert rate == 16_000
        for index, (start_ms, end_ms) in enumerate(reference[f"{stem}/segments"].tolist()):
            frames = OnlineFbank().accept(samples[16 * start_ms : 16 * end_ms]).data
            yield f"{stem}/seg{index}", stack(frames, 7, 6)


# Against the reference: random weights, which show errors of layout and arithmetic.


def assert_ids_match(
    engine: SenseVoice, reference: Any, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    """Ids are equal wherever the reference prefers one by more than the noise of the weights; few are left out."""
    noise = tolerances["engines"][f"margin_{weight_type}"]["value"]
    left_out = total = 0
    for language, norm in product(LANGUAGES, NORMS):
        key = f"{stem}/{language}/{norm}"
        ids = engine.best_ids(reference[f"{stem}/features"], options(norm, language))
        clear = reference[f"{key}/margin"] >= noise
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids[clear], reference[f"{key}/argmax"][clear], key)
        left_out += int((~clear).sum())
        total += clear.size
        if clear.all():
            assert engine.hypothesis(ids).token_ids == tuple(reference[f"{key}/tokens"].tolist())
    assert left_out <= total * tolerances["engines"][f"unclear_{weight_type}"]["value"]


@pytest.mark.parametrize("stem", STEMS)
def test_ids_are_the_references_for_every_language_and_text_norm(
    normalised: SenseVoice, golden: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    assert_ids_match(normalised, np.load(golden / "sensevoice-tiny.npz"), stem, tolerances, weight_type)


@pytest.mark.parametrize("stem", REAL_STEMS)
def test_ids_of_real_recordings_are_the_references(
    normalised: SenseVoice, shared: Path, stem: str, tolerances: dict[str, Any], weight_type: WeightType
) -> None:
    assert_ids_match(normalised, np.load(shared / "golden" / "sensevoice-tiny.npz"), stem, tolerances, weight_type)


@pytest.mark.parametrize("stem", STEMS)
def test_input_of_the_encoder_is_the_references(
    engine: SenseVoice, golden: Path, stem: str, tolerances: dict[str, Any]
) -> None:
    """From features before normalisation, with the am.mvn of the file, language auto and no text norm."""
    stacked = np.load(golden / "frontend.npz")[f"{stem}/lfr7_6"]
    expected = np.load(golden / "sensevoice-tiny.npz")[f"{stem}/encoder_input"]
    found = engine.encoder_input(stacked, options("woitn"))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < tolerances["engines"]["encoder_input"]["value"]


@pytest.mark.parametrize("stem", STEMS)
def test_encoder_alone_and_stages_and_ids_agree(engine: SenseVoice, golden: Path, stem: str) -> None:
    stacked = np.load(golden / "frontend.npz")[f"{stem}/lfr7_6"]
    stages = engine.stages(stacked, options("woitn"))
    np.testing.assert_array_equal(engine.encode(stacked, options("woitn")), stages["encoder_out"])
    np.testing.assert_array_equal(engine.best_ids(stacked, options("woitn")), stages["logits"].argmax(axis=1))


@pytest.mark.parametrize(("language", "row"), QUERY_ROWS.items())
@pytest.mark.parametrize(("norm", "norm_row"), [("withitn", 14), ("woitn", 15)])
def test_query_rows_stand_in_front_in_their_order(
    engine: SenseVoice, golden: Path, language: Language, row: int, norm: str, norm_row: int
) -> None:
    with GgufFile(engine.model.weights.file.path) as file:
        embeddings = file.array("embed.weight")
    features = np.load(golden / "frontend.npz")["digits-clean/lfr7_6"]
    expected = engine.model.encoder.prepare(np.concatenate((embeddings[[row, 1, 2, norm_row]], features)))
    found = engine.encoder_input(features, options(norm, language))
    np.testing.assert_array_equal(found[:4], expected[:4])


def test_option_decides_the_text_norm_and_not_the_file(tiny: Converted, tmp_path: Path, golden: Path) -> None:
    """Published files say [0, 1, 2, 14] or nothing, the reference's default is 15."""
    features = np.load(golden / "frontend.npz")["digits-noisy/lfr7_6"]
    found: dict[str, list[tuple[int, ...]]] = {norm: [] for norm in NORMS}
    rows: tuple[MetadataValue | None, ...] = (np.array([0, 1, 2, 14]), np.array([4, 1, 2, 15]), None)
    for query_tokens in rows:
        path = edited(tiny(), tmp_path / "m.gguf", metadata={"sv.query_tokens": query_tokens})
        engine = open_engine(path, threads=1)
        for norm in NORMS:
            found[norm].append(engine.decode(features, options(norm)).token_ids)
        engine.close()
    assert all(len(set(results)) == 1 for results in found.values())
    assert found["withitn"] != found["woitn"]


# Against the reference: trained weights.


def assert_digits_are_the_references(engine: SenseVoice, data: Path, golden: Path) -> None:
    reference = np.load(golden / "digits.npz")
    for prefix, features in segments(data, golden):
        for norm in NORMS:
            key = f"{prefix}/{norm}"
            np.testing.assert_array_equal(engine.best_ids(features, options(norm)), reference[f"{key}/argmax"], key)
            heard = engine.decode(features, options(norm))
            assert heard.token_ids == tuple(reference[f"{key}/tokens"].tolist())
            assert heard.text == str(reference[f"{key}/text"]).rpartition("|>")[2].strip()
            assert (heard.language, heard.emotion, heard.event) == ("en", None, "speech")
            assert_times_are_the_references(engine, heard, reference, key, len(features))


def assert_times_are_the_references(
    engine: SenseVoice, heard: Hypothesis, reference: Any, key: str, steps: int
) -> None:
    """Every piece has the time of the reference's alignment; a word the times of its first and last piece."""
    times = reference[f"{key}/greedy/times"].tolist()
    best = reference[f"{key}/argmax"][4:]
    pieces = [sensevoice._timed(engine.model.vocabulary[token.id], token, steps) for token in collapse(best, 0)]
    assert [[piece.start_ms, piece.end_ms] for piece in pieces] == times
    assert [piece.piece for piece in pieces] == reference[f"{key}/greedy/pieces"].tolist()
    if key.endswith("woitn"):
        spoken = [piece.removeprefix("▁") for piece in reference[f"{key}/greedy/pieces"].tolist()]
        assert [(word.text, word.start_ms, word.end_ms) for word in heard.words] == [
            (text, *time) for text, time in zip(spoken, times, strict=True)
        ]
    else:  # digits without spaces are one word
        (word,) = heard.words
        assert (word.text, word.start_ms, word.end_ms) == (heard.text, times[0][0], times[-1][1])


def test_digits_are_heard_as_the_reference_hears_them(digits: SenseVoice, data: Path, golden: Path) -> None:
    assert_digits_are_the_references(digits, data, golden)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_smaller_digits_are_heard_the_same(
    shared: Path, data: Path, golden: Path, tmp_path: Path, kind: WeightType
) -> None:
    """No frame of these recordings is a close call, see the README beside them."""
    convert(shared / "models" / "digits" / "sensevoice", tmp_path / "digits.gguf", kind)
    engine = open_engine(tmp_path / "digits.gguf", threads=1)
    assert isinstance(engine, SenseVoice)
    assert_digits_are_the_references(engine, data, golden)
    engine.close()


def test_no_tag_and_no_space_mark_is_ever_in_the_text(engine: SenseVoice, digits: SenseVoice) -> None:
    """Tags anywhere: random weights put them between words, which trained ones do not."""
    rng = np.random.default_rng(3)
    for opened in (engine, digits):
        for _ in range(50):
            best = rng.integers(0, len(opened.model.vocabulary), 40).astype(np.int32)
            heard = opened.hypothesis(best)
            for text in (heard.text, *(word.text for word in heard.words)):
                assert "<|" not in text
                assert "|>" not in text
                assert "▁" not in text
            assert "".join(heard.text.split()) == "".join(word.text for word in heard.words)
            assert all(word.start_ms <= word.end_ms <= 36 * STEP_MS for word in heard.words)
            assert all(before.end_ms <= after.start_ms for before, after in pairwise(heard.words))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (("<|en|>", "<|EMO_UNKNOWN|>", "<|Speech|>"), ("en", None, "speech")),
        (("<|en|>", "<|NEUTRAL|>", "<|Event_UNK|>"), ("en", "neutral", None)),
        (("<|nospeech|>", "<|EMO_UNKNOWN|>", "<|Event_UNK|>"), ("nospeech", None, None)),
        (("<unk>", "▁one", "<s>"), (None, None, None)),
    ],
)
def test_first_three_outputs_are_language_emotion_and_event(
    digits: SenseVoice, tags: tuple[str, ...], expected: tuple[str | None, ...]
) -> None:
    vocabulary = digits.model.vocabulary
    best = np.array([vocabulary.index(piece) for piece in (*tags, "<|woitn|>", "<unk>", "▁two")], np.int32)
    heard = digits.hypothesis(best)
    assert (heard.language, heard.emotion, heard.event) == expected
    assert heard.text == "two"


def test_first_and_last_steps_stay_inside_the_segment(digits: SenseVoice) -> None:
    """The reference's times are half a step early; nothing starts before 0."""
    one = digits.model.vocabulary.index("▁one")
    heard = digits.hypothesis(np.array([24, 25, 28, 30, one, 0, one, one], np.int32))
    assert [(word.start_ms, word.end_ms) for word in heard.words] == [(0, 30), (90, 210)]


# Edges.


def test_no_frames_are_an_empty_hypothesis(digits: SenseVoice) -> None:
    assert digits.decode(EMPTY, DecodeOptions()) == Hypothesis((), "", ())
    assert digits.best_ids(EMPTY, DecodeOptions()).shape == (4,)


def test_one_frame_is_decoded(digits: SenseVoice, data: Path, golden: Path) -> None:
    _, features = next(segments(data, golden))
    assert digits.best_ids(features[:1], DecodeOptions()).shape == (5,)
    assert digits.decode(features[:1], DecodeOptions()).text == ""


def test_decoding_changes_neither_the_features_nor_the_next_result(
    digits: SenseVoice, data: Path, golden: Path
) -> None:
    (_, first), (_, second), *_ = segments(data, golden)
    before = first.copy()
    heard = digits.decode(first, DecodeOptions())
    digits.decode(second, DecodeOptions(itn=True))
    assert digits.decode(first, DecodeOptions()) == heard
    np.testing.assert_array_equal(first, before)


def test_unknown_language_is_the_callers_mistake(digits: SenseVoice, data: Path, golden: Path) -> None:
    _, features = next(segments(data, golden))
    with pytest.raises(UsageError, match="knows no language fr; it knows auto, zh, en, yue, ja, ko"):
        digits.decode(features, DecodeOptions(cast("Language", "fr")))


def test_two_lanes_over_one_model_hear_what_one_hears(data: Path, golden: Path) -> None:
    file = GgufFile(store.built_in("digits"))
    model = sensevoice.load(file, cmvn.from_gguf(file, 560))
    work = [(key, features, norm) for key, features in segments(data, golden) for norm in NORMS]
    lanes = [SenseVoice(model, threads) for threads in (1, 2)]
    alone = {(key, norm): lanes[0].decode(features, options(norm)) for key, features, norm in work}
    heard: list[dict[tuple[str, str], Hypothesis]] = [{}, {}]
    started = threading.Barrier(2)

    def run(lane: int) -> None:
        started.wait(10)
        for _ in range(5):
            for key, features, norm in work[:: 1 if lane else -1]:
                heard[lane][key, norm] = lanes[lane].decode(features, options(norm))

    threads = [threading.Thread(target=run, args=(lane,)) for lane in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert heard == [alone, alone]
    lanes[0].close()
    assert lanes[1].decode(work[0][1], options("woitn")) == alone[work[0][0], "woitn"]
    model.close()


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
    "no blocks": ({"sv.num_blocks": 0}, "sv.num_blocks is 0; at least 1"),
    "4e9 blocks": ({"sv.num_blocks": MANY}, "blocks were expected, more than tensors"),
    "4e9 blocks behind": ({"sv.tp_blocks": MANY}, "blocks were expected, more than tensors"),
    "a block too many": ({"sv.num_blocks": 4}, "encoder.encoders.2.feed_forward.w_1.weight is missing"),
    "no heads": ({"sv.attention_heads": 0}, "sv.attention_heads is 0; at least 1"),
    "heads that do not divide": ({"sv.attention_heads": 3}, "width 32 cannot have 3 heads"),
    "4e9 heads": ({"sv.attention_heads": MANY}, "cannot have 4000000000 heads"),
    "no width": ({"sv.output_size": 0}, "sv.output_size is 0"),
    "4e9 wide": ({"sv.output_size": MANY}, "was expected"),
    "another width": ({"sv.output_size": 64}, "was expected"),
    "no kernel": ({"sv.kernel_size": 0}, "sv.kernel_size is 0"),
    "4e9 taps": ({"sv.kernel_size": MANY}, "(4000000000, 32) was expected"),
    "another front end": ({"sv.input_size": 80}, "takes 80 features a step; 560 were expected"),
    "4e9 features": ({"sv.input_size": MANY}, "takes 4000000000 features a step"),
    "another vocabulary": ({"sv.vocab_size": 383}, "sv.vocab has 384 entries"),
    "4e9 pieces": ({"sv.vocab_size": MANY}, "sv.vocab has 384 entries"),
    "blank behind the end": ({"sv.blank_id": 384}, "sv.vocab has 384 entries"),
    "blank of 4e9": ({"sv.blank_id": MANY}, "sv.vocab has 384 entries"),
    "vocabulary missing": ({"sv.vocab": None}, "no list of texts sv.vocab"),
    "vocabulary of numbers": ({"sv.vocab": np.arange(384)}, "no list of texts sv.vocab"),
    "short vocabulary": ({"sv.vocab": ["a", "b"], "sv.vocab_size": 2}, "has the shape (384, 32); (2, 32) was expected"),
    "size in words": ({"sv.output_size": "32"}, "no whole number sv.output_size"),
    "size of a fraction": ({"sv.output_size": 32.0}, "no whole number sv.output_size"),
    "size of a truth": ({"sv.num_blocks": True}, "no whole number sv.num_blocks"),
    **{f"no {key}": ({f"sv.{key}": None}, f"no whole number sv.{key}") for key in (
        "input_size", "output_size", "attention_heads", "num_blocks", "tp_blocks", "kernel_size", "vocab_size",
        "blank_id",
    )},
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "reason"), SIZES.values(), ids=SIZES)
def test_absurd_size_is_refused(
    tiny: Converted, tmp_path: Path, metadata: dict[str, MetadataValue | None], reason: str
) -> None:
    assert reason in refusal(edited(tiny(), tmp_path / "m.gguf", metadata=metadata))


def test_any_missing_tensor_is_named_but_normalisation(tiny: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny()) as file:
        names = [name for name in file.tensors if not name.startswith("cmvn.")]
    assert len(names) == 72
    for name in names:
        assert f"tensor {name} is missing" in refusal(edited(tiny(), tmp_path / "m.gguf", tensors={name: None}))


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("ctc.ctc_lo.weight", (384, 33), "(384, 33); (384, 32) was expected"),
        ("ctc.ctc_lo.weight", (32, 384), "(32, 384); (384, 32) was expected"),
        ("ctc.ctc_lo.weight", (384, 32, 1), "(384, 32, 1); (384, 32) was expected"),
        ("ctc.ctc_lo.bias", (1,), "(1,); (384,) was expected"),
        ("embed.weight", (15, 560), "(15, 560); (16, 560) was expected"),
        ("embed.weight", (16, 80), "(16, 80); (16, 560) was expected"),
    ],
)
def test_head_or_queries_of_another_shape_are_refused(
    tiny: Converted, tmp_path: Path, name: str, shape: tuple[int, ...], reason: str
) -> None:
    path = edited(tiny(), tmp_path / "m.gguf", tensors={name: np.zeros(shape, np.float32)})
    assert f"tensor {name} has the shape {reason}" in refusal(path)


def test_bias_of_the_head_in_half_precision_is_refused(tiny: Converted, tmp_path: Path) -> None:
    path = edited(tiny(), tmp_path / "m.gguf", tensors={"ctc.ctc_lo.bias": np.zeros(384, np.float16)})
    assert "tensor ctc.ctc_lo.bias is f16; f32 was expected" in refusal(path)


def test_epsilon_of_the_norms_is_that_of_sensevoices_own_class(engine: SenseVoice) -> None:
    """No file names it, and speech hides it: 1e-12, as in the reference's other models, moves outputs by 2e-5."""
    assert engine.model.encoder.eps == 1e-5


def test_model_is_the_same_for_all_lanes(tiny: Converted) -> None:
    model: SenseVoiceModel = sensevoice.load(GgufFile(tiny()), None)
    lanes = [SenseVoice(model, 1) for _ in range(3)]
    assert all(lane.model.weights is model.weights for lane in lanes)
    for lane in lanes:
        lane.close()
    assert not model.weights.closed
    model.close()
    assert model.weights.closed

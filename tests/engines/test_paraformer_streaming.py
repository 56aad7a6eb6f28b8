"""Streaming Paraformer from features to words: the reference's ids in every chunk; any packets, end, and company."""

import gc
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liveasr.engines import cmvn, streaming_model
from liveasr.engines.base import RECOGNISER_FRONT_END, DecodeOptions, StreamingEngine
from liveasr.engines.chunk_decoder import ChunkDecoder
from liveasr.engines.chunks import Chunks
from liveasr.engines.cif_stream import Fire
from liveasr.engines.native import ComputeContext
from liveasr.engines.paraformer_stream import ParaformerStream
from liveasr.engines.paraformer_streaming import ParaformerStreaming
from liveasr.engines.registry import open_engine
from liveasr.engines.tokens import TimedPiece
from liveasr.errors import EngineError, ModelFileError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import MetadataValue
from liveasr.types import Float32Array, Hypothesis
from tests.chunking import pieces, random_pieces
from tests.engines.conftest import Converted
from tests.engines.streamed import STEMS, WAYS, frames, name_of, run_of, tails_of
from tests.helpers import edited, lowest_cosine, open_files, resident_bytes

OPTIONS = DecodeOptions()
STEP_MS = 60
STEP_SAMPLES = 960
EMPTY = np.zeros((0, 560), np.float32)
SILENT_IDS = (0, 1, 2)


@pytest.fixture
def engine(tiny_streaming: Converted) -> Iterator[ParaformerStreaming]:
    """As a caller opens it."""
    opened = open_engine(tiny_streaming(), threads=1)
    assert isinstance(opened, ParaformerStreaming)
    yield opened
    opened.close()


@pytest.fixture(params=WAYS, ids=name_of)
def chunks(request: pytest.FixtureRequest) -> Chunks:
    way: Chunks = request.param
    return way


@pytest.fixture
def cut(engine: ParaformerStreaming, chunks: Chunks) -> ParaformerStreaming:
    """The same engine with every chunk size and look-back."""
    return ParaformerStreaming(replace(engine.model, chunks=chunks), 1)


@pytest.fixture
def features(golden: Path) -> Float32Array:
    """97 frames, the end of no chunk."""
    return np.concatenate([frames(golden, stem) for stem in STEMS])[:97]


def fed(stream: ParaformerStream, packets: Iterator[Float32Array]) -> Hypothesis:
    for packet in packets:
        stream.accept(packet)
    return stream.finish()


# What the reference hears.


@pytest.mark.parametrize("stem", STEMS)
def test_ids_of_every_chunk_are_the_references(
    cut: ParaformerStreaming, chunks: Chunks, golden: Path, stem: str, tolerances: dict[str, Any]
) -> None:
    stream = cut.stream(OPTIONS)
    heard: list[list[int]] = []
    before: tuple[int, ...] = ()
    for packet in pieces(frames(golden, stem), chunks.now):
        found = stream.accept(packet).token_ids
        heard.append(list(found[len(before) :]))
        before = found
    heard[-1] += stream.finish().token_ids[len(before) :]
    run = run_of(golden, stem, chunks)
    assert heard == [[id_ for id_ in logits.argmax(axis=1) if id_ not in SILENT_IDS] for logits in run.logits]
    ordered = np.sort(np.concatenate(run.logits), axis=1)
    assert (ordered[:, -1] - ordered[:, -2]).min() > tolerances["engines"]["margin_f32"]["value"]  # all are clear


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("chunks", [way for way in WAYS if way.decoder_look_back], ids=name_of)
def test_chunks_without_tokens_change_nothing_for_those_with(
    tiny_streaming: Converted, golden: Path, tmp_path: Path, chunks: Chunks, stem: str, tolerances: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The reference's decoder does not move on where nothing fires, as in the pauses of speech."""
    bias = "predictor.cif_output.bias"
    with GgufFile(tiny_streaming()) as file:
        lower = file.array(bias) - np.float32(1.5)
    path = edited(tiny_streaming(), tmp_path / "m.gguf", tensors={bias: lower})
    found: list[Float32Array] = []
    decode = ChunkDecoder.decode

    def watched(self: ChunkDecoder, *args: Any) -> Float32Array:
        found.append(decode(self, *args))
        return found[-1]

    monkeypatch.setattr(ChunkDecoder, "decode", watched)
    file = GgufFile(path)
    model = streaming_model.load(file, cmvn.from_gguf(file, 560), chunks)
    ParaformerStreaming(model, 1).decode(frames(golden, stem), OPTIONS)
    model.close()
    arrays = np.load(golden / "paraformer-streaming-tiny.npz")
    fired = arrays[f"{stem}/{name_of(chunks)}/sparse/fired"]
    assert (fired == 0).sum() > len(fired) // 2
    assert [len(logits) for logits in found] == fired[fired > 0].tolist()
    expected = arrays[f"{stem}/{name_of(chunks)}/sparse/logits"]
    assert lowest_cosine(np.concatenate(found), expected) >= tolerances["engines"]["cosine_f32"]["value"]


@pytest.mark.parametrize("stem", ["zh", "jfk"])
@pytest.mark.parametrize("run", ["", "/tail0", "/tail480", "/tail4800"])
def test_ids_of_real_recordings_are_the_references_up_to_its_defect(
    tiny_streaming: Converted, shared: Path, stem: str, run: str
) -> None:
    """The goldens hold features behind CMVN; where the reference ends with old frames, its last chunk holds those."""
    arrays = np.load(shared / "golden" / "paraformer-streaming-tiny.npz")
    counts = arrays[f"{stem}{run}/tokens_per_chunk"].tolist()
    ids = arrays[f"{stem}{run}/tokens"].tolist()
    last = len(counts) - 1
    rows = [arrays[f"{stem}/chunk{index:03}/features"] for index in range(last)]
    if is_sound := int(arrays[f"{stem}{run}/samples"]) % (10 * STEP_SAMPLES) >= STEP_SAMPLES:
        rows.append(arrays[f"{stem}{run}/chunk{last:03}/features"])
    model = streaming_model.load(GgufFile(tiny_streaming()), None)
    heard = ParaformerStreaming(model, 1).decode(np.concatenate(rows), OPTIONS)
    model.close()
    clear = len(ids) if is_sound else len(ids) - counts[-1]
    assert list(heard.token_ids[:clear]) == ids[:clear]
    assert len(heard.token_ids) == clear or not is_sound


def test_end_at_any_frame_is_the_references(cut: ParaformerStreaming, chunks: Chunks, golden: Path) -> None:
    """Where less than 60 ms come behind a whole chunk, only up to there: see the next two tests."""
    sound = 0
    for tail in tails_of(golden, chunks):
        heard = list(cut.decode(frames(golden, STEMS[0], tail.samples), OPTIONS).token_ids)
        if tail.samples % (chunks.now * STEP_SAMPLES) < STEP_SAMPLES:
            clear = [id_ for chunk in tail.ids[:-1] for id_ in chunk]
            assert heard[: len(clear)] == clear
        else:
            assert heard == [id_ for chunk in tail.ids for id_ in chunk], tail.samples
            sound += 1
    assert sound == 2 * chunks.now


def test_whole_chunks_end_with_the_rows_ahead_as_they_were_encoded(
    cut: ParaformerStreaming, chunks: Chunks, golden: Path
) -> None:
    """As the reference ends if the last sample of a whole chunk is missing, and not with the same frames again."""
    tail = max(tails_of(golden, chunks), key=lambda tail: tail.samples)
    whole = frames(golden, STEMS[0], tail.samples)
    assert len(whole) == 3 * chunks.now
    assert tail.samples < 3 * chunks.now * STEP_SAMPLES
    stream = cut.stream(OPTIONS)
    before = stream.accept(whole).token_ids
    frames_encoded = stream._encoded.frames
    after = stream.finish().token_ids
    assert stream._encoded.frames == frames_encoded  # nothing is encoded again
    assert list(after) == [id_ for chunk in tail.ids for id_ in chunk]
    assert after[: len(before)] == before


def test_every_frame_is_heard_once_wherever_the_segment_ends(
    cut: ParaformerStreaming, chunks: Chunks, features: Float32Array
) -> None:
    for count in range(1, 3 * chunks.now + 1):
        stream = cut.stream(OPTIONS)
        before = stream.accept(features[:count]).token_ids
        after = stream.finish().token_ids
        assert stream._encoded.frames == count
        assert stream._fired.row == count + 1  # the tail is one more
        assert after[: len(before)] == before  # an end takes nothing back


# Any packets.


@pytest.mark.parametrize("length", [3, 10, 40, 97])
def test_any_packets_give_the_same(cut: ParaformerStreaming, features: Float32Array, length: int) -> None:
    rows = features[:length]
    expected = cut.decode(rows, OPTIONS)
    for size in (1, 3, 7, 10, 96):
        assert fed(cut.stream(OPTIONS), pieces(rows, size)) == expected, size
    for seed in range(3):
        assert fed(cut.stream(OPTIONS), random_pieces(rows, seed, longest=25)) == expected, seed


def test_what_was_heard_so_far_depends_on_the_frames_alone(engine: ParaformerStreaming, features: Float32Array) -> None:
    by_frame = engine.stream(OPTIONS)
    heard = [by_frame.accept(row) for row in pieces(features, 1)]
    for size in (3, 10, 40):
        stream = engine.stream(OPTIONS)
        at = 0
        for packet in pieces(features, size):
            at += len(packet)
            assert stream.accept(packet) == heard[at - 1]


def test_hypotheses_only_grow_at_their_end(cut: ParaformerStreaming, features: Float32Array) -> None:
    stream = cut.stream(OPTIONS)
    heard = [stream.accept(packet) for packet in pieces(features, 5)]
    heard.append(stream.finish())
    for before, after in pairwise(heard):
        assert after.token_ids[: len(before.token_ids)] == before.token_ids
        assert after.text.startswith(before.text)
        assert after.words[: max(0, len(before.words) - 1)] == before.words[:-1]
    assert len(heard[-1].token_ids) > 15


def test_text_lags_by_the_frames_that_lie_ahead(engine: ParaformerStreaming, features: Float32Array) -> None:
    stream = engine.stream(OPTIONS)
    for index in range(60):
        for word in stream.accept(features[index : index + 1]).words:
            assert word.end_ms <= (index + 1 - engine.model.chunks.ahead) * STEP_MS


def test_times_rise_and_stay_in_the_segment(cut: ParaformerStreaming, features: Float32Array) -> None:
    for count in range(1, 98, 3):
        times = [0]
        for word in cut.decode(features[:count], OPTIONS).words:
            assert times[-1] <= word.start_ms < word.end_ms
            times += [word.start_ms, word.end_ms]
        assert times[-1] <= count * STEP_MS - STEP_MS // 2


@pytest.mark.parametrize(
    ("fire", "times_ms"),
    [
        (Fire(2.5, 3.25), (120, 165)),  # row 0 begins at -30 ms: its frames reach that far
        (Fire(2.51, 3.26), (120, 166)),
        (Fire(-5.0, -1.5), (0, 1)),  # in the zeros before the segment
        (Fire(0.0, 0.75), (0, 15)),
        (Fire(8.0, 10.4), (450, 570)),  # the tail fires behind the last row
    ],
)
def test_times_are_those_of_the_rows_that_make_up_a_token(
    engine: ParaformerStreaming, features: Float32Array, fire: Fire, times_ms: tuple[int, int]
) -> None:
    stream = engine.stream(OPTIONS)
    stream.accept(features[:10])
    stream._pieces.clear()
    assert stream._timed("x", fire) == TimedPiece("x", *times_ms)


@pytest.mark.parametrize("silent", SILENT_IDS)
def test_ids_that_stand_for_nothing_are_left_out(
    tiny_streaming: Converted, tmp_path: Path, features: Float32Array, silent: int
) -> None:
    bias = "decoder.output_layer.bias"
    with GgufFile(tiny_streaming()) as file:
        values = file.array(bias)
    values[silent] = 1e4
    opened = open_engine(edited(tiny_streaming(), tmp_path / "m.gguf", tensors={bias: values}))
    assert opened.decode(features, OPTIONS) == Hypothesis((), "", ())
    opened.close()


# Many streams.


def test_streams_that_take_turns_hear_what_each_hears_alone(cut: ParaformerStreaming, golden: Path) -> None:
    inputs = [frames(golden, STEMS[0]), frames(golden, STEMS[1])[:31], frames(golden, STEMS[1])[5:]]
    alone = [cut.decode(rows, OPTIONS) for rows in inputs]
    streams = [cut.stream(OPTIONS) for _ in inputs]
    for at in range(0, 60, 4):
        for stream, rows in zip(streams, inputs, strict=True):
            stream.accept(rows[at : at + 4])
    assert [stream.finish() for stream in streams] == alone
    assert len(set(alone)) == len(alone)


def test_lanes_of_one_model_hear_the_same_at_the_same_time(engine: ParaformerStreaming, golden: Path) -> None:
    inputs = [frames(golden, stem) for stem in STEMS]
    expected = [engine.decode(rows, OPTIONS) for rows in inputs]
    heard: dict[int, list[Hypothesis]] = {0: [], 1: []}

    def listen(lane: ParaformerStreaming, index: int) -> None:
        for _ in range(5):
            heard[index].append(fed(lane.stream(OPTIONS), pieces(inputs[index], 3)))

    lanes = [engine.lane() for _ in inputs]
    threads = [threading.Thread(target=listen, args=(lane, index)) for index, lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == {index: [hypothesis] * 5 for index, hypothesis in enumerate(expected)}
    for lane in lanes:
        lane.close()
    assert engine.decode(inputs[0], OPTIONS) == expected[0]


def test_a_chunk_costs_the_same_however_long_the_segment_is(
    engine: ParaformerStreaming, features: Float32Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[tuple[int, ...]] = []
    run = ComputeContext.run

    def watched(self: ComputeContext, build: Any, inputs: Mapping[str, NDArray[Any]], max_nodes: int) -> Any:
        if "rows" in inputs:
            computed.append((len(inputs["rows"]), inputs["past"].nbytes if "past" in inputs else 0))
        else:
            computed.append((0, len(inputs["memory"])))
        return run(self, build, inputs, max_nodes)

    monkeypatch.setattr(ComputeContext, "run", watched)
    stream = engine.stream(OPTIONS)
    for _ in range(20):
        stream.accept(features)
    late = computed[len(computed) // 2 :]
    assert {size for size in late if size[0]} == {(15, 3 * 40 * 64 * 4)}
    assert {size for size in late if not size[0]} == {(0, 25)}
    assert len(stream._pending) < 10


def test_streams_that_nobody_finishes_cost_nothing(
    engine: ParaformerStreaming, features: Float32Array, tolerances: dict[str, Any]
) -> None:
    def cycle() -> None:
        engine.stream(OPTIONS).accept(features[:25])

    for _ in range(20):
        cycle()
    gc.collect()
    before = resident_bytes()
    for _ in range(200):
        cycle()
    gc.collect()
    assert resident_bytes() - before < tolerances["engines"]["open_close_growth"]["value"]


def test_stream_of_a_closed_engine_says_so(tiny_streaming: Converted, features: Float32Array) -> None:
    opened = open_engine(tiny_streaming(), threads=1)
    assert isinstance(opened, ParaformerStreaming)
    stream = opened.stream(OPTIONS)
    stream.accept(features[:10])
    opened.close()
    opened.close()
    with pytest.raises(EngineError, match="after close"):
        stream.accept(features[:10])


# What is asked of it.


def test_no_frames_are_an_empty_hypothesis(cut: ParaformerStreaming) -> None:
    assert cut.decode(EMPTY, OPTIONS) == Hypothesis((), "", ())
    stream = cut.stream(OPTIONS)
    assert stream.accept(EMPTY) == Hypothesis((), "", ())
    assert stream.finish() == Hypothesis((), "", ())
    assert cut.encode(EMPTY, OPTIONS).shape == (0, 32)


def test_feeding_after_the_end_is_the_callers_mistake(engine: ParaformerStreaming, features: Float32Array) -> None:
    stream = engine.stream(OPTIONS)
    stream.accept(features)
    stream.finish()
    with pytest.raises(UsageError, match="after finish"):
        stream.accept(features)
    with pytest.raises(UsageError, match="twice"):
        stream.finish()


def test_language_cannot_be_chosen(engine: ParaformerStreaming, features: Float32Array) -> None:
    with pytest.raises(UsageError, match="cannot be told the language zh"):
        engine.decode(features, DecodeOptions("zh"))


def test_features_are_left_as_they_are(engine: ParaformerStreaming, features: Float32Array) -> None:
    before = features.copy()
    engine.decode(features, OPTIONS)
    np.testing.assert_array_equal(features, before)


def test_encoder_alone_gives_the_centres_of_the_windows(
    cut: ParaformerStreaming, chunks: Chunks, golden: Path, tolerances: dict[str, Any]
) -> None:
    windows = [window[chunks.past :] for window in run_of(golden, STEMS[0], chunks).encoder_out]
    centres = [window[: chunks.now] for window in windows[:-1]]
    expected = np.concatenate((*centres, windows[-1]))[chunks.ahead :]
    found = cut.encode(frames(golden, STEMS[0]), OPTIONS)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < tolerances["engines"]["streamed_encoder"]["value"]


def test_way_to_cut_is_the_files_or_the_callers(tiny_streaming: Converted) -> None:
    for wanted, chunks in ((None, Chunks()), (Chunks(5, 10, 5), Chunks(5, 10, 5))):
        model = streaming_model.load(GgufFile(tiny_streaming()), None, wanted)
        assert model.chunks == chunks
        model.close()


def test_engine_is_a_streaming_engine(engine: ParaformerStreaming) -> None:
    offered: StreamingEngine = engine
    assert offered.front_end == RECOGNISER_FRONT_END
    assert offered.languages == ("auto",)
    assert not offered.takes_hotwords


# Files.


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("enc.output_size", 64, "was expected"),
        ("enc.output_size", None, "no whole number pfs.enc.output_size"),
        ("enc.attention_heads", 3, "width 32 cannot have 3 heads"),
        ("enc.num_blocks", 4, "encoder.encoders.2.feed_forward.w_1.weight is missing"),
        ("enc.num_blocks", 2**32 - 1, "more than tensors"),
        ("enc.kernel_size", 9, "was expected"),
        ("enc.sanm_shfit", 5, "pfs.enc.sanm_shfit is 5; only 0 can be run"),
        ("dec.num_blocks", 3, "blocks that have no attention"),
        ("dec.att_layer_num", 3, "blocks that have no attention|is missing"),
        ("dec.attention_heads", 5, "width 32 cannot have 5 heads"),
        ("dec.kernel_size", 1, "pfs.dec.kernel_size is 1; at least 2"),
        ("dec.kernel_size", 13, "looks at later tokens"),
        ("dec.sanm_shfit", 0, "looks at later tokens"),
        ("dec.sanm_shfit", 2**32 - 1, "looks at later tokens"),
        ("predictor.l_order", 2, "pfs.predictor.l_order is 2; only 1 can be run"),
        ("predictor.threshold", 0.5, "pfs.predictor.threshold is 0.5; only 1 can be run"),
        ("predictor.threshold", float("nan"), "no number pfs.predictor.threshold"),
        ("predictor.tail_threshold", -0.5, "0 to 1 was expected"),
        ("predictor.tail_threshold", None, "no number pfs.predictor.tail_threshold"),
        ("frontend.n_mels", 40, "pfs.frontend.n_mels is 40; only 80 can be run"),
        ("frontend.lfr_n", None, "no number pfs.frontend.lfr_n"),
        ("chunk.now", 0, "pfs.chunk.now is 0"),
        ("vocab_size", 255, "pfs.vocab has 256 entries"),
        ("vocab", None, "no list of texts pfs.vocab"),
    ],
)
def test_absurd_number_is_refused(
    tiny_streaming: Converted, tmp_path: Path, key: str, value: MetadataValue | None, reason: str
) -> None:
    path = edited(tiny_streaming(), tmp_path / "m.gguf", metadata={f"pfs.{key}": value})
    files = open_files()
    with pytest.raises(ModelFileError, match=reason):
        open_engine(path)
    assert open_files() == files


def test_any_missing_tensor_is_named(tiny_streaming: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny_streaming()) as file:
        names = [name for name in file.tensors if not name.startswith("cmvn.")]
    assert len(names) == 92
    for name in names:
        path = edited(tiny_streaming(), tmp_path / "m.gguf", tensors={name: None})
        with pytest.raises(ModelFileError, match=f"tensor {name} is missing"):
            open_engine(path)


def test_any_tensor_of_another_shape_is_named(tiny_streaming: Converted, tmp_path: Path) -> None:
    with GgufFile(tiny_streaming()) as file:
        arrays = {name: file.array(name) for name in file.tensors if not name.startswith("cmvn.")}
    for name, values in arrays.items():
        path = edited(tiny_streaming(), tmp_path / "m.gguf", tensors={name: np.concatenate((values, values[:1]))})
        with pytest.raises(ModelFileError, match="was expected"):
            open_engine(path)


def test_offline_paraformer_under_this_name_is_refused(tiny_paraformer: Converted, tmp_path: Path) -> None:
    path = edited(tiny_paraformer(), tmp_path / "m.gguf", architecture="paraformer-streaming")
    with pytest.raises(ModelFileError, match=r"no number pfs\."):
        open_engine(path)


def test_normalisation_of_another_file_replaces_that_of_the_model(
    tiny_streaming: Converted, golden: Path, tmp_path: Path, features: Float32Array
) -> None:
    broken = edited(tiny_streaming(), tmp_path / "m.gguf", tensors={"cmvn.scale": np.ones(560, np.float32)})
    own, spoiled = open_engine(tiny_streaming()), open_engine(broken)
    repaired = open_engine(broken, cmvn_path=golden / "paraformer-streaming-tiny" / "am.mvn")
    expected = own.decode(features, OPTIONS)
    assert repaired.decode(features, OPTIONS) == expected
    assert spoiled.decode(features, OPTIONS) != expected
    for engine in (own, spoiled, repaired):
        engine.close()

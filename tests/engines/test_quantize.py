"""A model in fewer bits: the tensors that `convert` would write, everything else untouched, and it still hears."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from liveasr import __version__, provenance, store
from liveasr.engines import nano_files, registry
from liveasr.engines.base import DecodeOptions
from liveasr.engines.convert import convert
from liveasr.engines.quantize import Fallback, QuantizedType, default_output, quantize
from liveasr.engines.registry import open_engine
from liveasr.engines.sensevoice import SenseVoice
from liveasr.errors import ModelFileError, OutputError, UsageError
from liveasr.gguf_file import GgufFile
from liveasr.provenance import Provenance
from liveasr.types import Float32Array
from tests.engines.conftest import Converted, ConvertedNano
from tests.helpers import edited, lowest_cosine, write_gguf

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = store.built_in("digits")
TYPES: tuple[QuantizedType, ...] = ("f16", "q8_0", "q6_K", "q5_K", "q4_K", "q4_K_mix")
K_TYPES: tuple[QuantizedType, ...] = ("q6_K", "q5_K", "q4_K", "q4_K_mix")
# Lowest cosine of logits of 256-wide random weights against those of the same weights in f32.
COSINES: dict[QuantizedType, float] = {"q6_K": 0.999, "q5_K": 0.997, "q4_K": 0.99, "q4_K_mix": 0.99}
WIDTH = 256


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "smaller.gguf"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SenseVoice with random weights whose rows are blocks of K types, but for those of 560 values."""
    random = np.random.default_rng(3)

    def widened(values: Float32Array) -> Float32Array:
        shape = tuple({96: WIDTH, 288: 3 * WIDTH, 256: 2 * WIDTH}.get(n, n) for n in map(int, values.shape))
        noise: Float32Array = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            return noise * np.float32(0.02) + np.float32(1)
        return noise / np.float32(shape[-1] ** 0.5)

    with GgufFile(DIGITS) as file:
        kept = ("cmvn.", "embed.", "encoder.encoders0.0.norm1.")
        tensors = {
            name: file.array(name) if name.startswith(kept) else widened(file.array(name)) for name in file.tensors
        }
    path = tmp_path_factory.mktemp("wide") / "wide-f32.gguf"
    return edited(DIGITS, path, metadata={"sv.output_size": WIDTH}, tensors=tensors)


def stored(path: Path) -> dict[str, tuple[str, bytes]]:
    """The type and the bytes of every tensor."""
    with GgufFile(path) as file:
        return {name: (info.type_name, file.raw(name).tobytes()) for name, info in file.tensors.items()}


def kinds(path: Path) -> dict[str, str]:
    with GgufFile(path) as file:
        return {name: info.type_name for name, info in file.tensors.items()}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def metadata(path: Path) -> dict[str, Any]:
    """Every value with its type, but for those that tell of the types of tensors."""
    with GgufFile(path) as file:
        return {
            key: (file.metadata_types[key], plain(value))
            for key, value in file.metadata.items()
            if key not in ("general.file_type", "general.quantization_version")
        }


# As convert writes it.


@pytest.fixture(params=["sensevoice", "paraformer", "streaming", "nano", "nano's language model"])
def family(
    request: pytest.FixtureRequest,
    tiny: Converted,
    tiny_paraformer: Converted,
    tiny_streaming: Converted,
    tiny_nano: ConvertedNano,
) -> Any:
    """What gives the file of a type, for every family."""
    return {
        "sensevoice": tiny,
        "paraformer": tiny_paraformer,
        "streaming": tiny_streaming,
        "nano": tiny_nano,
        "nano's language model": tiny_nano.language_model,
    }[request.param]


@pytest.mark.parametrize("wanted", ["f16", "q8_0"])
def test_it_is_what_convert_writes(family: Any, output: Path, wanted: Any) -> None:
    quantize(family("f32"), output, wanted)
    assert stored(output) == stored(family(wanted))


def test_the_trained_model_is_what_convert_writes(shared: Path, output: Path, tmp_path: Path) -> None:
    converted = Converted(shared / "models" / "digits" / "paraformer", tmp_path)
    for wanted in ("f16", "q8_0"):
        quantize(converted("f32"), output, wanted)
        assert stored(output) == stored(converted(wanted))


@pytest.mark.parametrize("wanted", TYPES)
def test_all_metadata_is_kept_with_its_types(family: Any, output: Path, wanted: QuantizedType) -> None:
    quantize(family("f32"), output, wanted)
    kept = metadata(output)
    assert kept.pop("liveasr.quantized")[1] == f"{wanted} from f32 by liveasr {__version__}"
    assert kept == metadata(family("f32"))


def test_metadata_of_every_kind_is_kept(output: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(odd, "sensevoice-small")
    writer.add_uint8("a.u8", 255)
    writer.add_int64("a.i64", -(2**40))
    writer.add_float64("a.f64", 0.1)
    writer.add_float32("a.f32", 0.1)
    writer.add_bool("a.flag", True)
    writer.add_key_value("a.empty", "", gguf.GGUFValueType.STRING)
    writer.add_array("a.texts", ["", "你好"])
    writer.add_key_value("a.flags", [True, False], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.BOOL)
    writer.add_key_value("a.halves", [0.5, 1.5], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.FLOAT64)
    writer.add_custom_alignment(64)
    writer.add_tensor("m.weight", np.ones((2, 256), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quantize(odd, output, "q4_K")
    expected = metadata(odd)
    del expected["general.alignment"]  # the output has the usual one
    kept = metadata(output)
    del kept["liveasr.quantized"]
    assert kept == expected


def test_where_a_model_is_from_goes_along(golden: Path, output: Path, tmp_path: Path) -> None:
    told = Provenance(
        "Ten", "Ann", licence="MIT", repository="https://x.org/y", revision="1f2e", languages=("en", "zh")
    )
    convert(golden / "nano-tiny", tmp_path / "nano.gguf", "f16", told)
    for path in (tmp_path / "nano.gguf", tmp_path / "nano-llm.gguf"):
        quantize(path, output, "q8_0")
        with GgufFile(output) as file:
            assert provenance.read(file) == told


def test_what_was_quantized_twice_tells_the_last_time(output: Path, tmp_path: Path) -> None:
    quantize(DIGITS, tmp_path / "half.gguf", "f16")
    quantize(tmp_path / "half.gguf", output, "q8_0")
    with GgufFile(output) as file:
        assert file.text("liveasr.quantized") == f"q8_0 from f16 by liveasr {__version__}"


@pytest.mark.parametrize(
    ("wanted", "number"), [("f16", 1), ("q8_0", 7), ("q6_K", 18), ("q5_K", 16), ("q4_K", 14), ("q4_K_mix", 15)]
)
def test_the_file_tells_its_type(wide: Path, output: Path, wanted: QuantizedType, number: int) -> None:
    quantize(wide, output, wanted)
    with GgufFile(output) as file:
        assert file.integer("general.file_type") == number
        version = file.metadata.get("general.quantization_version")
        assert version == (None if wanted == "f16" else gguf.GGML_QUANT_VERSION)


# Which tensors, and how.


@pytest.mark.parametrize("wanted", K_TYPES)
def test_only_matrices_shrink(wide: Path, output: Path, wanted: QuantizedType) -> None:
    quantize(wide, output, wanted)
    before, after = stored(wide), stored(output)
    assert list(before) == list(after)
    for name, (kind, content) in after.items():
        if "norm" in name or name.endswith(("bias", "fsmn_block.weight")) or name.startswith("cmvn"):
            assert (kind, content) == before[name]
        else:
            assert kind != "f32", name


def test_rows_of_560_values_become_f16_with_a_note(wide: Path, output: Path) -> None:
    report = quantize(wide, output, "q4_K")
    found = kinds(output)
    assert found["encoder.encoders0.0.self_attn.linear_q_k_v.weight"] == "f16"
    assert found["embed.weight"] == "f16"
    assert report.fallbacks == (Fallback(560, "f16", 2),)
    assert set(found.values()) == {"f32", "f16", "q4_K"}


def test_rows_of_96_values_become_q8_0_with_a_note(output: Path) -> None:
    report = quantize(DIGITS, output, "q5_K")
    found = kinds(output)
    assert found["ctc.ctc_lo.weight"] == "q8_0"
    assert found["encoder.encoders.0.feed_forward.w_2.weight"] == "q5_K"
    assert set(report.fallbacks) == {Fallback(96, "q8_0", 21), Fallback(560, "f16", 2)}


def test_the_mix_keeps_sensitive_tensors_higher(wide: Path, output: Path) -> None:
    quantize(wide, output, "q4_K_mix")
    found = kinds(output)
    higher = {name for name, kind in found.items() if kind == "q6_K"}
    blocks = ["encoders0.0", *(f"encoders.{n}" for n in range(4)), "tp_encoders.0", "tp_encoders.1"]
    assert higher == {"ctc.ctc_lo.weight", *(f"encoder.{block}.self_attn.linear_out.weight" for block in blocks)}
    assert found["encoder.encoders.0.feed_forward.w_1.weight"] == "q4_K"


def test_nothing_of_an_f16_file_grows(output: Path) -> None:
    source = store.built_in("digits-paraformer")
    quantize(source, output, "q8_0")
    assert kinds(output)["encoder.encoders0.0.self_attn.linear_q_k_v.weight"] == "f16"
    with GgufFile(source) as before, GgufFile(output) as after:
        for name, info in after.tensors.items():
            assert info.size_bytes <= before.tensors[name].size_bytes


def test_from_f16_it_is_what_it_is_from_f32_where_nothing_was_rounded(output: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.gguf"
    with GgufFile(DIGITS) as file:
        rounded: dict[str, NDArray[Any]] = {
            name: file.array(name).astype(np.float16).astype(np.float32) for name in file.tensors
        }
    exact = edited(DIGITS, tmp_path / "exact.gguf", tensors=rounded)
    quantize(exact, half, "f16")
    quantize(exact, output, "q6_K")
    from_half = output.with_name("from half.gguf")
    quantize(half, from_half, "q6_K")
    assert stored(from_half) == stored(output)


# What it costs.


@pytest.mark.parametrize("wanted", TYPES)
def test_the_errors_are_those_of_the_values_in_the_file(wide: Path, output: Path, wanted: QuantizedType) -> None:
    report = quantize(wide, output, wanted)
    name = "encoder.encoders.1.feed_forward.w_1.weight"
    with GgufFile(wide) as before, GgufFile(output) as after:
        info = after.tensors[name]
        old = before.array(name)
        new = gguf.quants.dequantize(after.raw(name), gguf.GGMLQuantizationType(info.type_id))
        expected = np.linalg.norm(new - old) / np.linalg.norm(old)
        assert (report.bytes_before, report.bytes_after) == (len(before), len(after))
        for before_or_after, file in (("bytes_before", before), ("bytes_after", after)):
            total = sum(info.size_bytes for info in file.tensors.values())
            assert sum(getattr(each, before_or_after) for each in report.classes) == total
    (found,) = (each for each in report.classes if each.name == "encoder.encoders.feed_forward.w_1")
    assert (found.tensors, found.kind) == (4, info.type_name)
    assert found.error == pytest.approx(expected, rel=0.1)
    kept = report.classes[-1]
    assert (kept.name, kept.error) == ("", 0)


def test_fewer_bits_cost_more(wide: Path, output: Path) -> None:
    errors, sizes = [], []
    for wanted in ("f16", "q8_0", "q6_K", "q5_K", "q4_K"):
        report = quantize(wide, output, wanted)
        errors.append(next(each.error for each in report.classes if each.name == "encoder.encoders.feed_forward.w_1"))
        sizes.append(report.bytes_after)
    assert errors == sorted(errors)
    assert sizes == sorted(sizes, reverse=True)


# It runs.


def logits(path: Path, features: Float32Array) -> Float32Array:
    engine = open_engine(path, 1)
    assert isinstance(engine, SenseVoice)
    try:
        return engine.stages(features, DecodeOptions())["logits"]
    finally:
        engine.close()


@pytest.mark.parametrize("wanted", K_TYPES)
def test_an_engine_computes_with_k_types(wide: Path, output: Path, tmp_path: Path, wanted: QuantizedType) -> None:
    features = np.random.default_rng(1).standard_normal((40, 560)).astype(np.float32) * 3 + 10
    quantize(wide, output, wanted)
    found = logits(output, features)
    with GgufFile(output) as file:
        read: dict[str, NDArray[Any]] = {
            name: gguf.quants.dequantize(file.raw(name), gguf.GGMLQuantizationType(info.type_id)).reshape(info.shape)
            for name, info in file.tensors.items()
        }
    # Of the same values in f32: what is left is the rounding of activations to 8 bits inside ggml.
    same = edited(wide, tmp_path / "same.gguf", tensors=read)
    assert lowest_cosine(found, logits(same, features)) > 0.9995
    assert lowest_cosine(found, logits(wide, features)) > COSINES[wanted]


@pytest.mark.parametrize("wanted", TYPES)
def test_the_encoder_of_fun_asr_nano_is_still_one_that_runs(
    tiny_nano: ConvertedNano, output: Path, wanted: QuantizedType
) -> None:
    quantize(tiny_nano(), output, wanted)
    with GgufFile(output) as file:
        registry.check(file)


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize("name", ["tiny", "tiny_paraformer", "tiny_streaming"])
def test_every_other_family_still_hears(
    request: pytest.FixtureRequest, name: str, output: Path, wanted: QuantizedType
) -> None:
    quantize(request.getfixturevalue(name)("f32"), output, wanted)
    engine = open_engine(output, 1)
    engine.decode(np.full((30, 560), 10, np.float32), DecodeOptions())
    engine.close()


# Which file, by default.


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/m/sensevoice-small-f16.gguf", "/m/sensevoice-small-q4_K.gguf"),
        ("/m/mine.gguf", "/m/mine-q4_K.gguf"),
        ("/m/nano-llm.gguf", "/m/nano-q4_K-llm.gguf"),
        ("/m/nano-f32-llm.gguf", "/m/nano-q4_K-llm.gguf"),
        (str(DIGITS), "digits-q4_K.gguf"),
    ],
)
def test_the_output_lies_beside_the_source(source: str, expected: str) -> None:
    assert default_output(Path(source), "q4_K") == Path(expected)


def test_a_quantized_encoder_finds_the_language_model_of_the_same_type(
    tiny_nano: ConvertedNano, tmp_path: Path
) -> None:
    encoder, language_model = tmp_path / "nano-f32.gguf", tmp_path / "nano-f32-llm.gguf"
    shutil.copyfile(tiny_nano(), encoder)
    shutil.copyfile(tiny_nano.language_model(), language_model)
    for source in (encoder, language_model):
        quantize(source, default_output(source, "q8_0"), "q8_0")
    with GgufFile(tmp_path / "nano-q8_0.gguf") as file:
        assert nano_files.language_model_beside(file) == tmp_path / "nano-q8_0-llm.gguf"


# What is refused, with nothing left behind.


def left(output: Path) -> list[str]:
    return [path.name for path in output.parent.iterdir()]


@pytest.mark.parametrize("wanted", TYPES)
def test_what_is_quantized_is_not_quantized_again(tiny: Converted, output: Path, wanted: QuantizedType) -> None:
    with pytest.raises(ModelFileError, match=r"has q8_0 tensors: .*quantize the f32 or f16 file") as caught:
        quantize(tiny("q8_0"), output, wanted)
    assert "\n" not in str(caught.value)
    assert left(output) == []


def test_f16_from_f16_is_refused(output: Path) -> None:
    with pytest.raises(ModelFileError, match="no tensor of it gets smaller as f16"):
        quantize(store.built_in("digits-paraformer"), output, "f16")
    assert left(output) == []


def test_the_vad_stays_f32(output: Path) -> None:
    with pytest.raises(ModelFileError, match="is small, and all of it stays f32"):
        quantize(store.built_in("fsmn-vad"), output, "q8_0")
    assert left(output) == []


def test_a_foreign_model_is_refused(output: Path, tmp_path: Path) -> None:
    foreign = write_gguf(tmp_path / "m.gguf", "llama", {}, {"m.weight": np.ones((2, 256), np.float32)})
    with pytest.raises(ModelFileError, match="is a llama model; what can be quantized is sensevoice-small"):
        quantize(foreign, output, "q8_0")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_named(output: Path, tmp_path: Path, value: float) -> None:
    name = "encoder.encoders.1.feed_forward.w_2.weight"
    with GgufFile(DIGITS) as file:
        values = file.array(name)
    values[3, 7] = value
    broken = edited(DIGITS, tmp_path / "m.gguf", tensors={name: values})
    with pytest.raises(ModelFileError, match=f"tensor {name} has values that are no numbers"):
        quantize(broken, output, "q4_K")
    assert left(output) == []


@pytest.mark.parametrize("wanted", ["f16", "q4_K"])
def test_values_that_f16_does_not_hold_are_named(output: Path, tmp_path: Path, wanted: QuantizedType) -> None:
    name = "encoder.encoders0.0.self_attn.linear_q_k_v.weight"
    with GgufFile(DIGITS) as file:
        values = file.array(name)
    values[0, 0] = -70_000
    broken = edited(DIGITS, tmp_path / "m.gguf", tensors={name: values})
    with pytest.raises(ModelFileError, match=f"tensor {name} has values that are too large for f16"):
        quantize(broken, output, wanted)
    assert left(output) == []


def test_the_source_is_never_the_output(tmp_path: Path) -> None:
    source = Path(shutil.copyfile(DIGITS, tmp_path / "m.gguf"))
    with pytest.raises(UsageError, match="is the file to quantize"):
        quantize(source, source, "q8_0")
    assert source.read_bytes() == DIGITS.read_bytes()


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        quantize(DIGITS, tmp_path / "nowhere" / "m.gguf", "q8_0")

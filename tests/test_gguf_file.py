"""GGUF files as they are used: what is read of good ones, and what is said where there is none.

Good files are written by the `gguf` package, an independent implementation.
"""

import ctypes
import errno
import os
import re
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from liveasr import store
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import TENSOR_TYPES, peek_architecture
from tests.gguf_parts import STRING, TYPE_F16, TYPE_F32, TYPE_Q8_0, U32, image, pair, tensor, text

_NOBODY = 65_534


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


@pytest.fixture
def written(model: Path) -> Path:
    """A file with a value of every kind and tensors of several, written by the gguf package."""
    kind = gguf.GGUFValueType
    writer = gguf.GGUFWriter(model, "test-model")
    writer.add_uint8("scalar.u8", 200)
    writer.add_int8("scalar.i8", -100)
    writer.add_uint16("scalar.u16", 60_000)
    writer.add_int16("scalar.i16", -30_000)
    writer.add_uint32("scalar.u32", 4_000_000_000)
    writer.add_int32("scalar.i32", -2_000_000_000)
    writer.add_float32("scalar.f32", 0.5)
    writer.add_bool("scalar.yes", True)
    writer.add_bool("scalar.no", False)
    writer.add_uint64("scalar.u64", 2**64 - 1)
    writer.add_int64("scalar.i64", -(2**63))
    writer.add_float64("scalar.f64", 0.1)
    writer.add_string("text.plain", "你好, world")
    writer.add_string("text.lines", "one\ntwo")
    writer.add_array("list.texts", ["<unk>", "", "▁three", "三"])
    for name, sub_type, numbers in (
        ("u8", kind.UINT8, [0, 255]),
        ("i16", kind.INT16, [-1, 2]),
        ("i32", kind.INT32, [0, 1, 2, 14]),
        ("f32", kind.FLOAT32, [0.5, -1.5]),
        ("u64", kind.UINT64, [2**64 - 1]),
        ("f64", kind.FLOAT64, [0.1]),
        ("bool", kind.BOOL, [True, False]),
    ):
        writer.add_key_value(f"list.{name}", numbers, kind.ARRAY, sub_type=sub_type)
    for name, values in tensors_written().items():
        writer.add_tensor(name, values)
    block = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("quantised", gguf.quants.quantize(matrix(3, 64), block), raw_dtype=block)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def matrix(rows: int, columns: int) -> NDArray[np.float32]:
    return np.random.default_rng(rows * columns).standard_normal((rows, columns)).astype(np.float32)


def tensors_written() -> dict[str, NDArray[Any]]:
    return {
        "vector": matrix(1, 7)[0],
        "matrix": matrix(5, 3),
        "cube": matrix(6, 4).reshape(2, 3, 4),
        "hyper": matrix(6, 4).reshape(1, 2, 3, 4),
        "half": matrix(4, 3).astype(np.float16),
    }


# What good files hold.


@pytest.mark.parametrize("version", [2, 3])
def test_file_of_the_gguf_package_reads_back_whole(written: Path, version: int) -> None:
    content = bytearray(written.read_bytes())
    content[4:8] = struct.pack("<I", version)
    written.write_bytes(content)
    with GgufFile(written) as file:
        assert file.architecture == "test-model"
        assert len(file) == len(content)
        scalars = {key: value for key, value in file.metadata.items() if key.startswith(("scalar.", "text."))}
        assert scalars == {
            "scalar.u8": 200,
            "scalar.i8": -100,
            "scalar.u16": 60_000,
            "scalar.i16": -30_000,
            "scalar.u32": 4_000_000_000,
            "scalar.i32": -2_000_000_000,
            "scalar.f32": 0.5,
            "scalar.yes": True,
            "scalar.no": False,
            "scalar.u64": 2**64 - 1,
            "scalar.i64": -(2**63),
            "scalar.f64": 0.1,
            "text.plain": "你好, world",
            "text.lines": "one\ntwo",
        }
        assert [type(scalars[f"scalar.{name}"]) for name in ("u8", "f32", "yes")] == [int, float, bool]
        assert set(file.tensors) == {*tensors_written(), "quantised"}


@pytest.mark.parametrize(
    ("key", "dtype", "values"),
    [
        ("list.u8", "uint8", [0, 255]),
        ("list.i16", "int16", [-1, 2]),
        ("list.i32", "int32", [0, 1, 2, 14]),
        ("list.f32", "float32", [0.5, -1.5]),
        ("list.u64", "uint64", [2**64 - 1]),
        ("list.f64", "float64", [0.1]),
        ("list.bool", "bool", [True, False]),
    ],
)
def test_list_of_numbers_is_an_array_of_their_type(written: Path, key: str, dtype: str, values: list[object]) -> None:
    with GgufFile(written) as file:
        found = file.metadata[key]
        assert isinstance(found, np.ndarray)
        assert found.dtype == dtype
        assert found.tolist() == values


def test_f32_and_f16_tensors_read_back_equal(written: Path) -> None:
    with GgufFile(written) as file:
        for name, values in tensors_written().items():
            found = file.array(name, values.shape)
            assert found.dtype == np.float32
            assert found.flags.c_contiguous
            np.testing.assert_array_equal(found, values.astype(np.float32))


def test_arrays_outlive_the_file(written: Path) -> None:
    with GgufFile(written) as file:
        found = file.array("matrix")
        listed = file.metadata["list.i32"]
    np.testing.assert_array_equal(found, matrix(5, 3))
    assert isinstance(listed, np.ndarray)
    assert listed.tolist() == [0, 1, 2, 14]


def test_tensor_tells_type_shape_and_place(written: Path) -> None:
    with GgufFile(written) as file:
        info = file.tensor("quantised", (3, 64))
        assert (info.type_name, info.shape, info.size_bytes) == ("q8_0", (3, 64), 3 * 2 * 34)
        content = written.read_bytes()[info.offset : info.offset + info.size_bytes]
        expected = gguf.quants.quantize(matrix(3, 64), gguf.GGMLQuantizationType.Q8_0).tobytes()
        assert content == expected


def test_sizes_of_types_are_those_of_the_gguf_package() -> None:
    for number, kind in TENSOR_TYPES.items():
        known = gguf.GGMLQuantizationType(number)
        assert gguf.GGML_QUANT_SIZES[known] == (kind.block_values, kind.block_bytes)
        assert known.name.lower() == kind.name.lower()


def test_address_is_where_the_file_begins_in_memory(written: Path) -> None:
    with GgufFile(written) as file:
        assert ctypes.string_at(file.address(), len(file)) == written.read_bytes()


def test_closing_twice_is_fine_and_reading_after_it_is_an_error(written: Path) -> None:
    file = GgufFile(written)
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.array("matrix")


# What the getters refuse.


@pytest.mark.parametrize("key", ["missing", "scalar.f32", "scalar.yes", "text.plain", "list.i32", "list.texts"])
def test_integer_takes_whole_numbers_only(written: Path, key: str) -> None:
    with GgufFile(written) as file, pytest.raises(ModelFileError, match=re.escape(f"{written}: ")) as caught:
        file.integer(key)
    assert f"no whole number {key}" in str(caught.value)


@pytest.mark.parametrize(("key", "least"), [("scalar.u8", 201), ("scalar.i8", 1), ("scalar.i64", 0)])
def test_integer_below_its_least_is_refused(written: Path, key: str, least: int) -> None:
    with GgufFile(written) as file:
        assert file.integer(key, least=-(2**63)) == file.metadata[key]
        with pytest.raises(ModelFileError, match=f"{key} is .*at least {least} was expected"):
            file.integer(key, least=least)


@pytest.mark.parametrize("key", ["missing", "scalar.u8", "list.texts", "list.i32"])
def test_text_takes_texts_only(written: Path, key: str) -> None:
    with GgufFile(written) as file:
        assert file.text("text.lines") == "one\ntwo"
        with pytest.raises(ModelFileError, match=f"no text {key}"):
            file.text(key)


@pytest.mark.parametrize("key", ["missing", "text.plain", "list.i32", "list.bool"])
def test_strings_takes_lists_of_texts_only(written: Path, key: str) -> None:
    with GgufFile(written) as file:
        assert file.strings("list.texts") == ["<unk>", "", "▁three", "三"]
        with pytest.raises(ModelFileError, match=f"no list of texts {key}"):
            file.strings(key)


def test_missing_tensor_and_other_shape_are_refused(written: Path) -> None:
    with GgufFile(written) as file:
        with pytest.raises(ModelFileError, match="tensor nowhere is missing"):
            file.tensor("nowhere")
        with pytest.raises(ModelFileError, match=r"tensor matrix has the shape \(5, 3\); \(3, 5\) was expected"):
            file.array("matrix", (3, 5))
        with pytest.raises(ModelFileError, match="tensor quantised is q8_0; f32 or f16 was expected"):
            file.array("quantised")


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "x" * 64])
def test_architecture_has_to_fit_a_message(model: Path, name: str) -> None:
    model.write_bytes(image((pair("general.architecture", STRING, text(name)),)))
    with GgufFile(model) as file:
        if name:
            with pytest.raises(ModelFileError, match="is not a name"):
                _ = file.architecture
        else:
            assert file.architecture == ""


def test_the_architecture_is_seen_at_a_glance_where_it_comes_first(written: Path, model: Path) -> None:
    assert peek_architecture(written) == "test-model"
    for name in ("digits", "digits-paraformer", "fsmn-vad"):
        with GgufFile(store.built_in(name)) as file:
            assert peek_architecture(file.path) == file.architecture
    last = pair("other", U32, struct.pack("<I", 1)), pair("general.architecture", STRING, text("qwen3"))
    model.write_bytes(image(last))
    assert peek_architecture(model) is None
    model.write_bytes(image(last[::-1]))
    assert peek_architecture(model) == "qwen3"


def test_a_glance_at_anything_else_tells_nothing(model: Path, tmp_path: Path) -> None:
    whole = image((pair("general.architecture", STRING, text("qwen3")),))
    end = whole.index(b"qwen3") + len(b"qwen3")
    assert peek_architecture(model) is None
    assert peek_architecture(tmp_path) is None
    for size in range(end):
        model.write_bytes(whole[:size])
        assert peek_architecture(model) is None
    model.write_bytes(whole[:end])
    assert peek_architecture(model) == "qwen3"
    model.write_bytes(b"FUGG" + whole[4:])
    assert peek_architecture(model) is None
    model.write_bytes(image((pair("general.architecture", STRING, text("x" * 1000)),)))
    assert peek_architecture(model) is None


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ((), "f32"),
        ((("a", (8,), TYPE_F32),), "f32"),
        ((("a", (8,), TYPE_F32), ("b", (32, 8), TYPE_Q8_0)), "q8_0"),
        ((("a", (64,), TYPE_F32), ("b", (32,), TYPE_F16), ("c", (32,), TYPE_F16)), "f32"),
    ],
)
def test_the_type_of_a_file_is_that_of_most_of_its_bytes(
    model: Path, tensors: tuple[tuple[str, tuple[int, ...], int], ...], kind: str
) -> None:
    headers = tuple(tensor(name, ne, type_id, 1024 * place) for place, (name, ne, type_id) in enumerate(tensors))
    model.write_bytes(image(tensors=headers, data_bytes=1024 * len(tensors)))
    with GgufFile(model) as file:
        assert file.weight_type == kind


# What is no file at all.


def test_missing_file_is_named_with_the_reason(model: Path) -> None:
    with pytest.raises(ModelFileError, match=re.escape(f"{model}: cannot be read: No such file")):
        GgufFile(model)


def test_directory_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=re.escape(f"{tmp_path}: cannot be read: Is a directory")):
        GgufFile(tmp_path)


def test_file_without_permission_is_named_with_the_reason(written: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # unlike pytest's, one that others may enter
        Path(folder).chmod(0o755)
        secret = Path(shutil.copy(written, folder))
        secret.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(_NOBODY)  # root may read everything
        try:
            with pytest.raises(ModelFileError, match=re.escape(f"{secret}: cannot be read: Permission denied")):
                GgufFile(secret)
        finally:
            os.seteuid(user)


def test_failing_disk_is_named_with_the_reason(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: Path, _mode: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(ModelFileError, match=re.escape(f"{written}: cannot be read: Input/output error")):
        GgufFile(written)


def test_path_may_be_a_string(written: Path) -> None:
    with GgufFile(str(written)) as file:
        assert file.path == written

"""What the safetensors package writes is read as it is, and no number of a hostile file is believed."""

import contextlib
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liveasr.engines.checkpoint import read_state
from liveasr.engines.safetensors_file import MAX_HEADER_BYTES, open_safetensors
from liveasr.errors import ModelFileError
from liveasr.types import Float32Array
from tests.engines.safetensors_writing import bfloat16_words, save
from tests.helpers import open_files

EIGHT = struct.pack("<8f", *range(8))
ENTRY: dict[str, Any] = {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def read(path: Path) -> dict[str, Float32Array]:
    with open_safetensors(path) as opened:
        return {name: tensor.read() for name, tensor in opened.tensors.items()}


def put(path: Path, header: object, data: bytes = EIGHT) -> Path:
    """A file of a header, which is JSON unless it is bytes already, and values."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def refusal(path: Path) -> str:
    """The message about a file: one short line that begins with its name."""
    before = open_files()
    with pytest.raises(ModelFileError) as caught:
        read(path)
    assert open_files() == before
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert len(message) < len(str(path)) + 500
    return message


# What honest files hold.


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_every_float_type_of_numpy_is_widened_to_float32(file: Path, kind: type[np.floating[Any]]) -> None:
    values = np.array([[1.5, -2, 0.1], [65504, 6e-8, 0]], kind)
    found = read(save(file, {"a": values}))["a"]
    assert (found.dtype.name, found.flags.c_contiguous, found.flags.writeable) == ("float32", True, True)
    np.testing.assert_array_equal(found, values.astype(np.float32))


def test_bfloat16_is_widened_exactly(file: Path) -> None:
    values = np.array([1.5, -2, 3.3895313892515355e38, 2.0**-133, 0, -np.inf], np.float32)
    np.testing.assert_array_equal(read(save(file, {"a": bfloat16_words(values)}))["a"], values)


def test_a_whole_checkpoint_is_what_it_is_in_model_pt(golden: Path, file: Path) -> None:
    state = read_state(golden / "nano-tiny" / "model.pt")
    found = read(save(file, {name: bfloat16_words(values) for name, values in state.items()}))
    assert set(found) == set(state)
    for name, values in state.items():
        np.testing.assert_array_equal(found[name], values, name)


def test_scalars_and_empty_tensors_have_their_shapes(file: Path) -> None:
    found = read(save(file, {"one": np.array(7, "f4"), "none": np.zeros((0, 5), "f4"), "two": np.ones(2, "f4")}))
    assert {name: values.shape for name, values in found.items()} == {"one": (), "none": (0, 5), "two": (2,)}
    assert found["one"] == 7


def test_whole_numbers_are_passed_over_and_known_by_name(file: Path) -> None:
    save(file, {"steps": np.array([3], np.int64), "flags": np.array([True, False]), "a": np.ones(3, np.float32)})
    with open_safetensors(file) as opened:
        assert list(opened.tensors) == ["a"]
        assert opened.names == {"steps", "flags", "a"}


def test_a_tensor_is_read_only_when_it_is_asked_for(file: Path) -> None:
    save(file, {"small": np.ones(8, np.float32), "large": np.zeros((1024, 1024), np.float32)})
    tracemalloc.start()
    try:
        with open_safetensors(file) as opened:
            assert opened.tensors["large"].shape == (1024, 1024)
            assert opened.tensors["small"].read().tolist() == [1] * 8
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_order_in_the_header_need_not_be_that_of_the_values(file: Path) -> None:
    later, earlier = ENTRY | {"shape": [2], "data_offsets": [24, 32]}, ENTRY | {"shape": [6], "data_offsets": [0, 24]}
    found = read(put(file, {"b": later, "a": earlier}))
    assert {name: values.tolist() for name, values in found.items()} == {"b": [6, 7], "a": [0, 1, 2, 3, 4, 5]}


# Hostile and broken ones.


def entry(**changes: Any) -> dict[str, Any]:
    return {"a": ENTRY | changes}


def two(first: list[int], second: list[int]) -> dict[str, Any]:
    """Two tensors at two places of the eight values."""
    places = {"a": first, "b": second}
    return {n: ENTRY | {"shape": [(at[1] - at[0]) // 4], "data_offsets": at} for n, at in places.items()}


HOSTILE: dict[str, tuple[object, str]] = {
    "a list": ([], "its header is no table"),
    "nothing": (b"", "does not begin with the length of a header"),
    "not JSON": (b"{'a': 1}", "its list of tensors cannot be read"),
    "half of a table": (b'{"a": {"dtype": "F32"', "its list of tensors cannot be read"),
    "not UTF-8": (b'{"\xff": 1}', "its list of tensors cannot be read"),
    "a name twice": (
        b'{"a": %b, "a": %b}' % ((json.dumps(ENTRY).encode(),) * 2),
        "'a' stands in it twice",
    ),
    "a shape twice": (
        b'{"a": {"dtype": "F32", "shape": [8], "shape": [2, 4], "data_offsets": [0, 32]}}',
        "'shape' stands in it twice",
    ),
    "a long name twice": (b'{"%s": 1, "%s": 2}' % (b"n" * 9000, b"n" * 9000), "stands in it twice"),
    "very deep": (b"[" * 100_000, "its list of tensors cannot be read"),
    "a number of 9,000 digits": (b'{"a": ' + b"9" * 9000 + b"}", "its list of tensors cannot be read"),
    "no entry": ({"a": 1}, "tensor 'a' has no dtype, shape and data_offsets"),
    "no type": ({"a": {"shape": [8], "data_offsets": [0, 32]}}, "tensor 'a' has no dtype"),
    "more than an entry": (entry(strides=[1]), "or more than these"),
    "unknown type": (entry(dtype="F8_E4M3"), "tensor 'a' is 'F8_E4M3'; weights are one of F64, F32, F16, BF16"),
    "type is a list": (entry(dtype=["F32"]), "tensor 'a' is ['F32']"),
    "long type": (entry(dtype="F" * 9000), "weights are one of"),
    "shape is a number": (entry(shape=8), "has no shape"),
    "shape of a text": (entry(shape=["8"]), "has no shape"),
    "shape of a fraction": (entry(shape=[8.0]), "has no shape"),
    "shape of a truth": (entry(shape=[True]), "has no shape"),
    "negative shape": (entry(shape=[-8]), "has no shape"),
    "two negative shapes": (entry(shape=[-2, -4]), "has no shape"),
    "shape of infinity": (b'{"a": {"dtype": "F32", "shape": [Infinity], "data_offsets": [0, 32]}}', "has no shape"),
    "nine dimensions": (entry(shape=[1] * 8 + [8]), "has no shape of at most 8"),
    "shape over 64 bits": (entry(shape=[2**62, 2**62, 2**62]), "has no shape"),
    "large shape": (entry(shape=[2**40, 2**40]), "takes 4835703278458516698824704 bytes, not those from 0 to 32"),
    "no place": (entry(data_offsets=[]), "has no place"),
    "three ends": (entry(data_offsets=[0, 16, 32]), "has no place"),
    "negative place": (entry(data_offsets=[-32, 0]), "has no place"),
    "place of texts": (entry(data_offsets=["0", "32"]), "has no place"),
    "end before its beginning": (entry(data_offsets=[32, 0]), "takes 32 bytes, not those from 32 to 0"),
    "too few bytes": (entry(data_offsets=[0, 28]), "takes 32 bytes, not those from 0 to 28"),
    "another type's bytes": (entry(dtype="F16"), "takes 16 bytes, not those from 0 to 32"),
    "outside the file": (entry(data_offsets=[32, 64]), "tensor 'a' has a hole before it: it begins at 32, not at 0"),
    "far outside": (entry(data_offsets=[2**40, 2**40 + 32]), "has a hole before it"),
    "overlapping": (two([0, 20], [16, 32]), "tensor 'b' overlaps the one before it: it begins at 16, not at 20"),
    "the same twice": (two([0, 32], [0, 32]), "overlaps the one before it"),
    "inside another": (two([0, 32], [8, 16]), "overlaps the one before it"),
    "a hole": (two([0, 8], [16, 32]), "tensor 'b' has a hole before it"),
    "beyond the end": (two([0, 32], [32, 48]), "take 48 bytes, and it has 32; the download may be incomplete"),
    "more values than tensors": (entry(shape=[2], data_offsets=[0, 8]), "take 8 bytes, and it has 32"),
    "no tensors but values": ({}, "take 0 bytes, and it has 32"),
    "line break in a name": ({"a\nb": ENTRY}, "whose name is no name: 'a\\nb'"),
    "half a character": (
        b'{"\\ud800": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}', "whose name is no name: '\\ud800'",
    ),
    "long name": ({"n" * 300: ENTRY}, "whose name is no name"),
}  # fmt: skip


@pytest.mark.parametrize(("header", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_header_is_one_line(file: Path, header: object, reason: str) -> None:
    assert reason in refusal(put(file, header))


@pytest.mark.parametrize("size_bytes", [0, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_length_of_the_header_is_not_believed(file: Path, size_bytes: int) -> None:
    file.write_bytes(struct.pack("<Q", size_bytes) + b"{}" + EIGHT)
    tracemalloc.start()
    try:
        assert "does not begin with the length of a header" in refusal(file)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_header_that_is_longer_than_the_file_is_named(file: Path) -> None:
    file.write_bytes(struct.pack("<Q", 1000) + b"{}" + EIGHT)
    assert "ends inside its header; the download may be incomplete" in refusal(file)


@pytest.mark.parametrize("content", [b"", b"{}", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"])
def test_what_is_no_such_file_is_named(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "is not a safetensors file" in refusal(file)


def test_half_a_download_is_named(golden: Path, file: Path) -> None:
    save(file, read_state(golden / "sensevoice-tiny" / "model.pt"))
    content = file.read_bytes()
    for kept in (4, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:kept])
        refusal(file)


def test_file_that_shrinks_while_it_is_open_is_named(file: Path) -> None:
    put(file, entry())
    with open_safetensors(file) as opened:
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(ModelFileError, match="has become shorter while it was read"):
            opened.tensors["a"].read()


def test_file_that_cannot_be_opened_is_named(file: Path) -> None:
    assert "cannot be read: No such file or directory" in refusal(file)
    file.mkdir()
    assert "cannot be read: Is a directory" in refusal(file)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_change_of_a_byte_breaks_more_than_the_file(file: Path, data: st.DataObject) -> None:
    content = bytearray(put(file, two([0, 12], [12, 32])).read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 33), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content))
    with contextlib.suppress(ModelFileError):
        assert sum(values.size for values in read(file).values()) <= len(EIGHT) // 2

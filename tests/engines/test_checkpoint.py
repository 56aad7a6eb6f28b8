"""Checkpoints are read as PyTorch reads them, and nothing in a hostile one is ever run.

Pickles are put together opcode by opcode: no honest writer makes most of them.
"""

import hashlib
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from liveasr.engines import checkpoint
from liveasr.engines.checkpoint import open_state, read_state
from liveasr.errors import ModelFileError

TINY_SHA256 = "a454d34b7eb4b73c384ca4571261192a3af8da463584de00ca447f00e6e8cd7d"
DIGITS_SHA256 = "2d8a601ef9751caf4e66a2a00d2e005923b3bbeb097244b85fe93adc6b681a7a"
VAD_SHA256 = "65ceaaf8c8cf1fcaa283b46eb115fe46eb98fb9b79d06d6fdaaa58e0041557d7"
NANO_SHA256 = "824be5dbbad7267a35d1cee217e27d025756b1ca54d992e5e63d55dc0eb45a0e"
EIGHT = struct.pack("<8f", *range(8))
FUZZ_SECONDS = 1.0
FUZZ_BYTES = 64 << 20


# Pickles, opcode by opcode.


def word(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def many(*values: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(values) + b"t"


def named(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def storage(kind: str = "FloatStorage", key: str = "0") -> bytes:
    return many(word("storage"), named("torch", kind), word(key), word("cpu"), number(8)) + b"Q"


def tensor(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0, kind: str = "FloatStorage", key: str = "0"
) -> bytes:
    where = (number(offset), many(*map(number, shape)), many(*map(number, strides)))
    hooks = named("collections", "OrderedDict") + b")R"
    return named("torch._utils", "_rebuild_tensor_v2") + many(storage(kind, key), *where, b"\x89", hooks) + b"R"


def table(entries: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(word(name) + value for name, value in entries.items()) + b"u"


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


def save(path: Path, pickled: bytes, storages: Mapping[str, bytes] | None = None) -> Path:
    """An archive as torch.save lays it out."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickled)
        archive.writestr("model/byteorder", "little")
        for key, content in (storages or {}).items():
            archive.writestr(f"model/data/{key}", content)
        archive.writestr("model/version", "3\n")
    return path


def refusal(path: Path) -> str:
    """The message about a file: one line that begins with its name."""
    with pytest.raises(ModelFileError) as caught:
        read_state(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message


def digest(state: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> str:
    """Of names, shapes and values, in their order; torch.load of torch 2.13.0 gave the ones above."""
    summed = hashlib.sha256()
    for name, values in state.items():
        summed.update(f"{name} {values.shape}\n".encode())
        summed.update(values.astype("<f4").tobytes())
    return summed.hexdigest()


# What honest checkpoints hold.


def test_tiny_checkpoint_equals_what_torch_loads(golden: Path) -> None:
    state = read_state(golden / "sensevoice-tiny" / "model.pt")
    assert digest(state) == TINY_SHA256
    assert all(values.dtype == np.float32 and values.flags.c_contiguous for values in state.values())


def test_bfloat16_checkpoint_equals_what_torch_loads(golden: Path) -> None:
    state = read_state(golden / "nano-tiny" / "model.pt")
    assert digest(state) == NANO_SHA256
    assert all(values.dtype == np.float32 and values.flags.c_contiguous for values in state.values())


@pytest.mark.parametrize(
    ("folder", "sha256"), [("models/digits/sensevoice", DIGITS_SHA256), ("models/fsmn-vad", VAD_SHA256)]
)
def test_trained_checkpoints_equal_what_torch_loads(shared: Path, folder: str, sha256: str) -> None:
    assert digest(read_state(shared / folder / "model.pt")) == sha256


def test_tensor_is_read_only_when_it_is_asked_for(file: Path) -> None:
    save(file, program(table({"a": tensor((8,), (1,)), "b": tensor((8,), (1,), key="none")})), {"0": EIGHT})
    with open_state(file) as state:
        assert state["a"].read().tolist() == list(range(8))
        assert state["b"].shape == (8,)
        with pytest.raises(ModelFileError, match="storage 'none' is missing"):
            state["b"].read()


@pytest.mark.parametrize(
    ("kind", "content", "values"),
    [
        ("FloatStorage", struct.pack("<4f", 1.5, -2, 3e38, 1e-40), [1.5, -2, 3e38, 1e-40]),
        ("HalfStorage", struct.pack("<4e", 1.5, -2, 65504, 6e-8), [1.5, -2, 65504, 2**-24]),
        ("BFloat16Storage", bytes.fromhex("c03f 00c0 7f7f 0100"), [1.5, -2, 3.3895313892515355e38, 2.0**-133]),
        ("DoubleStorage", struct.pack("<4d", 1.5, -2, 0.1, 1e30), [1.5, -2, 0.1, 1e30]),
    ],
)
def test_every_float_type_is_widened_to_float32(file: Path, kind: str, content: bytes, values: list[float]) -> None:
    save(file, program(table({"a": tensor((4,), (1,), kind=kind)})), {"0": content})
    found = read_state(file)["a"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(values, np.float32))


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "values"),
    [
        ((2, 3), (3, 1), 0, [[0, 1, 2], [3, 4, 5]]),
        ((3, 2), (1, 3), 0, [[0, 3], [1, 4], [2, 5]]),
        ((2, 2), (4, 2), 1, [[1, 3], [5, 7]]),
        ((3,), (2,), 2, [2, 4, 6]),
        ((2, 3), (0, 1), 5, [[5, 6, 7], [5, 6, 7]]),
        ((1, 1, 2), (2**62, 2**62, 1), 6, [[[6, 7]]]),
        ((), (), 3, 3),
        ((0, 5), (5, 1), 0, np.zeros((0, 5))),
        ((0,), (1,), 2**40, np.zeros(0)),
    ],
    ids=["whole", "transposed", "strided", "offset", "expanded", "single rows", "scalar", "empty", "empty and far"],
)
def test_any_view_of_a_storage_is_read(
    file: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, values: object
) -> None:
    save(file, program(table({"a": tensor(shape, strides, offset)})), {"0": EIGHT})
    found = read_state(file)["a"]
    assert found.flags.c_contiguous
    assert found.flags.writeable
    np.testing.assert_array_equal(found, np.array(values, np.float32))


def test_tensors_may_share_a_storage(file: Path) -> None:
    entries = {"a": tensor((8,), (1,)), "b": tensor((8,), (1,)), "c": tensor((2,), (1,), 6)}
    save(file, program(table(entries)), {"0": EIGHT})
    state = read_state(file)
    np.testing.assert_array_equal(state["a"], state["b"])
    np.testing.assert_array_equal(state["c"], [6, 7])
    state["a"][0] = 9
    assert state["b"][0] == 0


def test_state_dict_in_a_training_checkpoint_is_unwrapped(file: Path) -> None:
    inner = named("collections", "OrderedDict") + b")R(" + word("a") + tensor((8,), (1,)) + b"u"
    inner += b"}" + word("_metadata") + named("collections", "OrderedDict") + b")Rsb"  # as torch pickles a state dict
    rest = {"epoch": number(3), "rate": b"G" + struct.pack(">d", 0.5), "best": b"\x88", "last": b"N", "scores": b"]"}
    save(file, program(table({"state_dict": inner, **rest})), {"0": EIGHT})
    state = read_state(file)
    assert list(state) == ["a"]
    np.testing.assert_array_equal(state["a"], np.arange(8))


def test_entries_that_are_no_floats_are_left_out(file: Path) -> None:
    entries = {
        "steps": tensor((1,), (1,), kind="LongStorage"),
        "note": word("text"),
        "a": tensor((1,), (1,), 7),
        "nested": table({"b": tensor((1,), (1,))}),
    }
    save(file, program(table(entries)), {"0": EIGHT})
    assert list(read_state(file)) == ["a"]


@pytest.mark.parametrize("root", ["", "archive/", "some name/deeper/"])
def test_archive_may_have_any_root(file: Path, root: str) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{root}data.pkl", program(table({"a": tensor((8,), (1,), key="55")})))
        archive.writestr(f"{root}data/55", EIGHT)
    np.testing.assert_array_equal(read_state(file)["a"], np.arange(8))


# Hostile pickles.

MARKER = "/tmp/liveasr-test-a-checkpoint-was-run"  # noqa: S108 - nothing ever writes it
COMMAND = word(f"touch {MARKER}")
HOSTILE = {
    "os.system": named("os", "system") + many(COMMAND) + b"R",
    "posix.system": named("posix", "system") + many(COMMAND) + b"R",
    "subprocess": named("subprocess", "check_output") + many(COMMAND) + b"R",
    "eval": named("builtins", "eval") + many(word(f"open({MARKER!r}, 'w')")) + b"R",
    "eval of python 2": named("__builtin__", "eval") + many(word("1")) + b"R",
    "exec by protocol 4": word("builtins") + word("exec") + b"\x93" + many(word("1")) + b"R",
    "dotted name": word("torch") + word("FloatStorage.__class__") + b"\x93",
    "getattr": named("builtins", "getattr") + many(named("torch", "FloatStorage"), word("__class__")) + b"R",
    "instance": b"(" + COMMAND + b"ios\nsystem\n",
    "object": b"(" + named("os", "system") + COMMAND + b"o",
    "new object": named("pathlib", "Path") + many(word(MARKER)) + b"\x81",
    "new object with keywords": named("pathlib", "Path") + many() + b"}\x92",
    "extension": b"\x82\x01",
    "import by another unpickler": named("torch.serialization", "load") + many(word(MARKER)) + b"R",
    "newer rebuild": named("torch._utils", "_rebuild_parameter") + many() + b"R",
    "line break in a name": word("os\nsystem") + word("\x1b[2Jx") + b"\x93",
    "call of a storage class": named("torch", "FloatStorage") + many(number(8)) + b"R",
    "call of a text": word("os.system") + many(COMMAND) + b"R",
    "call of a table": named("collections", "OrderedDict") + many(number(1)) + b"R",
    "state for a storage class": named("torch", "FloatStorage") + b"](" + word("float32") + number(1) + b"eb",
    "attributes for a storage class": named("torch", "FloatStorage") + table({"item_bytes": number(1)}) + b"b",
    "slots for a storage class": named("torch", "FloatStorage")
    + many(b"N", table({"item_bytes": number(1)})) + b"b",
    "attributes for the tensor maker": named("torch._utils", "_rebuild_tensor_v2")
    + table({"a": number(1)}) + b"b",
    "slots for the tensor maker": named("torch._utils", "_rebuild_tensor_v2")
    + many(b"N", table({"__call__": named("torch", "FloatStorage")})) + b"b",
    "state for the table class": named("collections", "OrderedDict") + table({"items": number(1)}) + b"b",
    "slots for the table class": named("collections", "OrderedDict")
    + many(b"N", table({"items": number(1)})) + b"b",
    "state for a tensor": tensor((8,), (1,)) + many(b"N", table({"offset": number(2**40)})) + b"b",
    "tensor without storage": named("torch._utils", "_rebuild_tensor_v2")
    + many(number(0), number(0), many(), many()) + b"R",
    "tensor with too few parts": named("torch._utils", "_rebuild_tensor_v2") + many(storage()) + b"R",
    "tensor of texts": named("torch._utils", "_rebuild_tensor_v2")
    + many(storage(), word("x"), many(word("y")), many(number(1))) + b"R",
    "tensor of infinity": named("torch._utils", "_rebuild_tensor_v2")
    + many(storage(), b"G" + struct.pack(">d", float("inf")), many(), many()) + b"R",
    "persistent id of a number": number(1) + b"Q",
    "persistent id of a text": word("storage") + b"Q",
    "persistent id in a line": b"Pstorage\n",
    "persistent id too short": many(word("storage")) + b"Q",
    "persistent id of another kind": many(word("module"), named("torch", "FloatStorage"), word("0")) + b"Q",
    "persistent id without a class": many(word("storage"), word("FloatStorage"), word("0")) + b"Q",
    "persistent id with a number for a key": many(word("storage"), named("torch", "FloatStorage"), number(0)) + b"Q",
    "place no. 2^31": b"}r\xff\xff\xff\x7f",
    "place no. 2^32": b"}r\xff\xff\xff\xff",
    "place no. 10^9 in words": b"}p1000000000\n",
    "bytes without end": b"\x8e" + struct.pack("<Q", 2**62),
    "byte array without end": b"\x96" + struct.pack("<Q", 2**40),
    "text without end": b"X\xff\xff\xff\xff",
    "number without end": b"\x8b\xff\xff\xff\x7f",
    "frame without end": b"\x95" + struct.pack("<Q", 2**63),
    "text not UTF-8": b"X\x02\x00\x00\x00\xc3\x28",
    "nothing on the stack": b"R",
    "no mark": b"t",
    "unknown place": b"h\x07",
    "unknown opcode": b"\xff",
    "protocol 200": b"\x80\xc8}",
}  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickle_is_refused_and_not_run(file: Path, body: bytes) -> None:
    Path(MARKER).unlink(missing_ok=True)
    tracemalloc.start()
    try:
        # The honest tensor behind it shows that nothing was changed for those who come later.
        message = refusal(save(file, program(table({"z": body, "a": tensor((8,), (1,))})), {"0": EIGHT}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "data.pkl cannot be read" in message
    assert not Path(MARKER).exists()
    assert peak < FUZZ_BYTES
    save(file, program(table({"a": tensor((8,), (1,))})), {"0": EIGHT})
    np.testing.assert_array_equal(read_state(file)["a"], np.arange(8))


def test_attributes_of_a_state_dict_change_nothing(file: Path) -> None:
    """A pickle may set `items` or `get` on the table that the reader then asks for its items."""
    hooked = named("collections", "OrderedDict") + b")R(" + word("a") + tensor((8,), (1,)) + b"u"
    hooked += table({"items": number(1), "get": number(1), "__class__": number(1)}) + b"b"
    save(file, program(hooked), {"0": EIGHT})
    np.testing.assert_array_equal(read_state(file)["a"], np.arange(8))


@pytest.mark.parametrize(
    "body", [b"]", b"N", number(7), word("text"), tensor((8,), (1,)), storage(), named("torch", "FloatStorage")]
)
def test_pickle_of_something_else_is_no_state_dict(file: Path, body: bytes) -> None:
    assert "holds no state dict" in refusal(save(file, program(body), {"0": EIGHT}))


def test_pickle_over_the_limit_is_not_even_read(file: Path) -> None:
    save(file, program(b"]0" * (checkpoint.MAX_PICKLE_BYTES // 2)))
    assert "no usable data.pkl" in refusal(file)


def test_pickle_of_empty_lists_stays_under_the_limit_of_memory(file: Path) -> None:
    save(file, program(b"]" * 100_000))
    tracemalloc.start()
    try:
        refusal(file)
        assert tracemalloc.get_traced_memory()[1] < 100 * 100_000
    finally:
        tracemalloc.stop()


# Tensors that are not where they say.

OUTSIDE = {
    "one value too many": tensor((9,), (1,)),
    "one value too far": tensor((8,), (1,), 1),
    "one stride too long": tensor((2, 4), (5, 1)),
    "behind the end": tensor((1,), (1,), 8),
    "scalar behind the end": tensor((), (), 8),
    "far behind the end": tensor((1,), (1,), 2**63),
    "farther than a number": tensor((1,), (1,), 2**200),
    "before the start": tensor((1,), (1,), -1),
    "backwards": tensor((2,), (-1,), 4),
    "rows below zero": tensor((-1,), (1,)),
    "rows below zero and none": tensor((0, -3), (1, 1)),
    "strides past all": tensor((2,), (2**62,)),
    "more dimensions than numpy has": tensor((1,) * 65, (1,) * 65),
    "more strides than dimensions": tensor((2,), (1, 1)),
    "fewer strides than dimensions": tensor((2, 2), (1,)),
    "none of very many": tensor((0, 2**62, 2**62), (1, 1, 1)),
    "one value very often": tensor((2**40,), (0,)),
    "more of it than the file has": tensor((2**14, 2**14), (0, 0)),
    "wider than its storage": tensor((8,), (1,), kind="DoubleStorage"),
    "in no storage": tensor((8,), (1,), key="1"),
    "in a storage with a path": tensor((8,), (1,), key="../../../etc/passwd"),
    "in a storage with a line break": tensor((8,), (1,), key="\n\x1b[2J"),
}


@pytest.mark.parametrize("body", OUTSIDE.values(), ids=OUTSIDE)
def test_tensor_outside_its_storage_is_refused(file: Path, body: bytes) -> None:
    refusal(save(file, program(table({"a": body})), {"0": EIGHT}))


def test_many_views_of_one_storage_cannot_fill_the_memory(file: Path) -> None:
    entries = {str(n): tensor((100_000,), (1,)) for n in range(400)}  # 160 MB from a file of 0.5 MB
    save(file, program(table(entries)), {"0": bytes(400_000)})
    assert "larger than the file" in refusal(file)


def test_storage_of_a_torn_value_is_read_up_to_it(file: Path) -> None:
    save(file, program(table({"a": tensor((2,), (1,))})), {"0": EIGHT[:11]})
    np.testing.assert_array_equal(read_state(file)["a"], [0, 1])
    save(file, program(table({"a": tensor((3,), (1,))})), {"0": EIGHT[:11]})
    refusal(file)


# Archives that are broken.


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "none.pt")
    assert "cannot be read: Is a directory" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x80\x02}.", b"GGUF" + bytes(100), b"PK\x05\x06" + bytes(10), bytes(1000)])
def test_other_file_is_no_checkpoint(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "is not a PyTorch checkpoint" in refusal(file)


@pytest.mark.parametrize("names", [[], ["model/weights"], ["a/data.pkl", "b/data.pkl"]])
def test_archive_needs_exactly_one_pickle(file: Path, names: list[str]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, program(b"}"))
    assert "no usable data.pkl" in refusal(file)


def test_compressed_archive_is_refused_unread(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", program(table({"a": tensor((8,), (1,))})))
        archive.writestr("model/data/0", EIGHT)
    assert "it is compressed" in refusal(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", program(table({"a": tensor((8,), (1,))})))
        archive.writestr("model/data/0", bytes(1 << 20), zipfile.ZIP_DEFLATED)
    assert "it is compressed" in refusal(file)


def test_archive_cut_at_any_byte_is_refused(file: Path) -> None:
    whole = save(file, program(table({"a": tensor((8,), (1,))})), {"0": EIGHT}).read_bytes()
    read_state(file)
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        refusal(file)


def test_storage_with_a_wrong_checksum_is_refused(file: Path) -> None:
    whole = save(file, program(table({"a": tensor((8,), (1,))})), {"0": EIGHT}).read_bytes()
    file.write_bytes(whole.replace(EIGHT, EIGHT[:-1] + b"\x41"))
    assert "damaged" in refusal(file)


def test_storage_that_is_shorter_than_it_says_is_refused(file: Path) -> None:
    """With a checksum that is right for what there is."""
    save(file, program(table({"a": tensor((8,), (1,))})), {"0": EIGHT})
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo("model/data/0")
        at = archive.start_dir
    content = bytearray(file.read_bytes())
    entry = content.index(b"model/data/0", at) - 46  # the fixed part of an entry of the central directory
    content[entry + 16 : entry + 24] = struct.pack("<II", zlib.crc32(EIGHT[:16]), 16)
    file.write_bytes(content)
    assert info.file_size == len(EIGHT)
    refusal(file)


def test_mutated_checkpoints_are_refused_or_read_quickly_and_in_little_memory(file: Path) -> None:
    entries = {"a": tensor((2, 4), (4, 1)), "b": tensor((8,), (1,), kind="BFloat16Storage", key="1")}
    whole = save(file, program(table(entries)), {"0": EIGHT, "1": EIGHT}).read_bytes()
    rng = np.random.default_rng(20_250_718)
    messages = []
    tracemalloc.start()
    try:
        for _ in range(600):
            mutant = bytearray(whole)
            at, other = (int(n) for n in rng.integers(0, len(whole), 2))
            size = int(rng.integers(1, 9))
            match int(rng.integers(0, 4)):
                case 0:
                    mutant[at] = int(rng.integers(0, 256))
                case 1:
                    mutant[at : at + size] = rng.bytes(size)
                case 2:
                    del mutant[at : at + size]
                case _:
                    mutant[at : at + size] = whole[other : other + size]
            file.write_bytes(mutant)
            tracemalloc.reset_peak()
            started = time.perf_counter()
            try:
                read_state(file)
            except ModelFileError as error:
                messages.append(str(error))
            assert time.perf_counter() - started < FUZZ_SECONDS
            assert tracemalloc.get_traced_memory()[1] < FUZZ_BYTES
    finally:
        tracemalloc.stop()
    assert all(message.startswith(f"{file}: ") and message.isprintable() for message in messages)
    assert 200 < len(messages) < 590

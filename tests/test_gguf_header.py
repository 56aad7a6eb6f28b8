"""The header of GGUF files: nothing in a bad one gets past its reader, and none costs much.

The files are put together byte by byte.
"""

import re
import struct
import time
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import DEFAULT_ALIGNMENT, MAX_ENTRIES, MAX_STRINGS
from tests.gguf_parts import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I32,
    I64,
    STRING,
    TYPE_F16,
    TYPE_Q4_K,
    TYPE_Q8_0,
    U8,
    U32,
    U64,
    array,
    image,
    pair,
    refusal,
    tensor,
    text,
)

MANY = 2**64 - 1
BYTES_OF_MEMORY_A_BYTE = 32
"""Of a file with nothing but the smallest strings: each is 9 bytes there, and an object and a place in a list here."""
FUZZ_SECONDS = 1.0
FUZZ_SPARE_BYTES = 64 << 20


# What is odd, and right.


def test_empty_lists_are_read(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(image((pair("a", ARRAY, array(F32, 0)), pair("b", ARRAY, array(STRING, 0)))))
    with GgufFile(model) as file:
        numbers = file.metadata["a"]
        assert isinstance(numbers, np.ndarray)
        assert numbers.size == 0
        assert file.strings("b") == []


def test_bool_of_any_byte_but_zero_is_true(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(image((pair("one", BOOL, b"\x07"), pair("many", ARRAY, array(BOOL, 3, b"\x00\x02\xff")))))
    with GgufFile(model) as file:
        assert file.metadata["one"] is True
        many = file.metadata["many"]
        assert isinstance(many, np.ndarray)
        assert many.tolist() == [False, True, True]


def test_general_alignment_moves_the_tensors(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    pairs = (pair("general.alignment", U32, struct.pack("<I", 96)),)
    content = image(pairs, (tensor("a"), tensor("b", offset=96)), 96 + 32, alignment=96)
    model.write_bytes(content[:-4] + struct.pack("<f", 2.5))
    with GgufFile(model) as file:
        assert file.tensor("a").offset % 96 == 0
        assert file.array("b").tolist() == [0, 0, 0, 0, 0, 0, 0, 2.5]


def test_file_without_keys_and_tensors_is_valid(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(image())
    with GgufFile(model) as file:
        assert not file.metadata
        assert not file.tensors


# What is broken.

ONE = (tensor(),)
BROKEN = {
    "empty": (b"", "it is empty"),
    "half of the mark": (b"GG", "does not begin with GGUF"),
    "a zip archive": (b"PK\x03\x04" + bytes(100), "does not begin with GGUF"),
    "the older ggml mark": (b"lmgg" + bytes(100), "does not begin with GGUF"),
    "nothing behind the mark": (b"GGUF", "ends inside the version"),
    "version 1": (image(version=struct.pack("<I", 1)), "version 1 "),
    "version 4": (image(version=struct.pack("<I", 4)), "version 4 "),
    "big-endian": (image(version=struct.pack(">I", 3)), "little-endian"),
    "tensors without end": (image(tensor_count=MANY), f"{MANY} tensors cannot be in a file"),
    "a tensor too many": (image((), ONE, 32, tensor_count=3), "3 tensors cannot be in a file"),
    "keys without end": (image(pair_count=MANY), f"{MANY} metadata keys cannot be in a file"),
    "a key too many": (image((pair("a", U8, b"1"),), pair_count=4), "4 metadata keys cannot be in a file"),
    "more tensors than any model": (image(tensor_count=MAX_ENTRIES + 1) + bytes(4_000_000), "tensors cannot be"),
    "more keys than any model": (image(pair_count=MAX_ENTRIES + 1) + bytes(2_000_000), "keys cannot be"),
    "key without end": (image((struct.pack("<Q", MANY) + bytes(32),)), "a metadata key is .* bytes long, more than"),
    "key over the limit": (image((pair("k" * 65_536, U8, b"1"),)), "a metadata key is 65536 bytes long"),
    "key over the end": (image((struct.pack("<Q", 1000) + bytes(32),)), "ends inside a metadata key"),
    "key not UTF-8": (image((pair(b"\xff\xfe", U8, b"1"),)), "a metadata key is not UTF-8"),
    "key of half a character": (image((pair("é".encode()[:1], U8, b"1"),)), "a metadata key is not UTF-8"),
    "key with a line break": (image((pair("a\nb", U8, b"1"),)), "a metadata key has control characters"),
    "key with an escape": (image((pair("\x1b[2J", U8, b"1"),)), "a metadata key has control characters"),
    "key twice": (image((pair("a", U8, b"1"), pair("a", U8, b"2"))), "the metadata key a appears twice"),
    "value of no type": (image((pair("a", 13, bytes(8)),)), "a has the unknown type 13"),
    "value of the last type": (image((pair("a", 2**32 - 1, bytes(8)),)), "a has the unknown type 4294967295"),
    "text without end": (image((pair("a", STRING, struct.pack("<Q", MANY)),)), "ends inside a;"),
    "text of 2^63": (image((pair("a", STRING, struct.pack("<Q", 2**63)),)), "ends inside a;"),
    "text not UTF-8": (image((pair("a", STRING, text(b"\xc3\x28")),)), "a is not UTF-8"),
    "text of surrogates": (image((pair("a", STRING, text(b"\xed\xa0\x80")),)), "a is not UTF-8"),
    "list without end": (image((pair("a", ARRAY, array(U8, MANY)),)), f"{MANY} values in a cannot be"),
    "list of 2^61 times 8": (image((pair("a", ARRAY, array(F64, 2**61)),)), "values in a cannot be"),
    "texts without end": (image((pair("a", ARRAY, array(STRING, MANY)),)), f"{MANY} texts in a cannot be"),
    "texts beyond the limit": (
        image((pair("a", ARRAY, array(STRING, MAX_STRINGS + 1, bytes(8 * MAX_STRINGS + 8))),)),
        "1000001 texts in a cannot be",
    ),
    "listed text without end": (
        image((pair("a", ARRAY, array(STRING, 2, text("x") + struct.pack("<Q", MANY))),)),
        "ends inside a;",
    ),
    "listed text not UTF-8": (image((pair("a", ARRAY, array(STRING, 1, text(b"\x80"))),)), "a is not UTF-8"),
    "list of no type": (image((pair("a", ARRAY, array(77, 1, bytes(8))),)), "a has the unknown type 77"),
    "list of lists": (image((pair("a", ARRAY, array(ARRAY, 1, array(U8, 1, b"1"))),)), "a is a list of lists"),
    "alignment 0": (image((pair("general.alignment", U32, struct.pack("<I", 0)),)), "general.alignment is 0"),
    "alignment 1": (image((pair("general.alignment", U32, struct.pack("<I", 1)),)), "alignment 1 is no multiple"),
    "alignment 48": (image((pair("general.alignment", U32, struct.pack("<I", 48)),)), "48 is no multiple of 32"),
    "alignment over a page": (
        image((pair("general.alignment", U64, struct.pack("<Q", 2**63)),)),
        "general.alignment 9223372036854775808 is no multiple",
    ),
    "alignment in words": (image((pair("general.alignment", STRING, text("32")),)), "no whole number general.align"),
    "alignment below 0": (image((pair("general.alignment", I32, struct.pack("<i", -32)),)), "alignment is -32"),
    "tensor name too long": (image((), (tensor("n" * 64),), 32), "the name of a tensor is 64 bytes long"),
    "tensor name without end": (
        image((), (struct.pack("<Q", MANY) + bytes(32),)),
        "the name of a tensor is .* bytes long, more than 63",
    ),
    "tensor name not UTF-8": (image((), (tensor(b"\xff"),), 32), "the name of a tensor is not UTF-8"),
    "tensor name with a zero": (image((), (tensor("a\0b"),), 32), "the name of a tensor has control characters"),
    "tensor twice": (image((), (tensor(), tensor(offset=32)), 64), "tensor t appears twice"),
    "tensor without dimensions": (image((), (tensor(ne=()) + bytes(8),), 32), "tensor t has 0 dimensions"),
    "tensor of 5 dimensions": (image((), (tensor(ne=(1, 1, 1, 1, 1)),), 32), "tensor t has 5 dimensions"),
    "tensor of countless dimensions": (image((), (tensor(dims=2**32 - 1),), 32), "tensor t has 4294967295 dimen"),
    "tensor of 0 values": (image((), (tensor(ne=(0,)),), 32), "cannot have rows of 0 values"),
    "tensor of 0 rows": (image((), (tensor(ne=(8, 0)),), 32), "tensor t .* cannot have rows"),
    "tensor of 2^64 bytes": (image((), (tensor(ne=(2**31, 2**31)),), 32), "ends inside tensor t;"),
    "tensor of 2^64 values": (image((), (tensor(ne=(2**32, 2**32)),), 32), "ends inside tensor t;"),
    "tensor of 2^66 values": (image((), (tensor(ne=(2**33, 2**33)),), 32), "ends inside tensor t;"),
    "tensor of all values": (image((), (tensor(ne=(MANY, MANY, MANY, MANY)),), 32), "ends inside tensor t;"),
    "row over a q8_0 block": (image((), (tensor(ne=(33,), kind=TYPE_Q8_0),), 64), "cannot have rows of 33 values"),
    "row under a q4_K block": (image((), (tensor(ne=(128,), kind=TYPE_Q4_K),), 256), "cannot have rows of 128"),
    "tensor of a type that is gone": (image((), (tensor(kind=4),), 32), "tensor t has the unknown type 4"),
    "tensor of whole numbers": (image((), (tensor(kind=26),), 32), "tensor t has the unknown type 26"),
    "tensor of the last type": (image((), (tensor(kind=2**32 - 1),), 32), "tensor t has the unknown type 42949"),
    "offset between boundaries": (image((), (tensor(offset=4),), 64), "offset of tensor t is not a multiple of 32"),
    "offset off its own alignment": (
        image((pair("general.alignment", U32, struct.pack("<I", 64)),), (tensor(offset=32),), 96, alignment=64),
        "offset of tensor t is not a multiple of 64",
    ),
    "offset behind the file": (image((), (tensor(offset=32),), 32), "ends inside tensor t;"),
    "offset near 2^64": (image((), (tensor(offset=2**64 - 32),), 32), "ends inside tensor t;"),
    "last value missing": (image((), ONE, 31), "ends inside tensor t;"),
    "data missing": (image((), ONE, 0), "ends inside tensor t;"),
    "same place": (image((), (tensor("a"), tensor("b")), 64), "tensor [ab] overlaps the one before it"),
    "one inside the other": (
        image((), (tensor("a", ne=(32,)), tensor("b", offset=64)), 128),
        "tensor b overlaps the one before it",
    ),
    "overlap in another order": (
        image((), (tensor("b", offset=32), tensor("a", ne=(9,))), 64),
        "tensor b overlaps the one before it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_refused_with_its_name_and_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    assert re.search(reason, refusal(tmp_path / "model.gguf", content))


def test_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    whole = image(
        (
            pair("general.architecture", STRING, text("test")),
            pair("number", I64, bytes(8)),
            pair("texts", ARRAY, array(STRING, 2, text("ab") + text(""))),
            pair("numbers", ARRAY, array(F32, 3, bytes(12))),
        ),
        (tensor("a", ne=(3, 2)), tensor("b", ne=(32,), kind=TYPE_Q8_0, offset=32), tensor("c", offset=96)),
        96 + 32,
    )
    model.write_bytes(whole)
    GgufFile(model).close()
    for size in range(len(whole)):
        refusal(model, whole[:size])


def test_refused_file_is_closed(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for content, _reason in BROKEN.values():
        if len(content) < 10_000:
            refusal(model, content)
    after = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    assert after == before


# How much memory and time a file may cost.


@pytest.fixture
def measured() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def small_strings(count: int) -> bytes:
    return image((pair("a", ARRAY, array(STRING, count, b"".join(text(f"{n:02x}"[-2:]) for n in range(count)))),))


def small_keys(count: int) -> bytes:
    return image(tuple(pair(f"{n:x}", ARRAY, array(U8, 0)) for n in range(count)))


def small_tensors(count: int) -> bytes:
    return image((), tuple(tensor(f"{n:x}", ne=(1,), offset=32 * n) for n in range(count)), 32 * count)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("content", [small_strings(30_000), small_keys(10_000), small_tensors(5_000)],
                         ids=["strings", "keys", "tensors"])  # fmt: skip
def test_memory_stays_in_proportion_to_the_file(tmp_path: Path, content: bytes) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(content)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    GgufFile(model).close()
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before < BYTES_OF_MEMORY_A_BYTE * len(content)


def fuzz_seed() -> bytes:
    """A valid file with some of everything."""
    pairs = (
        pair("general.architecture", STRING, text("sensevoice-small")),
        pair("general.alignment", U32, struct.pack("<I", 32)),
        pair("sv.output_size", U32, struct.pack("<I", 32)),
        pair("sv.flag", BOOL, b"\x01"),
        pair("sv.eps", F32, struct.pack("<f", 1e-5)),
        pair("sv.big", U64, struct.pack("<Q", 2**40)),
        pair("sv.query_tokens", ARRAY, array(I32, 4, bytes(16))),
        pair("sv.weights", ARRAY, array(F64, 8, bytes(64))),
        pair("sv.vocab", ARRAY, array(STRING, 40, b"".join(text(f"▁{n}") for n in range(40)))),
    )
    tensors = (
        tensor("encoder.a.weight", ne=(8, 4)),
        tensor("encoder.a.bias", ne=(8,), offset=128),
        tensor("encoder.b.weight", ne=(16, 2), kind=TYPE_F16, offset=160),
        tensor("encoder.c.weight", ne=(32, 2), kind=TYPE_Q8_0, offset=224),
        tensor("cmvn.shift", ne=(2, 2, 2), offset=320),
    )
    return image(pairs, tensors, 320 + 32)


INTERESTING = (0, 1, 2, 31, 33, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """One of: some bytes changed, a number of 4 or 8 bytes set, a piece moved, doubled, cut out or filled in."""
    changed = bytearray(content)
    at, other = (int(n) for n in rng.integers(0, len(content), 2))
    size = int(rng.integers(1, 65))
    match int(rng.integers(0, 7)):
        case 0 | 1:
            for position in rng.integers(0, len(content), int(rng.integers(1, 9))):
                changed[position] = int(rng.integers(0, 256))
        case 2 | 3:
            width = 8 if rng.random() < 0.6 else 4
            near = len(content) + int(rng.integers(-64, 65))
            value = int(rng.choice(np.array((*INTERESTING, near), dtype=np.uint64)))
            changed[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
        case 4:
            changed[at:at] = content[other : other + size]
        case 5:
            del changed[at : at + size]
        case _:
            changed[at : at + size] = content[other : other + size]
    return bytes(changed)


def use_everything(file: GgufFile) -> None:
    """Whatever the reader accepted must lie inside the file and be readable."""
    placed = sorted((info.offset, info.offset + info.size_bytes) for info in file.tensors.values())
    assert all(0 < start < end <= len(file) for start, end in placed)
    assert all(end <= start for (_, end), (start, _) in pairwise(placed))
    for name, info in file.tensors.items():
        assert info.offset % DEFAULT_ALIGNMENT == 0
        if info.type_name in {"f32", "f16"}:
            assert file.array(name).size == np.prod(info.shape)


@pytest.mark.usefixtures("measured")
def test_mutated_files_are_refused_or_read_quickly_and_in_little_memory(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    content = fuzz_seed()
    model.write_bytes(content)
    with GgufFile(model) as file:
        use_everything(file)
    rng = np.random.default_rng(20_250_717)
    refused = 0
    for _ in range(10_000):
        mutant = mutate(mutate(content, rng), rng) if rng.random() < 0.3 else mutate(content, rng)
        model.write_bytes(mutant)
        tracemalloc.reset_peak()
        started = time.perf_counter()
        message = None
        try:
            with GgufFile(model) as file:
                use_everything(file)
        except ModelFileError as error:
            message = str(error)
        assert time.perf_counter() - started < FUZZ_SECONDS
        assert tracemalloc.get_traced_memory()[1] < BYTES_OF_MEMORY_A_BYTE * len(mutant) + FUZZ_SPARE_BYTES
        if message is not None:
            refused += 1
            assert message.startswith(f"{model}: ")
            assert message.isprintable()
    assert 3_000 < refused < 9_950  # the mutations reach both sides of the reader's checks

"""Blocks of the K types: as ggml makes them, of the sizes that the reader knows, never of rows that do not divide."""

import gguf
import numpy as np
import pytest

from liveasr.engines._library import ggml
from liveasr.engines.k_quants import quantize_rows
from liveasr.errors import EngineError
from liveasr.gguf_header import TENSOR_TYPES
from liveasr.types import Float32Array

K_TYPES = {"q4_K": 12, "q5_K": 13, "q6_K": 14}
# Of normally distributed values, which differ from their like by the number of bits alone.
ERRORS = {"q4_K": 0.075, "q5_K": 0.038, "q6_K": 0.019}


def matrix(rows: int, columns: int) -> Float32Array:
    return np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)


def test_the_readers_sizes_of_types_are_those_of_ggml() -> None:
    lib = ggml()
    for number, kind in TENSOR_TYPES.items():
        assert (lib.ggml_blck_size(number), lib.ggml_type_size(number)) == (kind.block_values, kind.block_bytes)
        assert lib.ggml_type_name(number).decode() == kind.name


@pytest.mark.parametrize("kind", K_TYPES)
def test_what_was_quantized_is_near_what_it_was(kind: str) -> None:
    values = matrix(16, 512)
    stored = quantize_rows(values, K_TYPES[kind])
    read = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType(K_TYPES[kind]))
    assert read.shape == values.shape
    error = np.linalg.norm(read - values) / np.linalg.norm(values)
    assert ERRORS[kind] / 2 < error < ERRORS[kind]


def test_cut_into_pieces_it_is_the_same() -> None:
    values = matrix(9000, 256)  # more than goes at a time
    whole = quantize_rows(values, K_TYPES["q4_K"])
    pieces = [quantize_rows(values[first : first + 500], K_TYPES["q4_K"]) for first in range(0, 9000, 500)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))


@pytest.mark.parametrize("columns", [560, 96, 255])
def test_rows_that_do_not_divide_are_refused_before_ggml_sees_them(columns: int) -> None:
    with pytest.raises(EngineError, match=f"rows of {columns} values do not divide into blocks of 256"):
        quantize_rows(matrix(2, columns), K_TYPES["q6_K"])

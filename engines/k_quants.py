"""Rows in blocks of few bits, as ggml itself makes them."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from liveasr.engines._library import ggml
from liveasr.engines.cores import available_cores
from liveasr.errors import EngineError
from liveasr.types import Float32Array

_VALUES_AT_A_TIME = 1 << 20
"""Some tenths of a second: so long Ctrl-C waits."""


def quantize_rows(values: Float32Array, type_id: int) -> NDArray[np.uint8]:
    """The rows of a matrix (rows, columns) in a type of ggml's, (rows, bytes of a row).

    Args:
        values: finite numbers.
        type_id: ggml's number of the type.

    Raises:
        EngineError: the columns are no multiple of the type's block, on which ggml would crash.
    """
    lib = ggml()
    rows, columns = values.shape
    if columns % lib.ggml_blck_size(type_id):
        raise EngineError(f"rows of {columns} values do not divide into blocks of {lib.ggml_blck_size(type_id)}")
    source = np.ascontiguousarray(values, np.float32)
    quantized = np.empty((rows, lib.ggml_row_size(type_id, columns)), np.uint8)
    start_of_values = source.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    step = max(1, _VALUES_AT_A_TIME // columns)
    lib.ggml_quantize_init(type_id)

    def some(first: int) -> None:
        count = min(step, rows - first)
        # size_t ggml_quantize_chunk(enum ggml_type type, const float * src, void * dst, int64_t start, int64_t nrows,
        #     int64_t n_per_row, const float * imatrix);
        lib.ggml_quantize_chunk(type_id, start_of_values, quantized.ctypes.data, first * columns, count, columns, None)

    pool = ThreadPoolExecutor(available_cores())
    try:
        list(pool.map(some, range(0, rows, step)))
    finally:
        pool.shutdown(cancel_futures=True)
    return quantized

"""Custom operations for ggml's graphs (kernels.c): the library, and the nodes that call it.

It is built with the package, for the processor that it is built on; where that failed, or the processor has none of the
instructions that it is written for, there is none, and graphs are made of ggml's own operations. Weights in q8_0 are
computed with as they are: only the order of their bytes is changed, and values that meet them are rounded to 8 bits in
blocks of 32, as ggml does.
"""

import ctypes
import functools
import logging
import platform
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from liveasr.engines._library import ggml
from liveasr.engines.graph import Norm, Tensor

_log = logging.getLogger("liveasr")
_MODULE = "liveasr.engines._kernels"
_FIELDS = ("ne", "nb", "src", "data")
"""Of struct ggml_tensor, in the order of liveasr_layout."""
_WRITTEN_FOR = ("x86_64", "AMD64")
"""As in setup.py."""
_SLOW = (
    "models in q8_0 run at a third of the speed; to have them built here, where there is a compiler: "
    "python -m pip install --force-reinstall --no-deps --no-cache-dir liveasr; "
    "in a checkout remove .venv, then run: make setup"
)
_F32, _I8, _Q8_0 = 0, 24, 8  # enum ggml_type
_ALL_THREADS = -1  # GGML_N_TASKS_MAX
_BLOCK_VALUES = 32
_NAMES = {8: "AVX2", 16: "AVX-512"}
"""By the floats in a vector."""
_LINE_BYTES = 64
_Operation: TypeAlias = Literal["norm", "memory", "quantize", "linear", "attention"]


class _NormData(ctypes.Structure):
    _fields_ = [("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("eps", ctypes.c_float)]


class _LinearData(ctypes.Structure):
    _fields_ = [
        ("packed", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inner", ctypes.c_int64),
        ("relu", ctypes.c_int),
        ("addends", ctypes.c_int),
    ]


class Kernels:
    """The library. Rows of what it computes do not depend on each other, nor on the number of threads.

    Args:
        path: of a shared library made of kernels.c.
    """

    def __init__(self, path: str) -> None:
        self._lib = ctypes.CDLL(path)
        self.lanes = self._value("lanes")
        """Floats in a vector; 0 where this processor has no kernels."""
        self.max_normed, self.max_taps = (
            (ctypes.c_int * 2).in_dll(self._lib, "liveasr_limits") if self.lanes else (0, 0)
        )
        if self.lanes:
            self._lib.liveasr_packed_bytes.restype = ctypes.c_int64
            self._lib.liveasr_attention_floats.restype = ctypes.c_int64

    @property
    def fits(self) -> bool:
        """Whether it is for this processor, for the ggml that is loaded, and for this module."""
        if not self.lanes or not self._lib.liveasr_runs_here():
            return False
        layout = [getattr(ggml().ggml_tensor, name).offset for name in _FIELDS]
        layout += [getattr(kind, name).offset for kind in (_NormData, _LinearData) for name, *_ in kind._fields_]
        return list((ctypes.c_int64 * len(layout)).in_dll(self._lib, "liveasr_layout")) == layout

    def can_pack(self, type_id: int, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of that type can be packed for products."""
        return type_id == _Q8_0 and len(shape) == 2 and shape[1] % _BLOCK_VALUES == 0  # noqa: PLR2004 - a matrix

    def pack(self, rows: NDArray[np.uint8], shape: tuple[int, int]) -> NDArray[np.uint8]:
        """The bytes of a q8_0 matrix in the order in which products read them.

        Args:
            rows: (outputs, bytes of a row), contiguous.
            shape: (outputs, inputs) in values.
        """
        size = [ctypes.c_int64(n) for n in shape]
        room = np.empty(self._lib.liveasr_packed_bytes(*size) + _LINE_BYTES, np.uint8)
        packed = room[-room.ctypes.data % _LINE_BYTES :][: room.size - _LINE_BYTES]
        self._lib.liveasr_pack(ctypes.c_void_p(rows.ctypes.data), *size, ctypes.c_void_p(packed.ctypes.data))
        return packed

    def attention_floats(self, keys: int, width: int) -> int:
        """How many floats of scratch memory attention takes for a thread, over so many keys of a head's width."""
        return int(self._lib.liveasr_attention_floats(ctypes.c_int64(keys), ctypes.c_int64(width)))

    @functools.cached_property
    def operations(self) -> dict[_Operation, Any]:
        """As ggml takes them."""
        make = ggml().ggml_custom_op_t
        names: tuple[_Operation, ...] = ("norm", "memory", "quantize", "linear", "attention")
        return {name: make(ctypes.cast(self._lib[f"liveasr_{name}"], ctypes.c_void_p).value) for name in names}

    def node(
        self, context: Any, operation: _Operation, ne: tuple[int, int], sources: Sequence[Tensor], data: Any = None
    ) -> Tensor:
        """A tensor that an operation computes from others.

        Args:
            context: ggml's, for the description of the tensor.
            operation: what computes it.
            ne: its sizes, the fastest first.
            sources: what it is computed from.
            data: a structure of ctypes that the operation reads, kept by the caller until all is computed.
        """
        lib = ggml()
        arguments = (ctypes.POINTER(lib.ggml_tensor) * len(sources))(*sources)
        type_id = _I8 if operation == "quantize" else _F32
        # struct ggml_tensor * ggml_custom_4d(struct ggml_context * ctx, enum ggml_type type, int64_t ne0, ...,
        #     struct ggml_tensor ** args, int n_args, ggml_custom_op_t fun, int n_tasks, void * userdata);
        return lib.ggml_custom_4d(
            context, type_id, *ne, 1, 1, arguments, len(sources), self.operations[operation], _ALL_THREADS,
            None if data is None else ctypes.addressof(data),
        )  # fmt: skip

    def _value(self, name: str) -> int:
        return ctypes.c_int.in_dll(self._lib, f"liveasr_{name}").value


def norm_data(norm: Norm) -> ctypes.Structure:
    """A norm as kernels read it; its tensors are of a file, so they have their values already."""
    return _NormData(norm.weight.contents.data, norm.bias.contents.data, norm.eps)


def linear_data(
    packed: NDArray[np.uint8], bias: Tensor | None, inner: int, *, relu: bool, addends: int
) -> ctypes.Structure:
    """A product as kernels read it."""
    return _LinearData(packed.ctypes.data, None if bias is None else bias.contents.data, inner, relu, addends)


def kernels_name() -> str:
    """What the kernels that are used here are written for, in a word."""
    found = kernels()
    return "none" if found is None else _NAMES[found.lanes]


@functools.cache
def kernels() -> Kernels | None:
    """The library that was built with the package, if it can be used here; a warning says so if another one could."""
    spec = find_spec(_MODULE)
    if spec is None or spec.origin is None:
        if platform.machine() in _WRITTEN_FOR:
            _log.warning("liveasr was built without its kernels, for want of a C compiler: %s", _SLOW)
        return None
    try:
        found = Kernels(spec.origin)
        if found.fits:
            return found
        is_for_none = not found.lanes
    except (AttributeError, OSError, ValueError):  # it is no library, or lacks something that is looked for
        is_for_none = False
    if not is_for_none:
        _log.warning("%s was built for another processor or version: %s", spec.origin, _SLOW)
    return None

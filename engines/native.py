"""Owners of ggml's objects: weights mapped from a file, and contexts that compute graphs over them.

    Weights            one GGUF file, mapped; tensors of the file, and a few derived from them
      ComputeContext   a backend with its threads and its scratch memory; one per lane, all over the same Weights

Computations (graph.py) are built in a ComputeContext, run once and freed.

A parent closes its children first. Closing twice is fine, use after close is an EngineError, and what nobody closes
is freed with its last reference, in any order. Arrays that come out are copies.
"""

import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liveasr.engines._library import ggml
from liveasr.engines.cores import CORES
from liveasr.engines.fast_graph import FastGraph
from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.kernels import kernels
from liveasr.errors import EngineError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import TensorInfo
from liveasr.types import Float32Array

_F32, _F16, _I32 = 0, 1, 26  # enum ggml_type
_STATUS_SUCCESS = 0  # enum ggml_status
_NUMPY_TYPES = {_F32: np.float32, _I32: np.int32}
_LEAST_DIMS = {_F32: 2, _I32: 1}


def _new_context(tensors: int, graph_nodes: int = 0) -> Any:
    """A ggml context for the descriptions of so many tensors; their data lies elsewhere."""
    lib = ggml()
    size = tensors * lib.ggml_tensor_overhead()
    if graph_nodes:
        size += lib.ggml_graph_overhead_custom(graph_nodes, False)
    # struct ggml_context * ggml_init(struct ggml_init_params params);
    context = lib.ggml_init(lib.ggml_init_params(mem_size=size, mem_buffer=None, no_alloc=True))
    if not context:
        raise EngineError(f"ggml could not allocate a context of {size} bytes")
    return context


def _new_tensor(context: Any, type_id: int, shape: tuple[int, ...], name: str) -> Tensor:
    lib = ggml()
    ne = (ctypes.c_int64 * len(shape))(*reversed(shape))
    # struct ggml_tensor * ggml_new_tensor(struct ggml_context * ctx, enum ggml_type type, int n_dims, const int64_t *
    # ne);
    tensor = lib.ggml_new_tensor(context, type_id, len(shape), ne)
    lib.ggml_set_name(tensor, name.encode())
    return tensor


def _cpu_device() -> Any:
    lib = ggml()
    backend = lib.ggml_backend_cpu_init()
    device = lib.ggml_backend_get_device(backend)  # outlives the backend: it belongs to the library
    lib.ggml_backend_free(backend)
    return device


class Weights:
    """The tensors of a GGUF file as ggml tensors over the mapped file, without a copy.

    Args:
        file: a validated file. This object owns it and closes it.
        derived: float32 arrays that the engine needs in another layout than the file's, by name.
    """

    def __init__(self, file: GgufFile, derived: Mapping[str, Float32Array] | None = None) -> None:
        lib = ggml()
        self.file = file
        self._tensors: dict[str, Tensor] = {}
        self._contexts: weakref.WeakSet[ComputeContext] = weakref.WeakSet()
        context = _new_context(len(file.tensors))
        address = file.address()
        # Not ggml_backend_cpu_buffer_from_ptr: its binding cuts the pointer that it returns to 32 bits.
        # ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(
        #     ggml_backend_dev_t device, void * ptr, size_t size, size_t max_tensor_size);
        buffer = lib.ggml_backend_dev_buffer_from_host_ptr(_cpu_device(), address, len(file), len(file))
        for info in file.tensors.values():
            tensor = _new_tensor(context, info.type_id, info.shape, info.name)
            self._check_size(tensor, info)
            # enum ggml_status ggml_backend_tensor_alloc(
            #     ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, void * addr);
            lib.ggml_backend_tensor_alloc(buffer, tensor, address + info.offset)
            self._tensors[info.name] = tensor
        self.packed = self._pack()
        derived_context, derived_buffer = self._add_derived(derived or {})
        self._finalizer = weakref.finalize(
            self, _free_weights, (buffer, derived_buffer), (context, derived_context), file
        )

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of that name."""
        return self._tensors[name]

    def _pack(self) -> dict[int, NDArray[np.uint8]]:
        """The matrices that our own kernels read in another order, copied; the pages of the file that held them go."""
        library = kernels()
        packed: dict[int, NDArray[np.uint8]] = {}
        if library is None:
            return packed
        for info in self.file.tensors.values():
            if library.can_pack(info.type_id, info.shape):
                address = ctypes.addressof(self._tensors[info.name].contents)
                packed[address] = library.pack(self.file.raw(info.name), (info.shape[0], info.shape[1]))
                self.file.release(info.name)
        return packed

    def context(self, threads: int) -> "ComputeContext":
        """What computes with these weights, one computation at a time."""
        return ComputeContext(self, threads)

    @property
    def closed(self) -> bool:
        """Whether the memory is gone."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Close every context over these weights, then free them and unmap the file."""
        for context in list(self._contexts):
            context.close()
        self._finalizer()
        self.packed.clear()

    def adopt(self, context: "ComputeContext") -> None:
        """Remember a context that computes with these weights."""
        self._contexts.add(context)

    def _check_size(self, tensor: Tensor, info: TensorInfo) -> None:
        """The reader's idea of a type's size must be that of the loaded library."""
        size_bytes = ggml().ggml_nbytes(tensor)
        if size_bytes != info.size_bytes:
            raise EngineError(
                f"ggml counts {size_bytes} bytes for tensor {info.name} where the file has {info.size_bytes}"
            )

    def _add_derived(self, arrays: Mapping[str, Float32Array]) -> tuple[Any, Any]:
        lib = ggml()
        context = _new_context(len(arrays))
        if not arrays:
            return context, None
        for name, values in arrays.items():
            self._tensors[name] = _new_tensor(context, _F32, values.shape, name)
        backend = lib.ggml_backend_cpu_init()
        # ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(struct ggml_context * ctx, ggml_backend_t backend);
        buffer = lib.ggml_backend_alloc_ctx_tensors(context, backend)
        lib.ggml_backend_free(backend)
        if not buffer:
            raise EngineError("ggml could not allocate the derived weights")
        for name, values in arrays.items():
            _write(self._tensors[name], values)
        return context, buffer


def _free_weights(buffers: tuple[Any, ...], contexts: tuple[Any, ...], file: GgufFile) -> None:
    lib = ggml()
    for buffer in buffers:
        if buffer:
            lib.ggml_backend_buffer_free(buffer)
    for context in contexts:
        lib.ggml_free(context)
    file.close()


class ComputeContext:
    """Threads and scratch memory for one computation at a time; a second caller waits.

    Args:
        weights: what is computed with.
        threads: at most; while other contexts compute, each gets its part of the cores. Results do not depend on it.
    """

    def __init__(self, weights: Weights, threads: int) -> None:
        lib = ggml()
        self.weights = weights
        self.threads = threads
        self._lock = threading.Lock()
        backend = lib.ggml_backend_cpu_init()
        # ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);
        allocator = lib.ggml_gallocr_new(lib.ggml_backend_get_default_buffer_type(backend))
        self._backend = backend
        self._allocator = allocator
        self._finalizer = weakref.finalize(self, _free_context, backend, allocator)
        weights.adopt(self)

    def close(self) -> None:
        """Free threads and memory, after the computation that is running."""
        with self._lock:
            self._finalizer()

    def run(
        self, build: Callable[["Graph"], Mapping[str, Tensor]], inputs: Mapping[str, NDArray[Any]], max_nodes: int
    ) -> dict[str, NDArray[Any]]:
        """Build a graph, compute it, and copy its outputs.

        Args:
            build: makes the graph from `graph.inputs` and returns the tensors wanted, by name.
            inputs: float32 or int32 arrays, by name.
            max_nodes: bound on the operations in the graph.

        Raises:
            EngineError: after close, or if ggml runs out of memory or fails.
        """
        lib = ggml()
        with self._lock, CORES.part(self.threads) as threads:
            if not self._finalizer.alive or self.weights.closed:
                raise EngineError("the engine was used after close()")
            context = _new_context(max_nodes + len(inputs), max_nodes)
            try:
                tensors = {name: _input(context, name, value) for name, value in inputs.items()}
                graph = self._graph(context, tensors, threads)
                outputs = build(graph)
                # struct ggml_cgraph * ggml_new_graph_custom(struct ggml_context * ctx, size_t size, bool grads);
                plan = lib.ggml_new_graph_custom(context, max_nodes, False)
                for tensor in outputs.values():
                    lib.ggml_set_output(tensor)
                    lib.ggml_build_forward_expand(plan, tensor)
                if not lib.ggml_gallocr_alloc_graph(self._allocator, plan):
                    raise EngineError("not enough memory for this segment")
                for name, value in inputs.items():
                    _write(graph.inputs[name], value)
                lib.ggml_backend_cpu_set_n_threads(self._backend, threads)
                status = lib.ggml_backend_graph_compute(self._backend, plan)
                if status != _STATUS_SUCCESS:
                    raise EngineError(f"ggml failed with status {status}")
                return {name: read(tensor) for name, tensor in outputs.items()}
            finally:
                lib.ggml_free(context)

    def _graph(self, context: Any, inputs: Mapping[str, Tensor], threads: int) -> Graph:
        library = kernels()
        if library is None:
            return Graph(context, inputs)
        return FastGraph(context, inputs, library, self.weights.packed, threads)


def _input(context: Any, name: str, value: NDArray[Any]) -> Tensor:
    tensor = _new_tensor(context, _I32 if value.dtype == np.int32 else _F32, value.shape, name)
    ggml().ggml_set_input(tensor)
    return tensor


def _free_context(backend: Any, allocator: Any) -> None:
    lib = ggml()
    lib.ggml_gallocr_free(allocator)
    lib.ggml_backend_free(backend)


def _write(tensor: Tensor, values: NDArray[Any]) -> None:
    """Copy a float32 or int32 array into a tensor of the same size."""
    contiguous = np.ascontiguousarray(values)
    if contiguous.nbytes != ggml().ggml_nbytes(tensor):
        raise EngineError(f"{contiguous.nbytes} bytes do not fit a tensor of {ggml().ggml_nbytes(tensor)}")
    # void ggml_backend_tensor_set(struct ggml_tensor * tensor, const void * data, size_t offset, size_t size);
    ggml().ggml_backend_tensor_set(tensor, contiguous.ctypes.data, 0, contiguous.nbytes)


def read(tensor: Tensor) -> NDArray[Any]:
    """A copy of a contiguous tensor: rows (T, D) or more dimensions of f32, or (T,) of i32."""
    # ggml keeps no leading 1: ne = [D, 1, 1, 1] is (D,) as well as (1, D). All floats here are rows, so one is, too.
    ne, type_id = tensor.contents.ne, int(tensor.contents.type)
    dims = max(ggml().ggml_n_dims(tensor), _LEAST_DIMS[type_id])
    values = np.empty(tuple(int(n) for n in reversed(ne[:dims])), _NUMPY_TYPES[type_id])
    # void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size);
    ggml().ggml_backend_tensor_get(tensor, values.ctypes.data, 0, values.nbytes)
    return values

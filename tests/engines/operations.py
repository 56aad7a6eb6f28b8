"""What the tests of graphs share: a file of matrices, and every library of kernels that this processor can run."""

import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from liveasr.engines.graph import Graph, Tensor
from liveasr.engines.native import ComputeContext, Weights
from liveasr.types import Float32Array

ROWS, WIDTH, OUT, HEADS, KERNEL = 7, 64, 48, 2, 11
MAX_NODES = 64
SOURCE = Path(__file__).resolve().parents[2] / "engines" / "kernels.c"
_CPU = Path("/proc/cpuinfo")
_MACHINES = {
    "avx2": ("x86-64-v3", "avx2"),
    "avx512": ("skylake-avx512", "avx512bw"),
    "vnni": ("icelake-client", "avx512_vnni"),
}
"""Name -> what gcc and clang call the processor, and the flag that tells that this one can do the same."""
_OTHER_MACHINES = {"any": "x86-64", "excavator": "bdver4"}
"""Of the second, AMD's last before Zen, only few others have all instructions."""


def builds() -> list[str]:
    """The libraries of kernels that can be built and run here; "ggml" is none, whose operations are ggml's."""
    flags = cpu_flags()
    can_build = platform.machine() == "x86_64" and shutil.which("cc") is not None
    return ["ggml", *(name for name, (_, flag) in _MACHINES.items() if can_build and flag in flags)]


def cpu_flags() -> list[str]:
    """What this processor can do, in Linux' words; nothing where that is not told."""
    return _CPU.read_text().split() if _CPU.exists() else []


def build(name: str, folder: Path, source: str | None = None) -> Path:
    """Compile the kernels, or what was made of their source, for a kind of processor; "any" is the oldest."""
    path = folder / f"{name}.so"
    machine = _OTHER_MACHINES.get(name) or _MACHINES[name][0]
    flags = ["-std=gnu11", "-O3", f"-march={machine}", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
    command = ["cc", *flags, "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-lm"]
    subprocess.run(command, input=source or SOURCE.read_text("utf-8"), text=True, check=True)
    return path


def values(*shape: int, seed: int = 0) -> Float32Array:
    """Normal noise, another for every shape and seed."""
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape).astype(np.float32)


def q8_0(matrix: Float32Array) -> NDArray[np.uint8]:
    """Its blocks."""
    blocks: NDArray[np.uint8] = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    return blocks


def dequantized(matrix: Float32Array) -> NDArray[np.float64]:
    """A matrix as q8_0 rounds it."""
    return gguf.quants.dequantize(q8_0(matrix), gguf.GGMLQuantizationType.Q8_0).astype(np.float64)


def write_matrices(path: Path, matrices: Mapping[str, Float32Array], blocks: Mapping[str, Float32Array]) -> Path:
    """A GGUF file of arrays as they are (float32 or float16), and of others in q8_0."""
    writer = gguf.GGUFWriter(path, "test")
    for name, array in matrices.items():
        writer.add_tensor(name, array)
    for name, array in blocks.items():
        writer.add_tensor(name, q8_0(array), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def compute(
    weights: Weights, build: Callable[[Graph], Tensor], inputs: Mapping[str, NDArray[Any]], threads: int = 1
) -> NDArray[Any]:
    """Run one operation in a context of its own."""
    context = ComputeContext(weights, threads)
    result = context.run(lambda graph: {"y": build(graph)}, inputs, MAX_NODES)["y"]
    context.close()
    return result


def near(found: NDArray[Any], expected: NDArray[Any], tolerances: dict[str, Any], name: str = "operation") -> None:
    """Fail where a result is not what float64 arithmetic gives."""
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    largest = np.abs(expected).max()
    assert np.abs(found - expected).max() / largest < tolerances["engines"][name]["value"]

"""The part of the package that is compiled: kernels for ggml's graphs. Without a compiler it goes without."""

import platform

from setuptools import Extension, setup

KERNELS = Extension(
    "liveasr.engines._kernels",
    sources=["engines/kernels.c"],
    # For this processor, as ggml is built. It is no module of Python's, so none of Python's headers is needed.
    extra_compile_args=["-std=gnu11", "-O3", "-march=native", "-fvisibility=hidden"],
    optional=True,
)

# They are written for this kind of processor only.
setup(ext_modules=[KERNELS] if platform.machine() in ("x86_64", "AMD64") else [])

"""The one place that loads the native libraries, on first use and not before. A process has one of them.

ggml-python and llama-cpp-python each bring a ggml, of different versions. `ggml` loads its own with RTLD_GLOBAL, so
that a llama.cpp loaded after it would bind to that older one, without a word. So the language model has a process of
its own (llm_server.py), and here each library refuses to be loaded beside the other. Nothing else imports them.
"""

import functools
import importlib
import logging
import os
import sys
from typing import Any

from liveasr.errors import EngineError, MissingExtraError

REBUILD_COMMAND = (
    'CMAKE_ARGS="-DGGML_LLAMAFILE=ON" python -m pip install --force-reinstall --no-deps --no-cache-dir '
    "--no-binary ggml-python ggml-python"
)
LLAMA_COMMAND = "python -m pip install --force-reinstall --no-deps --no-binary llama-cpp-python llama-cpp-python"
_log = logging.getLogger("liveasr")


_FEATURES = ("avx", "avx2", "avx512", "fma", "f16c", "neon", "arm_fma", "dotprod", "sve", "llamafile")


def build() -> str:
    """Version of ggml and what it was built for, in a line."""
    lib = ggml()
    features = [name for name in _FEATURES if getattr(lib, f"ggml_cpu_has_{name}")()]
    return f"ggml-python {lib.__version__} ({' '.join(features)})"


@functools.cache
def ggml() -> Any:
    """The module `ggml`.

    Raises:
        EngineError: its libraries cannot be loaded.
    """
    _refuse_beside("llama_cpp")
    _spin_briefly()
    try:
        module = importlib.import_module("ggml")
    except (ImportError, OSError) as error:
        raise EngineError(f"ggml cannot be loaded ({error}); build it with: {REBUILD_COMMAND}") from error
    if not module.ggml_cpu_has_llamafile():
        _log.warning(
            "ggml was built without its fast matrix kernels and runs at half speed; rebuild it with: %s",
            REBUILD_COMMAND,
        )
    return module


@functools.cache
def llama() -> Any:
    """The low-level bindings of llama.cpp, `llama_cpp.llama_cpp`.

    Raises:
        MissingExtraError: llama-cpp-python is not installed.
        EngineError: its libraries cannot be loaded.
    """
    _refuse_beside("ggml")
    _spin_briefly()
    # Where an assertion fails, it would start a debugger if there is one, which takes seconds and has the last word.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except ModuleNotFoundError as error:
        if error.name != "llama_cpp":
            raise EngineError(f"llama.cpp cannot be loaded ({error}); build it with: {LLAMA_COMMAND}") from error
        raise missing_extra() from error
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(f"llama.cpp cannot be loaded ({error}); build it with: {LLAMA_COMMAND}") from error


def missing_extra() -> MissingExtraError:
    """What to raise where llama-cpp-python is not installed."""
    return MissingExtraError(
        "nano",
        "llama-cpp-python",
        "runs the language model of Fun-ASR-Nano",
        note="in a checkout: make nano; it is compiled for some minutes, which takes a C++ compiler",
    )


def _refuse_beside(other: str) -> None:
    if other in sys.modules:
        raise EngineError(
            f"{other} is loaded in this process: two versions of ggml would mix; use it in a process of its own"
        )


def _spin_briefly() -> None:
    """Let ggml's threads sleep soon while they wait for each other.

    They wait 2,500 times in a full-size graph, and libgomp lets them spin for milliseconds before they sleep: lost time
    if another program has a core. To spin for some 50 microseconds costs nothing on an idle machine (1.02 against
    1.04 s for 11 s of audio) and a fifth less on a busy one (3.0 against 3.7 s). libgomp reads this when it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")

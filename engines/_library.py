"""The one place that loads the ggml bindings, on first use and not before.

`ggml` loads its libraries with RTLD_GLOBAL: whatever is loaded after it may bind to its symbols. Nothing else in the
package imports it.
"""

import functools
import importlib
import logging
import os
from typing import Any

from liveasr.errors import EngineError

REBUILD_COMMAND = (
    'CMAKE_ARGS="-DGGML_LLAMAFILE=ON" python -m pip install --force-reinstall --no-deps --no-cache-dir '
    "--no-binary ggml-python ggml-python"
)
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
    # ggml's threads wait for each other 2,500 times in a full-size graph, and libgomp lets them spin for milliseconds
    # before they sleep: lost time if another program has a core. To spin for some 50 microseconds costs nothing on an
    # idle machine (1.02 against 1.04 s for 11 s of audio) and a fifth less on a busy one (3.0 against 3.7 s). libgomp
    # reads this when it is loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
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

"""From a released checkpoint folder to a GGUF file in the layout that FunAudioLLM publishes.

Nobody publishes the streaming Paraformer, so its layout is our own: docs/gguf-paraformer-streaming.md. A folder holds
`model.pt`, `config.yaml`, `am.mvn` and a vocabulary: for SenseVoice a SentencePiece model `*.bpe.model`, for Paraformer
`tokens.json`. Tensor names are the checkpoint's own. Matrices of two dimensions take the wanted type; norms, biases,
FSMN kernels and whatever a block type cannot hold stay f32. FSMN kernels are stored taps first, (K, D).
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Literal, TypeAlias

import gguf
import numpy as np

from liveasr.engines.checkpoint import read_state
from liveasr.engines.checkpoint_folder import CheckpointFolder
from liveasr.engines.cmvn import from_kaldi
from liveasr.engines.layouts import LAYOUTS, Layout
from liveasr.errors import ModelFileError, OutputError
from liveasr.gguf_file import MAX_DIMS, MAX_NAME_BYTES
from liveasr.types import Float32Array

WeightType: TypeAlias = Literal["f32", "f16", "q8_0"]
_Q8_0_BLOCK = 32  # values
_MATRIX_DIMS = 2


def convert(folder: Path, output: Path, weight_type: WeightType = "f32") -> int:
    """Write the model of a checkpoint folder to a GGUF file; the file appears only when it is complete.

    Returns:
        The number of tensors written.

    Raises:
        ModelFileError: the folder is not a checkpoint of a known family, or a part of it is missing or broken.
        OutputError: the output cannot be written.
    """
    checkpoint = CheckpointFolder(folder)
    layout = LAYOUTS.get(checkpoint.model_class)
    if layout is None:
        known = ", ".join(LAYOUTS)
        raise ModelFileError(folder, f"holds a model of the class {checkpoint.model_class}; known are {known}")
    writer = gguf.GGUFWriter(None, layout.architecture)
    layout.add_metadata(writer, checkpoint)
    cmvn = from_kaldi(folder / "am.mvn", checkpoint.stacked_size())
    writer.add_tensor("cmvn.shift", cmvn.shift)
    writer.add_tensor("cmvn.scale", cmvn.scale)
    state = read_state(folder / "model.pt")
    names = [name for name in state if name.startswith(layout.prefixes) and name not in layout.skipped]
    if not names:
        raise ModelFileError(folder / "model.pt", f"has no tensors named {' or '.join(layout.prefixes)}")
    for name in names:
        values = state[name]
        if len(name.encode()) > MAX_NAME_BYTES or not 1 <= values.ndim <= MAX_DIMS or not values.size:
            raise ModelFileError(folder / "model.pt", f"no GGUF file can hold tensor {name!r} of shape {values.shape}")
        values = _taps_first(name, values)
        _add_tensor(writer, name, values, _stored_type(name, values, layout, weight_type))
    _write(writer, output)
    return len(names) + 2


def _write(writer: gguf.GGUFWriter, output: Path) -> None:
    """Write under another name in the same folder, then rename."""
    try:
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        os.close(handle)
        partial = Path(name)
        try:
            writer.write_header_to_file(partial)
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            partial.chmod(0o644)
            partial.replace(output)
        finally:
            with contextlib.suppress(OSError):  # of a full disk, which has been told already
                writer.close()
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(output, f"cannot be written: {error.strerror}") from error


def _taps_first(name: str, values: Float32Array) -> Float32Array:
    """FSMN kernels as (K, D), from (D, 1, K) in SAN-M blocks and (D, 1, K, 1) in the VAD."""
    if name.endswith(("fsmn_block.weight", "conv_left.weight")):
        return np.ascontiguousarray(values.reshape(values.shape[0], -1).T)
    return values


def _stored_type(name: str, values: Float32Array, layout: Layout, wanted: WeightType) -> WeightType:
    is_matrix = (
        values.ndim == _MATRIX_DIMS
        and "norm" not in name
        and not name.endswith(("fsmn_block.weight", "conv_left.weight"))
    )
    if not is_matrix or not layout.matrices_shrink or name in layout.never_shrunk:
        return "f32"
    if wanted == "q8_0" and (name in layout.never_quantised or values.shape[1] % _Q8_0_BLOCK):
        return "f32"
    return wanted


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: Float32Array, kind: WeightType) -> None:
    if kind == "q8_0":
        block = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, block), raw_dtype=block)
    else:
        writer.add_tensor(name, values.astype(np.float16 if kind == "f16" else np.float32))

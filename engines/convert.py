"""From a released checkpoint folder to a GGUF file in the layout that FunAudioLLM publishes.

Nobody publishes the streaming Paraformer, so its layout is our own: docs/gguf-paraformer-streaming.md. A folder holds
the weights (`model.pt`, or safetensors), `config.yaml`, `am.mvn` and a vocabulary: for SenseVoice a SentencePiece
model `*.bpe.model`, for Paraformer `tokens.json`. Fun-ASR-Nano has no `am.mvn`, but a folder with the sizes and the
tokenizer of its language model, which becomes a GGUF file of its own. Tensor names are the checkpoint's own, of the
language model llama.cpp's. Matrices of two dimensions take the wanted type; norms, biases, FSMN kernels and whatever a
block type cannot hold stay f32. FSMN kernels are stored taps first, (K, D). Behind the keys of the layout stand our
own, of where the model is from and how its features are made: docs/converting.md.
"""

import contextlib
import functools
import math
from pathlib import Path

import gguf
import numpy as np

from liveasr import store
from liveasr.engines import qwen3_layout, registry
from liveasr.engines.checkpoint_folder import CheckpointFolder
from liveasr.engines.cmvn import from_kaldi
from liveasr.engines.file_keys import add_front_end, add_provenance
from liveasr.engines.gguf_output import OutputFile, OutputTensor, WeightType, require_numbers, write_files
from liveasr.engines.layouts import FSMN_KERNELS, LAYOUTS, Layout
from liveasr.engines.qwen3_folder import Qwen3Folder
from liveasr.engines.release_papers import provenance_of
from liveasr.engines.weight_files import Weights, open_weights
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile
from liveasr.gguf_header import MAX_DIMS, MAX_NAME_BYTES
from liveasr.provenance import UNKNOWN, Provenance
from liveasr.types import Float32Array

__all__ = ["WeightType", "convert", "output_files"]


def output_files(folder: Path, output: Path) -> tuple[Path, ...]:
    """The files that `convert` writes: the output, and for a Fun-ASR-Nano OUTPUT-llm.gguf beside it.

    Raises:
        ModelFileError: the folder is not a checkpoint of a known family.
    """
    _, layout = _open(folder)
    return (output, store.language_model_path(output)) if layout.has_language_model else (output,)


def convert(folder: Path, output: Path, weight_type: WeightType = "f32", told: Provenance = UNKNOWN) -> dict[Path, int]:
    """Write the model of a checkpoint folder to its `output_files`, which appear only when all are complete.

    Args:
        folder: the checkpoint.
        output: the file, or the first of two.
        weight_type: of matrices.
        told: what the caller knows of the model; the folder tells what is missing.

    Returns:
        The number of tensors written to each file.

    Raises:
        ModelFileError: the folder is not a checkpoint of a known family, or a part of it is missing or broken, or they
            do not go together.
        OutputError: the output cannot be written.
        RegistryError: the user's registry is malformed.
    """
    checkpoint, layout = _open(folder)
    provenance = provenance_of(folder, told)
    with contextlib.ExitStack() as stack:
        weights = stack.enter_context(open_weights(folder))
        files = {output: _model(checkpoint, layout, weights, weight_type)}
        if layout.has_language_model:
            its_folder = qwen3_layout.language_model_folder(checkpoint)
            own = stack.enter_context(qwen3_layout.open_tensors(weights, its_folder))
            language_model = _language_model(checkpoint, its_folder, layout, own, weight_type)
            files = {store.language_model_path(output): language_model, **files}
        for file in files.values():
            add_provenance(file.writer, provenance)
        write_files(files)
    return {path: len(files[path].tensors) for path in reversed(files)}


def _open(folder: Path) -> tuple[CheckpointFolder, Layout]:
    checkpoint = CheckpointFolder(folder)
    layout = LAYOUTS.get(checkpoint.model_class)
    if layout is None:
        known = ", ".join(LAYOUTS)
        raise ModelFileError(folder, f"holds a model of the class {checkpoint.model_class}; known are {known}")
    return checkpoint, layout


def _model(checkpoint: CheckpointFolder, layout: Layout, weights: Weights, weight_type: WeightType) -> OutputFile:
    """All but the language model."""
    file = OutputFile(gguf.GGUFWriter(None, layout.architecture), [], functools.partial(_require_match, checkpoint))
    layout.add_metadata(file.writer, checkpoint)
    add_front_end(file.writer, checkpoint, layout.front_end, layout.has_cmvn)
    if layout.has_cmvn:
        cmvn = from_kaldi(checkpoint.path / "am.mvn", layout.front_end.dims)
        for name, vector in (("cmvn.shift", cmvn.shift), ("cmvn.scale", cmvn.scale)):
            file.tensors.append(OutputTensor(name, vector.shape, "f32", functools.partial(np.copy, vector)))
    names = [name for name in weights.tensors if name.startswith(layout.prefixes) and name not in layout.skipped]
    if not names:
        raise ModelFileError(weights.path, f"has no tensors named {' or '.join(layout.prefixes)}")
    file.tensors.extend(_tensor(weights, name, name, layout, weight_type) for name in names)
    return file


def _require_match(checkpoint: CheckpointFolder, file: GgufFile) -> None:
    """Refuse a file that its engine would not run: then the settings tell of another model than the weights are."""
    if file.architecture not in registry.ARCHITECTURES:
        return
    try:
        registry.check(file)
    except ModelFileError as error:
        reason = f"its settings, vocabulary and weights are not of one model: {error.reason}"
        raise ModelFileError(checkpoint.path, reason) from error


def _language_model(
    checkpoint: CheckpointFolder,
    folder: Qwen3Folder,
    layout: Layout,
    own: qwen3_layout.OwnWeights,
    weight_type: WeightType,
) -> OutputFile:
    width = checkpoint.integer("audio_adaptor_conf", "llm_dim")
    if width != folder.integer("hidden_size"):
        reason = f"has another hidden_size than the {width} of the adaptor's llm_dim"
        raise ModelFileError(folder.config_path, reason)
    names = qwen3_layout.tensor_names(own, folder)
    file = OutputFile(gguf.GGUFWriter(None, qwen3_layout.ARCHITECTURE), [])
    qwen3_layout.add_metadata(file.writer, folder, weight_type)
    file.tensors.extend(_tensor(own.weights, theirs, ours, layout, weight_type) for theirs, ours in names.items())
    return file


def _tensor(weights: Weights, theirs: str, name: str, layout: Layout, weight_type: WeightType) -> OutputTensor:
    """A tensor as it is written; FSMN kernels as (K, D), from (D, 1, K) in SAN-M blocks and (D, 1, K, 1) in the VAD."""
    stored = weights.tensors[theirs]
    shape = stored.shape
    size = math.prod(shape)
    is_name = name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES
    if not is_name or not 1 <= len(shape) <= MAX_DIMS or not size:
        raise ModelFileError(weights.path, f"no GGUF file can hold tensor {name!r} of shape {shape}")
    if not name.endswith(FSMN_KERNELS):
        kind = layout.stored_type(name, shape, weight_type)
        return OutputTensor(name, shape, kind, lambda: require_numbers(weights.path, theirs, stored.read(), kind))

    def taps_first() -> Float32Array:
        values = require_numbers(weights.path, theirs, stored.read(), "f32")
        return np.ascontiguousarray(values.reshape(shape[0], -1).T)

    return OutputTensor(name, (size // shape[0], shape[0]), "f32", taps_first)

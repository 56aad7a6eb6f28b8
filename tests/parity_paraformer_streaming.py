"""Compares the streaming Paraformer with the reference at any size, full size included. Not a test: the weights are too
large for one.

    python -m tests.parity_paraformer_streaming CHECKPOINT GOLDEN.npz [--types f32,f16,q8_0] [--threads N]

Runs from the root of the repository. CHECKPOINT is a checkpoint folder, GOLDEN what the reference wrote for it by
`python -m tests.golden.paraformer_streaming CHECKPOINT GOLDEN.npz WAV...`. The folder is converted with `liveasr models
convert` for every type. Printed are, for every chunk size and look-back: the lowest cosine of a row of all windows, the
largest difference of a CIF weight, in how many chunks the ids are the reference's, and the median time of a chunk,
features not included. Exits with 1 if a bound of tests/tolerances.json is broken.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from liveasr.engines import cmvn, streaming_model
from liveasr.engines.base import RECOGNISER_FRONT_END, DecodeOptions
from liveasr.engines.chunk_encoder import ChunkEncoder
from liveasr.engines.chunks import Chunks
from liveasr.engines.convert import WeightType, convert
from liveasr.engines.native import ComputeContext
from liveasr.engines.paraformer_streaming import ParaformerStreaming
from liveasr.gguf_file import GgufFile
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array
from tests.engines.streamed import WAYS, Run, name_of, run_in
from tests.helpers import lowest_cosine

_TOLERANCES = json.loads((Path(__file__).parent / "tolerances.json").read_text(encoding="utf-8"))["engines"]
_SILENT_IDS = (0, 1, 2)


def _windows(model: streaming_model.StreamingModel, features: Float32Array, threads: int) -> list[Float32Array]:
    """The encoder's output over every window."""
    encoder, now = ChunkEncoder(model.encoder, model.chunks), model.chunks.now
    context, state = ComputeContext(model.weights, threads), encoder.new_state()
    rows = features if model.cmvn is None else model.cmvn.apply(features)
    windows = [encoder.encode(rows[at : at + now], state, context, model.weights) for at in range(0, len(rows), now)]
    context.close()
    return windows


def _heard(engine: ParaformerStreaming, features: Float32Array) -> tuple[list[list[int]], float]:
    """Ids of every chunk, and the median seconds of a chunk."""
    stream, now = engine.stream(DecodeOptions()), engine.model.chunks.now
    heard: list[list[int]] = []
    seconds = []
    before: tuple[int, ...] = ()
    for at in range(0, len(features), now):
        start = time.perf_counter()
        found = stream.accept(features[at : at + now]).token_ids
        seconds.append(time.perf_counter() - start)
        heard.append(list(found[len(before) :]))
        before = found
    heard[-1] += stream.finish().token_ids[len(before) :]
    return heard, statistics.median(seconds)


def _compare(
    model: streaming_model.StreamingModel, features: Float32Array, run: Run, name: str, weight_type: str, threads: int
) -> bool:
    """Print one line; returns whether the bounds hold."""
    windows = _windows(model, features, threads)
    cosine = min(lowest_cosine(ours, theirs) for ours, theirs in zip(windows, run.encoder_out, strict=True))
    weights = [model.predictor.alphas(window) for window in windows]
    off = max(float(np.abs(ours - theirs).max()) for ours, theirs in zip(weights, run.alphas, strict=True))
    heard, seconds = _heard(ParaformerStreaming(model, threads), features)
    expected = [[id_ for id_ in logits.argmax(axis=1) if id_ not in _SILENT_IDS] for logits in run.logits]
    equal = sum(ours == theirs for ours, theirs in zip(heard, expected, strict=True))
    ordered = np.sort(np.concatenate(run.logits), axis=1)
    margin = float((ordered[:, -1] - ordered[:, -2]).min())
    text = f"{weight_type:5} {name:18} lowest cosine {cosine:.7f}  weights within {off:.1e}  ids of {equal} chunks of "
    text += f"{len(heard)} equal ({sum(map(len, expected))} ids, least margin {margin:.3f})  "
    text += f"{seconds * 1000:.0f} ms a chunk"
    print(text, flush=True)  # noqa: T201
    good = cosine >= _TOLERANCES[f"cosine_{weight_type}"]["value"]
    if weight_type == "f32":  # only it must choose as the reference does: random weights are close calls
        good &= off <= _TOLERANCES["alphas"]["value"] and equal == len(heard)
    return bool(good)


def _compare_all(path: Path, golden: Any, weight_type: str, ways: tuple[Chunks, ...], threads: int) -> bool:
    """One line for each recording and way to cut."""
    file = GgufFile(path)
    model = streaming_model.load(file, cmvn.from_gguf(file, RECOGNISER_FRONT_END.dims))
    front = RECOGNISER_FRONT_END
    good = True
    for stem in sorted({name.split("/")[0] for name in golden.files if "/" in name}):
        features = stack(golden[f"{stem}/fbank"], front.lfr_m, front.lfr_n)
        for chunks in ways:
            run = run_in(golden, stem, chunks)
            name = f"{stem} {name_of(chunks)}"
            good &= _compare(replace(model, chunks=chunks), features, run, name, weight_type, threads)
    model.close()
    return good


def main() -> None:
    """Print a table and set the exit code."""
    parser = argparse.ArgumentParser(description="Streaming Paraformer against the reference, at any size.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--types", default=",".join(get_args(WeightType)))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    golden = np.load(args.golden)
    print(json.loads(str(golden["meta"])))  # noqa: T201
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for weight_type in args.types.split(","):
            path = Path(folder) / f"{weight_type}.gguf"
            convert(args.checkpoint, path, weight_type)
            good &= _compare_all(path, golden, weight_type, WAYS, args.threads)
            path.unlink()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

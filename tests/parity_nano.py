"""Compares Fun-ASR-Nano with the reference at any size, full size included. Not a test: the weights are too large.

    python tests/parity_nano.py CHECKPOINT GOLDEN.npz [--types f32,f16,q8_0] [--threads N]

CHECKPOINT is a checkpoint folder, GOLDEN what the reference's `dump_golden.py` wrote for it. The folder is converted
with `liveasr models convert` for every type. For each recording it prints the cosine of the lowest frame after encoder
and adaptor, how many of the greedy ids are those of the reference before the first that is not, and the margin between
the reference's best two logits there. Exits with 1 if a bound of tests/tolerances.json is broken.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np

from liveasr.engines.adaptor import audio_rows
from liveasr.engines.base import DecodeOptions
from liveasr.engines.convert import WeightType, convert
from liveasr.engines.funasr_nano import FunAsrNano, load
from liveasr.engines.llm_process import LlmLane
from liveasr.engines.nano_files import language_model_beside
from liveasr.engines.prompt import prompt_for
from liveasr.gguf_file import GgufFile
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array

_AS_THE_REFERENCE = DecodeOptions(itn=True)
_TOLERANCES = json.loads((Path(__file__).parent / "tolerances.json").read_text(encoding="utf-8"))["engines"]


def _lowest_cosine(ours: Float32Array, theirs: Float32Array) -> float:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    return float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def _greedy(lane: LlmLane, rows: Float32Array, count: int) -> list[int]:
    token = lane.begin(prompt_for(_AS_THE_REFERENCE), rows, count)
    ids = [token.id]
    while len(ids) < count:
        ids.append(lane.next().id)
    return ids


def _compare(engine: FunAsrNano, lane: LlmLane, golden: Any, stem: str, weight_type: str) -> bool:
    """Print one line; returns whether the bounds hold."""
    front = engine.front_end
    features = stack(golden[f"{stem}/fbank"], front.lfr_m, front.lfr_n)
    embeddings = engine.embeddings(features)
    cosines = [
        _lowest_cosine(engine.encode(features, _AS_THE_REFERENCE), golden[f"{stem}/encoder_out"]),
        _lowest_cosine(embeddings, golden[f"{stem}/adaptor_out"]),
    ]
    expected = golden[f"{stem}/llm_ids"]
    found = _greedy(lane, embeddings[: audio_rows(len(features))], len(expected))
    same = next((index for index, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b), len(expected))
    margin = float(golden[f"{stem}/llm_margin"][same]) if same < len(expected) else 0.0
    text = f"{weight_type:5} {stem:8} {len(features):4} frames  lowest cosine {cosines[0]:.7f} {cosines[1]:.7f}  "
    text += f"{same} of {len(expected)} ids as the reference" + (f", then a margin of {margin:.4f}" if margin else "")
    print(text, flush=True)  # noqa: T201
    close = min(cosines) >= _TOLERANCES[f"cosine_{weight_type}"]["value"]
    # Only f32 must choose as the reference does: with random weights many choices are close.
    return bool(close and (weight_type != "f32" or margin < _TOLERANCES["margin_f32"]["value"]))


def main() -> None:
    """Print a table and set the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--types", default=",".join(get_args(WeightType)))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    golden = np.load(args.golden)
    stems = [name.removesuffix("/llm_ids") for name in golden.files if name.endswith("/llm_ids")]
    close = True
    for weight_type in args.types.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nano.gguf"
            convert(args.checkpoint, path, weight_type)
            file = GgufFile(path)
            engine = FunAsrNano(load(file, language_model_beside(file), args.threads), args.threads, owns_model=True)
            lane = engine.model.language_model.lane()
            for stem in stems:
                close = _compare(engine, lane, golden, stem, weight_type) and close
            lane.close()
            engine.close()
    sys.exit(not close)


if __name__ == "__main__":
    main()

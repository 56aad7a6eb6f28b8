"""Compares SenseVoice with the reference at any size, full size included. Not a test: the weights are too large for
one.

    python tests/parity_sensevoice.py CHECKPOINT GOLDEN.npz [--types f32,f16,q8_0] [--threads N]

CHECKPOINT is a checkpoint folder, GOLDEN what the reference's `dump_golden.py` wrote for it. The folder is converted
with `liveasr models convert` for every type. Over the whole encoder output the lowest frame's cosine is printed, then
how many ids differ, for every language and text norm, and the largest margin between the reference's best two logits
among them. Exits with 1 if a bound of tests/tolerances.json is broken.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np

from liveasr.engines import cmvn, sensevoice
from liveasr.engines.base import DecodeOptions
from liveasr.engines.convert import WeightType, convert
from liveasr.gguf_file import GgufFile
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array, Language

_LANGUAGES: tuple[Language, ...] = ("auto", "zh", "en")
_TOLERANCES = json.loads((Path(__file__).parent / "tolerances.json").read_text(encoding="utf-8"))["engines"]


def _lowest_cosine(ours: Float32Array, theirs: Float32Array) -> float:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    return float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def _compare(engine: sensevoice.SenseVoice, golden: Any, stem: str, weight_type: str) -> bool:
    """Print one line; returns whether the bounds hold."""
    front = engine.front_end
    features = stack(golden[f"{stem}/fbank"], front.lfr_m, front.lfr_n)
    stages = engine.stages(features, DecodeOptions())
    cosine = _lowest_cosine(stages["encoder_out"], golden[f"{stem}/encoder_out"])
    differing, total, margin = 0, 0, 0.0
    for language in _LANGUAGES:
        for norm in ("withitn", "woitn"):
            ids = engine.best_ids(features, DecodeOptions(language, itn=norm == "withitn"))
            wrong = ids != golden[f"{stem}/{language}/{norm}/argmax"]
            differing += int(wrong.sum())
            total += wrong.size
            margin = max(margin, float(golden[f"{stem}/{language}/{norm}/margin"][wrong].max(initial=0.0)))
    text = f"{weight_type:5} {stem:8} {len(features):4} rows  lowest cosine {cosine:.7f}  "
    text += f"ids {differing} of {total} differ, largest margin {margin:.4f}"
    print(text, flush=True)  # noqa: T201
    close = cosine >= _TOLERANCES[f"cosine_{weight_type}"]["value"]
    # Only f32 must choose as the reference does: with random weights many choices are close.
    return bool(close and (weight_type != "f32" or margin < _TOLERANCES["margin_f32"]["value"]))


def main() -> None:
    """Print a table and set the exit code."""
    parser = argparse.ArgumentParser(description="SenseVoice against the reference, at any size.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--types", default=",".join(get_args(WeightType)))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    golden = np.load(args.golden)
    stems = sorted({name.split("/")[0] for name in golden.files if "/" in name})
    print(json.loads(str(golden["meta"])))  # noqa: T201
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for weight_type in args.types.split(","):
            path = Path(folder) / f"{weight_type}.gguf"
            convert(args.checkpoint, path, weight_type)
            file = GgufFile(path)
            model = sensevoice.load(file, cmvn.from_gguf(file, file.integer("sv.input_size")))
            engine = sensevoice.SenseVoice(model, args.threads)
            for stem in stems:
                good &= _compare(engine, golden, stem, weight_type)
            model.close()
            path.unlink()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

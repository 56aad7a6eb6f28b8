"""Compares Paraformer with the reference at any size, full size included. Not a test: the weights are too large for
one.

    python tests/parity_paraformer.py CHECKPOINT GOLDEN.npz [--types f32,f16,q8_0] [--threads N]

CHECKPOINT is a checkpoint folder, GOLDEN what the reference's `dump_golden.py` wrote for it. The folder is converted
with `liveasr models convert` for every type. Printed are, from features to ids: the lowest cosine of a step of the
encoder's output, the largest difference of a CIF weight, both token counts, how many ids differ with the largest margin
between the reference's best two logits among them, and the largest difference of a token's time. Exits with 1 if a
bound of tests/tolerances.json is broken.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np

from liveasr.engines import cmvn, paraformer
from liveasr.engines.base import RECOGNISER_FRONT_END, DecodeOptions
from liveasr.engines.convert import WeightType, convert
from liveasr.engines.token_times import token_spans
from liveasr.gguf_file import GgufFile
from liveasr.stream.lfr import stack
from tests.helpers import lowest_cosine

_STEP_MS = 60
_TOLERANCES = json.loads((Path(__file__).parent / "tolerances.json").read_text(encoding="utf-8"))["engines"]


def _compare(engine: paraformer.Paraformer, golden: Any, stem: str, weight_type: str) -> bool:
    """Print one line; returns whether the bounds hold."""
    front = engine.front_end
    features = stack(golden[f"{stem}/fbank"], front.lfr_m, front.lfr_n)
    hidden = engine.encode(features, DecodeOptions())
    fired = engine.fire(hidden)
    cosine = lowest_cosine(hidden, golden[f"{stem}/encoder_out"])
    alphas = float(np.abs(fired.alphas - golden[f"{stem}/alphas"]).max())
    count, expected = len(fired.embeddings), int(golden[f"{stem}/token_count"])
    text = (
        f"{weight_type:5} {stem:8} {len(features):4} steps  lowest cosine {cosine:.7f}  weights within {alphas:.1e}  "
    )
    text += f"{count} tokens of {expected}"
    good = bool(cosine >= _TOLERANCES[f"cosine_{weight_type}"]["value"]) and count == expected
    if count == expected:
        wrong = engine.best_ids(hidden, fired) != golden[f"{stem}/argmax"]
        margin = float(golden[f"{stem}/margin"][wrong].max(initial=0.0))
        spans_ms = token_spans(fired.peaks, len(golden[f"{stem}/tokens"])) * _STEP_MS
        off_ms = float(np.abs(spans_ms - golden[f"{stem}/timestamp_raw"]).max())
        text += f"  ids {wrong.sum()} differ, largest margin {margin:.4f}  times within {off_ms:.0f} ms"
        if weight_type == "f32":  # only it must choose and place as the reference does: random weights are close calls
            good &= alphas <= _TOLERANCES["alphas"]["value"] and off_ms <= _TOLERANCES["token_times"]["value"]
            good &= margin < _TOLERANCES["margin_f32"]["value"]
    print(text, flush=True)  # noqa: T201
    return good


def main() -> None:
    """Print a table and set the exit code."""
    parser = argparse.ArgumentParser(description="Paraformer against the reference, at any size.")
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
            model = paraformer.load(file, cmvn.from_gguf(file, RECOGNISER_FRONT_END.dims))
            engine = paraformer.Paraformer(model, args.threads)
            for stem in stems:
                good &= _compare(engine, golden, stem, weight_type)
            model.close()
            path.unlink()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

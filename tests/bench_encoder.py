"""Times SenseVoice's encoder with its CTC head. Not a test: run it on an idle machine.

    python tests/bench_encoder.py MODEL.gguf... [--seconds 5,11,20] [--threads 2] [--repeats 4] [--json]

The features are random, the same as those of the reference's `bench_peers.py`: the arithmetic does not depend on what
is said. Prints the best of several runs after one warm-up, as that does.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine

_STEP_S = 0.06


def main() -> None:
    """Print a row for each model and length."""
    parser = argparse.ArgumentParser(description="Speed of the encoder and the CTC head.")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", default="5,11,20")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.json:
        print(f"threads {args.threads}, load {os.getloadavg()[0]:.2f}")  # noqa: T201
    rows = []
    for path in args.models:
        engine = open_engine(path, args.threads)
        for seconds in map(float, args.seconds.split(",")):
            shape = (round(seconds / _STEP_S), engine.front_end.mel_bins * engine.front_end.lfr_m)
            features = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            engine.decode(features, DecodeOptions())
            times = []
            for _ in range(args.repeats):
                start = time.perf_counter()
                engine.decode(features, DecodeOptions())
                times.append(time.perf_counter() - start)
            best = min(times)
            rows.append({"engine": f"liveasr {path.stem}", "threads": args.threads, "audio_s": seconds, "best_s": best})
            if args.json:
                continue
            print(f"{path.stem:20} {seconds:6.1f} s audio {best:8.3f} s   RTF {best / seconds:.4f}", flush=True)  # noqa: T201
        engine.close()
    if args.json:
        print(json.dumps(rows))  # noqa: T201


if __name__ == "__main__":
    main()

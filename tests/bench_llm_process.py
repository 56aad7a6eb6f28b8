"""What it costs that the language model has a process of its own: the same tokens with and without. Not a test.

    python tests/bench_llm_process.py MODEL.gguf [--threads N] [--tokens N] [--runs N] [--lanes N]

MODEL is a language model (architecture `qwen3`). Its prompt is the default one with 32 rows of noise, as many as 15 s
of audio give. Printed are the best of all runs: milliseconds to the first token, tokens a second, and the memory of
this process, for the library called directly (in a fresh process) and over the process; and tokens a second of several
lanes at the same time.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from liveasr.engines.base import DecodeOptions
from liveasr.engines.llm import LanguageModel, LlmContext
from liveasr.engines.llm_process import LlmProcess
from liveasr.engines.prompt import prompt_for
from liveasr.types import Float32Array

_ROWS = 32
_PROMPT = prompt_for(DecodeOptions(itn=True))


def _rows(width: int) -> Float32Array:
    return np.random.default_rng(0).standard_normal((_ROWS, width)).astype(np.float32)


def _best(begin: Callable[[], object], step: Callable[[], object], tokens: int, runs: int) -> dict[str, float]:
    firsts, rates = [], []
    for _ in range(runs):
        start = time.perf_counter()
        begin()
        first = time.perf_counter()
        for _ in range(tokens - 1):
            step()
        firsts.append(first - start)
        rates.append((tokens - 1) / (time.perf_counter() - first))
    return {"first_token_ms": round(min(firsts) * 1000, 1), "tokens_per_s": round(max(rates), 1)}


def _memory_mb(pid: int | str = "self") -> dict[str, float]:
    """Resident memory, of which anonymous: the rest is the mapped file, which processes share."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = {line.split()[0].rstrip(":"): int(line.split()[1]) / 1000 for line in status if line.endswith("kB")}
    return {"resident_mb": round(values["VmRSS"], 1), "anonymous_mb": round(values["RssAnon"], 1)}


def _direct(model_path: Path, threads: int, tokens: int, runs: int) -> dict[str, float]:
    model = LanguageModel(model_path, threads)
    context = LlmContext(model)
    before, after = (model.tokenize(text) for text in _PROMPT)
    rows = _rows(model.width)
    figures = _best(lambda: context.begin(before, rows, after, tokens), context.next, tokens, runs)
    return {**figures, **_memory_mb()}


def _over_the_process(model_path: Path, threads: int, tokens: int, runs: int, lanes: int) -> dict[str, object]:
    start = time.perf_counter()
    process = LlmProcess(model_path, threads)
    start_s = time.perf_counter() - start
    rows = _rows(process.width)
    lane = process.lane()
    figures: dict[str, object] = {"start_s": round(start_s, 2)}
    figures |= _best(lambda: lane.begin(_PROMPT, rows, tokens), lane.next, tokens, runs)
    figures |= _memory_mb(process.pid)

    def write() -> None:
        own = process.lane()
        own.begin(_PROMPT, rows, tokens)
        for _ in range(tokens - 1):
            own.next()

    threads_of_lanes = [threading.Thread(target=write) for _ in range(lanes)]
    start = time.perf_counter()
    for thread in threads_of_lanes:
        thread.start()
    for thread in threads_of_lanes:
        thread.join()
    figures[f"tokens_per_s_of_{lanes}_lanes"] = round(lanes * tokens / (time.perf_counter() - start), 1)
    process.close()
    return figures


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--direct", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.direct:
        figures: dict[str, object] = dict(_direct(args.model, args.threads, args.tokens, args.runs))
    else:
        command = [sys.executable, __file__, *sys.argv[1:], "--direct"]
        direct = subprocess.run(command, capture_output=True, text=True, check=True)
        process = _over_the_process(args.model, args.threads, args.tokens, args.runs, args.lanes)
        figures = {"direct": json.loads(direct.stdout), "process": process}
    print(json.dumps(figures, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()

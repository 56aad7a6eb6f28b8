"""How far word times are from where the words lie. Not a test: that the reference's are far off is no fault here.

    python tests/bench_word_times.py FSDD

FSDD is a folder of recorded digits (Free Spoken Digit Dataset). They are joined to the strings of test_end_to_end.py,
so where each begins and ends is known. Printed is, for every built-in model, how far the starts and ends of words are
off, in ms, over the strings that are heard right. For Paraformer there are two lines: the reference integrates the
predictor's curve, because it passes curve and weights in each other's place; "weights" is what that function would
have given otherwise.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from liveasr import store
from liveasr.engines.base import DecodeOptions, Engine
from liveasr.engines.paraformer import Paraformer
from liveasr.engines.registry import open_engine
from liveasr.engines.token_times import token_spans
from liveasr.stream.fbank import OnlineFbank
from liveasr.stream.lfr import stack
from liveasr.types import Float32Array
from tests.test_end_to_end import digit_strings

_STEP_MS = 60
_Spans: TypeAlias = list[tuple[float, float]]


def _heard(engine: Engine, strings: Iterable[tuple[list[str], Float32Array, _Spans]]) -> Iterator[tuple[str, _Spans]]:
    """(line, how far [start, end] of every word is off) for each string that is heard right."""
    front = engine.front_end
    for truth, samples, laid in strings:
        features = stack(OnlineFbank().accept(samples).data, front.lfr_m, front.lfr_n)
        heard = engine.decode(features, DecodeOptions())
        if heard.text.split() != truth:
            continue
        yield "", _off([(word.start_ms, word.end_ms) for word in heard.words], laid)
        if isinstance(engine, Paraformer):
            fired = engine.fire(engine.encode(features, DecodeOptions()))
            spans_ms = token_spans(fired.alphas, len(truth)) * _STEP_MS
            yield ", weights", _off([(start, end) for start, end in spans_ms.tolist()], laid)


def _off(found: Iterable[tuple[float, float]], laid: _Spans) -> _Spans:
    return [(start - begin, end - stop) for (start, end), (begin, stop) in zip(found, laid, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How far word times are from where the words lie.")
    parser.add_argument("folder", type=Path)
    strings = list(digit_strings(parser.parse_args().folder))
    for name in store.DEMONSTRATION_MODELS:
        engine = open_engine(store.built_in(name), threads=1)
        lines: dict[str, _Spans] = {}
        for line, off in _heard(engine, strings):
            lines.setdefault(name + line, []).extend(off)
        engine.close()
        for line, off in lines.items():
            text = f"{line:27}"
            for side, ms in zip(("start", "end"), np.array(off).T, strict=True):
                p50, p95 = np.percentile(np.abs(ms), (50, 95))
                text += f"  {side} off by {np.median(ms):+4.0f}, without sign {p50:3.0f}, p95 {p95:4.0f}"
            print(text)  # noqa: T201


if __name__ == "__main__":
    main()

"""The reference implementation (funasr on torch, CPU, fp32, no dither), as the golden scripts of this folder run it.

LIVEASR_SHARED names the folder of the reference material: tools/reference (whose dump_golden.py does most of the work),
models and audio. It defaults to `shared` beside the repository.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("LIVEASR_SHARED", HERE.parents[2] / "shared"))
VAD_MODEL = SHARED / "models" / "fsmn-vad"
DIGITS_MODEL = SHARED / "models" / "digits" / "sensevoice"
DIGITS_PARAFORMER_MODEL = SHARED / "models" / "digits" / "paraformer"

sys.path.insert(0, str(SHARED / "tools" / "reference"))
# The reference environment has these, the project's own does not: loaded by name, they stay untyped in both.
torch: Any = importlib.import_module("torch")
common: Any = importlib.import_module("common")
dump_golden: Any = importlib.import_module("dump_golden")

SAMPLES_PER_MS = 16

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]


def load_vad() -> Any:
    """The reference VAD with the released weights."""
    return common.load_reference(VAD_MODEL)


def fixed_segments(segmenter: Any, samples: Array) -> list[list[int]]:
    """Offline [start, end] in ms of the reference VAD at 800 ms of end silence."""
    segments: list[list[int]] = segmenter.generate(input=samples, max_end_silence_time=800)[0]["value"]
    return segments


def cut(samples: Array, segments: list[list[int]]) -> Iterator[Array]:
    """The samples of each [start, end] in ms."""
    for start_ms, end_ms in segments:
        yield samples[start_ms * SAMPLES_PER_MS : end_ms * SAMPLES_PER_MS]


class GreedyTokenizer:
    """Answers the reference's request to tokenise its text again with the ids that the text was made of.

    So the forced alignment runs on the greedy ids, which no tokenisation of the text can change.

    tokenizer: the SentencePiece tokenizer of the checkpoint.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []

    def decode(self, ids: list[int]) -> str:
        """Text of the ids, which are kept."""
        self.ids = ids
        text: str = self.tokenizer.decode(ids)
        return text

    def text2tokens(self, _text: str) -> list[str]:
        """Pieces of the kept ids, tags included."""
        return [self.tokenizer.sp.IdToPiece(token) for token in self.ids]

    def tokens2ids(self, pieces: list[str]) -> list[list[int]]:
        """One id for each of the pieces."""
        return [[self.tokenizer.sp.PieceToId(piece)] for piece in pieces]


class Recogniser:
    """The reference with the trained digits checkpoint: language auto, fp32, no dither."""

    def __init__(self) -> None:
        self.model = common.load_reference(DIGITS_MODEL)
        self.tokenizer = self.model.kwargs["tokenizer"]
        self.taps = dump_golden.Taps()
        self.taps.output("logits", self.model.model.ctc.ctc_lo)
        self.targets: list[Array] = []
        self.stamps: list[list[Any]] = []
        module = importlib.import_module("funasr.models.sense_voice.model")
        dump_golden.wrap_method(module, "ctc_forced_align", self.keep_target)
        post = self.model.model.post

        def keep_and_post(stamps: list[Any]) -> Any:
            self.stamps.append(stamps)
            return post(stamps)

        self.model.model.post = keep_and_post

    def keep_target(self, _alignment: Any, _scores: Any, targets: Any, *_args: Any, **_kwargs: Any) -> None:
        """Keep the ids that the text is aligned to."""
        self.targets.append(dump_golden.array(targets[0]))

    def read(self, samples: Array, textnorm: str) -> Arrays:
        """Ids of each frame and of the text, tags included, with the text."""
        result = self.model.generate(input=samples, language="auto", text_norm=textnorm)[0]
        arrays: Arrays = dump_golden.ctc_result(self.taps.take("logits"), self.model.model.blank_id)
        return arrays | {"text": dump_golden.text(result["text"])}

    def align(self, samples: Array, textnorm: str, tokenizer: Any = None) -> Arrays:
        """Timestamps: target ids, aligned pieces with their times, and the words made of them; times in ms."""
        self.targets.clear()
        self.stamps.clear()
        options = {"language": "auto", "text_norm": textnorm, "output_timestamp": True}
        if tokenizer is not None:
            options["tokenizer"] = tokenizer
        result = self.model.generate(input=samples, **options)[0]
        self.taps.seen.clear()
        stamps = self.stamps[0]
        return {
            "target_ids": dump_golden.ints(self.targets[0]),
            "pieces": np.array([piece for piece, _start, _end in stamps], dtype=np.str_),
            "times": dump_golden.ints([[round(float(t) * 1000) for t in times] for _piece, *times in stamps]),
            "words": np.array(result["words"], dtype=np.str_),
            "timestamp": dump_golden.ints(result["timestamp"]).reshape(-1, 2),
        }


def words_of(text: Array) -> list[str]:
    """Words of a text whose tags stand in front."""
    return str(text).rpartition("|>")[2].split()


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def save(path: Path, arrays: Arrays) -> None:
    """Write arrays with a note of the versions that made them."""
    versions = {"torch": torch.__version__, "funasr": importlib.import_module("funasr").__version__}
    np.savez_compressed(path, allow_pickle=False, **arrays, meta=dump_golden.text(json.dumps(versions)))
    say(f"{path}: {len(arrays) + 1} arrays, {path.stat().st_size / 1e3:.0f} kB")

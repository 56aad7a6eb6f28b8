"""Strings of real recorded digits: what the reference reads in them, and its word error rate.

Each string joins single digits of one speaker of the Free Spoken Digit Dataset, with gaps, between two stretches of
silence. The recordings are CC BY-SA 4.0: what this writes stays out of the repository.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import soxr

from tests.data.make_recordings import words
from tests.golden.reference import (
    SHARED,
    Array,
    Arrays,
    Recogniser,
    cut,
    dump_golden,
    fixed_segments,
    load_vad,
    save,
    say,
    words_of,
)

SAMPLE_RATE = 16_000  # Hz

COUNT = 60
SEED = 11
DIGITS = (3, 7)  # in a string
GAP_S = (0.05, 0.3)
SPEAKERS = ("george", "lucas", "nicolas", "theo", "yweweler")
TAKES = 5  # recordings 0 .. 4 of each speaker and digit: none of them was trained on
PADDING_S = 0.5


def digit_strings() -> Iterator[tuple[str, Array]]:
    """(words, (N,) int16 samples at 16 kHz) of strings joined from single recorded digits, one speaker a string."""
    random = np.random.default_rng(SEED)

    def silence(duration_s: float) -> Array:
        return np.zeros(round(duration_s * SAMPLE_RATE))

    for _ in range(COUNT):
        speaker = random.choice(SPEAKERS)
        digits = random.integers(10, size=random.integers(*DIGITS, endpoint=True))
        parts = [silence(PADDING_S)]
        for digit in digits:
            path = SHARED / "audio" / "fsdd" / f"{digit}_{speaker}_{random.integers(TAKES)}.wav"
            samples, rate = soundfile.read(path, dtype="float64")
            parts += [soxr.resample(samples, rate, SAMPLE_RATE), silence(random.uniform(*GAP_S))]
        parts[-1] = silence(PADDING_S)
        samples = np.concatenate(parts).clip(-1, 1)
        yield words("".join(map(str, digits))), np.round(samples * 32767).astype(np.int16)


def word_errors(truth: list[str], heard: list[str]) -> int:
    """Fewest insertions, deletions and substitutions that turn truth into heard."""
    row = list(range(len(heard) + 1))
    for deleted, word in enumerate(truth, 1):
        previous, row = row, [deleted]
        for column, other in enumerate(heard):
            row.append(min(row[column] + 1, previous[column + 1] + 1, previous[column] + (word != other)))
    return row[-1]


def strings(out: Path) -> None:
    """Write the strings with the reference's answer, segment by segment and whole, and print the error rates."""
    segmenter, recogniser = load_vad(), Recogniser()
    arrays: Arrays = {}
    total, errors = 0, {"segments": 0, "whole": 0}
    for index, (truth, samples) in enumerate(digit_strings()):
        wave = samples.astype(np.float32) / 32768
        segments = fixed_segments(segmenter, wave)
        results = [recogniser.read(piece, "woitn") for piece in cut(wave, segments)]
        whole = recogniser.read(wave, "woitn")
        string: Arrays = {
            "samples": samples,
            "truth": dump_golden.text(truth),
            "segments": dump_golden.ints(segments).reshape(-1, 2),
            "whole/tokens": whole["tokens"],
        }
        string |= {f"seg{number}/tokens": result["tokens"] for number, result in enumerate(results)}
        arrays |= dump_golden.prefixed(f"{index:03d}", string)
        total += len(truth.split())
        heard = {"segments": [word for result in results for word in words_of(result["text"])]}
        heard["whole"] = words_of(whole["text"])
        for way, answer in heard.items():
            count = word_errors(truth.split(), answer)
            errors[way] += count
            if count:
                say(f"{index:03d} {way}: {truth} -> {' '.join(answer)}")
    save(out, arrays)
    for way, count in errors.items():
        say(f"{way}: {count} errors in {total} words, WER {100 * count / total:.2f} %")

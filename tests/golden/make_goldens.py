"""Run the reference implementation on the recordings of the tests and write its golden arrays.

    LIVEASR_SHARED=../shared python -m tests.golden.make_goldens
    LIVEASR_SHARED=../shared python -m tests.golden.make_goldens --strings OUT.npz

Runs from the root of the repository in the environment of the reference (`$LIVEASR_SHARED/tools/reference/setup.sh`
makes it: funasr 1.4.16, torch 2.13.0). LIVEASR_SHARED is the folder of the reference material and defaults to `shared`
beside the repository. The first form writes the goldens that `README.md` in this folder describes, and fails if the
trained model does not read exactly what was spoken. The second writes strings of real recorded digits with the
reference's answer to OUT.npz, and prints the word error rate.
"""

import argparse
import json
from pathlib import Path

from tests.golden.digit_strings import strings
from tests.golden.reference import (
    DIGITS_MODEL,
    DIGITS_PARAFORMER_MODEL,
    HERE,
    VAD_MODEL,
    Array,
    Arrays,
    GreedyTokenizer,
    Recogniser,
    common,
    cut,
    dump_golden,
    fixed_segments,
    load_vad,
    save,
    torch,
    words_of,
)

DATA = HERE.parent / "data"
TINY_MODEL = HERE / "sensevoice-tiny"
TINY_PARAFORMER_MODEL = HERE / "paraformer-tiny"
TINY_NANO_MODEL = HERE / "nano-tiny"

SAMPLE_RATE = 16_000  # Hz
STAGE_SAMPLES = 3 * SAMPLE_RATE  # of each recording, for the stages that take much room
SLICE_START = SAMPLE_RATE // 2  # frame counts and boundary lengths are measured from here on: inside speech
COUNTED_LENGTHS = range(400, 2001)
BOUNDARY_LENGTHS = (400, 401, 559, 560, 561, 719, 720, 721)
TINY_STAGES = frozenset({"features", "encoder_input", "block_first", "after_norm", "encoder_out"})
TINY_RESULTS = frozenset({"argmax", "margin", "tokens", "text"})
PARAFORMER_STAGES = frozenset({"encoder_out", "acoustic_embeds", "decoder_first", "decoder_out"})
PARAFORMER_RESULTS = frozenset(
    {"alphas", "cif_peaks", "fires", "token_count", "argmax", "margin", "tokens", "timestamp_raw", "text"}
)
NANO_STAGES = frozenset({"features", "block_first", "after_norm", "encoder_out", "adaptor_out", "inputs_embeds"})
NANO_RESULTS = frozenset({"llm_first_logits", "llm_ids", "llm_margin", "text"})
NANO_PROMPTS = ("prompt/", "audio_tokens")
VAD_KEYS = frozenset({"silence", "offline/fixed_800", "online_60ms/fixed_800", "online_60ms/dynamic"})
TEXTNORMS = ("withitn", "woitn")


def frontend(waves: Arrays) -> Arrays:
    """Log-mel frames and stacked frames of the first seconds, then what the shortest lengths give."""
    extract = common.load_reference(DIGITS_MODEL).kwargs["frontend"]
    arrays: Arrays = {}
    for stem, samples in waves.items():
        stages = dump_golden.frontend_stages(extract, samples[:STAGE_SAMPLES])
        arrays[f"{stem}/fbank"] = stages["fbank"]
        arrays[f"{stem}/lfr7_6"] = stages["lfr"]
    tail = next(iter(waves.values()))[SLICE_START:]

    def fbank(size: int) -> Array:
        wave = torch.from_numpy(tail[:size])[None]
        frames: Array = dump_golden.array(extract.forward_fbank(wave, [size])[0][0])
        return frames

    arrays["short/start"] = dump_golden.ints(SLICE_START)
    arrays["short/lengths"] = dump_golden.ints(COUNTED_LENGTHS)
    arrays["short/frames"] = dump_golden.ints([len(fbank(size)) for size in COUNTED_LENGTHS])
    return arrays | {f"short/fbank{size}": fbank(size) for size in BOUNDARY_LENGTHS}


def vad(waves: Arrays) -> Arrays:
    """Silence scores, offline segments at 800 ms of end silence, streaming events in pieces of 60 ms."""
    arrays: Arrays = dump_golden.dump_fsmn_vad(VAD_MODEL, waves, threads=1, full=False)
    return {name: value for name, value in arrays.items() if name.partition("/")[2] in VAD_KEYS}


def sensevoice_tiny(waves: Arrays) -> Arrays:
    """Stages and results of the random checkpoint on the first seconds."""
    short = {stem: samples[:STAGE_SAMPLES] for stem, samples in waves.items()}
    arrays: Arrays = dump_golden.dump_sensevoice(TINY_MODEL, short, threads=1)
    wanted = TINY_STAGES | TINY_RESULTS
    return {name: value for name, value in arrays.items() if name.rpartition("/")[2] in wanted}


def digits(waves: Arrays) -> Arrays:
    """What the trained checkpoint reads in each segment, with and without number formatting."""
    segmenter, recogniser = load_vad(), Recogniser()
    arrays: Arrays = {}
    for stem, samples in waves.items():
        segments = fixed_segments(segmenter, samples)
        arrays[f"{stem}/segments"] = dump_golden.ints(segments)
        for index, piece in enumerate(cut(samples, segments)):
            for textnorm in TEXTNORMS:
                prefix = f"{stem}/seg{index}/{textnorm}"
                arrays |= dump_golden.prefixed(prefix, recogniser.read(piece, textnorm))
                arrays |= dump_golden.prefixed(f"{prefix}/retokenised", recogniser.align(piece, textnorm))
                tokenizer = GreedyTokenizer(recogniser.tokenizer)
                arrays |= dump_golden.prefixed(f"{prefix}/greedy", recogniser.align(piece, textnorm, tokenizer))
    return arrays


def paraformer_tiny(waves: Arrays) -> Arrays:
    """Stages and results of the random Paraformer on the first seconds."""
    short = {stem: samples[:STAGE_SAMPLES] for stem, samples in waves.items()}
    arrays: Arrays = dump_golden.dump_paraformer(TINY_PARAFORMER_MODEL, short, threads=1)
    wanted = PARAFORMER_STAGES | PARAFORMER_RESULTS
    return {name: value for name, value in arrays.items() if name.rpartition("/")[2] in wanted}


def nano_tiny(waves: Arrays) -> Arrays:
    """Prompts and audio token counts; stages and results of the random Fun-ASR-Nano on the first seconds."""
    short = {stem: samples[:STAGE_SAMPLES] for stem, samples in waves.items()}
    arrays: Arrays = dump_golden.dump_nano(TINY_NANO_MODEL, short, threads=1)
    wanted = NANO_STAGES | NANO_RESULTS
    return {
        name: value
        for name, value in arrays.items()
        if name.startswith(NANO_PROMPTS) or name.rpartition("/")[2] in wanted
    }


def digits_paraformer(waves: Arrays) -> Arrays:
    """What the trained Paraformer reads in each segment."""
    segmenter = load_vad()
    pieces: Arrays = {}
    for stem, samples in waves.items():
        for index, piece in enumerate(cut(samples, fixed_segments(segmenter, samples))):
            pieces[f"{stem}/seg{index}"] = piece
    arrays: Arrays = dump_golden.dump_paraformer(DIGITS_PARAFORMER_MODEL, pieces, threads=1)
    return {name: value for name, value in arrays.items() if name.rpartition("/")[2] in PARAFORMER_RESULTS}


def check_digits(arrays: Arrays, spoken: dict[str, list[str]], result: str) -> None:
    """Raise ValueError unless every segment says exactly what was spoken; result: key of the text in a segment."""
    for stem, truth in spoken.items():
        texts = [arrays[name] for name in arrays if name.startswith(f"{stem}/seg") and name.endswith(f"/{result}")]
        heard = [" ".join(words_of(text)) for text in texts]
        if heard != truth:
            raise ValueError(f"{stem}: spoken {truth}, heard {heard}")


def main() -> None:
    """Write all goldens, or the strings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strings", type=Path, metavar="OUT.npz", help="only write and score the strings of digits")
    args = parser.parse_args()
    with torch.inference_mode():
        if args.strings:
            strings(args.strings)
            return
        spoken = json.loads((DATA / "spoken.json").read_text(encoding="utf-8"))
        waves: Arrays = {stem: common.read_wav(DATA / f"{stem}.wav") for stem in spoken}
        save(HERE / "frontend.npz", frontend(waves))
        events = vad(waves)
        save(HERE / "vad.npz", events)
        dump_golden.write_segments(HERE / "vad.json", events)
        save(HERE / "sensevoice-tiny.npz", sensevoice_tiny(waves))
        read = digits(waves)
        check_digits(read, spoken, "woitn/text")
        save(HERE / "digits.npz", read)
        save(HERE / "paraformer-tiny.npz", paraformer_tiny(waves))
        save(HERE / "nano-tiny.npz", nano_tiny(waves))
        read = digits_paraformer(waves)
        check_digits(read, spoken, "text")
        save(HERE / "digits-paraformer.npz", read)


if __name__ == "__main__":
    main()

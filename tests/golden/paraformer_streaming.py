"""Run the reference's streaming Paraformer chunk by chunk and write its golden arrays.

    LIVEASR_SHARED=../shared python -m tests.golden.paraformer_streaming
    LIVEASR_SHARED=../shared python -m tests.golden.paraformer_streaming CHECKPOINT OUT.npz WAV...

Runs from the root of the repository in the environment of the reference, as `make_goldens.py` does; `README.md` in this
folder describes the arrays. The second form writes the same stages of any checkpoint and recordings, for
`tests/parity_paraformer_streaming.py`.
"""

import argparse
import importlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.reference import HERE, Array, Arrays, common, dump_golden, save, torch

CHECKPOINT = HERE / "paraformer-streaming-tiny"
STEMS = ("digits-clean", "digits-noisy")
STEP_SAMPLES = 960  # 60 ms, one stacked frame
CHUNK_SIZES = ((0, 10, 5), (5, 10, 5), (0, 8, 4))  # stacked frames: past, now, ahead
LOOK_BACKS = ((0, 0), (4, 1))  # chunks that the encoder and the decoder look back
STAGE_SAMPLES = 45_000  # of each recording: whole chunks of no size, so that the run ends without the known defect
TAIL_CHUNKS = (0, 2)  # whole chunks in front of each tail
DEFECTIVE_TAILS = (0, 480)  # samples behind whole chunks with which the reference runs its last frames twice
LAST_TAIL_SHORT = 320  # samples that the longest tail lacks to a whole chunk; its last stacked frame is there
SPARSE_SHIFT = -1.5  # of the bias of the weights, so that some chunks have no token
LONGEST_SECONDS = 11.0  # of a recording of the second form


class Recorder:
    """Collects what each chunk of the reference model saw and made.

    model: a ParaformerStreaming.
    """

    def __init__(self, model: Any) -> None:
        self.chunks: list[Arrays] = []
        dump_golden.wrap_method(model, "encode_chunk", self.keep_encoded)
        dump_golden.wrap_method(model, "calc_predictor_chunk", self.keep_predicted)
        model.predictor.cif_output.register_forward_hook(self.keep_alphas)
        model.decoder.output_layer.register_forward_hook(self.keep_logits)
        self.width, self.tokens = model.encoder.output_size(), model.decoder.output_layer.out_features

    def keep_encoded(self, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """Start a chunk, with the output of the encoder over its window."""
        empty = {
            "acoustic_embeds": np.zeros((0, self.width), np.float32),
            "logits": np.zeros((0, self.tokens), np.float32),
        }
        self.chunks.append({"encoder_out": dump_golden.array(result[0][0]), **empty})

    def keep_alphas(self, _module: Any, _inputs: Any, output: Any) -> None:
        """Weights of all rows of the window, before some of them are set to 0."""
        self.chunks[-1]["alphas"] = dump_golden.array(torch.sigmoid(output)[0, :, 0])

    def keep_predicted(self, result: Any, *_args: Any, cache: dict[str, Any], **_kwargs: Any) -> None:
        """What fired, and the weight that is carried on."""
        self.chunks[-1]["integrator"] = dump_golden.array(cache["encoder"]["cif_alphas"][0])
        if int(result[1]) > 0:
            self.chunks[-1]["acoustic_embeds"] = dump_golden.array(result[0][0])

    def keep_logits(self, _module: Any, _inputs: Any, logits: Any) -> None:
        """Of every id, for each embedding that fired."""
        self.chunks[-1]["logits"] = dump_golden.array(logits[0])

    def take(self) -> list[Arrays]:
        """The chunks since the last call."""
        chunks, self.chunks = self.chunks, []
        return chunks


def run(model: Any, recorder: Recorder, samples: Array, sizes: tuple[int, ...], backs: tuple[int, int]) -> list[Arrays]:
    """The chunks of one recording, fed in pieces of one chunk, the last of them final."""
    piece_samples = sizes[1] * STEP_SAMPLES
    cache: dict[str, Any] = {}
    for start in range(0, samples.size, piece_samples):
        model.generate(
            input=samples[start : start + piece_samples],
            cache=cache,
            is_final=start + piece_samples >= samples.size,
            chunk_size=list(sizes),
            encoder_chunk_look_back=backs[0],
            decoder_chunk_look_back=backs[1],
        )
    return recorder.take()


def stages(chunks: list[Arrays]) -> Arrays:
    """All chunks behind one another, with their sizes."""
    joined: Arrays = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    joined["window"] = dump_golden.ints([len(chunk["encoder_out"]) for chunk in chunks])
    joined["fired"] = dump_golden.ints([len(chunk["logits"]) for chunk in chunks])
    return joined


def tail_lengths(now: int) -> list[int]:
    """Samples of runs that end behind every stacked frame of a chunk of so many, with and without chunks in front."""
    chunk = now * STEP_SAMPLES
    tails = [*range(STEP_SAMPLES, chunk, STEP_SAMPLES), chunk - LAST_TAIL_SHORT]
    return [count * chunk + tail for count in TAIL_CHUNKS for tail in (*(DEFECTIVE_TAILS if count else ()), *tails)]


def tails(model: Any, recorder: Recorder, samples: Array, sizes: tuple[int, ...], backs: tuple[int, int]) -> Arrays:
    """Best ids of runs of all those lengths: samples, ids in each chunk (-1: there is none), all ids."""
    lengths = tail_lengths(sizes[1])
    fired, ids = [], []
    for length in lengths:
        chunks = run(model, recorder, samples[:length], sizes, backs)
        counts = [len(chunk["logits"]) for chunk in chunks]
        fired.append(counts + [-1] * (max(TAIL_CHUNKS) + 1 - len(counts)))
        ids.append(np.concatenate([chunk["logits"] for chunk in chunks]).argmax(axis=1))
    return {
        "tails/samples": dump_golden.ints(lengths),
        "tails/fired": dump_golden.ints(fired),
        "tails/ids": dump_golden.ints(np.concatenate(ids)),
    }


def paraformer_streaming_tiny(waves: Arrays) -> Arrays:
    """Stages of the random checkpoint for all chunk sizes and look-backs, and how it ends."""
    model = common.load_reference(CHECKPOINT)
    recorder = Recorder(model.model)
    arrays: Arrays = {}
    for (stem, samples), sizes, backs in itertools.product(waves.items(), CHUNK_SIZES, LOOK_BACKS):
        found = stages(run(model, recorder, samples[:STAGE_SAMPLES], sizes, backs))
        if stem == STEMS[0]:
            found |= tails(model, recorder, samples, sizes, backs)
        arrays |= dump_golden.prefixed(f"{stem}/{key(sizes, backs)}", found)
    model.model.predictor.cif_output.bias += SPARSE_SHIFT
    for (stem, samples), sizes in itertools.product(waves.items(), CHUNK_SIZES):
        found = stages(run(model, recorder, samples[:STAGE_SAMPLES], sizes, LOOK_BACKS[1]))
        wanted = {name: found[name] for name in ("fired", "logits")}
        arrays |= dump_golden.prefixed(f"{stem}/{key(sizes, LOOK_BACKS[1])}/sparse", wanted)
    return arrays


def key(sizes: tuple[int, ...], backs: tuple[int, int]) -> str:
    """Chunk size and look-backs as they stand in the names of the arrays: 0-10-5/4-1."""
    return f"{'-'.join(map(str, sizes))}/{'-'.join(map(str, backs))}"


def dump(checkpoint: Path, waves: Arrays) -> Arrays:
    """Stages of any checkpoint for all chunk sizes and look-backs, and the frames of the recordings."""
    model = common.load_reference(checkpoint)
    recorder = Recorder(model.model)
    module = importlib.import_module("funasr.frontends.wav_frontend")
    offline = module.WavFrontend(**model.kwargs["frontend_conf"])
    arrays: Arrays = {}
    for stem, samples in waves.items():
        fbank = offline.forward_fbank(torch.from_numpy(samples)[None], [samples.size])[0][0]
        arrays[f"{stem}/fbank"] = dump_golden.array(fbank)
        for sizes, backs in itertools.product(CHUNK_SIZES, LOOK_BACKS):
            found = stages(run(model, recorder, samples, sizes, backs))
            arrays |= dump_golden.prefixed(f"{stem}/{key(sizes, backs)}", found)
    return arrays


def main() -> None:
    """Write the goldens of the tests, or the stages of another checkpoint."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("wavs", type=Path, nargs="*")
    args = parser.parse_args()
    with torch.inference_mode():
        if args.checkpoint:
            waves = {path.stem: common.read_wav(path, LONGEST_SECONDS) for path in args.wavs}
            save(args.out, dump(args.checkpoint, waves))
            return
        data = HERE.parent / "data"
        waves = {stem: common.read_wav(data / f"{stem}.wav") for stem in STEMS}
        save(HERE / "paraformer-streaming-tiny.npz", paraformer_streaming_tiny(waves))


if __name__ == "__main__":
    main()

"""Child of test_mutants.py: python decode_mutants.py MODEL.gguf FOLDER COUNT; prints how many were refused and decoded.

Prints the seed of every mutant before it is tried, so that a crash names its own.
"""

import logging
import sys
from pathlib import Path

import numpy as np

from liveasr.engines.base import DecodeOptions
from liveasr.engines.registry import open_engine
from liveasr.errors import ModelFileError
from liveasr.gguf_file import GgufFile

_NUMBERS = (0, 1, 2, 3, 5, 8, 11, 16, 31, 32, 64, 255, 560, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def mutate(content: bytes, header_bytes: int, seed: int) -> bytes:
    """One to three changes: a byte or a number of the header, a stretch of the weights, or the end cut off."""
    rng = np.random.default_rng(seed)
    mutant = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(24, header_bytes - 8))
        match rng.integers(5):
            case 0:
                mutant[at] = int(rng.integers(256))
            case 1:
                mutant[at : at + 8] = _NUMBERS[rng.integers(len(_NUMBERS))].to_bytes(8, "little")
            case 2:
                mutant[at : at + 4] = int(rng.integers(600)).to_bytes(4, "little")
            case 3:
                where = int(rng.integers(header_bytes, len(mutant) - 64))
                mutant[where : where + 64] = rng.bytes(64)
            case _ if rng.random() < 0.2:
                del mutant[int(rng.integers(header_bytes, len(mutant))) :]
    return bytes(mutant)


def main() -> None:
    """Try every mutant."""
    model, folder, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    logging.getLogger("liveasr").setLevel(logging.ERROR)
    content = model.read_bytes()
    with GgufFile(model) as file:
        header_bytes = min(info.offset for info in file.tensors.values())
    features = np.random.default_rng(0).standard_normal((20, 560)).astype(np.float32)
    refused = decoded = 0
    for seed in range(count):
        print(seed, flush=True)  # noqa: T201
        mutant = folder / "mutant.gguf"
        mutant.unlink(missing_ok=True)
        mutant.write_bytes(mutate(content, header_bytes, seed))
        try:
            engine = open_engine(mutant, threads=1)
        except ModelFileError:
            refused += 1
            continue
        engine.decode(features, DecodeOptions())
        engine.close()
        decoded += 1
    print(refused, decoded)  # noqa: T201


if __name__ == "__main__":
    main()

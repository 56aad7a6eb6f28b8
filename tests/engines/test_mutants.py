"""Damaged model files that the reader accepts must not bring C code down: they are decoded with, in a child process."""

import subprocess
import sys
from pathlib import Path

import pytest

from liveasr.engines.convert import WeightType

MUTANTS = 400
CHILD = Path(__file__).parent / "decode_mutants.py"


@pytest.mark.parametrize("weight_type", ["f32", "q8_0"])
@pytest.mark.parametrize("family", ["tiny", "tiny_paraformer", "tiny_streaming"])
def test_mutants_are_refused_or_decoded_and_never_crash(
    request: pytest.FixtureRequest, family: str, weight_type: WeightType, tmp_path: Path
) -> None:
    model = request.getfixturevalue(family)(weight_type)
    done = subprocess.run(
        [sys.executable, str(CHILD), str(model), str(tmp_path), str(MUTANTS)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-300:]}{done.stderr[-1000:]}"
    refused, decoded = map(int, done.stdout.split()[-2:])
    assert refused + decoded == MUTANTS
    assert min(refused, decoded) > MUTANTS // 20  # the mutations reach both sides of the checks

"""Files appear under their names whole, or not at all, whatever is done to the process that writes them."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from liveasr import store
from liveasr.engines.convert import convert
from liveasr.gguf_file import GgufFile

KILLED = """
import os, signal, sys
from pathlib import Path
from liveasr.engines.convert import convert
real, steps = Path.replace, iter(range(int(sys.argv[1])))
Path.replace = lambda *paths: real(*paths) if next(steps, None) is not None else os.kill(os.getpid(), signal.SIGKILL)
convert(Path(sys.argv[2]), Path(sys.argv[3]))
"""
"""Ends when a file is to get another name, after some of them have."""


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.gguf"


def test_bytes_are_on_the_disk_before_they_have_the_name(
    golden: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_before: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda _handle: named_before.append(output.exists()))
    convert(golden / "sensevoice-tiny", output)
    assert named_before == [False]


@pytest.mark.parametrize("step", range(4))
def test_who_is_killed_between_the_names_leaves_no_pair_of_old_and_new(golden: Path, output: Path, step: int) -> None:
    pair = (output, store.language_model_path(output))
    for path in pair:
        path.write_bytes(path.name.encode())
    killed = subprocess.run([sys.executable, "-c", KILLED, str(step), golden / "nano-tiny", output], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len({path.read_bytes() == path.name.encode() for path in pair if path.exists()}) <= 1
    old = {path.name for path in output.parent.rglob("*.gguf") if path.read_bytes() == path.name.encode()}
    assert old == {path.name for path in pair}


def test_who_keeps_files_to_himself_keeps_models_too(golden: Path, output: Path) -> None:
    before = os.umask(0o077)
    try:
        convert(golden / "sensevoice-tiny", output)
    finally:
        os.umask(before)
    assert output.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_points_at_is_replaced(
    golden: Path, output: Path, tmp_path: Path, there: bool
) -> None:
    target = tmp_path / "large disk" / "other.gguf"
    target.parent.mkdir()
    if there:
        target.write_bytes(b"old")
    output.symlink_to(target)
    convert(golden / "sensevoice-tiny", output)
    assert output.is_symlink()
    assert list(target.parent.iterdir()) == [target]
    GgufFile(target).close()


def test_a_disk_that_fills_while_tensors_are_written_is_told(golden: Path, output: Path) -> None:
    command = [sys.executable, "-m", "liveasr", "models", "convert", str(golden / "sensevoice-tiny"), "-o", str(output)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert result.stderr.startswith(f"liveasr: {output}: cannot be written: not all of it")
    assert not list(output.parent.iterdir())

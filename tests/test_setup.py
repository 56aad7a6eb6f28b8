"""`make setup`, with stand-ins for Python and uv: what it does where a part of it fails."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETUP = ROOT / "tools" / "setup.sh"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose packages are installed at once, and whose kernels do not compile."""
    for name in ("requirements.txt", "pyproject.toml", "setup.py", "tools/setup.sh", "engines/kernels.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = re.search(r"^uv_version=(.+)$", SETUP.read_text("utf-8"), re.MULTILINE)
    assert version is not None
    stand_in(tmp_path / ".venv" / "bin" / "python", "")
    stand_in(tmp_path / ".venv" / "bin" / "uv", f"echo uv {version[1]}")
    stand_in(tmp_path / "uname", "echo x86_64")
    return tmp_path


def stand_in(path: Path, does: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{does}\n", "utf-8")
    path.chmod(0o755)


def setup(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", str(checkout), prepend=":")
    monkeypatch.delenv("PYTHON", raising=False)
    return subprocess.run([checkout / "tools" / "setup.sh"], capture_output=True, text=True, check=True).stdout


def test_kernels_of_other_sources_do_not_stay_where_these_do_not_compile(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = checkout / "engines" / "_kernels.cpython-311-x86_64-linux-gnu.so"
    old.write_text("of other sources", "utf-8")
    assert "engines/kernels.c could not be compiled" in setup(checkout, monkeypatch)
    assert not old.exists()
    assert "engines/kernels.c could not be compiled" in setup(checkout, monkeypatch), "it is not tried again"

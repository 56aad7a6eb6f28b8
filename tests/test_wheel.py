"""The wheel holds every module and every file of data, and works where there is no checkout.

The rooms stand at the root of the repository and are mapped by hand in pyproject.toml: a nested package, a forgotten
data file or a missing dependency is invisible in the checkout, and breaks only here, or for everyone who installs it.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("stream", "vad", "engines", "clients")
RECORDING = ROOT / "tests" / "data" / "digits-clean.wav"

# What a copy needs to build, where git cannot say which files are the project's.
SOURCES = (*ROOMS, "src", "pyproject.toml", "setup.py", "requirements.txt", "README.md", "LICENSE", "NOTICE")


@dataclass(frozen=True, slots=True)
class Installed:
    """A wheel that was built from a clean copy and installed into an environment of its own."""

    expected: frozenset[str]
    """Paths that the wheel ought to hold, dist-info apart."""
    names: frozenset[str]
    """Paths that it holds."""
    bin: Path
    """Folder of the environment's commands."""
    outside: Path
    """An empty folder outside the checkout and the copy."""

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one of the environment's commands, away from every source."""
        return run([str(self.bin / command[0]), *command[1:]], cwd=self.outside)


def run(command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `command` as from a shell that knows neither the checkout nor its environment."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)


def uv(*arguments: str, cwd: Path, offline: bool = True) -> None:
    """Run uv: with what its cache holds if that is enough, which takes seconds and no network, else with the index."""
    beside = Path(sys.executable).with_name("uv")
    command = [str(beside)] if beside.exists() else [sys.executable, "-m", "uv"]
    if offline and run([*command, *arguments, "--offline"], cwd=cwd).returncode == 0:
        return
    result = run([*command, *arguments], cwd=cwd)
    assert result.returncode == 0, result.stderr


def copy_clean(target: Path) -> None:
    """Copy what belongs to the project and nothing that was built: what git tracks, or would track."""
    listing = run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT) if shutil.which("git") else None
    if listing is None or listing.returncode != 0:
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
                shutil.copytree(source, target / name, symlinks=True, ignore=ignored)
            else:
                shutil.copy2(source, target / name)
        return
    for name in filter(None, listing.stdout.split("\0")):
        source = ROOT / name
        if not source.is_symlink() and not source.exists():
            continue  # deleted, and the deletion is not committed yet
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target / name, follow_symlinks=False)


def expected_names(copy: Path) -> frozenset[str]:
    """List what a wheel of the sources in `copy` must hold: all modules, the models, the page, the typing mark."""
    front_door = copy / "src" / "liveasr"
    files = {path: path.relative_to(copy / "src") for path in front_door.glob("*.py")}
    files |= {path: path.relative_to(copy / "src") for path in (front_door / "models").rglob("*") if path.is_file()}
    for room in ROOMS:
        data = (copy / room / "web").rglob("*")
        for path in (*(copy / room).rglob("*.py"), *(path for path in data if path.is_file())):
            files[path] = Path("liveasr") / path.relative_to(copy)
    return frozenset({"liveasr/py.typed", "liveasr/registry.toml", *(path.as_posix() for path in files.values())})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("wheel")
    copy, outside, environment = base / "copy", base / "outside", base / "environment"
    copy.mkdir()
    outside.mkdir()
    copy_clean(copy)
    expected = expected_names(copy)

    uv("build", "--wheel", "--out-dir", str(base / "dist"), cwd=copy)
    (wheel,) = (base / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = frozenset(archive.namelist())

    uv("venv", "--python", sys.executable, str(environment), cwd=outside, offline=False)
    # Only what the wheel itself asks for, in the versions of requirements.txt: a forgotten dependency must show. Run in
    # the copy, whose pyproject.toml tells uv how ggml-python is to be built, so that the one in its cache fits.
    python = str(environment / "bin" / "python")
    wanted = ["--constraint", "requirements.txt", "--no-binary", "ggml-python", str(wheel)]
    uv("pip", "install", "--python", python, *wanted, cwd=copy)
    return Installed(expected, names, environment / "bin", outside)


def test_wheel_holds_exactly_the_modules_and_the_data(installed: Installed) -> None:
    compiled = {name for name in installed.names if re.fullmatch(r"liveasr/engines/_kernels\..*\.so", name)}
    assert len(compiled) == (platform.machine() == "x86_64")
    packaged = {name for name in installed.names - compiled if ".dist-info/" not in name}
    assert sorted(packaged - installed.expected) == []
    assert sorted(installed.expected - packaged) == []


def test_wheel_carries_licences_and_the_command(installed: Installed) -> None:
    names = {re.sub(r"^liveasr-[^/]+\.dist-info/", "", name) for name in installed.names}
    assert {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE"} <= names


def test_installed_package_is_the_wheels_own(installed: Installed) -> None:
    rooms = ", ".join(f"liveasr.{room}" for room in ROOMS)
    code = f"import {rooms}, liveasr.models; print(*liveasr.__path__, *liveasr.stream.__path__, sep='\\n')"
    result = installed.run("python", "-c", code)
    assert result.returncode == 0, result.stderr
    paths = [Path(line).resolve() for line in result.stdout.splitlines()]
    assert paths
    assert all(path.is_relative_to(installed.bin.parent.resolve()) for path in paths)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels are written for x86-64")
def test_installed_package_has_its_kernels(installed: Installed) -> None:
    code = "from liveasr.engines.kernels import kernels; print(kernels() is not None)"
    assert installed.run("python", "-c", code).stdout == "True\n"


def test_installed_command_tells_its_version(installed: Installed) -> None:
    result = installed.run("liveasr", "--version")
    assert result.returncode == 0, result.stderr
    source = (ROOT / "src" / "liveasr" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    assert version is not None
    assert version[1] in result.stdout


def test_installed_command_tells_how_it_is_used(installed: Installed) -> None:
    result = installed.run("liveasr", "--help")
    assert result.returncode == 0, result.stderr
    assert "transcribe" in result.stdout


def test_installed_command_transcribes_with_the_built_in_model(installed: Installed) -> None:
    result = installed.run("liveasr", "transcribe", "--model", "digits", str(RECORDING))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()

"""Who may import whom, kept true by walking the imports of every module and by importing them in fresh interpreters.

    types, errors  <-  vad      <-\\
    types, errors  <-  engines  <-  stream  <-  clients          vad and engines never import each other

Everything that touches C lives in engines, the microphone in one module, sockets in the server and the clients: so each
other part can be tested with arrays alone, and `import liveasr` stays quick and needs no native library.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("vad", "engines", "stream", "clients")

# What liveasr itself offers to every room.
FRONT_DOOR = (
    "liveasr.types",
    "liveasr.errors",
    "liveasr.gguf_file",
    "liveasr.gguf_header",
    "liveasr.model_registry",
    "liveasr.store",
    "liveasr.provenance",
    "liveasr.visible",
    "liveasr.__version__",
)

# The command line in words, which answers --help.
COMMAND_LINE = ("liveasr.cli", "liveasr.cli_models", "liveasr.cli_bench", "liveasr.cli_options")

# What it runs.
COMMANDS = (
    "liveasr.commands",
    "liveasr.captioning",
    "liveasr.serving",
    "liveasr.model_list",
    "liveasr.pulling",
    "liveasr.inspecting",
    "liveasr.converting",
    "liveasr.quantizing",
    "liveasr.verifying",
)

# What they share.
BESIDE_COMMANDS = ("liveasr.options", "liveasr.offering", "liveasr.first_use")

# importer -> what it may import of liveasr. A name covers everything below it; the longest matching importer decides,
# and a module of the front door that has no line of its own is refused, so that a new one has to say where it stands.
MAY_IMPORT = {
    "liveasr.vad": (*FRONT_DOOR, "liveasr.vad"),
    "liveasr.engines": (*FRONT_DOOR, "liveasr.engines"),
    "liveasr.stream": (*FRONT_DOOR, "liveasr.vad", "liveasr.engines", "liveasr.stream"),
    "liveasr.clients": (*FRONT_DOOR, "liveasr.stream", "liveasr.clients"),
    "liveasr.types": (),
    "liveasr.errors": (),
    "liveasr.models": (),
    "liveasr.visible": (),
    "liveasr.gguf_header": ("liveasr.errors",),
    "liveasr.gguf_file": ("liveasr.types", "liveasr.errors", "liveasr.gguf_header"),
    "liveasr.model_registry": ("liveasr.errors",),
    "liveasr.provenance": ("liveasr.gguf_file",),
    "liveasr.store": (
        "liveasr.types",
        "liveasr.errors",
        "liveasr.gguf_file",
        "liveasr.gguf_header",
        "liveasr.model_registry",
        "liveasr.models",
    ),
    "liveasr.cli": (*FRONT_DOOR, *COMMAND_LINE, *COMMANDS, *(f"liveasr.{room}" for room in ROOMS)),
    "liveasr.cli_models": (*FRONT_DOOR, "liveasr.cli_options", *COMMANDS),
    "liveasr.cli_bench": (*FRONT_DOOR, "liveasr.cli_options", *COMMANDS),
    "liveasr.cli_options": (),
    **{command: (*FRONT_DOOR, *BESIDE_COMMANDS, *(f"liveasr.{room}" for room in ROOMS)) for command in COMMANDS},
    "liveasr.pulling": (*FRONT_DOOR, "liveasr.model_list", "liveasr.clients"),
    "liveasr.options": (*FRONT_DOOR, "liveasr.first_use", *(f"liveasr.{room}" for room in ROOMS)),
    "liveasr.offering": (*FRONT_DOOR, "liveasr.options", *(f"liveasr.{room}" for room in ROOMS)),
    "liveasr.first_use": (*FRONT_DOOR, "liveasr.clients"),
    "liveasr.__main__": ("liveasr.cli",),
    "liveasr": (),
}

# The command line answers --help before it loads anything: at import time it may load only itself, what
# `import liveasr` has loaded, and how its messages are shown.
EAGER_IN_COMMAND_LINE = (*COMMAND_LINE, "liveasr.errors", "liveasr.visible", "liveasr.__version__")

SOCKETS = ("liveasr.stream.server", "liveasr.clients")

# package of others -> the only modules (and everything below them) that may import it.
ONLY_IN = {
    "ctypes": ("liveasr.engines",),
    "ggml": ("liveasr.engines",),
    "llama_cpp": ("liveasr.engines",),
    "sounddevice": ("liveasr.stream.capture",),
    "socket": (*SOCKETS, "liveasr.engines.llm_running", "liveasr.engines.llm_server"),
    "starlette": (*SOCKETS, "liveasr.stream.app", "liveasr.stream.pull_routes"),
    "uvicorn": SOCKETS,
    "httpx": ("liveasr.clients",),
    "httpx2": ("liveasr.clients.hugging_face",),
    "huggingface_hub": ("liveasr.clients.hugging_face",),
    "filelock": ("liveasr.clients.pull",),
    "websockets": (*SOCKETS, "liveasr.stream.app"),
    "asyncio": (
        *SOCKETS,
        *(
            f"liveasr.stream.{module}"
            for module in (
                "worker",
                "live",
                "capture",
                "mailbox",
                "metrics",
                "service",
                "conversation",
                "connection",
                "pulls",
            )
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports: of `from a.b import c`, a.b.c."""

    name: str
    line: int
    lazy: bool
    """Does not run when the module is imported: inside a function, or under TYPE_CHECKING."""


def below(name: str, tops: tuple[str, ...]) -> bool:
    """Is `name` one of `tops`, or something inside one?"""
    return any(name == top or name.startswith(f"{top}.") for top in tops)


class ImportCollector(ast.NodeVisitor):
    """Collects the imports of one module, those written as calls with a literal name included."""

    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.relative: list[int] = []
        self._lazy_depth = 0

    def _add(self, name: str, node: ast.stmt | ast.expr) -> None:
        self.imports.append(Import(name, node.lineno, lazy=self._lazy_depth > 0))

    def _visit_lazily(self, nodes: list[ast.stmt]) -> None:
        self._lazy_depth += 1
        for node in nodes:
            self.visit(node)
        self._lazy_depth -= 1

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.relative.append(node.lineno)
            return
        for alias in node.names:
            self._add(f"{node.module}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called in {"import_module", "__import__"} and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self._add(name.value, node)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_lazily(node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_lazily(node.body)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            self._visit_lazily(node.body)
        else:
            for statement in node.body:
                self.visit(statement)
        for statement in node.orelse:
            self.visit(statement)


def violations(module: str, source: str) -> list[str]:
    """What `source` imports against the rules, if it is the module of that name; one line each, in the order found."""
    collector = ImportCollector()
    collector.visit(ast.parse(source))
    found = [f"line {line}: relative import" for line in collector.relative]

    # "liveasr" is the front door itself, not everything below it.
    importers = [name for name in MAY_IMPORT if module == name or (name != "liveasr" and below(module, (name,)))]
    if not importers:
        return [*found, f"{module} has no rule: say in MAY_IMPORT what it may import"]
    allowed = MAY_IMPORT[max(importers, key=len)]

    for item in collector.imports:
        where = f"line {item.line}: {module}"
        if below(item.name, ("liveasr",)):
            if not below(item.name, allowed):
                found.append(f"{where} may not import {item.name}")
            elif module in COMMAND_LINE and not item.lazy and not below(item.name, EAGER_IN_COMMAND_LINE):
                found.append(f"{where} may import {item.name} only inside a function")
        for package, homes in ONLY_IN.items():
            if below(item.name, (package,)) and not below(module, homes):
                found.append(f"{where} may not import {package}, only {' and '.join(homes)} may")
    return found


def python_files() -> Iterator[tuple[str, Path]]:
    """Every module of liveasr by its full name. The rooms are read where they stand, not through the symlinks."""
    front_door = ROOT / "src" / "liveasr"
    files = [("liveasr", front_door, path) for path in (*front_door.glob("*.py"), *front_door.glob("models/*.py"))]
    files += [(f"liveasr.{room}", ROOT / room, path) for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    for package, folder, path in files:
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join((package, *(part for part in parts if part != "__init__"))), path


MODULES = dict(sorted(python_files()))


def test_the_walk_finds_the_front_door_and_every_room() -> None:
    assert {"liveasr", "liveasr.errors", "liveasr.types", *(f"liveasr.{room}" for room in ROOMS)} <= MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_its_place_allows(module: str) -> None:
    path = MODULES[module]
    found = violations(module, path.read_text(encoding="utf-8"))
    assert not found, f"{path.relative_to(ROOT)}: " + "; ".join(found)


# The checker itself: each rule can fail, and what is allowed passes.

BAD = [
    ("liveasr.vad.fsmn", "from liveasr.engines import native", "may not import liveasr.engines.native"),
    ("liveasr.vad.fsmn", "from liveasr.stream.fbank import Fbank", "may not import liveasr.stream.fbank"),
    ("liveasr.vad.fsmn", "import liveasr.clients.render", "may not import liveasr.clients"),
    ("liveasr.vad", "import liveasr.stream", "may not import liveasr.stream"),
    ("liveasr.engines.ctc", "from liveasr import vad", "may not import liveasr.vad"),
    ("liveasr.engines.ctc", "from liveasr.stream import session", "may not import liveasr.stream"),
    ("liveasr.engines.ctc", "import liveasr.clients", "may not import liveasr.clients"),
    ("liveasr.stream.session", "from liveasr.clients.render import lines", "may not import liveasr.clients"),
    ("liveasr.stream.session", "from liveasr.cli import main", "may not import liveasr.cli"),
    ("liveasr.clients.file", "from liveasr.engines.registry import load", "may not import liveasr.engines"),
    ("liveasr.clients.file", "from liveasr.vad.config import VadConfig", "may not import liveasr.vad"),
    ("liveasr.stream.pcm", "import liveasr", "may not import liveasr"),
    ("liveasr.stream.pcm", "from liveasr import *", r"may not import liveasr.\*"),
    ("liveasr.stream.pcm", "from liveasr import Transcript", "may not import liveasr.Transcript"),
    ("liveasr.types", "from liveasr.errors import UsageError", "may not import liveasr.errors"),
    ("liveasr.errors", "from liveasr.types import Word", "may not import liveasr.types"),
    ("liveasr.gguf_file", "from liveasr.store import find", "may not import liveasr.store"),
    ("liveasr.store", "from liveasr.engines import registry", "may not import liveasr.engines"),
    ("liveasr", "from liveasr.stream.session import Session", "may not import liveasr.stream"),
    ("liveasr.surprise", "", "liveasr.surprise has no rule"),
    ("liveasr.stream.session", "from .fbank import Fbank", "relative import"),
    ("liveasr.stream.session", "from . import fbank", "relative import"),
    ("liveasr.stream.session", "def f() -> None:\n    from liveasr.clients import ws", "line 2: .* may not import"),
    ("liveasr.stream.session", "if TYPE_CHECKING:\n    from liveasr.clients import ws", "line 2: .* may not import"),
    ("liveasr.stream.session", "class A:\n    import ctypes", "line 2: .* may not import ctypes"),
    ("liveasr.stream.session", "import importlib\nimportlib.import_module('ggml')", "may not import ggml"),
    ("liveasr.stream.session", "x = __import__('llama_cpp')", "may not import llama_cpp"),
    ("liveasr.vad.fsmn", "import numpy, ctypes", "may not import ctypes"),
    ("liveasr.vad.fsmn", "from ctypes.util import find_library", "may not import ctypes"),
    ("liveasr.gguf_file", "import ggml", "may not import ggml"),
    ("liveasr.stream.server", "import llama_cpp.llama", "may not import llama_cpp"),
    ("liveasr.clients.mic", "import sounddevice", "may not import sounddevice"),
    ("liveasr.stream.captured", "import sounddevice", "may not import sounddevice"),
    ("liveasr.stream.worker", "import socket", "may not import socket"),
    ("liveasr.stream.session", "from websockets.sync.client import connect", "may not import websockets"),
    ("liveasr.engines.native", "import uvicorn", "may not import uvicorn"),
    ("liveasr.stream.app", "import socket", "may not import socket"),
    ("liveasr.cli", "def f() -> None:\n    import starlette.routing", "may not import starlette"),
    ("liveasr.stream.session", "import asyncio", "may not import asyncio"),
    ("liveasr.cli", "import asyncio", "may not import asyncio"),
    ("liveasr.cli", "from liveasr.stream import session", "only inside a function"),
    ("liveasr.cli", "from liveasr.store import find", "only inside a function"),
    ("liveasr.cli_models", "from liveasr.store import find", "only inside a function"),
    ("liveasr.cli_models", "from liveasr.cli import main", "may not import liveasr.cli"),
    ("liveasr.cli_options", "def f() -> None:\n    import liveasr.store", "may not import liveasr.store"),
    ("liveasr.cli", "try:\n    import liveasr.engines.native\nexcept OSError:\n    pass", "only inside a function"),
    ("liveasr.cli", "if DEBUG:\n    import liveasr.vad.fsmn", "only inside a function"),
    ("liveasr.cli", "if TYPE_CHECKING:\n    pass\nelse:\n    import liveasr.vad.fsmn", "only inside a function"),
]


@pytest.mark.parametrize(("module", "source", "complaint"), BAD)
def test_checker_refuses(module: str, source: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert not violations(module, source), "; ".join(violations(module, source))


GOOD = [
    ("liveasr.vad.fsmn", "import numpy as np\nfrom liveasr.types import FeatureFrames\nfrom liveasr.vad import config"),
    ("liveasr.vad.weights", "from liveasr.gguf_file import GgufFile\nfrom liveasr import errors, store"),
    ("liveasr.engines._library", "import ctypes, ggml, llama_cpp\nfrom liveasr.engines.base import Engine"),
    ("liveasr.stream.session", "from liveasr.vad.endpoint import Endpoint\nfrom liveasr.engines.base import Engine"),
    ("liveasr.stream.capture", "def f() -> None:\n    import sounddevice"),
    ("liveasr.stream.server", "import asyncio, socket, starlette.routing, uvicorn\nfrom liveasr import __version__"),
    ("liveasr.stream.worker", "import asyncio"),
    ("liveasr.clients.ws", "import asyncio\nimport websockets\nfrom liveasr.stream.protocol import Start"),
    ("liveasr.clients.file", "from liveasr.stream import session, worker\nfrom liveasr.clients.render import lines"),
    ("liveasr.cli", "from liveasr.errors import LiveasrError\ndef f() -> None:\n    from liveasr.clients import file"),
    ("liveasr.cli", "if TYPE_CHECKING:\n    from liveasr.engines.base import Engine"),
    ("liveasr.__main__", "from liveasr.cli import main"),
    ("liveasr.stream.session", "import asynciology, ggmlib, socketserverless"),
]


@pytest.mark.parametrize(("module", "source"), GOOD)
def test_checker_accepts(module: str, source: str) -> None:
    assert violations(module, source) == []


# Fresh interpreters: what importing really loads.

# Imports the modules named on its command line, one after the other, and prints, as JSON, which of them was the first
# to load each native library: by its Python package, or, on Linux, by the file mapped into the process.
PROBE = """
import importlib, json, pathlib, sys

PACKAGES = ("ggml", "llama_cpp", "sounddevice")
FILES = ("libggml", "libllama", "portaudio")

def loaded():
    maps = pathlib.Path("/proc/self/maps")
    files = {line.split("/")[-1].strip() for line in maps.read_text().splitlines()} if maps.exists() else set()
    return {name for name in PACKAGES if name in sys.modules} | {
        name for name in FILES if any(name in file.lower() for file in files)
    }

first = {}
for module in sys.argv[1:]:
    importlib.import_module(module)
    for name in loaded():
        first.setdefault(name, module)
print(json.dumps(first))
"""

FirstLoader: TypeAlias = dict[str, str]


def probe(*modules: str, cwd: Path) -> FirstLoader:
    """Import `modules` in an interpreter of their own; which native library was loaded by which of them."""
    # -I: neither PYTHONPATH nor the working directory may offer another liveasr.
    command = [sys.executable, "-I", "-c", PROBE, *modules]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    first_loader: FirstLoader = json.loads(result.stdout)
    return first_loader


def test_importing_liveasr_loads_no_native_library(tmp_path: Path) -> None:
    assert probe("liveasr", cwd=tmp_path) == {}


def test_the_command_line_is_imported_without_anything_that_takes_long() -> None:
    script = "import liveasr.cli, sys; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = result.stdout.split()
    assert {"click", *COMMAND_LINE} <= {*loaded}
    assert not {"numpy", "asyncio", "httpx", "msgspec", "rich"} & {*loaded}
    assert [name for name in loaded if below(name, tuple(f"liveasr.{room}" for room in ROOMS))] == []


def test_every_module_can_be_imported_without_loading_a_recogniser_library(tmp_path: Path) -> None:
    # liveasr.__main__ would run the program; PortAudio may be loaded by the one module that is about the microphone.
    first_loader = probe(*(name for name in MODULES if name != "liveasr.__main__"), cwd=tmp_path)
    assert {name: module for name, module in first_loader.items() if module != "liveasr.stream.capture"} == {}
    assert not first_loader.keys() & {"ggml", "llama_cpp", "libggml", "libllama"}


def test_the_probe_sees_a_native_library(tmp_path: Path) -> None:
    first_loader = probe("liveasr", "ggml", cwd=tmp_path)
    assert first_loader["ggml"] == "ggml"
    if sys.platform == "linux":
        assert first_loader["libggml"] == "ggml"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_refuses_to_be_imported_under_its_bare_name(room: str) -> None:
    # From the root of the checkout Python would find it, and load a second copy of every class in it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-c", f"import {room}"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode != 0
    assert f"import this room as liveasr.{room}" in result.stderr

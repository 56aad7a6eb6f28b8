"""The command `liveasr serve`: what it refuses, what it says, how it ends."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from liveasr import first_use, store
from tests.servers import ServerProcess

ROOT = Path(__file__).resolve().parents[1]
TLS = ROOT / "tests" / "data" / "tls"


def refused(*arguments: str, **environment: str) -> str:
    """The one line of a server that does not start."""
    command = [sys.executable, "-m", "liveasr", "serve", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )
    assert result.returncode == 1, result.stderr
    lines = [line for line in result.stderr.splitlines() if "demonstration" not in line]
    assert len(lines) == 1, result.stderr
    assert result.stdout == ""
    return lines[0]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - to be refused
def test_other_computers_are_let_in_only_with_a_token_or_by_an_open_door(host: str) -> None:
    assert "--no-auth" in refused("--model", "digits", "--host", host)


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.pem")
    key, cert = str(TLS / "key.pem"), str(TLS / "cert.pem")
    digits = ("--model", "digits", "--port", "0")
    assert "go together" in refused(*digits, "--tls-cert", cert)
    assert "nothing.pem" in refused(*digits, "--tls-cert", nothing, "--tls-key", key)
    assert "nothing.pem" in refused(*digits, "--tls-cert", cert, "--tls-key", nothing)
    assert "key.pem" in refused(*digits, "--tls-cert", key, "--tls-key", cert)
    assert "no such host" in refused(*digits, "--host", "nowhere.invalid", "--no-auth")
    assert "cannot listen" in refused(*digits, "--host", "192.0.2.1", "--no-auth")
    with socket.create_server(("127.0.0.1", 0)) as other:
        complaint = refused("--model", "digits", "--port", str(other.getsockname()[1]))
    assert complaint.endswith("cannot listen there: Address already in use; choose another with --host or --port")
    assert "visible" in refused(*digits, LIVEASR_TOKEN="two words")  # noqa: S106 - to be refused
    assert "no origin" in refused(*digits, "--allow-origin", "app.example")
    assert "parrot" in refused("--model", "parrot", "--port", "0")
    assert "nothing.gguf" in refused("--model", str(tmp_path / "nothing.gguf"), "--port", "0")
    assert "fsmn-vad" in refused("--model", "fsmn-vad", "--port", "0")


def test_clients_may_have_models_fetched_only_where_that_is_not_forbidden(tmp_path: Path) -> None:
    arguments = ("--model", "digits", "--port", "0", "--allow-pull")
    assert "--offline or LIVEASR_OFFLINE forbids" in refused(*arguments, "--offline", LIVEASR_OFFLINE="0")
    assert "--offline or LIVEASR_OFFLINE forbids" in refused(*arguments, LIVEASR_OFFLINE="1")
    (tmp_path / "liveasr").mkdir()
    (tmp_path / "liveasr" / "models.toml").write_text("[mine]\nlicence = 1\n", encoding="utf-8")
    line = refused(*arguments, LIVEASR_OFFLINE="0", XDG_CONFIG_HOME=str(tmp_path))
    assert line.startswith(f"liveasr: {tmp_path / 'liveasr' / 'models.toml'}: mine")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused("--model", "digits", "--port", str(port))
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


def served(folder: Path, *arguments: str) -> tuple[str, str]:
    """What a server says on stdout and stderr that looks for models in a folder."""
    environment = {**os.environ, store.FOLDER_VARIABLE: str(folder), first_use.OFFLINE_VARIABLE: "0"}
    command = [sys.executable, "-m", "liveasr", "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        process.terminate()
        out, err = process.communicate(timeout=30)
    return said + out, err


def test_without_any_model_the_demonstration_is_served_with_a_notice(tmp_path: Path) -> None:
    out, err = served(tmp_path)
    assert "the page is at" in out
    assert "serving digits" in out
    assert err == (
        "liveasr: 'digits' is a demonstration: it knows ten words, zero to nine, in English. A full model: liveasr "
        "models pull sensevoice-small, then liveasr serve; or let the page fetch it: liveasr serve --allow-pull\n"
    )
    assert served(tmp_path, "--allow-pull")[1].endswith("in English. The page fetches a full model\n")


def test_make_run_says_how_to_get_a_full_model_and_serves_it_once_it_is_there(tmp_path: Path) -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    assert ".venv/bin/activate" in recipe[-2]
    serve = shlex.split(recipe[-1])
    assert serve[:3] == ["exec", ".venv/bin/liveasr", "serve"]
    assert store.download_command() in served(tmp_path, *serve[3:])[1]
    shutil.copy(store.built_in("digits"), tmp_path / "sensevoice-small-q8.gguf")
    out, err = served(tmp_path, *serve[3:])
    assert "serving sensevoice-small-q8" in out
    assert err == ""


def test_several_models_are_offered_in_their_order(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    shutil.copy(store.built_in("digits"), other)
    with ServerProcess("--model", str(other), "--model", "digits", "--model", str(other)) as server:
        models = httpx.get(f"{server.url}/v1/models").json()["models"]
        assert [(model["name"], model["demonstration"]) for model in models] == [("other", False), ("digits", True)]


def test_models_of_one_name_are_told_apart_or_refused(tmp_path: Path) -> None:
    twin = tmp_path / "digits.gguf"
    shutil.copy(store.built_in("digits"), twin)
    assert "digits" in refused("--model", "digits", "--model", str(twin), "--port", "0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_ends_it_well(number: int) -> None:
    with ServerProcess() as server:
        code, _out, err = server.stop(number)
    assert code == 0
    assert [line for line in err.splitlines() if "demonstration" not in line] == []


def test_under_nohup_the_end_of_the_terminal_is_not_its_end() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which those that are started here take over
    try:
        with ServerProcess() as server:
            server.process.send_signal(signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(2)
            assert httpx.get(f"{server.url}/health").status_code == 200
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_leaves_its_port_free_for_the_next() -> None:
    with ServerProcess() as first:
        port = int(first.url.rpartition(":")[2])
        assert httpx.get(f"{first.url}/health").status_code == 200
        first.stop()
    with ServerProcess(port=port) as second:
        assert httpx.get(f"{second.url}/health").status_code == 200

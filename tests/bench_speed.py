"""The tables of docs/speed.md, in one run. Not a test: run it on an idle machine; it takes about half an hour.

    python tests/bench_speed.py FIGURES.json --q8 Q8.gguf --f16 F16.gguf --partials STREAMING.gguf [--hours 8]
        [--checkpoint DIR --peers-python PYTHON --peers BENCH_PEERS.py]
    python tests/bench_speed.py FIGURES.json --plot FOLDER

The models are a SenseVoice in two types and a streaming Paraformer, of full size; random weights will do, since the
arithmetic does not depend on them. The peers are timed by the reference's bench_peers.py, over the checkpoint that the
models were converted from, in turns with ours. What is spoken is the recording of digits of tests/data, cut and laid
out as each figure needs it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import soundfile

mpl.use("agg")
from matplotlib import pyplot as plt

from liveasr.clients.bench import machine
from liveasr.engines._library import build

_HERE = Path(__file__).resolve().parent
_CLEAN = _HERE / "data" / "digits-clean.wav"
_RATE_HZ = 16_000
_LENGTHS = "1,5,11,20"
_PORT = 8791


def _liveasr(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "liveasr", *map(str, arguments)]


def _json(*command: str) -> Any:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def encoders(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of the encoder and the CTC head: ours, the peers, ours again, each with one thread and two."""
    found = []
    for threads in (2, 1):
        ours = [sys.executable, str(_HERE / "bench_encoder.py"), str(args.q8), str(args.f16)]
        settings = ["--threads", str(threads), "--seconds", _LENGTHS]
        found += _json(*ours, *settings, "--repeats", "6", "--json")
        if args.peers:
            with tempfile.NamedTemporaryFile(suffix=".json") as out:
                command = [args.peers_python, args.peers, args.checkpoint, *settings, "--out", out.name]
                subprocess.run([str(each) for each in command], check=True, capture_output=True)
                told = json.loads(Path(out.name).read_text(encoding="utf-8"))
            found += [
                {"engine": row["engine"], "threads": threads, "audio_s": row["seconds"], "best_s": row["time_s"]}
                for row in told["rows"]
            ]
        found += _json(*ours, *settings, "--repeats", "6", "--json")
    best: dict[tuple[str, int, float], float] = {}
    for row in found:
        key = (row["engine"], row["threads"], row["audio_s"])
        best[key] = min(row["best_s"], best.get(key, row["best_s"]))
    return [{"engine": e, "threads": t, "audio_s": s, "best_s": round(b, 4)} for (e, t, s), b in best.items()]


def starts(args: argparse.Namespace) -> dict[str, float]:
    """Seconds from the start of a process to its first line, the best of five."""

    def first_line(*command: str) -> float:
        begun_s = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.readline()
            took_s = time.perf_counter() - begun_s
            process.stdout.read()
        return took_s

    def best(*command: str) -> float:
        return round(min(first_line(*command) for _ in range(5)), 3)

    return {
        "--help": best(*_liveasr("--help")),
        "transcribe, built-in model": best(*_liveasr("transcribe", "--model", "digits", _CLEAN)),
        f"transcribe, {args.q8.stat().st_size / 1e6:.0f} MB": best(*_liveasr("transcribe", "--model", args.q8, _CLEAN)),
    }


def _talk(folder: Path, speech_s: float, pause_s: float, total_s: float) -> Path:
    """A recording of segments of one length with pauses of one length between them."""
    samples, _ = soundfile.read(_CLEAN, dtype="float32")
    word = samples[int(0.25 * _RATE_HZ) : int(2.15 * _RATE_HZ)]
    segment = np.resize(word, int(speech_s * _RATE_HZ))
    turn = np.concatenate((segment, np.zeros(int(pause_s * _RATE_HZ), np.float32)))
    path = folder / f"{speech_s:g}s.wav"
    soundfile.write(path, np.tile(turn, max(1, round(total_s / (speech_s + pause_s)))), _RATE_HZ)
    return path


def live_costs(args: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds per second of audio of one session that talks all the time, by the length of its segments."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for partials in ("none", str(args.partials)):
            for speech_s in (3, 8, 20):
                recording = _talk(Path(folder), speech_s, 1.0, 60.0)
                told = _json(
                    *_liveasr("bench", "live", "--json", "--model", args.q8, "--partials", partials, recording)
                )
                name = "decoding again" if partials == "none" else "the streaming model"
                found.setdefault(name, {})[str(speech_s)] = {
                    "cpu_s_per_s_of_audio": told["cpu_s_per_s_of_audio"],
                    "first_partial_ms": told["delays_ms"]["first_partial"],
                    "final_after_segment_ms": told["delays_ms"]["final_after_segment"],
                }
    return found


@contextmanager
def _server(args: argparse.Namespace) -> Iterator[int]:
    """A server with two passes; its process number."""
    command = _liveasr("serve", "--model", args.q8, "--partials", args.partials, "--port", _PORT)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.terminate()


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1e3


def loads(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Delays of finals by the number of sessions that talk half of the time, and what the server holds."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        recording = _talk(Path(folder), 6.0, 6.0, 24.0)
        for clients in (1, 4, 8, 12, 16, 24, 32):
            with _server(args) as pid:
                url = f"http://127.0.0.1:{_PORT}"
                command = ("bench", "load", "--json", "--server", url, "--clients", clients, "--seconds", 60, recording)
                told = _json(*_liveasr(*command))
                row = {"clients": clients, "server_mb": round(_resident_mb(pid)), "server_cores": told["server_cores"]}
                found.append({**row, "errors": told["errors"], **told["delays_ms"]})
            if told["delays_ms"]["final_after_segment"]["p95"] > 3000:
                break
    return found


def memory(args: argparse.Namespace) -> Any:
    """What a process holds after every hour of audio in one session."""
    told = _json(sys.executable, str(_HERE / "soak.py"), "--hours", str(args.hours))
    return {key: value for key, value in told.items() if key != "expected"}


def plot(figures: Any, folder: Path) -> None:
    """Three pictures."""
    folder.mkdir(exist_ok=True)
    plt.rcParams.update({"figure.figsize": (7, 4.2), "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True})
    for threads in (1, 2):
        rows = [row for row in figures["encoder"] if row["threads"] == threads]
        fig, axes = plt.subplots()
        for engine in dict.fromkeys(row["engine"] for row in rows):
            points = sorted((row["audio_s"], row["best_s"] / row["audio_s"]) for row in rows if row["engine"] == engine)
            style = "-o" if engine.startswith("liveasr") else "--s"
            axes.plot(*zip(*points, strict=True), style, label=engine)
        axes.set(xlabel="seconds of audio", ylabel="real-time factor", ylim=(0, None))
        axes.set_title(f"Encoder and CTC head, {threads} thread{'s' * (threads > 1)}: lower is faster")
        axes.legend()
        fig.savefig(folder / f"rtf-{threads}.png", dpi=130, bbox_inches="tight")
    fig, axes = plt.subplots()
    clients = [row["clients"] for row in figures["load"]]
    for name in ("final_after_segment", "first_partial"):
        axes.plot(clients, [row[name]["p95"] for row in figures["load"]], "-o", label=f"{name}, p95")
    axes.axhline(1000, color="grey", linestyle=":", label="1 s")
    axes.set(xlabel="sessions, each talking half of the time, on two cores", ylabel="ms", ylim=(0, None))
    axes.set_title("Delays under load")
    axes.legend()
    fig.savefig(folder / "load.png", dpi=130, bbox_inches="tight")
    fig, axes = plt.subplots()
    held = figures["memory"]["resident_mb"]
    axes.plot(range(1, len(held) + 1), held, "-o")
    axes.set(xlabel="hours of audio in one session", ylabel="MB", ylim=(0, 1.2 * max(held)))
    axes.set_title("Memory of a process, built-in model")
    fig.savefig(folder / "memory.png", dpi=130, bbox_inches="tight")


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description="The figures of docs/speed.md.")
    parser.add_argument("figures", type=Path)
    for name in ("--q8", "--f16", "--partials", "--checkpoint", "--peers-python", "--peers", "--plot"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--hours", type=float, default=8.0)
    args = parser.parse_args()
    if args.plot:
        plot(json.loads(args.figures.read_text(encoding="utf-8")), args.plot)
        return
    figures: dict[str, Any] = {"machine": machine(), "ggml": build(), "load_before": os.getloadavg()[0]}
    for name, measure in (
        ("start_s", starts), ("encoder", encoders), ("live", live_costs), ("load", loads), ("memory", memory),
    ):  # fmt: skip
        figures[name] = measure(args)
        args.figures.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""Speak the digit strings of the tests with espeak-ng and write them as 16 kHz mono 16-bit recordings.

    python tests/data/make_recordings.py [--out FOLDER]

Writes one WAV per entry of RECORDINGS and `spoken.json`, which says what each of them holds. Needs espeak-ng on the
path. The result is the same on every run; another release of espeak-ng may pronounce a little differently, and then the
goldens beside the recordings have to be made again too.
"""

import argparse
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

SAMPLE_RATE = 16_000  # Hz
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

LEAD_IN_S = 0.5
PAUSE_S = 1.15  # between two strings: longer than the 800 ms of silence that end a segment
TAIL_S = 1.3
PEAK = 0.5  # of each spoken string, full scale being 1
EDGE = 0.01  # a string begins and ends where it first and last exceeds this share of its peak
EDGE_S = 0.01  # and this much is kept around it
ACTIVE = 0.02  # samples above this share of the peak count as speech when the noise level is set

Samples = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Recording:
    """What one recording holds and who speaks it."""

    strings: tuple[str, ...]
    """Digit strings, one for each segment: "314" is spoken as "three one four"."""
    voice: str
    """Voice of espeak-ng, with its variant."""
    words_per_minute: int
    pitch: int
    """0 to 99, as espeak-ng counts it."""
    snr_db: float | None = None
    """Level of the speech over pink noise that lasts the whole recording; None: digital silence in the pauses."""


RECORDINGS = {
    "digits-clean": Recording(("314", "1592", "65"), voice="en-us+m3", words_per_minute=105, pitch=45),
    "digits-noisy": Recording(("2718", "2818", "007"), voice="en-us+f4", words_per_minute=145, pitch=65, snr_db=17.0),
}


def words(digits: str) -> str:
    """Digits as words: "314" is "three one four"."""
    return " ".join(WORDS[int(digit)] for digit in digits)


def seconds(duration_s: float) -> Samples:
    """Digital silence, (N,)."""
    return np.zeros(round(duration_s * SAMPLE_RATE))


def speak(text: str, recording: Recording) -> Samples:
    """Text in the recording's voice: (N,) samples with peak PEAK, silence around it cut off."""
    voice = ["-v", recording.voice, "-s", str(recording.words_per_minute), "-p", str(recording.pitch)]
    spoken = subprocess.run(["espeak-ng", *voice, "--stdout", text], check=True, capture_output=True).stdout
    samples, rate = soundfile.read(io.BytesIO(spoken), dtype="float64")
    samples = soxr.resample(samples, rate, SAMPLE_RATE)
    level = np.abs(samples) / np.abs(samples).max()
    loud = np.flatnonzero(level > EDGE)
    edge = round(EDGE_S * SAMPLE_RATE)
    kept: Samples = samples[max(0, loud[0] - edge) : loud[-1] + edge]
    kept *= PEAK / np.abs(kept).max()
    return kept


def pink_noise(size: int, seed: int) -> Samples:
    """(size,) samples of noise whose power falls by 3 dB an octave, of unit power."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(size))
    noise: Samples = np.fft.irfft(spectrum / np.sqrt(np.arange(1, spectrum.size + 1)), size)
    noise /= noise.std()
    return noise


def render(recording: Recording, seed: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """(N,) 16-bit samples of the whole recording."""
    parts = [seconds(LEAD_IN_S)]
    for digits in recording.strings:
        parts += [speak(words(digits), recording), seconds(PAUSE_S)]
    samples = np.concatenate([*parts[:-1], seconds(TAIL_S)])
    if recording.snr_db is not None:
        active = samples[np.abs(samples) > ACTIVE * np.abs(samples).max()]
        noise_power = np.mean(active**2) / 10 ** (recording.snr_db / 10)
        samples += pink_noise(samples.size, seed) * np.sqrt(noise_power)
    return np.round(samples.clip(-1, 1) * 32767).astype(np.int16)


def main() -> None:
    """Write every recording and the list of what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="default: the folder of this file")
    out: Path = parser.parse_args().out
    for seed, (name, recording) in enumerate(RECORDINGS.items()):
        path = out / f"{name}.wav"
        samples = render(recording, seed)
        soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")
        sys.stdout.write(f"{path}: {samples.size / SAMPLE_RATE:.2f} s, {path.stat().st_size / 1e3:.0f} kB\n")
    spoken = {name: [words(digits) for digits in recording.strings] for name, recording in RECORDINGS.items()}
    (out / "spoken.json").write_text(json.dumps(spoken, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Mutated conversations against the codec, a service in memory, and a running server. Nothing may break or hang.

    python tests/fuzz_wire.py --sequences 100000 --seed 1            codec and service
    python tests/fuzz_wire.py --sequences 3000 --seed 1 --server     a server process over real sockets

Each prints one line. Beside the service and the server a well-behaved client has one session after the other, and every
one of them must bring exactly what it brings when nobody else is there.
"""

import argparse
import asyncio
import math
import random
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, this folder stands there alone

from liveasr.engines.base import DecodeOptions
from liveasr.errors import LiveasrError, UsageError, WireError
from liveasr.stream.connection import Connection
from liveasr.stream.detect import Detector, WindowDetector, detector_maker
from liveasr.stream.live import run_loop
from liveasr.stream.messages import (
    CLOSE_CODES,
    NORMAL_CLOSE,
    Audio,
    Done,
    Error,
    Flush,
    Ready,
    Resumed,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Stop,
    Transcript,
    encode,
    encode_audio,
)
from liveasr.stream.protocol import ClientProtocol, ServerProtocol
from liveasr.stream.service import Service
from liveasr.types import Float32Array, Hypothesis
from liveasr.vad.config import VadConfig
from tests.channels import MemoryChannel, serving
from tests.fakes import FakeEngine, said
from tests.fuzz_frames import SEQ, SESSION, Frame, Frames, answers, conversation, mutated
from tests.wire import READY, tag

HANG_S = 30.0
AT_ONCE = 48
_RESUME_S = 0.2
CODES = {NORMAL_CLOSE, *CLOSE_CODES.values()}


class Tally:
    """What came of it."""

    def __init__(self) -> None:
        self.sequences = 0
        self.messages = 0
        self.codes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        """Of what a server said when all went well."""
        self.steady = 0
        """Sessions of the well-behaved client."""
        self._began = time.monotonic()

    def __str__(self) -> str:
        codes, kinds = (
            ", ".join(f"{name} {count}" for name, count in sorted(each.items()) if count)
            for each in (self.codes, self.kinds)
        )
        steady = f"{self.steady} steady sessions beside them, " if self.steady else ""
        what = f"{self.sequences} sequences, {self.messages} messages, {steady}{time.monotonic() - self._began:.0f} s"
        return f"{what}; {kinds}; errors: {codes}" if kinds else f"{what}; errors: {codes}"

    def heard(self, messages: list[ServerMessage]) -> None:
        """Count what a server said."""
        self.codes.update(each.code for each in messages if isinstance(each, Error))
        self.kinds.update(tag(each) for each in messages if isinstance(each, Ready | Resumed | Done))


# The codec and both state machines.


def fuzz_codec(sequences: int, seed: int) -> Tally:
    """Both sides take what comes, or raise WireError; anything else comes out of here."""
    tally = Tally()
    for index in range(sequences):
        chance = random.Random(f"codec {seed} {index}")  # noqa: S311 - to break things, not to hide them
        tally.sequences += 1
        _against_server(mutated(conversation(chance), chance), tally)
        _against_client(chance, tally)
    return tally


def _against_server(frames: Frames, tally: Tally) -> None:
    server = ServerProtocol()
    over = False
    for frame in frames:
        if frame is None:
            continue
        tally.messages += 1
        before = (server.state, server.last_number)
        try:
            message = server.receive(frame)
        except WireError as error:
            assert (server.state, server.last_number) == before
            encode(Error(code=error.code, message=str(error), fatal=error.fatal))
            tally.codes[error.code] += not over
            over = over or error.fatal
            continue
        assert not over
        if isinstance(message, Start):
            server.send(READY)


def _against_client(chance: random.Random, tally: Tally) -> None:
    server, client = ServerProtocol(), ClientProtocol()
    server.receive(client.start(Start()))
    said_: Frames = []
    for message in answers(chance):
        try:
            said_.append(server.send(message))
        except UsageError:
            said_.append(encode(message))
    for frame in mutated(said_, chance):
        if frame is None or chance.random() < 0.05:
            if client.session is not None and client.state != "closed":
                client.resume()
            continue
        tally.messages += 1
        over = client.state == "closed"
        try:
            client.receive(frame)
        except WireError as error:
            assert client.state == "closed"
            tally.codes[f"client {error.code}"] += not over
        else:
            assert not over


# A service in memory.


class EchoEngine(FakeEngine):
    """Answers with what it heard, so that nobody can get the text of somebody else unnoticed."""

    def __init__(self) -> None:
        super().__init__([said("")])

    def decode(self, features: Float32Array, options: DecodeOptions) -> Hypothesis:  # noqa: ARG002 - the contract
        assert not self.closed
        return said(f"{zlib.crc32(features.tobytes()):08x} {len(features)}")


class FuzzChannel(MemoryChannel):
    """One that may break, or be slow."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._left = chance.choice([0, 1, 2, 5, 10]) if chance.random() < 0.1 else 1 << 30
        self._turns = chance.choice([0, 0, 0, 1, 20])

    async def send(self, frame: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise ConnectionResetError
        for _ in range(self._turns):
            await asyncio.sleep(0)
        await super().send(frame)


async def fuzz_service(sequences: int, seed: int) -> Tally:
    """Every sequence ends by itself, nothing of it is left, and the steady client notices nothing."""
    tally = Tally()
    engine = EchoEngine()
    listening = detector_maker("fsmn")

    def detector(config: VadConfig) -> Detector:
        return listening(config) if config.pad_before_ms else WindowDetector(config)

    # The loop has all the time more to do than it can: that nobody new is taken then would leave nothing to try.
    with mock.patch("liveasr.stream.service.LATE_LOOP_S", math.inf):
        async with serving(engine, detector, resume_s=_RESUME_S, idle_s=HANG_S) as service:
            there = asyncio.all_tasks()
            alone = await steady_session(service)
            fuzzing = asyncio.create_task(_fuzz(service, sequences, seed, tally))
            while not fuzzing.done():
                assert await steady_session(service) == alone, "another client disturbed this one"
                tally.steady += 1
            await fuzzing
            async with asyncio.timeout(HANG_S):
                while service._entries or asyncio.all_tasks() != there:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.01)
            assert not service._guests
            assert service.lag_ms == 0
    return tally


async def _fuzz(service: Service, sequences: int, seed: int, tally: Tally) -> None:
    indices = iter(range(sequences))

    async def some() -> None:
        for index in indices:
            chance = random.Random(f"service {seed} {index}")  # noqa: S311
            try:
                async with asyncio.timeout(HANG_S):
                    await _sequence(service, mutated(conversation(chance), chance), chance, tally)
            except Exception as error:
                raise AssertionError(f"sequence {index} of seed {seed}") from error

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


async def _sequence(service: Service, frames: Frames, chance: random.Random, tally: Tally) -> None:
    tally.sequences += 1
    session, seq = "nobody", 0
    channels: list[FuzzChannel] = []
    lingering: list[tuple[FuzzChannel, asyncio.Task[None]]] = []
    for part in parts(frames):
        channel = FuzzChannel(chance)
        running = asyncio.create_task(Connection(channel, service).run())
        for frame in part:
            tally.messages += 1
            channel.say(filled(frame, session, seq))
            if chance.random() < 0.2:
                await asyncio.sleep(0)
        ends = chance.random()
        if ends < 0.15:  # the next connection finds this one still there
            lingering.append((channel, running))
        else:
            if ends < 0.6 or encode(Stop()) not in part:
                for _ in range(chance.choice([0, 1, 5, 50])):
                    await asyncio.sleep(0)
                channel.say(None)
            else:  # it ends by itself, unless the stop came at a time when it means something else
                asyncio.get_running_loop().call_later(1.0, channel.say, None)
            await running
        session = next((each.session for each in channel.sent if isinstance(each, Ready)), session)
        seq = max([seq, *channel.seqs])
        channels.append(channel)
    for channel, running in lingering:
        channel.say(None)
        await running
    for channel in channels:
        assert channel.closed is None or channel.closed[0] in CODES, channel.closed
        tally.heard(channel.sent)
        tally.codes["replaced"] += channel.closed is not None and channel.closed[0] == CLOSE_CODES["replaced"]


def parts(frames: Frames) -> list[list[Frame]]:
    """What goes over each connection."""
    found: list[list[Frame]] = [[]]
    for frame in frames:
        if frame is None:
            found.append([])
        else:
            found[-1].append(frame)
    return found


def filled(frame: Frame, session: str, seq: int) -> Frame:
    """With what the client knows of its session."""
    return frame.replace(SESSION, session).replace(str(SEQ), str(seq)) if isinstance(frame, str) else frame


async def steady_session(service: Service) -> list[ServerMessage]:
    """What a session brings that follows the rules, but for what depends on the clock."""
    chance = random.Random(7)  # noqa: S311
    channel = MemoryChannel()
    running = asyncio.create_task(Connection(channel, service).run())
    channel.say(encode(Start(partials=False)))
    for number in range(1, 41):
        channel.say(encode_audio(Audio(number, chance.randbytes(1280))))
        if number % 10 == 0:
            channel.say(encode(Flush()))
        await asyncio.sleep(0.002)
    channel.say(encode(Stop()))
    async with asyncio.timeout(HANG_S):
        await running
    assert channel.closed == (NORMAL_CLOSE, ""), (channel.closed, channel.sent[-1])
    assert channel.seqs == list(range(1, len(channel.seqs) + 1))
    # A final may come before or after the next start of speech; of each kind they come in order.
    kinds = (SpeechStarted, SpeechEnded, Transcript, Done)
    return [each for kind in kinds for each in channel.sent if isinstance(each, kind)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", action="store_true")
    options = parser.parse_args()

    async def in_memory() -> None:
        sys.stdout.write(f"service: {await fuzz_service(options.sequences, options.seed)}\n")

    try:
        if options.server:
            from tests.fuzz_server import fuzz_server  # noqa: PLC0415 - needs sockets

            sys.stdout.write(f"server: {fuzz_server(options.sequences, options.seed)}\n")
            return
        sys.stdout.write(f"codec: {fuzz_codec(options.sequences, options.seed)}\n")
        sys.stdout.flush()
        run_loop(in_memory())
    except LiveasrError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

"""What an operator watches, for Prometheus. docs/operating.md says what each figure means."""

import asyncio
import time
from bisect import bisect_left
from collections import deque

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from liveasr.stream.live import Output
from liveasr.stream.worker import Decoded
from liveasr.types import SAMPLES_PER_MS, LiveTranscript, SpeechEnd, SpeechStart

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LOOP_TICK_S = 0.1
_RECENT_S = 3.0
_WORST_LAG_S = 0.5  # that counts for the average: a loop that stood still for a minute is in time again at once
_LATENCIES_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_DECODES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LOOP_LAGS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_ARRIVAL_MS = 100
_ARRIVALS = 2_400  # of 100 ms: longer than the longest segment and the lag behind it


prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # when each was made: nobody asks


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        model = ("model",)
        self.sessions = Gauge("liveasr_sessions", "Sessions open", registry=self.registry)
        self.connections = Gauge("liveasr_connections", "Connections open", registry=self.registry)
        self.lag_s = Gauge("liveasr_lag_seconds", "Of the session furthest behind", registry=self.registry)
        self.waiting = Gauge("liveasr_decodes_waiting", "Decodes in the queue", model, registry=self.registry)
        self.started = Counter("liveasr_sessions_started", "Sessions begun", model, registry=self.registry)
        self.resumed = Counter("liveasr_sessions_resumed", "Connections that went on", registry=self.registry)
        self.ended = Counter("liveasr_sessions_ended", "Sessions over, by reason", ("reason",), registry=self.registry)
        self.refused = Counter("liveasr_refused", "Connections refused, by code", ("code",), registry=self.registry)
        self.audio_s = Counter("liveasr_audio_seconds", "Audio received", model, registry=self.registry)
        self.speech_s = Counter("liveasr_speech_seconds", "Audio in segments", model, registry=self.registry)
        kind = ("model", "kind")
        self.decode_s = Histogram(
            "liveasr_decode_seconds", "Time of a decode", kind, registry=self.registry, buckets=_DECODES_S
        )
        self.queue_s = Histogram(
            "liveasr_queue_seconds", "Time a decode waited", kind, registry=self.registry, buckets=_LATENCIES_S
        )
        self.decoded_s = Counter("liveasr_decoded_audio_seconds", "Audio decoded", kind, registry=self.registry)
        self.dropped = Counter(
            "liveasr_partials_dropped", "Partials that a newer one overtook", model, registry=self.registry
        )
        self.second_looks = Counter(
            "liveasr_second_looks", "Finals looked at again, by outcome", ("model", "outcome"), registry=self.registry
        )
        self.first_partial_s = Histogram(
            "liveasr_first_partial_seconds", "From the first sound of a segment to its first text", model,
            registry=self.registry, buckets=_LATENCIES_S,
        )  # fmt: skip
        self.final_s = Histogram(
            "liveasr_final_seconds", "From the end of a segment to its final", model,
            registry=self.registry, buckets=_LATENCIES_S,
        )  # fmt: skip
        self.recent_loop_lag_s = 0.0
        """Its average over the last seconds."""
        self.loop_lag_s = Histogram(
            "liveasr_loop_lag_seconds", "How late the event loop wakes", registry=self.registry, buckets=_LOOP_LAGS_S
        )

    def decoded(self, model: str, answer: Decoded) -> None:
        """A decode is done."""
        kind = "final" if answer.request.is_final else "partial"
        self.decode_s.labels(model, kind).observe(answer.took_ms / 1000)
        self.queue_s.labels(model, kind).observe(answer.waited_ms / 1000)
        self.decoded_s.labels(model, kind).inc((answer.request.end_ms - answer.request.start_ms) / 1000)
        if answer.second_look is not None:
            self.second_looks.labels(model, answer.second_look).inc()

    async def watch_loop(self) -> None:
        """Measure the event loop until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_LOOP_TICK_S)
            took_s = time.monotonic() - before
            lag_s = max(0.0, took_s - _LOOP_TICK_S)
            self.loop_lag_s.observe(lag_s)
            self.recent_loop_lag_s += min(1.0, took_s / _RECENT_S) * (min(lag_s, _WORST_LAG_S) - self.recent_loop_lag_s)

    def text(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self.registry)


class SessionMetrics:
    """What one session adds to the figures."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._audio_s = metrics.audio_s.labels(model)
        self._speech_s = metrics.speech_s.labels(model)
        self._first_partial_s = metrics.first_partial_s.labels(model)
        self._final_s = metrics.final_s.labels(model)
        self._received_ms = 0
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=_ARRIVALS)  # (audio so far in ms, when)
        self._silent: dict[int, float] = {}  # when the first sound came of segments that have no text yet
        self._over: dict[int, float] = {}  # when segments ended that have no final yet
        self._segments = 0
        metrics.started.labels(model).inc()

    def received(self, total_ms: int) -> None:
        """So much audio has come."""
        self._audio_s.inc((total_ms - self._received_ms) / 1000)
        self._received_ms = total_ms
        if not self._arrivals or total_ms - self._arrivals[-1][0] >= _ARRIVAL_MS:
            self._arrivals.append((total_ms, time.monotonic()))

    def said(self, output: Output) -> None:
        """Something came out of the stream."""
        now = time.monotonic()
        if isinstance(output, SpeechStart):
            self._silent[self._segments] = self._arrived(output.sample // SAMPLES_PER_MS, now)
            self._segments += 1
        elif isinstance(output, SpeechEnd):
            self._over[self._segments - 1] = now
        elif isinstance(output, LiveTranscript):
            text = output.final.text if output.final else output.committed or output.tentative
            began = self._silent.pop(output.segment_id, None) if text or output.final else None
            if text and began is not None:
                self._first_partial_s.observe(now - began)
            if output.final is not None:
                self._speech_s.inc((output.end_ms - output.start_ms) / 1000)
                self._final_s.observe(now - self._over.pop(output.segment_id, now))

    def ended(self, reason: str) -> None:
        """The session is over."""
        self._metrics.ended.labels(reason).inc()

    def _arrived(self, position_ms: int, now: float) -> float:
        """When the audio of a position came."""
        index = bisect_left(self._arrivals, (position_ms, 0.0))
        return self._arrivals[index][1] if index < len(self._arrivals) else now

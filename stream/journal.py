"""The server's log: a line an event, with its facts as key=value, for people and for programs (logfmt)."""

import contextlib
import datetime as dt
import json
import logging
import queue
from logging.handlers import QueueHandler, QueueListener

_MAX_WAITING = 10_000  # lines
_log = logging.getLogger("liveasr.server")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+[]")


def note(event: str, *, error: Exception | None = None, **facts: object) -> None:
    """Log an event.

    Args:
        event: a few words that are always the same.
        error: what went wrong, with its traceback.
        facts: what is particular; None is left out.
    """
    level = logging.INFO if error is None else logging.ERROR
    _log.log(level, event, exc_info=error, extra={"facts": facts})


class _Dropping(QueueHandler):
    """Hands records to the thread that writes them, as many as it takes."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """As it is: the thread is in the same process."""
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Never waits."""
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)


def to_stderr() -> None:
    """Show the events from now on."""
    writing = logging.StreamHandler()
    writing.setFormatter(LogfmtFormatter())
    # A pipe that nobody reads must not hold the event loop up: a thread writes, and what does not fit is left out.
    handler = _Dropping(queue.Queue(_MAX_WAITING))
    QueueListener(handler.queue, writing).start()
    for log in (_log, logging.getLogger("uvicorn.error")):
        log.addHandler(handler)
        log.propagate = False
    _log.setLevel(logging.INFO)


class LogfmtFormatter(logging.Formatter):
    """2026-11-30T10:50:36.123Z INFO event="session over" session=x reason=stop"""  # noqa: D415 - a line as it is

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, and its traceback below."""
        time = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        facts: dict[str, object] = {"event": record.getMessage(), **getattr(record, "facts", {})}
        pairs = " ".join(f"{key}={_quoted(value)}" for key, value in facts.items() if value is not None)
        line = f"{time.removesuffix('+00:00')}Z {record.levelname} {pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _quoted(value: object) -> str:
    """As it is, or in quotes if it holds anything that a line could be split at."""
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)

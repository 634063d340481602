"""Batches that a thread must look into before they are written: large compressed ones, large ones of compacted topics, those of
topics with a ``compression.type`` of their own.

A partition's batches are written in the order in which they came, whatever their preparation takes; so a small one waits behind
a large one. What each waits for is one callback; the producer's sequence is checked when its batch is written, not before.
"""

import logging
from collections import deque
from collections.abc import Callable

from ottla.log.batch import BatchHeader
from ottla.log.config import LogConfig
from ottla.log.validation import is_compressed, is_heavy, prepare
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.threads import PREPARATIONS, Threads

Prepared = tuple[bytearray, BatchHeader]
OnPrepared = Callable[[Prepared | KafkaError], None]

logger = logging.getLogger(__name__)


class Preparers:
    """Prepares batches on threads. One object serves one loop."""

    def __init__(self) -> None:
        self._threads = Threads(PREPARATIONS)
        self._closed = False

    def prepare(
        self, batch: bytearray, config: LogConfig, wall_ms: int, on_done: Callable[[Prepared | KafkaError], None]
    ) -> None:
        """Calls ``on_done`` on the running loop, later."""
        work = self._threads.run(_attempt, batch, config, wall_ms)
        work.add_done_callback(lambda done: None if self._closed or done.cancelled() else on_done(done.result()))

    def close(self) -> None:
        """Ends the threads once what they do is done, of which nobody is told any more."""
        self._closed = True
        self._threads.close()


class Intake:
    """One partition's queue of batches on their way into its log."""

    __slots__ = ("_preparers", "_queue")

    def __init__(self, preparers: Preparers) -> None:
        self._preparers = preparers
        self._queue: deque[_Entry] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether the next batch has to go through `submit`; otherwise it may be written at once."""
        return bool(self._queue)

    def submit(self, records: memoryview, config: LogConfig, wall_ms: int, on_ready: OnPrepared) -> None:
        """Copies the batch, and calls ``on_ready`` when it is its turn to be written. Never before this call returns."""
        entry = _Entry(on_ready)
        self._queue.append(entry)
        batch = bytearray(records)
        if is_compressed(batch) or is_heavy(batch, config):
            self._preparers.prepare(batch, config, wall_ms, lambda outcome: self._prepared(entry, outcome))
        else:
            entry.outcome = _attempt(batch, config, wall_ms)

    def _prepared(self, entry: "_Entry", outcome: Prepared | KafkaError) -> None:
        entry.outcome = outcome
        queue = self._queue
        while queue and queue[0].outcome is not None:
            first = queue.popleft()
            assert first.outcome is not None
            first.on_ready(first.outcome)


class _Entry:
    __slots__ = ("on_ready", "outcome")

    def __init__(self, on_ready: OnPrepared) -> None:
        self.on_ready = on_ready
        self.outcome: Prepared | KafkaError | None = None


def _attempt(batch: bytearray, config: LogConfig, wall_ms: int) -> Prepared | KafkaError:
    try:
        return prepare(batch, config, wall_ms)
    except KafkaError as error:
        return error
    except Exception:
        logger.exception("A batch could not be prepared, which is our mistake")
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch could not be recompressed")

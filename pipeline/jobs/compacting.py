"""Small files become large ones, every so many batches and at a job's end, on a thread beside the query: writers are not held up."""

import threading
from collections.abc import Callable
from typing import Any

from ottla.pipeline.jobs.batches import Batch


class Compacting:
    """Of one table. What it cannot do now it does the next time: no job fails for it."""

    def __init__(self, table: str, target_bytes: int, every: int, compact: Callable[[str, int], Any]) -> None:
        """``compact``: of the table's format. ``every``: so many batches; 0: never."""
        self._table, self._target_bytes, self._every, self._compact = table, target_bytes, every, compact
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def batch(self, batch: Batch, say: Callable[[str], None]) -> None:
        if batch.rows:
            self._waiting += 1
        is_busy = self._thread is not None and self._thread.is_alive()
        if self._every and self._waiting >= self._every and not is_busy:
            self._waiting = 0
            self._thread = threading.Thread(target=self._do, args=(say,), name="compacting", daemon=True)
            self._thread.start()

    def end(self, say: Callable[[str], None]) -> None:
        """All batches since."""
        if self._thread is not None:
            self._thread.join()
        if self._every and self._waiting > 1:
            self._do(say)

    def _do(self, say: Callable[[str], None]) -> None:
        try:
            done = self._compact(self._table, self._target_bytes)
        except Exception as error:  # noqa: BLE001 - the rows are safe; the next time may be better
            say(f"the table is not compacted: {' '.join(str(error).split())}")
            return
        if done.files_after < done.files_before:
            say(f"compacted: {done.files_before} files became {done.files_after}")

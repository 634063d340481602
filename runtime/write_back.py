"""Write-back that is asked for ahead of a sync, on a thread of its own.

The call waits for nothing by its contract, and yet for the disk: to find room for what is written the file system may have to read its
maps first, which held whoever asked for 30 to 140 ms. It is a hint: nobody learns when it is done, and where the disk does not
keep up the kernel does it by itself.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

logger = logging.getLogger(__name__)

AHEAD_MAX = 64
"""Hints that wait, of all files."""


class WriteBack:
    """One thread, begun by the first hint; it ends with the process."""

    def __init__(self) -> None:
        self._hints: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self, hint: Callable[[], None]) -> bool:
        """Calls ``hint``, soon; False: too many wait, and it is not called."""
        if self._hints.qsize() >= AHEAD_MAX:
            return False
        if self._thread is None:
            self._begin()
        self._hints.put(hint)
        return True

    def _begin(self) -> None:
        with self._beginning:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ottla-write-back", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            hint = self._hints.get()
            try:
                hint()
            except Exception:
                logger.exception("A hint to the disk failed, which is our mistake")

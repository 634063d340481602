"""Files that are only ever replaced as a whole, from the loop or from a thread: the contents given last are those that stay."""

import threading
from collections.abc import Callable

from ottla.runtime.disk import Disk
from ottla.runtime.work_later import Work


class ReplacedFiles:
    """Orders the writes of each path by when they were `prepare`d, not by when they get to run."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._prepared: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._writing = threading.Lock()

    def prepare(self, path: str, contents: Callable[[], bytes]) -> Work:
        """The write takes its place in the order now. Run, on any thread, it does nothing if a later one was through
        before; it waits for one that is under way. OSError passes through."""
        place = self._prepared[path] = self._prepared.get(path, 0) + 1

        def write() -> None:
            with self._writing:
                if self._written.get(path, 0) < place:
                    self._disk.write_atomically(path, contents())
                    self._written[path] = place

        return write

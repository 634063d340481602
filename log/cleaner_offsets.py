"""Up to which offset each log is clean, in Kafka's ``cleaner-offset-checkpoint`` of each log directory.

It must never run ahead of the log it stands for. What a clean part may hold is taken on trust: a tombstone in it goes when its
horizon has passed, because no older value of its key can be there. So before a log is cut into its clean part, and when it is
deleted, its entry goes from the file too: after a crash the next log of that name would otherwise inherit it.
"""

from collections.abc import Callable, Sequence
from threading import Lock

from ottla.log.checkpoints import CLEANER_OFFSETS, CheckpointError, OffsetCheckpoint
from ottla.log.names import TopicPartition
from ottla.runtime.disk import Disk


class CleanedOffsets:
    """Read and forgotten on the loop, recorded on a thread; the lock keeps an older table from overwriting a newer one."""

    def __init__(self, disk: Disk, roots: Sequence[str]) -> None:
        self._disk = disk
        self._tables: dict[str, dict[TopicPartition, int]] = {}
        self._lock = Lock()
        for root in roots:
            self._table(root)

    def of(self, root: str, partition: TopicPartition) -> int:
        """The first dirty offset; -1 when nothing is clean."""
        return self._table(root).get(partition, -1)

    def record(
        self, root: str, partition: TopicPartition, offset: int, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Everything below ``offset`` is clean, durably; ``unless`` it was forgotten meanwhile. OSError passes through."""
        with self._lock:
            if unless():
                return
            self._table(root)[partition] = offset
            self._write(root)

    def forget(self, partition: TopicPartition) -> None:
        """Nothing of the partition is clean, durably. OSError passes through."""
        for root, table in self._tables.items():
            with self._lock:
                if table.pop(partition, None) is not None:
                    self._write(root)

    def _write(self, root: str) -> None:
        OffsetCheckpoint(self._disk, f"{root}/{CLEANER_OFFSETS}").write(self._tables[root])

    def _table(self, root: str) -> dict[TopicPartition, int]:
        table = self._tables.get(root)
        if table is None:
            try:
                table = OffsetCheckpoint(self._disk, f"{root}/{CLEANER_OFFSETS}").read()
            except CheckpointError:
                table = {}  # costs a cleaning from the start, nothing else
            self._tables[root] = table
        return table

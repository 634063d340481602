"""The offset checkpoints of a log directory as Kafka has them, to be held beside what a node reads and writes."""

from collections.abc import Mapping

from ottla.log.directories.checkpoints import offset_rows, table
from ottla.log.names import TopicPartition
from ottla.runtime.disk import Disk


class OffsetCheckpoint:
    """One of the four ``*-checkpoint`` files at the root of a log directory, as Kafka reads and writes it.

    Ours say besides whose the offsets are: `ottla.log.directories.owned_offsets`.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def read(self) -> dict[TopicPartition, int]:
        """Raises CheckpointError when the file is not whole."""
        return dict(row for _, row in offset_rows(self._disk, self._path))

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        rows = (f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items())
        self._disk.write_atomically(self._path, table(rows, len(offsets)))

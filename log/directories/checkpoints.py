"""Kafka's small text files beside a log, byte for byte: offsets, leader epochs, topic id, directory identity, clean shutdown.

All are written atomically (temporary file, sync, rename). A file that cannot be read raises CheckpointError, which names
the file and the line; a file that is not there is an empty checkpoint.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.log.epochs import EpochEntries
from ottla.log.names import TopicPartition
from ottla.runtime.disk import Disk
from ottla.runtime.identifiers import id_from_text, id_to_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEANING_OFFSETS = "ottla.cleaning-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class CheckpointError(Exception):
    """A checkpoint file that does not say what its format demands; the message names the file and the line."""


def offset_rows(disk: Disk, path: str) -> Iterator[tuple[int, tuple[TopicPartition, int]]]:
    """The rows of an offset checkpoint and the lines they are in. Raises CheckpointError when the file is not whole."""
    for number, fields in _read_table(disk, path, columns=3):
        partition, offset = _integers(path, number, fields[1:])
        yield number, (TopicPartition(sys.intern(fields[0]), partition), offset)


def read_epochs(disk: Disk, directory: str) -> EpochEntries:
    """The partition's ``leader-epoch-checkpoint``; () when there is none. Raises CheckpointError."""
    path = f"{directory}/{LEADER_EPOCHS}"
    rows = (_integers(path, number, fields) for number, fields in _read_table(disk, path, columns=2))
    return tuple((epoch, start_offset) for epoch, start_offset in rows)


def write_epochs(disk: Disk, directory: str, entries: EpochEntries, *, durable: bool = True) -> None:
    """Writes the partition's ``leader-epoch-checkpoint``.

    Not ``durable``: after a crash the file may be the old one, the new one or torn.
    """
    path = f"{directory}/{LEADER_EPOCHS}"
    data = table((f"{epoch} {start_offset}" for epoch, start_offset in entries), len(entries))
    if durable:
        disk.write_atomically(path, data)
        return
    file = disk.open(path + ".tmp", create=True)
    try:
        file.truncate(0)
        file.write_at([data], 0)
    finally:
        file.close()
    disk.rename(path + ".tmp", path)


class PartitionMetadata:
    """``partition.metadata``: the id of the topic a partition directory belongs to."""

    @staticmethod
    def read(disk: Disk, directory: str) -> bytes | None:
        """The topic id, or None when there is no file. Raises CheckpointError."""
        path = f"{directory}/{PARTITION_METADATA}"
        if not disk.exists(path):
            return None
        fields = dict(line.split(": ", 1) for line in _lines(disk, path) if ": " in line)
        if fields.get("version") != "0":
            raise CheckpointError(f"{path}: version {fields.get('version')!r} where 0 was expected")
        try:
            return id_from_text(fields.get("topic_id", ""))
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error

    @staticmethod
    def write(disk: Disk, directory: str, topic_id: bytes) -> None:
        text = f"version: 0\ntopic_id: {id_to_text(topic_id)}"
        disk.write_atomically(f"{directory}/{PARTITION_METADATA}", text.encode("ascii"))


class MetaProperties(NamedTuple):
    """``meta.properties``: to which cluster and node a log directory belongs, and its own id."""

    cluster_id: str
    node_id: int
    directory_id: bytes

    @staticmethod
    def read(disk: Disk, root: str) -> "MetaProperties | None":
        """None when the directory was never formatted. Raises CheckpointError."""
        path = f"{root}/{META_PROPERTIES}"
        if not disk.exists(path):
            return None
        fields = _properties(_lines(disk, path))
        if fields.get("version") != "1":
            raise CheckpointError(f"{path}: version {fields.get('version')!r} where 1 was expected")
        try:
            return MetaProperties(fields["cluster.id"], int(fields["node.id"]), id_from_text(fields["directory.id"]))
        except KeyError as error:
            raise CheckpointError(f"{path}: no {error.args[0]}") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def write(self, disk: Disk, root: str) -> None:
        text = f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\ndirectory.id={id_to_text(self.directory_id)}\n"
        disk.write_atomically(f"{root}/{META_PROPERTIES}", text.encode("utf-8"))


class CleanShutdown:
    """``.kafka_cleanshutdown``: its presence says that the last process closed every log of this directory."""

    @staticmethod
    def take(disk: Disk, root: str) -> bool:
        """Whether the mark was there; removes it, so that a crash from now on is seen as one."""
        path = f"{root}/{CLEAN_SHUTDOWN}"
        if not disk.exists(path):
            return False
        disk.unlink(path)
        disk.sync_directory(root)
        return True

    @staticmethod
    def is_marked(disk: Disk, root: str) -> bool:
        return disk.exists(f"{root}/{CLEAN_SHUTDOWN}")

    @staticmethod
    def broker_epoch(disk: Disk, root: str) -> int:
        """The broker epoch that shut down cleanly here; -1 when unknown. Read it before `take`."""
        path = f"{root}/{CLEAN_SHUTDOWN}"
        if not disk.exists(path):
            return -1
        try:
            return int(json.loads(disk.read_bytes(path))["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            return -1

    @staticmethod
    def write(disk: Disk, root: str, broker_epoch: int = -1) -> None:
        text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        disk.write_atomically(f"{root}/{CLEAN_SHUTDOWN}", text.encode("ascii"))


def _lines(disk: Disk, path: str) -> list[str]:
    try:
        return disk.read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not text: {error}") from error


def _properties(lines: Iterable[str]) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}


def _read_table(disk: Disk, path: str, columns: int) -> list[tuple[int, list[str]]]:
    """(line number, fields) of the rows of a version-0 checkpoint: version, count, rows."""
    if not disk.exists(path):
        return []
    lines = _lines(disk, path)
    if not lines:
        return []  # Kafka creates its checkpoints empty
    if lines[0] != "0":
        raise CheckpointError(f"{path}: line 1: version {lines[0]!r} where 0 was expected")
    if len(lines) < 2 or lines[1] != str(len(lines) - 2):
        raise CheckpointError(
            f"{path}: line 2: says {lines[1] if len(lines) > 1 else ''!r} entries, {max(len(lines) - 2, 0)} follow"
        )
    rows = [(number, line.split(" ")) for number, line in enumerate(lines[2:], start=3)]
    for number, fields in rows:
        if len(fields) != columns:
            raise CheckpointError(f"{path}: line {number}: {len(fields)} fields where {columns} were expected")
    return rows


def _integers(path: str, number: int, fields: list[str]) -> list[int]:
    try:
        return [int(field) for field in fields]
    except ValueError as error:
        raise CheckpointError(f"{path}: line {number}: {error}") from error


def table(rows: Iterable[str], count: int) -> bytes:
    """A version-0 checkpoint: version, count, rows."""
    return ("\n".join(["0", str(count), *rows]) + "\n").encode("utf-8")

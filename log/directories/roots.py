"""The root of a log directory: whose it is, who holds it, what lies in it."""

import errno
import logging
import sys
from collections.abc import Callable
from typing import NamedTuple

from ottla.log.directories.checkpoints import META_PROPERTIES, CheckpointError, MetaProperties, PartitionMetadata
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.owned_offsets import OwnedOffsets, read_owned
from ottla.log.errors import StorageError
from ottla.log.names import METADATA_PARTITION, TopicPartition
from ottla.log.segments.files import segment_size
from ottla.log.segments.layout import base_offset_of
from ottla.runtime.disk import Disk, Lock
from ottla.runtime.identifiers import id_to_text

LOCK = ".lock"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
MOVED = "moved"
"""A file in the directory of a log that was moved: the copy's path and, in a second line, where it goes."""
_NAME_BYTES_MAX = 255

_logger = logging.getLogger(__name__)


class LogDirectoryError(Exception):
    """A log directory that this node must not use; the message is one line that says what to do."""


class Identities:
    """Checks that the directories are of one cluster and node, and each its own."""

    def __init__(self, cluster_id: str, node_id: int) -> None:
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._seen: dict[bytes, str] = {}

    def check(self, disk: Disk, path: str) -> bytes:
        """The directory's id. Raises LogDirectoryError."""
        try:
            meta = MetaProperties.read(disk, path)
        except CheckpointError as error:
            raise LogDirectoryError(f"{error}; restore the file, or format the directory anew") from error
        if meta is None:
            raise LogDirectoryError(f"{path} is not formatted: run `ottla storage format`")
        if meta.cluster_id != self._cluster_id:
            raise LogDirectoryError(f"{path} belongs to cluster {meta.cluster_id}, this node to {self._cluster_id}")
        if meta.node_id != self._node_id:
            raise LogDirectoryError(f"{path} belongs to node {meta.node_id}, this is node {self._node_id}")
        if meta.directory_id in self._seen:
            other = self._seen[meta.directory_id]
            raise LogDirectoryError(
                f"{path} and {other} both have the id {id_to_text(meta.directory_id)}: one is a copy"
            )
        self._seen[meta.directory_id] = path
        return meta.directory_id


def lock(disk: Disk, path: str) -> Lock:
    """Takes the directory's lock. Raises LogDirectoryError when another process has it; OSError passes through."""
    try:
        return disk.lock(f"{path}/{LOCK}")
    except BlockingIOError as error:
        raise LogDirectoryError(f"{path} is in use by another process (its {LOCK} is held)") from error


def check_presence(disk: Disk, path: str) -> None:
    """Raises OSError when the directory is not what it was: a file system that was unmounted leaves an empty one behind.

    Files that are open go on working, so nothing else would tell before new ones are written to the wrong disk.
    """
    if not disk.exists(f"{path}/{META_PROPERTIES}"):
        raise OSError(errno.ENOENT, f"{META_PROPERTIES} is gone; was the disk unmounted?", path)


def guarded(disk: Disk, root: DirectoryState, action: Callable[[], object]) -> None:
    """Runs ``action``; an error of the disk is the directory's."""
    if root.failure is not None:
        return
    try:
        check_presence(disk, root.path)
        action()
    except OSError as error:
        root.failed(error)
    except StorageError as error:
        _logger.warning("%s", error)


def note_failure(root: DirectoryState, error: OSError | None) -> None:
    """How work done later ended."""
    if error is not None:
        root.failed(error)


class Found(NamedTuple):
    """What lies in a directory: partitions and their paths, and directories that were condemned before a restart.

    An unfinished copy of a log that was being moved is condemned too.
    """

    partitions: dict[TopicPartition, str]
    condemned: list[str]


def find(disk: Disk, root: str) -> Found:
    """Looks through a log directory. Names that are no partition's, strays and the metadata log are left alone."""
    partitions: dict[TopicPartition, str] = {}
    condemned = []
    for name in disk.list_directory(root):
        path = f"{root}/{name}"
        if name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX)) and "." in name and disk.is_directory(path):
            condemned.append(path)
            continue
        partition = partition_of(name)
        if partition is not None and disk.is_directory(path):
            partitions[partition] = path
    return Found(partitions, condemned)


def partition_of(name: str) -> TopicPartition | None:
    """Whose directory is called that; None for a name that is no partition's, and for the metadata log's. The partitions of a topic share its name:
    a node may open 100,000."""
    topic, dash, number = name.rpartition("-")
    if topic and dash and number.isdecimal() and topic != METADATA_PARTITION.topic:
        return TopicPartition(sys.intern(topic), int(number))
    return None


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """Whose a partition's directory is; None where that is not written, or torn. OSError passes through."""
    try:
        return PartitionMetadata.read(disk, path)
    except CheckpointError:
        return None  # it was never synced, so nothing else of this partition was


def topic_ids(disk: Disk, root: str) -> dict[TopicPartition, bytes]:
    """Whose the logs in a log directory are, as far as that is written. OSError passes through."""
    found = ((partition, read_topic_id(disk, path)) for partition, path in find(disk, root).partitions.items())
    return {partition: topic_id for partition, topic_id in found if topic_id is not None}


def has_records(disk: Disk, path: str) -> bool:
    """Whether anything was ever written to a partition's segments. OSError passes through."""
    names = [name for name in disk.list_directory(path) if base_offset_of(name) is not None]
    return any(segment_size(disk, f"{path}/{name}") for name in names)


def read_checkpoint(disk: Disk, root: str, name: str) -> OwnedOffsets:
    """The offsets of a checkpoint; none of a damaged one, which costs a longer recovery and nothing else."""
    try:
        return read_owned(disk, f"{root}/{name}")
    except CheckpointError as error:
        _logger.warning("%s; going on without", error)
        return {}


def retired_name(partition: TopicPartition, unique: str, suffix: str) -> str:
    """``<topic>-<partition>.<32 hex digits>-delete``, the topic cut so that it stays a legal name."""
    ending = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: _NAME_BYTES_MAX - len(ending)] + ending

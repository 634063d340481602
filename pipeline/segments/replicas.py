"""Which replicas lie in directories: their segments, and what the files beside them say of them."""

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.pipeline.segments.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    Checkpoint,
    node_id,
    topic_id,
)
from ottla.pipeline.segments.errors import SegmentsError

METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({METADATA_TOPIC, "__consumer_offsets", "__transaction_state", "__share_group_state"})
"""A broker tells which these are; a directory does not."""
GAPS_MARKER = "ottla.gaps"

# Directories that are being deleted, moved or kept aside have a dot and more behind the number.
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_SEGMENT = re.compile(r"([0-9]{20})\.log")


class Segment(NamedTuple):
    """One ``.log`` file."""

    path: str
    base_offset: int
    size_bytes: int


class Replica(NamedTuple):
    """A partition's log in one directory. Offsets that no file tells are None; ``topic_id`` and ``node`` are empty then."""

    directory: str
    topic: str
    partition: int
    topic_id: str
    node: str
    segments: tuple[Segment, ...]
    log_start_offset: int | None
    high_watermark: int | None
    cleaned_offset: int | None
    gaps_marked: bool

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def start_offset(self) -> int:
        """Where what may be read begins, as far as the files' names and the checkpoint tell."""
        return max(self.segments[0].base_offset, self.log_start_offset or 0) if self.segments else 0


def find_replicas(paths: Iterable[str]) -> list[Replica]:
    """The replicas in these directories (or globs): a partition's own, a log directory with many, or what holds such.

    Raises SegmentsError for a path that leads to no directory.
    """
    found: dict[str, Replica] = {}
    for path in paths:
        # A name is a name, though it have brackets or stars in it.
        directories = [path] if os.path.isdir(path) else sorted(each for each in glob.glob(path) if os.path.isdir(each))
        if not directories:
            raise SegmentsError(f"{path}: no such directory")
        for directory in directories:
            for replica in _replicas_in(Path(directory).resolve()):
                found.setdefault(replica.directory, replica)
    return sorted(found.values(), key=lambda replica: (replica.topic, replica.partition, replica.directory))


def _replicas_in(directory: Path) -> Iterator[Replica]:
    if _PARTITION.fullmatch(directory.name) and _is_partition(directory):
        yield _replica(directory, _Root(directory.parent))
        return
    yield from _replicas_of_root(directory)
    for child in sorted(directory.iterdir()):
        if child.is_dir() and not _is_partition(child):
            yield from _replicas_of_root(child)


def _is_partition(directory: Path) -> bool:
    """One that nobody wrote to yet has no segment, and says only whose it is."""
    return any(_SEGMENT.fullmatch(name) or name == PARTITION_METADATA for name in os.listdir(directory))


class _Root:
    """A log directory's checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.node = node_id(directory)
        self.starts = Checkpoint(directory / LOG_START_OFFSETS)
        self.watermarks = Checkpoint(directory / HIGH_WATERMARKS)
        self.cleaned = Checkpoint(directory / CLEANER_OFFSETS)


def _replicas_of_root(directory: Path) -> Iterator[Replica]:
    root: _Root | None = None
    for child in sorted(directory.iterdir()):
        if _PARTITION.fullmatch(child.name) and child.is_dir() and _is_partition(child):
            root = root or _Root(directory)
            yield _replica(child, root)


def _replica(directory: Path, root: _Root) -> Replica:
    topic, _, number = directory.name.rpartition("-")
    partition, identity = int(number), topic_id(directory)
    key = (topic, identity, partition)
    return Replica(
        str(directory),
        topic,
        partition,
        identity,
        root.node,
        tuple(_segments(directory)),
        root.starts.offset(*key),
        root.watermarks.offset(*key),
        root.cleaned.offset(*key),
        (directory / GAPS_MARKER).exists(),
    )


def _segments(directory: Path) -> list[Segment]:
    found = []
    for entry in os.scandir(directory):
        match = _SEGMENT.fullmatch(entry.name)
        if match:
            found.append(Segment(entry.path, int(match[1]), entry.stat().st_size))
    return sorted(found, key=lambda segment: segment.base_offset)

"""Whether a directory's files agree with themselves and with each other: CRCs, offsets, indexes, epochs, checkpoints.

For people (`ottla log dump --verify`) and tests, on a stopped node's directory, Ottla's or Apache Kafka's. A fault is
something no sound node leaves behind. A note is what a node repairs or explains: an index or a snapshot that a crash cut off
(neither is synced), a torn tail of the last segment (cut off when it starts), a gap that compaction made.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ottla.log.batch import BatchHeader, CorruptBatchError, check_crc
from ottla.log.directories import checkpoints
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.epochs import LeaderEpochCache
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.records import decode_records
from ottla.log.segments import transactions
from ottla.log.segments.layout import (
    INDEX_ENTRY,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_ENTRY,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from ottla.log.segments.scan import scan_batches
from ottla.log.tools.dump import (
    base_offset_of,
    index_entries,
    time_index_entries,
)
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError


class Finding(msgspec.Struct, frozen=True):
    """One thing found; ``position`` in bytes of the file, -1 when it is about the whole of it."""

    path: str
    position: int
    fault: bool
    message: str

    def __str__(self) -> str:
        place = f"{self.path} at {self.position}" if self.position >= 0 else self.path
        return f"{place}: {'' if self.fault else 'note: '}{self.message}"


class _Batch(NamedTuple):
    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def verify(disk: Disk, directory: str, *, deep: bool = True) -> list[Finding]:
    """Checks one partition's directory. ``deep`` also decodes every record."""
    names = disk.list_directory(directory)
    stems = sorted(name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    findings: list[Finding] = []
    epochs = _epochs(disk, directory, findings)
    end_offset = -1
    for number, stem in enumerate(stems):
        segment = _SegmentCheck(
            disk, f"{directory}/{stem}", epochs, end_offset, deep=deep, last=number == len(stems) - 1
        )
        findings.extend(segment.findings())
        end_offset = segment.end_offset
    findings.extend(_orphans(directory, names, stems))
    findings.extend(_snapshots(disk, directory))
    return findings


def verify_root(disk: Disk, root: str, *, deep: bool = True) -> list[Finding]:
    """Checks a whole log directory: every partition in it, and the checkpoint files at its root."""
    findings: list[Finding] = []
    partitions: set[str] = set()
    for name in disk.list_directory(root):
        path = f"{root}/{name}"
        if disk.is_directory(path) and name.rpartition("-")[2].isdecimal():
            partitions.add(name)
            findings.extend(verify(disk, path, deep=deep))
    for name in (
        checkpoints.RECOVERY_POINTS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.LOG_START_OFFSETS,
        checkpoints.CLEANER_OFFSETS,
        checkpoints.CLEANING_OFFSETS,
    ):
        findings.extend(_checkpoint(disk, f"{root}/{name}", partitions))
    try:
        checkpoints.MetaProperties.read(disk, root)
    except checkpoints.CheckpointError as error:
        findings.append(Finding(f"{root}/{checkpoints.META_PROPERTIES}", -1, True, str(error)))
    return findings


class _SegmentCheck:
    """One segment with its indexes; `end_offset` is where the next one may begin."""

    def __init__(
        self, disk: Disk, stem: str, epochs: LeaderEpochCache | None, previous_end: int, *, deep: bool, last: bool
    ) -> None:
        self._disk = disk
        self._stem = stem
        self._path = stem + LOG_SUFFIX
        self._epochs = epochs
        self._deep = deep
        self._last = last
        self._base_offset = base_offset_of(self._path)
        self._previous_end = previous_end
        self._batches: list[_Batch] = []
        self._torn = False
        self.end_offset = max(previous_end, self._base_offset)

    def findings(self) -> Iterator[Finding]:
        if self._base_offset < self._previous_end:
            yield self._fault(-1, f"begins at {self._base_offset}, the segment before ends at {self._previous_end}")
        file = self._disk.open(self._path, writable=False)
        try:
            for position, header, batch in scan_batches(file):
                yield from self._batch(position, header, batch)
        except CorruptBatchError as error:
            # Only the segment that was being written can be torn; the node cuts it off there when it starts.
            self._torn = self._last
            yield Finding(self._path, error.position, not self._last, error.message)
        finally:
            file.close()
        yield from self._offset_index()
        yield from self._time_index()
        yield from self._transactions()

    def _fault(self, position: int, message: str) -> Finding:
        return Finding(self._path, position, True, message)

    def _batch(self, position: int, header: BatchHeader, batch: memoryview) -> Iterator[Finding]:
        try:
            check_crc(batch, header)
        except CorruptBatchError as error:
            yield self._fault(position, error.message)
            return
        if header.base_offset < self.end_offset:
            yield self._fault(position, f"offset {header.base_offset} goes back behind {self.end_offset}")
        elif header.base_offset > self.end_offset and (self._batches or self._previous_end >= 0):
            yield Finding(self._path, position, False, f"no offsets {self.end_offset}..{header.base_offset - 1}")
        if header.last_offset_delta < 0 or header.records_count > header.last_offset_delta + 1:
            yield self._fault(
                position, f"{header.records_count} records with last offset delta {header.last_offset_delta}"
            )
        known = self._epochs.epoch_for_offset(header.base_offset) if self._epochs is not None else -1
        if known not in (-1, header.leader_epoch):  # -1: below the log start nobody remembers
            yield self._fault(
                position,
                f"offset {header.base_offset} has leader epoch {header.leader_epoch}, the checkpoint says {known}",
            )
        if self._deep:
            yield from self._records(position, header, batch)
        self._batches.append(_Batch(position, header.base_offset, header.last_offset, header.max_timestamp))
        self.end_offset = max(self.end_offset, header.last_offset + 1)

    def _records(self, position: int, header: BatchHeader, batch: memoryview) -> Iterator[Finding]:
        try:
            offsets = [record.offset for record in decode_records(batch, header)]
        except KafkaError as error:
            yield self._fault(position, error.message)
            return
        if offsets != sorted(set(offsets)) or (
            offsets and not header.base_offset <= offsets[0] <= offsets[-1] <= header.last_offset
        ):
            yield self._fault(position, f"records of batch {header.base_offset}..{header.last_offset} are out of order")

    def _offset_index(self) -> Iterator[Finding]:
        path = self._stem + INDEX_SUFFIX
        yield from self._open_index(path, INDEX_ENTRY.size)
        if not self._disk.exists(path):
            return
        lasts = {batch.position: batch.last_offset for batch in self._batches}
        previous = (self._base_offset - 1, -1)
        for number, (offset, position) in enumerate(index_entries(self._disk, path)):
            at = number * INDEX_ENTRY.size
            if offset <= previous[0] or position <= previous[1]:
                yield Finding(
                    path, at, True, f"entry {offset} at {position} does not follow {previous[0]} at {previous[1]}"
                )
            elif lasts.get(position) != offset:
                yield Finding(
                    path, at, True, f"entry {offset}: the batch at {position} ends with {lasts.get(position)}"
                )
            previous = (offset, position)

    def _time_index(self) -> Iterator[Finding]:
        path = self._stem + TIME_INDEX_SUFFIX
        yield from self._open_index(path, TIME_INDEX_ENTRY.size)
        if not self._disk.exists(path):
            return
        batches = iter(self._batches)
        batch: _Batch | None = None
        previous = (-1, -1)
        for number, (timestamp, offset) in enumerate(time_index_entries(self._disk, path)):
            at = number * TIME_INDEX_ENTRY.size
            if timestamp < previous[0] or offset < previous[1]:
                yield Finding(
                    path, at, True, f"entry {timestamp} at {offset} does not follow {previous[0]} at {previous[1]}"
                )
            while batch is None or batch.last_offset < offset:
                batch = next(batches, None)
                if batch is None:
                    yield Finding(path, at, not self._torn, f"entry {timestamp} at {offset}: no such offset")
                    return
            if batch.max_timestamp != timestamp:
                yield Finding(
                    path, at, not self._torn, f"entry {timestamp} at {offset}: its batch has {batch.max_timestamp}"
                )
            previous = (timestamp, offset)

    def _open_index(self, path: str, entry_bytes: int) -> Iterator[Finding]:
        """Notes on an index that its node would rebuild."""
        if not self._disk.exists(path):
            yield Finding(path, -1, False, "is missing")
            return
        data = self._disk.read_bytes(path)
        if len(data) % entry_bytes:
            whole = len(data) - len(data) % entry_bytes
            yield Finding(path, whole, False, f"was not closed: {len(data) - whole} bytes are no whole entry")
        elif data and not any(data[-entry_bytes:]):
            yield Finding(path, -1, False, "was not closed: it ends in zeros")

    def _transactions(self) -> Iterator[Finding]:
        path = self._stem + TRANSACTION_INDEX_SUFFIX
        if not self._disk.exists(path):
            return
        try:
            entries = transactions.decode(self._disk.read_bytes(path), path)
        except transactions.TransactionIndexError as error:
            yield Finding(path, -1, True, error.message)
            return
        for number, entry in enumerate(entries):
            if not self._base_offset <= entry.last_offset < self.end_offset:
                yield Finding(
                    path, number * transactions.ENTRY_BYTES, True, f"marker {entry.last_offset} is not in this segment"
                )


def _epochs(disk: Disk, directory: str, findings: list[Finding]) -> LeaderEpochCache | None:
    path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
    try:
        entries = checkpoints.read_epochs(disk, directory)
    except checkpoints.CheckpointError as error:
        findings.append(Finding(path, -1, True, str(error)))
        return None
    cache = LeaderEpochCache(entries)
    if cache.entries() != entries:
        findings.append(Finding(path, -1, True, f"epochs do not rise: {entries}"))
    return cache if entries else None


def _orphans(directory: str, names: list[str], stems: list[str]) -> Iterator[Finding]:
    for name in names:
        stem, _, suffix = name.partition(".")
        if f".{suffix}" in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX) and stem not in stems:
            yield Finding(f"{directory}/{name}", -1, True, "belongs to no segment")
        elif suffix.endswith(("deleted", "swap", "cleaned")):
            yield Finding(f"{directory}/{name}", -1, False, "is left over from a deletion or a compaction")


def _snapshots(disk: Disk, directory: str) -> Iterator[Finding]:
    for offset in producer_snapshot.offsets(disk, directory):
        path = producer_snapshot.path_of(directory, offset)
        try:
            rows = producer_snapshot.decode_rows(disk.read_bytes(path))
        except producer_snapshot.SnapshotError as error:
            # Snapshots are not synced when they are written; after a crash an older one serves, and the batches since.
            yield Finding(path, -1, False, error.message)
            continue
        for row in rows:
            if row.last_offset >= offset or row.transaction_first_offset >= offset:
                yield Finding(
                    path,
                    -1,
                    True,
                    f"producer {row.producer_id} has offset {row.last_offset} at or behind the snapshot's",
                )


def _checkpoint(disk: Disk, path: str, partitions: set[str]) -> Iterator[Finding]:
    try:
        offsets = read_owned(disk, path)
    except checkpoints.CheckpointError as error:
        yield Finding(path, -1, True, str(error))
        return
    for (partition, _), offset in offsets.items():
        if offset < 0:
            yield Finding(path, -1, True, f"{partition}: offset {offset}")
        if str(partition) not in partitions:
            yield Finding(path, -1, False, f"{partition} is not in this directory")

"""The metadata log as something to read: from a directory's files here, from a running node elsewhere (`ottla metadata`).

After log compaction it begins with a snapshot: what lies before that is gone, and the snapshot's image is where history starts.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from ottla.log.batch import BatchHeader, CorruptBatchError, check_crc
from ottla.log.segments.scan import scan_batches
from ottla.quorum.batches import committed_batches
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.runtime.disk import Disk
from ottla.runtime.key_value import KeyValueStore

_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class ArchiveError(Exception):
    """What is there cannot be read as a metadata log; the message says what it is."""


class RawBatch(NamedTuple):
    """One batch with its bytes, control batches included."""

    header: BatchHeader
    data: memoryview

    def decoded(self) -> CommittedBatch:
        """The batch as `ottla.quorum.metadata.history` takes it."""
        return next(committed_batches(bytes(self.data), self.header.base_offset))


class Archive(Protocol):
    """A stretch of the metadata log, and the image it goes on from."""

    @property
    def start(self) -> MetadataImage | None:
        """What a snapshot says of everything before ``first_offset``; None: the log has its beginning."""
        ...

    @property
    def first_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """Where the log ends, exclusive."""
        ...

    def batches(self) -> Iterator[RawBatch]:
        """The batches from ``first_offset`` on. Raises ArchiveError, KafkaError, OSError."""
        ...


class DirectoryArchive:
    """The files of a metadata directory, which are only read: its node may run. The last records of the log may not be
    committed; the files do not say."""

    def __init__(self, disk: Disk, directory: str, open_store: Callable[[str], KeyValueStore]) -> None:
        """``open_store`` opens a snapshot's file without changing it. Raises ArchiveError."""
        self._disk = disk
        self._directory = directory
        names = disk.list_directory(directory)
        self._segments = sorted(int(found[1]) for found in map(_SEGMENT.fullmatch, names) if found)
        if not self._segments:
            raise ArchiveError(f"{directory} holds no metadata log")
        snapshot = self._first_snapshot(names)
        self.start = None if snapshot is None else image_of_snapshot(open_store(self._path(snapshot)), snapshot)
        self.first_offset = 0 if snapshot is None else snapshot.offset
        self.end_offset = self._end()

    def _first_snapshot(self, names: list[str]) -> OffsetAndEpoch | None:
        """The oldest that the segments go on from; one without its description was never finished."""
        first = self._segments[0]
        if first == 0:
            return None
        found = [OffsetAndEpoch(int(each[1]), int(each[2])) for each in map(_SNAPSHOT.fullmatch, names) if each]
        whole = [each for each in found if each.offset >= first and f"{_snapshot_name(each)}.json" in names]
        if not whole:
            raise ArchiveError(f"{self._directory}: the log begins at {first} and no snapshot has what lies before")
        return min(whole, key=lambda each: (each.offset, -each.epoch))  # as `SnapshotFiles.at_or_after`

    def _path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._directory}/{_snapshot_name(snapshot)}"

    def _end(self) -> int:
        end = max(self._segments[-1], self.first_offset)
        for header, _ in self._scan(self._segments[-1]):
            end = max(end, header.next_offset)
        return end

    def batches(self) -> Iterator[RawBatch]:
        for base in self._segments:
            for header, data in self._scan(base):
                if header.base_offset >= self.first_offset:
                    yield RawBatch(header, data)

    def _scan(self, base: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """A segment's batches. Where the last segment breaks off the log ends: that was just being written, or a crash tore
        it."""
        path = f"{self._directory}/{base:020d}.log"
        file = self._disk.open(path, writable=False)
        try:
            for _, header, data in scan_batches(file):
                check_crc(data, header)
                yield header, data
        except CorruptBatchError as error:
            if base != self._segments[-1]:
                hint = f"see ottla log dump --verify {self._directory}"
                raise ArchiveError(f"{path} is damaged: {error.message}; {hint}") from error
        finally:
            file.close()


def image_of_snapshot(store: KeyValueStore, snapshot: OffsetAndEpoch) -> MetadataImage:
    """The image in a snapshot's store, which is closed. Raises StoreFormatError."""
    try:
        image = ImageStore(store).load()
    finally:
        store.close()
    image.offset, image.epoch = snapshot.offset - 1, snapshot.epoch  # its last records may be control records
    return image


def _snapshot_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"

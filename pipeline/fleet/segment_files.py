"""A fleet's records as a broker's segment files: ``DIR/fleet_V-0/00000000000000000000.log`` and on, without a broker.

For what reads log directories, and for loads that are to be there at once. The same bytes each time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.fleet.batches import as_batch, partitions_of
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.numbers import Integers
from ottla.pipeline.fleet.payload import payload, topic_of
from ottla.pipeline.fleet.sending import Rows, sent_between, slices

SEGMENT_BYTES = 1 << 30
BATCH_BYTES = 512 << 10


class DirectoryInUseError(Exception):
    """There is something already where the segments of a partition would go."""


class Written(NamedTuple):
    """Records and bytes that one step added to the files."""

    kind: str
    records: int
    size: int


class SegmentFiles:
    """The segments of one partition, written from offset 0 on."""

    def __init__(self, directory: Path, compression: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self._compression = compression
        self._segment_bytes = segment_bytes
        self._next_offset = 0
        self._file: IO[bytes] | None = None
        self._make()

    def _make(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if any(self._directory.iterdir()):
            raise DirectoryInUseError(f"{self._directory} is not empty: remove it, or write elsewhere")

    def append(self, records: pa.RecordBatch) -> int:
        """Bytes written. A segment ends before the batch that would make it longer than it may be."""
        written = 0
        batches = encode(
            records["key"],
            records["value"],
            timestamps=records["timestamp"],
            compression=self._compression,
            batch_bytes=BATCH_BYTES,
            base_offset=self._next_offset,
            leader_epoch=0,
        )
        for batch in batches:
            self._segment_for(batch.base_offset, len(batch.data)).write(batch.data)
            self._next_offset = batch.base_offset + batch.rows
            written += len(batch.data)
        return written

    def _segment_for(self, base_offset: int, size: int) -> IO[bytes]:
        if self._file is None or self._file.tell() + size > self._segment_bytes:
            self.close()
            self._file = (self._directory / f"{base_offset:020d}.log").open("xb")
        return self._file

    def close(self) -> None:
        """What was appended is in the files; more may be."""
        if self._file is not None:
            self._file.close()
            self._file = None


def write_segments(
    fleet: Fleet,
    kinds: tuple[str, ...],
    directory: Path,
    *,
    prefix: str = "fleet",
    partitions: int = 6,
    compression: str = "lz4",
    segment_bytes: int = SEGMENT_BYTES,
) -> Iterator[Written]:
    """Writes all records of these kinds, and tells after each piece. Raises DirectoryInUseError, OSError."""
    vehicles = np.arange(fleet.vehicles)
    partition_of_vehicle = partitions_of(vehicles, partitions)
    files = {
        kind: [
            SegmentFiles(directory / f"{topic_of(prefix, kind)}-{partition}", compression, segment_bytes)
            for partition in range(partitions)
        ]
        for kind in kinds
    }
    try:
        for since_us, until_us in slices(fleet):
            for kind in kinds:
                rows = sent_between(fleet, kind, since_us, until_us, vehicles)
                yield Written(kind, len(rows.number), _append(fleet, kind, rows, files[kind], partition_of_vehicle))
    finally:
        for each in (each for of_kind in files.values() for each in of_kind):
            each.close()


def _append(fleet: Fleet, kind: str, rows: Rows, files: list[SegmentFiles], partition_of_vehicle: Integers) -> int:
    """Each partition's records to its files, in order."""
    partition, written = partition_of_vehicle[rows.vehicle], 0
    for number, file in enumerate(files):
        here = np.flatnonzero(partition == number)
        if len(here):
            written += file.append(as_batch(payload(fleet, kind, Rows(*(column[here] for column in rows)))))
    return written

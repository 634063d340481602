"""Segment files in a directory, and what a broker would know about them: what tests of compaction work on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ottla.log.batch import BatchHeader, read_header
from ottla.log.compaction.cleaner import CleaningJob, CleaningResult, clean
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.swap import swap_files
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import EndMarker, Record, decode_records, encode_batch, end_marker_batch
from ottla.log.segments.scan import scan_batches
from ottla.log.segments.transactions import AbortedTransaction, TransactionIndex
from ottla.log.tools.dump import RecordRow, dump_file
from ottla.runtime.real_disk import RealDisk

DISK = RealDisk()
SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - memory, where there is some: thousands of syncs

RETENTION = 1000
NOW = 10_000_000


class CompactedLog:
    """The last segment is the active one. Times are its offsets and a thousand."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.bases = [0]
        self.end = 0
        self.first_dirty = 0
        self.producers = ProducerStateManager()

    def path(self, base: int, suffix: str = ".log") -> str:
        return f"{self.directory}/{base:020d}{suffix}"

    def write(self, batch: bytearray) -> None:
        header = read_header(batch)
        with open(self.path(self.bases[-1]), "ab") as file:
            file.write(batch)
        completed = self.producers.replay(batch, header)
        if completed is not None and completed.aborted:
            index = TransactionIndex(DISK, self.path(self.bases[-1], ".txnindex"))
            index.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )
        self.end = header.next_offset

    def append(
        self,
        *pairs: tuple[str | None, str | None],
        codec: int = 0,
        pid: int = -1,
        sequence: int = -1,
        transactional: bool = False,
    ) -> int:
        """Appends a batch of (key, value); returns its base offset."""
        base = self.end
        records = [
            Record(
                base + i,
                1000 + base + i,
                None if k is None else k.encode(),
                None if v is None else v.encode(),
                (("h", b"1"),),
            )
            for i, (k, v) in enumerate(pairs)
        ]
        epoch = 0 if pid >= 0 else -1
        self.write(
            encode_batch(
                records,
                base_offset=base,
                leader_epoch=1,
                compression=codec,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
        return base

    def mark(self, pid: int, *, committed: bool) -> None:
        marker = EndMarker(committed, 0)
        self.write(
            end_marker_batch(
                marker,
                producer_id=pid,
                producer_epoch=0,
                timestamp=1000 + self.end,
                base_offset=self.end,
                leader_epoch=1,
            )
        )

    def roll(self) -> None:
        if not os.path.exists(self.path(self.bases[-1])):
            Path(self.path(self.bases[-1])).touch()
        if self.end > self.bases[-1]:
            self.bases.append(self.end)
            Path(self.path(self.end)).touch()

    def job(
        self,
        *,
        now_ms: int = NOW,
        buffer_bytes: int = 1 << 20,
        segment_bytes: int = 1 << 20,
        keep_producers: bool = False,
    ) -> CleaningJob:
        segments = [
            SegmentInfo(base, following, os.path.getsize(self.path(base)))
            for base, following in zip(self.bases, self.bases[1:], strict=False)
        ]
        return CleaningJob(
            directory=self.directory,
            segments=segments,
            first_dirty=self.first_dirty,
            now_ms=now_ms,
            delete_retention_ms=RETENTION,
            segment_bytes=segment_bytes,
            segment_index_bytes=10_000,
            index_interval_bytes=100,
            dedupe_buffer_bytes=buffer_bytes,
            last_records=self.producers.last_records() if keep_producers else {},
        )

    def clean(self, *, now_ms: int = NOW, buffer_bytes: int = 1 << 20, segment_bytes: int = 1 << 20) -> CleaningResult:
        """Rolls, cleans, and puts the result in place."""
        self.roll()
        result = clean(DISK, self.job(now_ms=now_ms, buffer_bytes=buffer_bytes, segment_bytes=segment_bytes))
        self.install(result)
        return result

    def install(self, result: CleaningResult) -> None:
        for cleaned in result.cleaned:
            for path in swap_files(DISK, self.directory, cleaned):
                os.unlink(path)
            self.bases = sorted({*self.bases, cleaned.base_offset} - {*cleaned.replaced} | {cleaned.base_offset})
        self.first_dirty = result.end_offset

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for base in self.bases:
            if os.path.exists(self.path(base)):
                file = DISK.open(self.path(base))
                yield from ((header, batch) for _, header, batch in scan_batches(file))
                file.close()

    def records(self) -> list[Record]:
        """All data records, with those of aborted transactions."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in decode_records(batch, header)
        ]

    def pairs(self) -> list[tuple[int, str, str | None]]:
        return [
            (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode()) for r in self.records()
        ]

    def controls(self) -> list[tuple[int, str]]:
        """(offset, type) of the control records."""
        rows = (row for base in self.bases for row in dump_file(DISK, self.path(base), records=True))
        return [(row.offset, row.control) for row in rows if isinstance(row, RecordRow) and row.control is not None]


@contextmanager
def compacted_log() -> Iterator[CompactedLog]:
    """An empty one."""
    with TemporaryDirectory(dir=SCRATCH) as directory:
        yield CompactedLog(Path(directory))

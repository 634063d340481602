"""Compaction of one log: of every key the last record stays, at its offset. Builds ``.cleaned`` files; replaces nothing.

Two passes (Kafka's Cleaner, kraft.md 4.7). The first reads the dirty part and notes the last occurrence of each key. The
second reads the log from its start and copies what survives.
Runs in a worker process (`ottla.log.compaction.worker`), or in place in the simulation. A batch whose CRC is wrong stops it.
"""

from ottla.log.compaction.job import CleaningJob, CleaningResult, Pace
from ottla.log.compaction.mapping import Mapping
from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import group_segments
from ottla.log.compaction.rewriting import Rewriting
from ottla.log.segments import transactions
from ottla.log.segments.layout import CLEANED_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.disk import Disk

__all__ = ["CleaningJob", "CleaningResult", "clean", "remove_cleaned"]


def clean(disk: Disk, job: CleaningJob, pace: Pace = lambda _: None) -> CleaningResult:
    """Builds the cleaned segments, durable. Raises CorruptBatchError where a source is damaged; OSError passes through."""
    remove_cleaned(disk, job.directory)
    aborted = _aborted_transactions(disk, job.directory)
    section, unreadable = Mapping(disk, job, aborted, pace).section()
    rewriting = Rewriting(disk, job, section, unreadable, aborted, pace)
    cleaned: list[CleanedSegment] = []
    if section.end_offset > job.first_dirty:
        sources = [segment for segment in job.segments if segment.base_offset < section.end_offset]
        groups = group_segments(sources, job.segment_bytes, job.segment_index_bytes)
        last = max((segment.base_offset for segment in sources if segment.size_bytes), default=-1)
        cleaned = [rewriting.rewrite(group, last) for group in groups]
    disk.sync_directory(job.directory)
    return CleaningResult(
        end_offset=section.end_offset,
        cleaned=cleaned,
        read_bytes=rewriting.read_bytes,
        written_bytes=sum(part.size_bytes for part in cleaned),
    )


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Removes what an earlier, unfinished cleaning left."""
    for name in disk.list_directory(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.unlink(f"{directory}/{name}")


def _aborted_transactions(disk: Disk, directory: str) -> list[AbortedTransaction]:
    """The aborted transactions of all segments, the active one too: a transaction's marker may lie far behind its data."""
    found: list[AbortedTransaction] = []
    for name in disk.list_directory(directory):
        if name.endswith(TRANSACTION_INDEX_SUFFIX):
            path = f"{directory}/{name}"
            found.extend(transactions.decode(disk.read_bytes(path), path))
    return found

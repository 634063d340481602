"""Which log is compacted next, and what is done with the result. No process, no loop, no clock: a shell drives it.

task = cleaner.next_task(logs, now_ms)     on the loop, every back-off; None: nothing is due
outcome = CleanerProcess(task.job).wait()  on a thread
cleaner.foretell(task, outcome)            on a thread, one at a time: the disk knows what comes
cleaner.install(task, outcome)             on the loop: renames and swaps in memory
cleaner.record(task)                       on a thread, one at a time: syncs, moves the checkpoint
"""

import logging
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from itertools import dropwhile
from typing import Protocol

import msgspec

from ottla.log.compaction.cleaner import CleaningJob, CleaningResult, remove_cleaned
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import DirtyRange, LogFacts, SegmentInfo, choose, dirty_range
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import DECOMPRESSED_BYTES_MAX
from ottla.log.segments.layout import CLEANED_SUFFIX, LOG_SUFFIX
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError

_logger = logging.getLogger(__name__)


class CleanableLog(Protocol):
    """What compaction asks of a log."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def key(self) -> TopicIdPartition: ...
    @property
    def directory(self) -> str: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def producers(self) -> ProducerStateManager: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def active_base_offset(self) -> int: ...

    def closed_segments(self) -> list[SegmentInfo]:
        """All but the active one, in order. Raises KafkaError."""
        ...

    def ensure_aborted(self) -> None:
        """Makes sure that the transaction indexes can be believed: a worker reads their files. Raises KafkaError."""
        ...

    def install_cleaned(self, cleaned: CleanedSegment) -> None:
        """Runs `swap.swap_files` and takes the new segment in place of ``replaced``; the old ones are unlinked
        after ``file.delete.delay.ms``, as if retention had removed them."""
        ...


class CleanerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The cleaner's settings, ``log.cleaner.*``: bytes, ``io_bytes_per_second`` 0 for no limit (divided among the workers)."""

    threads: int = 1
    dedupe_buffer_bytes: int = 128 << 20
    io_bytes_per_second: int = 0
    backoff_ms: int = 15_000
    inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX


class CleaningTask(msgspec.Struct):
    """A log being cleaned. ``end_offset`` is set once the result is installed."""

    log: CleanableLog
    job: CleaningJob
    dirty: DirtyRange
    end_offset: int = -1


class LogCleaner:
    """Says what is cleaned next, and takes in what was.

    ``uncleanable`` names damaged logs and the damage: they wait for an operator, or for the replica to be healed.
    """

    def __init__(self, disk: Disk, settings: CleanerSettings, cleaned: CleanedOffsets) -> None:
        self._disk = disk
        self._settings = settings
        self._cleaned = cleaned
        self._installed: dict[
            TopicPartition, CleaningTask
        ] = {}  # the last one of each log that was not forgotten since
        self._running: dict[TopicPartition, CleaningTask] = {}
        self._had_turn: dict[TopicPartition, None] = {}
        """Logs whose cleaning came to nothing, and those that were cleaned since: the others come first."""
        self.uncleanable: dict[TopicPartition, str] = {}
        self.looked_ms: int | None = None  # when it was last asked for something to do
        self.dirtiest_ratio = 0.0  # as it was then; Kafka's max-dirty-percent

    def configure(self, settings: CleanerSettings) -> None:
        """Takes settings that hold for the tasks from now on."""
        self._settings = settings

    @property
    def worker_bytes_per_second(self) -> int:
        return self._settings.io_bytes_per_second // max(self._settings.threads, 1)

    def next_task(self, logs: Iterable[CleanableLog], now_ms: int) -> CleaningTask | None:
        """The dirtiest of the logs that are due, or None; also when all workers are busy. Cheap for logs without news.

        One that cannot be looked at is passed over. One that failed waits until each of the others had its turn.
        """
        self.looked_ms = now_ms
        if len(self._running) >= self._settings.threads:
            return None
        due = list(self._due(logs, now_ms))
        self.dirtiest_ratio = max((dirty.ratio for _, dirty, _ in due), default=0.0)
        while (log := self._choose(due)) is not None:
            dirty = next(dirty for each, dirty, _ in due if each is log)
            try:
                task = CleaningTask(log, self._job(log, dirty, now_ms), dirty)
            except KafkaError as error:
                _pass_over(log, error)
                self._had_turn[log.partition] = None
                # Nor, this time, those beside it: their directory may be lost by now.
                due = [entry for entry in due if _root_of(entry[0]) != _root_of(log)]
            else:
                self._running[log.partition] = task
                return task
        return None

    def _choose(self, due: list[tuple[CleanableLog, DirtyRange, LogConfig]]) -> CleanableLog | None:
        log = choose(entry for entry in due if entry[0].partition not in self._had_turn)
        if log is None and (log := choose(due)) is not None:
            self._had_turn.clear()
        return log

    def _due(self, logs: Iterable[CleanableLog], now_ms: int) -> Iterator[tuple[CleanableLog, DirtyRange, LogConfig]]:
        for log in list(logs):  # a directory that fails at this takes its logs out
            checkpoint = self._first_dirty(log)
            if log.active_base_offset > checkpoint and self._may_clean(log):
                try:
                    yield log, dirty_range(_state_of(log), checkpoint, now_ms), log.config
                except KafkaError as error:
                    _pass_over(log, error)

    def foretell(self, task: CleaningTask, outcome: Outcome) -> None:
        """Says durably what `install` is going to do. Blocks for the disk: put it on a thread, one at a time.

        OSError passes through.
        """
        result, partition = outcome.result, task.log.partition
        if result is not None and result.cleaned:
            self._cleaned.foretell(
                _root_of(task.log),
                task.log.key,
                result.end_offset,
                unless=lambda: self._running.get(partition) is not task,
            )

    def install(self, task: CleaningTask, outcome: Outcome) -> bool:
        """Puts the result in place; False when there is none, or the log changed under the worker. Ends the task.

        So it is where the topic is not compacted any more: of each key it keeps every record that it has still.
        """
        partition = task.log.partition
        if self._running.pop(partition, None) is not task:
            with suppress(OSError):  # forgotten meanwhile: mostly the log is gone, directory and all
                remove_cleaned(self._disk, task.job.directory)
            return False
        self._had_turn[partition] = None
        if outcome.damage is not None:
            self.uncleanable[partition] = outcome.damage
        result = outcome.result
        if result is None or not (
            task.log.config.compacted and _unchanged(task, result) and self._is_there(task, result)
        ):
            remove_cleaned(self._disk, task.job.directory)
            return False
        there = _sizes(task.log.closed_segments())
        for cleaned in result.cleaned:
            if not _went(cleaned, there):
                task.log.install_cleaned(cleaned)
        remove_cleaned(self._disk, task.job.directory)  # of what went
        task.end_offset = result.end_offset
        self._installed[partition] = task
        if len(self._had_turn) == 1:
            self._had_turn.clear()  # nobody who failed waits
        return True

    def record(self, task: CleaningTask) -> None:
        """Makes an installed result durable and moves the checkpoint. Blocks for the disk: put it on a thread, one at a time.

        OSError passes through.
        """
        assert task.end_offset >= 0
        self._disk.sync_directory(task.job.directory)
        partition = task.log.partition
        self._cleaned.record(
            _root_of(task.log), task.log.key, task.end_offset, unless=lambda: self._installed.get(partition) is not task
        )

    def cancel(self, partition: TopicPartition) -> None:
        """The log is deleted, about to be cut, or lost: a running cleaning no longer counts, nor does the damage it may have
        met. What was cleaned before is `CleanedOffsets`' to forget."""
        self._running.pop(partition, None)
        self._had_turn.pop(partition, None)
        self._installed.pop(partition, None)
        self.uncleanable.pop(partition, None)

    def _is_there(self, task: CleaningTask, result: CleaningResult) -> bool:
        """Whether what the worker wrote is left: a log that was read anew meanwhile swept it away, as after a crash."""
        names = self._disk.list_directory(task.job.directory)
        return all(_name_of(cleaned) in names for cleaned in result.cleaned)

    def _may_clean(self, log: CleanableLog) -> bool:
        return log.config.compacted and log.partition not in self._running and log.partition not in self.uncleanable

    def _first_dirty(self, log: CleanableLog) -> int:
        return self._cleaned.of(_root_of(log), log.key)

    def _job(self, log: CleanableLog, dirty: DirtyRange, now_ms: int) -> CleaningJob:
        config = log.config
        log.ensure_aborted()
        return CleaningJob(
            directory=log.directory,
            segments=[segment for segment in log.closed_segments() if segment.base_offset < dirty.first_uncleanable],
            first_dirty=dirty.first_dirty,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=self._settings.dedupe_buffer_bytes // self._settings.threads,
            last_records=log.producers.last_records(),
            inflated_bytes_max=self._settings.inflated_bytes_max,
        )


def _pass_over(log: CleanableLog, error: KafkaError) -> None:
    _logger.warning("%s cannot be cleaned now: %s", log.partition, error.message)


def _state_of(log: CleanableLog) -> LogFacts:
    return LogFacts(
        log.closed_segments(), log.active_base_offset, log.log_start_offset, log.last_stable_offset, log.config
    )


def _unchanged(task: CleaningTask, result: CleaningResult) -> bool:
    """Whether every source is still there as it was. Truncation and retention go on while a worker reads.

    Segments may have gone from the log's start, with all that became one segment with them: the rest is as clean without. Else a large log
    of which something is always old enough to go would never be compacted.
    """
    now, then = _sizes(task.log.closed_segments()), _sizes(task.job.segments)
    left = list(dropwhile(lambda cleaned: _went(cleaned, now), result.cleaned))
    same = all(now.get(base) == then[base] for cleaned in left for base in cleaned.replaced)
    return same and (bool(left) or not result.cleaned)


def _sizes(segments: Iterable[SegmentInfo]) -> dict[int, int]:
    return {segment.base_offset: segment.size_bytes for segment in segments}


def _went(cleaned: CleanedSegment, there: Container[int]) -> bool:
    """Whether none of its sources is there any more."""
    return not any(base in there for base in cleaned.replaced)


def _name_of(cleaned: CleanedSegment) -> str:
    return f"{cleaned.base_offset:020d}{LOG_SUFFIX}{CLEANED_SUFFIX}"


def _root_of(log: CleanableLog) -> str:
    return log.directory.rpartition("/")[0]

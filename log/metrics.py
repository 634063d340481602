"""The metrics of a broker's logs, directories and cleaner (docs/metrics.md)."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from ottla.log.compaction.manager import LogCleaner
from ottla.log.directories.manager import LogManager
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.metrics import Labels, Metric, counter, gauge

if TYPE_CHECKING:
    from ottla.runtime.sync_later import SyncLater

LOGS_A_SLICE = 200
"""Looked at between two turns of the loop: a third of a millisecond."""


class LogTotals:
    """What one pass over the logs found. ``shown`` are those that have series of their own."""

    def __init__(self, manager: LogManager, cleaner: LogCleaner | None, syncs: "SyncLater", now_ms: int) -> None:
        self.manager = manager
        self.cleaner = cleaner
        self.syncs = syncs
        self.now_ms = now_ms
        self.size_bytes = self.records = self.segments = 0
        self.shown: dict[Labels, Log] = {}

    def add(self, log: Log) -> None:
        self.size_bytes += log.size_bytes
        self.records += log.log_end_offset - log.log_start_offset
        self.segments += len(log.segments)


def look(
    manager: LogManager,
    cleaner: LogCleaner | None,
    syncs: "SyncLater",
    wall_ms: Callable[[], int],
    partitions_max: int,
) -> Generator[None, None, LogTotals]:
    """Passes over the logs there are; ``partitions_max`` of them, the oldest ones, are shown one by one."""
    totals = LogTotals(manager, cleaner, syncs, wall_ms())
    logs = manager.logs
    for number, partition in enumerate(list(logs)):
        if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
            yield
        log = logs.get(partition)
        if log is None:
            continue  # deleted in a turn in between
        totals.add(log)
        if number < partitions_max:
            totals.shown[_labels(partition)] = log
    return totals


def _labels(partition: TopicPartition) -> Labels:
    return partition.topic, str(partition.partition)


def _uncleanable(totals: LogTotals) -> dict[Labels, float]:
    counts: dict[Labels, float] = {(root.path,): 0 for root in totals.manager.roots}
    for partition in totals.cleaner.uncleanable if totals.cleaner is not None else ():
        log = totals.manager.logs.get(partition)
        if log is not None:
            counts[log.root.path,] += 1
    return counts


def _since_last_run(totals: LogTotals) -> float | None:
    cleaner = totals.cleaner
    return None if cleaner is None or cleaner.looked_ms is None else totals.now_ms - cleaner.looked_ms


METRICS: tuple[Metric[LogTotals], ...] = (
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed; their partitions are offline here.",
        lambda t: sum(root.failure is not None for root in t.manager.roots),
    ),
    gauge(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 if the directory failed.",
        lambda t: {(root.path,): root.failure is not None for root in t.manager.roots},
        "logDirectory",
    ),
    gauge(
        "ottla_log_directory_full",
        "1 while the directory takes no more data: it has less free than ottla.free.bytes.floor, or a write found no room.",
        lambda t: {(root.path,): root.full for root in t.manager.roots},
        "logDirectory",
    ),
    gauge(
        "ottla_log_directory_free_bytes",
        "Free space as of the last look, a second ago at most.",
        lambda t: {(root.path,): root.free_bytes for root in t.manager.roots if root.free_bytes >= 0},
        "logDirectory",
    ),
    gauge(
        "ottla_log_directory_partitions",
        "Partitions that lie in the directory.",
        lambda t: {(root.path,): root.partitions for root in t.manager.roots},
        "logDirectory",
    ),
    gauge("ottla_log_size_bytes", "Bytes of all logs on this broker.", lambda t: t.size_bytes),
    gauge("ottla_log_records", "Offsets between start and end of all logs.", lambda t: t.records),
    gauge("ottla_log_segments", "Segments of all logs.", lambda t: t.segments),
    counter(
        "ottla_log_flushes_total",
        "Files made durable (fdatasync); Kafka's LogFlushRateAndTimeMs as two counters.",
        lambda t: t.syncs.synced_files,
    ),
    counter(
        "ottla_log_flush_seconds_total",
        "Time in which files were being made durable: divided by the flushes, what one takes.",
        lambda t: t.syncs.seconds,
    ),
    gauge(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "Of the dirtiest compacted log, the share of its bytes that are not clean, when the cleaner last looked.",
        lambda t: None if t.cleaner is None else 100 * t.cleaner.dirtiest_ratio,
    ),
    gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Since the cleaner last looked for work; more than log.cleaner.backoff.ms when it is at work, or stuck.",
        _since_last_run,
    ),
    gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Compacted logs in which the cleaner met damage: they grow until they are healed.",
        _uncleanable,
        "logDirectory",
    ),
    gauge(
        "kafka_log_log_size",
        "Bytes of a partition's log (with ottla.metrics.partitions.max).",
        lambda t: {labels: log.size_bytes for labels, log in t.shown.items()},
        "topic",
        "partition",
    ),
    gauge(
        "kafka_log_log_logstartoffset",
        "First offset of a partition's log (with ottla.metrics.partitions.max).",
        lambda t: {labels: log.log_start_offset for labels, log in t.shown.items()},
        "topic",
        "partition",
    ),
    gauge(
        "kafka_log_log_logendoffset",
        "Offset of the next record of a partition's log (with ottla.metrics.partitions.max).",
        lambda t: {labels: log.log_end_offset for labels, log in t.shown.items()},
        "topic",
        "partition",
    ),
)

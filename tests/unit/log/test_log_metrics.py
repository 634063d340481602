"""What the logs tell of themselves: each number moves when its thing happens."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from ottla.log import metrics
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.metrics import Registry
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.sync_later import SyncLater
from ottla.testing.metrics import numbers

MakeBatch = Callable[..., bytearray]
NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(cleanup_policy=("compact",))
FLOOR = 1 << 20


class Logs:
    """A manager of two directories, and its metrics."""

    def __init__(self, disk: SimulatedDisk, partitions_max: int = 0) -> None:
        for number, path in enumerate(("/a", "/b"), start=1):
            disk.make_directories(path)
            MetaProperties("c", 1, bytes(15) + bytes([number])).write(disk, path)
        settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=FLOOR)
        self.manager = LogManager(disk, ["/a", "/b"], LogConfig(), settings, Random(3))
        self.manager.open_all(NOW_MS)
        self.cleaner = LogCleaner(disk, CleanerSettings(), self.manager.checkpoints.cleaned)
        self.now_ms = NOW_MS
        self.registry = Registry()
        self.registry.add(
            metrics.METRICS,
            lambda: metrics.look(self.manager, self.cleaner, SyncLater(), lambda: self.now_ms, partitions_max),
        )

    def create(self, count: int, config: LogConfig | None = None) -> None:
        for number in range(count):
            self.manager.get_or_create(TopicPartition("t", number), config or LogConfig(), bytes(16), now_ms=NOW_MS)

    @property
    def numbers(self) -> dict[str, float]:
        return numbers(self.registry)


def rolled(logs: Logs, make_batch: MakeBatch) -> Log:
    """The first log, with a closed segment that may be cleaned."""
    log = logs.manager.logs[TopicPartition("t", 0)]
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    log.set_high_watermark(2)
    log.roll()
    log.flush()
    logs.manager.checkpoints.save_points()
    return log


@pytest.fixture
def logs(disk: SimulatedDisk) -> Logs:
    return Logs(disk)


def test_a_full_directory_is_told_with_what_is_free(logs: Logs, disk: SimulatedDisk) -> None:
    platter = disk._platter
    capacity = platter.capacity_bytes
    logs.manager.check_space()
    assert logs.numbers["ottla_log_directory_full{/a}"] == 0
    platter.capacity_bytes = platter.used_bytes + FLOOR - 1
    logs.manager.check_space()
    assert logs.numbers["ottla_log_directory_full{/a}"] == 1
    assert logs.numbers["ottla_log_directory_free_bytes{/a}"] == FLOOR - 1
    platter.capacity_bytes = capacity
    logs.manager.check_space()
    assert logs.numbers["ottla_log_directory_full{/a}"] == 0


def test_a_write_that_finds_no_room_is_told_before_anybody_looks_at_the_space(logs: Logs) -> None:
    logs.manager.roots[0].failed(OSError(errno.ENOSPC, "no space"))
    assert logs.numbers["ottla_log_directory_full{/a}"] == 1
    assert logs.numbers["kafka_log_logmanager_offlinelogdirectorycount"] == 0


def test_a_directory_that_fails_is_counted_and_named(logs: Logs) -> None:
    assert logs.numbers["kafka_log_logmanager_offlinelogdirectorycount"] == 0
    logs.manager.roots[1].failed(OSError(errno.EIO, "gone"))
    told = logs.numbers
    assert told["kafka_log_logmanager_offlinelogdirectorycount"] == 1
    assert told["kafka_log_logmanager_logdirectoryoffline{/a}"] == 0
    assert told["kafka_log_logmanager_logdirectoryoffline{/b}"] == 1


def test_sizes_are_those_of_all_logs(logs: Logs, make_batch: MakeBatch) -> None:
    logs.create(3)
    for log in logs.manager.logs.values():
        log.append_as_leader(make_batch(2), 0, NOW_MS)
        log.roll()
        log.append_as_leader(make_batch(1), 0, NOW_MS)
    told = logs.numbers
    assert told["ottla_log_records"] == 9
    assert told["ottla_log_segments"] == 6
    assert told["ottla_log_size_bytes"] == sum(log.size_bytes for log in logs.manager.logs.values())
    assert told["ottla_log_directory_partitions{/a}"] == 2


def test_single_partitions_are_shown_only_up_to_the_setting(disk: SimulatedDisk) -> None:
    logs = Logs(disk, partitions_max=2)
    logs.create(4)
    shown = [name for name in logs.numbers if name.startswith("kafka_log_log_size")]
    assert shown == ["kafka_log_log_size{t,0}", "kafka_log_log_size{t,1}"]


def test_no_single_partition_is_shown_without_the_setting(logs: Logs) -> None:
    logs.create(4)
    assert not [name for name in logs.numbers if name.startswith("kafka_log_log_")]


def test_many_logs_are_looked_at_in_slices(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOGS_A_SLICE", 2)
    logs.create(6)
    reading = logs.registry.gather()
    assert next(reading) is None
    logs.manager.delete(TopicPartition("t", 5), NOW_MS)  # in somebody else's turn
    assert len(list(reading)) == 2
    assert logs.numbers["ottla_log_segments"] == 5


def test_the_cleaner_tells_how_dirty_the_dirtiest_log_is_and_when_it_looked(logs: Logs, make_batch: MakeBatch) -> None:
    assert logs.numbers["kafka_log_logcleanermanager_max_dirty_percent"] == 0
    assert "kafka_log_logcleanermanager_time_since_last_run_ms" not in logs.numbers
    logs.create(1, COMPACTED)
    logs.cleaner.next_task([rolled(logs, make_batch)], NOW_MS)
    assert logs.numbers["kafka_log_logcleanermanager_max_dirty_percent"] == 100
    logs.now_ms += 700
    assert logs.numbers["kafka_log_logcleanermanager_time_since_last_run_ms"] == 700


def test_a_log_that_cannot_be_cleaned_is_counted_where_it_lies(logs: Logs, make_batch: MakeBatch) -> None:
    logs.create(1, COMPACTED)
    task = logs.cleaner.next_task([rolled(logs, make_batch)], NOW_MS)
    assert task is not None
    logs.cleaner.install(task, Outcome(damage="a batch is not what was written"))
    told = logs.numbers
    assert told["kafka_log_logcleanermanager_uncleanable_partitions_count{/a}"] == 1
    assert told["kafka_log_logcleanermanager_uncleanable_partitions_count{/b}"] == 0

"""What happens to the logs from time to time, and what the log cleaner is told when one of them goes."""

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker import storage as storage_module
from ottla.broker.cleaning import Cleaning
from ottla.broker.storage import FLUSH_CHECK_MS, Storage
from ottla.broker.topic_config import LogConfigs
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import CleanShutdown, MetaProperties
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager
from ottla.log.directories.roots import LogDirectoryError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.clock import SystemClock
from ottla.runtime.host import Host
from ottla.runtime.identifiers import id_to_text
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.work_later import WorkLater, at_once
from tests.unit.broker.handlers.conftest import Site

TOPIC_ID, OTHER_TOPIC_ID = b"T" * 16, b"U" * 16
DAY_MS = 86_400_000
CLUSTER_ID = id_to_text(b"C" * 16)
COMPACTED = LogConfig(cleanup_policy=("compact",))


class FakeClock(SystemClock):
    wall = 10 * DAY_MS

    def wall_ms(self) -> int:
        return self.wall


class Bench:
    """A storage on a simulated disk, whose timers the test fires."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.platter = Platter.seeded(1)
        disk = self.disk = SimulatedDisk(self.platter)
        disk.make_directories("/data")
        MetaProperties(CLUSTER_ID, 1, b"D" * 16).write(disk, "/data")
        self.clock = FakeClock()
        self.now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.cancelled: list[str] = []
        self.failed: list[TopicPartition] = []
        self.shortened: list[Log] = []
        monkeypatch.setattr(WorkLater, "do", staticmethod(at_once))  # no loop runs here
        monkeypatch.setattr(Cleaning, "cancel", lambda _, partition: self.cancelled.append(str(partition)))
        host = Host(self.clock, Random(1), disk, cast(Any, None), SyncLater())
        self.storage = Storage(
            Site(log_dirs="/data").config,
            CLUSTER_ID,
            host,
            cast(
                Any,
                SimpleNamespace(
                    call_later_ms=self._call_later, call_at_beat=self._call_later, now_ms=lambda: self.now_ms
                ),
            ),
            MetadataImage(),
            lambda _, partitions: self.failed.extend(partitions),
            lambda old, new: None,
            lambda partition: None,
            self.shortened.append,
            cast(Any, None),
        )

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        self.timers.append((delay_ms, callback))
        return SimpleNamespace(cancel=lambda: None)

    def fire(self, delay_ms: int) -> None:
        """Runs the timers of that delay that wait now."""
        due = [entry for entry in self.timers if entry[0] == delay_ms]
        self.timers = [entry for entry in self.timers if entry[0] != delay_ms]
        for _, callback in due:
            callback()

    def log(self, topic: str, config: LogConfig = COMPACTED, topic_id: bytes = TOPIC_ID) -> Log:
        return self.storage.get_or_create(TopicPartition(topic, 0), config, topic_id)

    def write(self, log: Log, producer_id: int = -1, timestamp: int = 0) -> None:
        batch = encode_batch(
            [Record(0, timestamp or self.clock.wall, b"key", b"value")],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
        )
        log.append_as_leader(memoryview(batch), 0, self.clock.wall)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(monkeypatch)
    yield made
    asyncio.run(made.storage.close(-1))


def started(disk: SimulatedDisk, **settings: str) -> Storage:
    """As a node's start makes it: no timer runs."""
    host = Host(FakeClock(), Random(1), disk, cast(Any, None), SyncLater())
    nothing = cast(Any, lambda *_: None)
    timers = cast(Any, SimpleNamespace(call_later_ms=nothing, call_at_beat=nothing, now_ms=lambda: 0))
    config = Site(**settings).config
    return Storage(config, CLUSTER_ID, host, timers, MetadataImage(), nothing, nothing, nothing, nothing)


@pytest.mark.parametrize(("failed", "ends"), [("/data", True), ("/more", False)])
def test_a_start_without_the_metadata_logs_directory_ends_as_its_failure_does_later(failed: str, ends: bool) -> None:
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    for path, directory_id in (("/data", b"D" * 16), ("/more", b"E" * 16)):
        disk.make_directories(path)
        MetaProperties(CLUSTER_ID, 1, directory_id).write(disk, path)
    platter.fail(failed, errno.EIO)
    if ends:
        with pytest.raises(LogDirectoryError, match=r"the directory of the metadata log, /data, failed: .*mend it"):
            started(disk, log_dirs="/data,/more")
    else:
        assert started(disk, log_dirs="/data,/more").working_directories == [b"D" * 16]


def test_a_start_that_never_registered_leaves_the_clean_shutdown_before_it_as_it_was() -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/data")
    MetaProperties(CLUSTER_ID, 1, b"D" * 16).write(disk, "/data")
    asyncio.run(started(disk, log_dirs="/data").close(7))
    failed = started(disk, log_dirs="/data")  # its port is taken, say, or no controller answers
    asyncio.run(failed.close(-1))
    assert started(disk, log_dirs="/data").previous_broker_epoch == 7
    disk.platter().locked.clear()  # that one was killed, and may have lost something, also after a start that failed
    asyncio.run(started(disk, log_dirs="/data").close(-1))
    assert started(disk, log_dirs="/data").previous_broker_epoch == -1


@pytest.mark.parametrize(("error", "left"), [(errno.EIO, ["a-0", "b-0"]), (errno.ENOSPC, ["a-0"])])
def test_a_stray_that_cannot_be_set_aside_ends_no_start(bench: Bench, error: int, left: list[str]) -> None:
    for topic, topic_id in ("a", TOPIC_ID), ("b", OTHER_TOPIC_ID):
        bench.log(topic, topic_id=topic_id)
    bench.platter.fail_once(1, error, ("rename",), "/data")
    bench.storage.set_aside_strays(MetadataImage())
    assert sorted(name for name in bench.disk.list_directory("/data") if name.endswith("-0")) == left
    assert list(bench.storage.manager.logs) == []
    assert [str(name) for name in bench.failed] == (["b-0"] if error == errno.EIO else [])


def test_a_deleted_logs_cleaning_ends_first(bench: Bench) -> None:
    bench.log("a")
    bench.storage.delete(TopicPartition("a", 0), TOPIC_ID)
    assert bench.cancelled == ["a-0"]


def test_another_topics_log_of_the_same_name_ends_its_cleaning(bench: Bench) -> None:
    bench.log("a")
    bench.log("a")
    assert bench.cancelled == []
    bench.log("a", topic_id=OTHER_TOPIC_ID)
    assert bench.cancelled == ["a-0"]


def test_a_cut_into_what_may_have_been_cleaned_ends_the_cleaning_and_lowers_the_recovery_point(bench: Bench) -> None:
    log = bench.log("a")
    for _ in range(3):
        bench.write(log)
    log.flush()
    bench.storage.manager.checkpoints.save_points()
    bench.write(log)
    log.truncate_to(3)
    assert bench.cancelled == []  # nothing above the saved recovery point is ever cleaned
    log.truncate_to(1)
    assert bench.cancelled == ["a-0"]
    assert log.root.saved_recovery_point(log.key) == 1


def test_nobody_looks_for_flushes_until_a_log_sets_them_and_as_long_as_one_does(bench: Bench) -> None:
    def looks() -> int:
        return sum(delay_ms == FLUSH_CHECK_MS for delay_ms, _ in bench.timers)

    plain = bench.log("plain", LogConfig())
    bench.storage.start()
    assert looks() == 0
    flushed = bench.log("flushed", LogConfig(flush_messages=1))
    plain.configure(LogConfig(flush_ms=10))
    assert looks() == 1
    bench.fire(FLUSH_CHECK_MS)
    assert looks() == 1
    for log in (plain, flushed):
        log.configure(LogConfig())
    bench.fire(FLUSH_CHECK_MS)
    assert looks() == 0


def test_logs_that_set_flushes_before_the_start_are_looked_at(bench: Bench) -> None:
    bench.log("flushed", LogConfig(flush_ms=10))
    bench.storage.start()
    assert FLUSH_CHECK_MS in dict(bench.timers)


def test_a_failed_directory_ends_the_cleanings_on_it(bench: Bench) -> None:
    log = bench.log("a")
    log.root.failed(OSError(5, "the disk is gone"))
    assert (bench.cancelled, bench.failed) == (["a-0"], [log.partition])


def test_a_disk_that_fails_while_a_thread_closes_its_logs_is_told_to_nobody(bench: Bench) -> None:
    """Who would be told belongs to the loop, and to a broker that has left."""
    logs = [bench.log("a"), bench.log("b")]
    for log in logs:
        bench.write(log)
    bench.platter.fail("/data")
    asyncio.run(bench.storage.close(7))
    assert bench.failed == []
    assert all(log.abandoned for log in logs)
    assert not CleanShutdown.is_marked(bench.disk, "/data")


def test_a_sync_that_fails_while_logs_are_closed_leaves_no_mark_of_a_clean_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop hears of it while a thread is about to write that mark."""
    bench.write(bench.log("a"))
    checkpoints = bench.storage.manager.checkpoints
    save = checkpoints.save_at_close

    def save_and_hear(root: DirectoryState, logs: Sequence[Log]) -> None:
        save(root, logs)
        root.failed(OSError(errno.EIO, "what was written is lost"))

    monkeypatch.setattr(checkpoints, "save_at_close", save_and_hear)
    asyncio.run(bench.storage.close(7))
    assert not CleanShutdown.is_marked(bench.disk, "/data")


def test_what_the_disk_says_to_a_cleaning_is_its_directorys(bench: Bench) -> None:
    log = bench.log("a")
    bench.storage._cleaning_failed(TopicPartition("gone", 0), OSError(5, "whose?"))
    assert log.root.failure is None
    bench.storage._cleaning_failed(log.partition, OSError(5, "the disk is gone"))
    assert log.root.failure is not None


def test_producers_idle_for_a_day_are_forgotten_every_ten_minutes(bench: Bench) -> None:
    log = bench.log("a")
    bench.write(log, producer_id=7)
    bench.clock.wall += 1
    bench.write(log, producer_id=8)
    bench.storage.start()
    bench.fire(600_000)
    bench.clock.wall += DAY_MS - 1
    assert log.producers.producer_ids == [7, 8]
    bench.fire(600_000)
    assert log.producers.producer_ids == [7, 8]  # both were seen to have written at the look before
    bench.clock.wall += 1
    bench.fire(600_000)
    assert log.producers.producer_ids == []


def test_producers_expire_in_a_few_logs_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "EXPIRY_LOGS_MAX", 2)
    logs = [bench.log(topic) for topic in "abcde"]
    for log in logs:
        bench.write(log, producer_id=7)
        log.producers.expire(bench.clock.wall, DAY_MS)
    bench.clock.wall += DAY_MS
    bench.storage.start()
    left = []
    bench.fire(600_000)
    bench.storage.delete(logs[0].partition, TOPIC_ID)  # it has its turn still before it
    for _ in range(3):
        left.append(sum(len(log.producers.producer_ids) for log in logs[1:]))
        bench.fire(storage_module.EXPIRY_PAUSE_MS)
    assert left == [2, 0, 0]


def test_retention_looks_at_a_few_logs_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "RETENTION_LOGS_MAX", 2)
    logs = [bench.log(topic, LogConfig(retention_ms=DAY_MS)) for topic in "abcde"]
    for log in logs:
        bench.write(log)
        log.set_high_watermark(log.log_end_offset)
    bench.clock.wall += DAY_MS + 1
    bench.storage.start()
    bench.fire(300_000)
    left = []
    for _ in range(4):
        left.append(sum(log.size_bytes > 0 for log in logs))
        bench.fire(storage_module.EXPIRY_PAUSE_MS)
    assert left == [3, 1, 0, 0]
    assert bench.shortened == logs
    bench.clock.wall += 1
    for log in logs:
        bench.write(log)
        log.set_high_watermark(log.log_end_offset)
    bench.clock.wall += DAY_MS + 1
    bench.fire(300_000)
    assert sum(log.size_bytes > 0 for log in logs) == 3  # every pass begins anew


def test_a_mistake_in_one_log_does_not_end_retention(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "RETENTION_LOGS_MAX", 1)
    logs = [bench.log(topic, LogConfig(retention_ms=DAY_MS)) for topic in "ab"]
    for log in logs:
        bench.write(log)
        log.set_high_watermark(log.log_end_offset)
    bench.clock.wall += DAY_MS + 1
    bench.storage.start()

    def fail(*_: object) -> list[Log]:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "delete_old_segments", fail)
        with pytest.raises(RuntimeError):
            bench.fire(300_000)
    bench.fire(storage_module.EXPIRY_PAUSE_MS)
    bench.fire(300_000)
    bench.fire(storage_module.EXPIRY_PAUSE_MS)
    assert sum(log.size_bytes for log in logs) == 0


@pytest.fixture
def config() -> ServerConfig:
    return Site().config


def test_a_compacted_log_closes_its_segments_within_the_compaction_lag(config: ServerConfig) -> None:
    lag, known = {"max.compaction.lag.ms": "5000", "segment.ms": "60000"}, LogConfigs(config)
    assert known.of(lag | {"cleanup.policy": "compact"}).segment_ms == 5_000
    assert known.of(lag | {"cleanup.policy": "compact,delete"}).segment_ms == 5_000
    assert known.of(lag).segment_ms == 60_000
    assert known.of({"cleanup.policy": "compact", "segment.ms": "60000"}).segment_ms == 60_000


def test_a_new_log_counts_at_once_when_its_name_is_durable(bench: Bench) -> None:
    async def scenario() -> None:
        log = bench.log("a")
        assert log.must_sync
        bench.fire(1)
        for _ in range(1_000):
            if not log.must_sync:
                return
            await asyncio.sleep(0.001)  # a thread's work
        raise AssertionError("its name was never synced")

    asyncio.run(scenario())


def test_a_log_that_went_before_its_name_was_synced_is_forgotten(bench: Bench) -> None:
    async def scenario() -> None:
        bench.log("a")
        bench.storage.delete(TopicPartition("a", 0), TOPIC_ID)
        bench.fire(1)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert bench.failed == []


def test_a_topic_of_many_partitions_is_deleted_in_a_few_turns(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.deletions.TURN_LOGS_MAX", 3)
    bench.storage._deletions._turn_left = 3
    names = [TopicPartition(f"t{number}", 0) for number in range(8)]
    for name in names:
        bench.log(name.topic)
    bench.fire(0)
    logs = bench.storage.manager.logs
    for name in names:
        bench.storage.delete(name, TOPIC_ID)
    left = []
    for _ in range(3):
        left.append(len(logs))
        bench.fire(0)
    assert left == [5, 2, 0]


def test_a_partition_that_comes_back_before_its_log_was_deleted_has_a_new_one(bench: Bench) -> None:
    log = bench.log("a")
    bench.write(log)
    bench.storage._deletions._turn_left = 0
    bench.storage.delete(log.partition, TOPIC_ID)
    again = bench.log("a")
    assert (log.abandoned, again.abandoned, again.log_end_offset) == (True, False, 0)


def test_a_topic_that_is_deleted_before_it_had_a_log_keeps_no_other_of_its_name(bench: Bench) -> None:
    log = bench.log("a")
    bench.storage._deletions._turn_left = 0
    bench.storage.delete(log.partition, TOPIC_ID)
    bench.storage.delete(log.partition, OTHER_TOPIC_ID)
    bench.fire(0)
    assert log.abandoned
    assert bench.storage.manager.logs == {}


def test_what_is_still_to_be_deleted_at_a_stop_does_not_lie_there_at_the_next_start(bench: Bench) -> None:
    log = bench.log("a")
    bench.storage._deletions._turn_left = 0
    bench.storage.delete(log.partition, TOPIC_ID)
    bench.storage._deletions.close()
    assert bench.storage.manager.logs == {}


def test_a_log_is_synced_in_time_also_when_the_wall_clock_was_set_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench.log("a", LogConfig(flush_ms=1_000))
    synced: list[Log] = []
    monkeypatch.setattr(Storage, "_sync", lambda _, log: synced.append(log))
    bench.write(log)
    bench.storage.start()
    bench.fire(storage_module.FLUSH_CHECK_MS)
    bench.clock.wall -= DAY_MS
    bench.now_ms = 999
    bench.fire(storage_module.FLUSH_CHECK_MS)
    assert synced == []
    bench.now_ms = 1_000
    bench.fire(storage_module.FLUSH_CHECK_MS)
    assert synced == [log]


def test_checkpoints_forget_deleted_logs_within_a_moment(bench: Bench) -> None:
    log = bench.log("a")
    bench.write(log)
    log.flush()
    root = log.root
    bench.storage.manager.checkpoints.save_points()
    assert root.saved_recovery_point(log.key) == 1
    bench.storage.delete(log.partition, TOPIC_ID)
    bench.fire(0)
    bench.fire(100)
    assert root.recovery_points is not None
    assert root.recovery_points.saved == {}

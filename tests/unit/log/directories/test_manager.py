"""Several log directories: who goes where, what is deleted or set aside, syncs and retention in turn."""

from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.directories.roots import retired_name
from ottla.log.names import TopicPartition
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.work_later import OnDone, Work, at_once
from tests.unit.log.directories.manager_bench import CONFIG, NOW_MS, TOPIC_ID, MakeBatch, create, name, put_off, reopen


def test_new_partitions_go_to_the_directory_with_the_fewest(manager: LogManager, disk: SimulatedDisk) -> None:
    create(manager, 4)
    assert [manager.logs[name(number)].root.path for number in range(4)] == ["/a", "/b", "/a", "/b"]
    assert disk.exists("/b/flights-3/partition.metadata")


def test_a_directory_that_is_asked_for_is_taken(manager: LogManager) -> None:
    for number in range(3):
        log = manager.get_or_create(name(number), CONFIG, TOPIC_ID, bytes(15) + b"\x02", now_ms=NOW_MS)
        assert log.root.path == "/b"
    assert manager.get_or_create(name(0), CONFIG, TOPIC_ID, now_ms=NOW_MS) is manager.logs[name(0)]


def test_a_deleted_partition_is_renamed_now_and_removed_later(
    manager: LogManager, disk: SimulatedDisk, platter: Platter
) -> None:
    create(manager, 2)
    manager.delete(name(0), NOW_MS)
    manager.delete(name(0), NOW_MS)
    assert list(manager.logs) == [name(1)]
    (gone,) = [entry for entry in disk.list_directory("/a") if entry.endswith("-delete")]
    assert gone.startswith("flights-0.")
    assert len(gone) == len("flights-0.") + 32 + len("-delete")
    log = manager.get_or_create(name(0), CONFIG, bytes(16), now_ms=NOW_MS)
    assert (log.directory, log.log_end_offset) == ("/a/flights-0", 0)
    manager.removals.purge(NOW_MS + 59_999)
    assert disk.exists(f"/a/{gone}")
    manager.removals.purge(NOW_MS + 60_000)
    assert not disk.exists(f"/a/{gone}")


def test_a_condemned_partition_is_removed_after_a_restart(
    manager: LogManager, disk: SimulatedDisk, platter: Platter
) -> None:
    create(manager, 2)
    manager.delete(name(0), NOW_MS)
    again = reopen(platter)
    assert list(again.logs) == [name(1)]
    again.removals.purge(NOW_MS)
    assert not [entry for entry in SimulatedDisk(platter).list_directory("/a") if entry.endswith("-delete")]


def test_the_name_of_a_condemned_partition_stays_legal() -> None:
    retired = retired_name(TopicPartition("t" * 249, 12), "0" * 32, "-delete")
    assert len(retired) == 255
    assert retired.endswith(f"-12.{'0' * 32}-delete")


def test_strays_are_set_aside_and_left_alone_after_that(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    create(manager, 2)
    manager.logs[name(0)].append_as_leader(make_batch(), 0, NOW_MS)
    for log in manager.strays(lambda partition, topic_id: partition == name(1) and topic_id == TOPIC_ID):
        path = manager.set_aside(log)
        assert disk.exists(f"{path}/{0:020d}.log")
    assert list(manager.logs) == [name(1)]
    assert list(reopen(platter).logs) == [name(1)]


def test_a_log_of_an_earlier_topic_of_the_same_name_is_not_the_new_topics(
    manager: LogManager, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    create(manager, 1)
    manager.logs[name(0)].append_as_leader(make_batch(), 0, NOW_MS)
    log = manager.get_or_create(name(0), CONFIG, bytes(16), now_ms=NOW_MS)
    assert (log.log_end_offset, log.topic_id) == (0, bytes(16))
    assert [entry for entry in disk.list_directory("/a") if entry.endswith("-stray")]


def test_closed_segments_are_synced_in_turn(manager: LogManager, make_batch: MakeBatch) -> None:
    create(manager, 2)
    log = manager.logs[name(1)]
    for _ in range(3):
        log.append_as_leader(make_batch(), 0, NOW_MS)
        log.roll()
    assert manager.rolled_logs() == [log]
    while log in manager.rolled_logs():
        ticket = log.unsynced()
        assert ticket is not None
        log.mark_synced(ticket)
    assert log.recovery_point == 3


def test_logs_with_flush_settings_are_flushed_when_due(manager: LogManager, make_batch: MakeBatch) -> None:
    create(manager, 2)
    log = manager.get_or_create(name(2), LogConfig(flush_ms=1_000), TOPIC_ID, now_ms=NOW_MS)
    for each in manager.logs.values():
        each.append_as_leader(make_batch(2), 0, NOW_MS)
    assert manager.due_flushes(NOW_MS) == []
    assert manager.due_flushes(NOW_MS + 999) == []
    assert manager.due_flushes(NOW_MS + 1_000) == [log]


def test_flush_settings_may_change_while_the_log_is_in_use(manager: LogManager, make_batch: MakeBatch) -> None:
    """Partitions configure their log, not the manager."""
    create(manager, 2)
    changed = manager.logs[name(1)]
    changed.configure(LogConfig(flush_messages=2))
    for log in manager.logs.values():
        log.append_as_leader(make_batch(2), 0, NOW_MS)
    assert manager.due_flushes(NOW_MS) == [changed]
    changed.configure(LogConfig())
    assert manager.due_flushes(NOW_MS) == []
    changed.configure(LogConfig(flush_messages=2))
    manager.delete(name(1), NOW_MS)
    assert manager.due_flushes(NOW_MS) == []


def test_retention_takes_the_logs_in_turn(manager: LogManager, make_batch: MakeBatch) -> None:
    create(manager, 3)
    for log in manager.logs.values():
        log.append_as_leader(make_batch(), 0, NOW_MS)
        log.set_high_watermark(1)
    later = NOW_MS + CONFIG.retention_ms + 1
    assert [len(manager.delete_old_segments(later, 2)) for _ in range(3)] == [2, 1, 0]
    assert [log.log_start_offset for log in manager.logs.values()] == [1, 1, 1]


def test_what_is_condemned_is_removed_by_whom_the_shell_says(disk: SimulatedDisk, make_batch: MakeBatch) -> None:
    waiting: list[tuple[Work, OnDone]] = []
    manager = put_off(disk, remove_later=lambda *entry: waiting.append(entry))
    create(manager, 2)
    log, path = manager.logs[name(1)], manager.logs[name(0)].root.path
    log.append_as_leader(make_batch(10), 0, NOW_MS)
    log.truncate_fully_and_start_at(20)
    later_ms = NOW_MS + 10 * CONFIG.file_delete_delay_ms
    manager.removals.purge(NOW_MS)  # sees what was condemned for the first time
    manager.delete(name(0), NOW_MS)
    manager.removals.purge(later_ms)
    assert any(entry.endswith("-delete") for entry in manager.disk.list_directory(path)), "nobody removed it yet"
    for work, on_done in waiting:
        at_once(work, on_done)
    assert not any(entry.endswith("-delete") for entry in manager.disk.list_directory(path))
    assert not any(entry.endswith(".deleted") for entry in manager.disk.list_directory(log.directory))

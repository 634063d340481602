"""Several log directories: identity, placement, failure, deletion, checkpoints, space."""

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, MetaProperties
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.directories.roots import LogDirectoryError, retired_name
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.work_later import OnDone, Work, at_once

MakeBatch = Callable[..., bytearray]

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig()


def name(number: int) -> TopicPartition:
    return TopicPartition("flights", number)


def key(number: int) -> TopicIdPartition:
    return TopicIdPartition(name(number), TOPIC_ID)


def format_directory(disk: SimulatedDisk, path: str, number: int, cluster: str = "c", node: int = 1) -> None:
    disk.make_directories(path)
    MetaProperties(cluster, node, bytes(15) + bytes([number])).write(disk, path)


def manager_on(disk: SimulatedDisk, *paths: str, floor: int = 0, cluster: str = "c", node: int = 1) -> LogManager:
    settings = ManagerSettings(cluster_id=cluster, node_id=node, free_bytes_floor=floor)
    return LogManager(disk, paths, CONFIG, settings, Random(3))


Failed = list[tuple[DirectoryState, list[TopicPartition]]]


@pytest.fixture
def failed() -> Failed:
    """Which directories failed, and what was on them."""
    return []


@pytest.fixture
def manager(disk: SimulatedDisk, failed: Failed) -> LogManager:
    """Two directories, /a and /b."""
    for number, path in enumerate(("/a", "/b"), start=1):
        format_directory(disk, path, number)
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(
        disk,
        ["/a", "/b"],
        CONFIG,
        settings,
        Random(3),
        on_directory_failed=lambda root, lost: failed.append((root, lost)),
    )
    manager.open_all(NOW_MS)
    return manager


def put_off(disk: SimulatedDisk, **later: Any) -> LogManager:
    """One directory; what is done later waits for the test."""
    format_directory(disk, "/a", 1)
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(disk, ["/a"], CONFIG, settings, Random(3), **later)
    manager.open_all(NOW_MS)
    return manager


def create(manager: LogManager, count: int, topic_id: bytes = TOPIC_ID) -> None:
    for number in range(count):
        manager.get_or_create(name(number), CONFIG, topic_id, now_ms=NOW_MS)


def reopen(platter: Platter, *paths: str) -> LogManager:
    platter.close_sessions()
    manager = manager_on(SimulatedDisk(platter), *(paths or ("/a", "/b")))
    manager.open_all(NOW_MS)
    return manager


def test_new_partitions_go_to_the_directory_with_the_fewest(manager: LogManager, disk: SimulatedDisk) -> None:
    create(manager, 4)
    assert [manager.logs[name(number)].root.path for number in range(4)] == ["/a", "/b", "/a", "/b"]
    assert disk.exists("/b/flights-3/partition.metadata")


def test_a_directory_that_is_asked_for_is_taken(manager: LogManager) -> None:
    for number in range(3):
        log = manager.get_or_create(name(number), CONFIG, TOPIC_ID, bytes(15) + b"\x02", now_ms=NOW_MS)
        assert log.root.path == "/b"
    assert manager.get_or_create(name(0), CONFIG, TOPIC_ID, now_ms=NOW_MS) is manager.logs[name(0)]


def test_what_may_lie_in_a_lost_directory_is_not_made_anew(manager: LogManager) -> None:
    manager.roots[0].failed(OSError(errno.EIO, "gone"))
    for place in (None, bytes(15) + b"\x09", bytes(15) + b"\x01"):
        with pytest.raises(KafkaError) as caught:
            manager.get_or_create(name(0), CONFIG, TOPIC_ID, place, now_ms=NOW_MS, is_new=False)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    there = manager.get_or_create(name(0), CONFIG, TOPIC_ID, bytes(15) + b"\x02", now_ms=NOW_MS, is_new=False)
    assert there.root.path == "/b"
    assert manager.get_or_create(name(1), CONFIG, TOPIC_ID, now_ms=NOW_MS).root.path == "/b"


def test_a_directory_that_was_unmounted_has_failed(manager: LogManager, disk: SimulatedDisk, failed: Failed) -> None:
    create(manager, 2)
    disk.rename("/b", "/elsewhere")
    disk.make_directories("/b")
    manager.check_space()
    assert [root for root, _ in failed] == [manager.roots[1]]
    assert list(manager.logs) == [name(0)]
    manager.checkpoints.save_points()
    assert disk.list_directory("/b") == []


def test_everything_is_found_again_after_a_clean_and_after_a_hard_stop(
    manager: LogManager, make_batch: MakeBatch, platter: Platter
) -> None:
    create(manager, 5)
    for number in range(5):
        log = manager.logs[name(number)]
        log.append_as_leader(make_batch(number + 1), 0, NOW_MS)
        log.set_high_watermark(number)
    manager.checkpoints.save_high_watermarks()
    for _ in range(2):
        again = reopen(platter)
        assert [log.log_end_offset for log in again.logs.values()] == [1, 3, 5, 2, 4]
        assert [again.logs[name(number)].high_watermark for number in range(5)] == list(range(5))
        assert {log.topic_id for log in again.logs.values()} == {TOPIC_ID}
        assert [root.partitions for root in again.roots] == [3, 2]
        again.close()


def test_a_clean_stop_is_believed_once(manager: LogManager, platter: Platter, make_batch: MakeBatch) -> None:
    create(manager, 1)
    manager.logs[name(0)].append_as_leader(make_batch(), 0, NOW_MS)
    manager.close()
    assert reopen(platter).logs[name(0)].active.handle.file is not None
    disk = SimulatedDisk(platter)
    assert not disk.exists("/a/.kafka_cleanshutdown")


def test_the_log_start_survives_by_its_checkpoint(manager: LogManager, platter: Platter, make_batch: MakeBatch) -> None:
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(10), 0, NOW_MS)
    log.set_high_watermark(10)
    log.advance_log_start(4)
    manager.checkpoints.save_points()
    assert reopen(platter).logs[name(0)].log_start_offset == 4


def test_checkpoints_are_written_only_when_something_moved(manager: LogManager, platter: Platter) -> None:
    create(manager, 4)
    manager.checkpoints.save_points()
    manager.checkpoints.save_high_watermarks()
    before = platter.operations
    manager.checkpoints.save_points()
    manager.checkpoints.save_high_watermarks()
    assert platter.operations == before


@pytest.mark.parametrize("checkpoint", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(
    manager: LogManager, platter: Platter, make_batch: MakeBatch, checkpoint: str
) -> None:
    create(manager, 1)
    manager.logs[name(0)].append_as_leader(make_batch(10), 0, NOW_MS)
    manager.close()
    SimulatedDisk(platter).write_atomically(f"/a/{checkpoint}", b"0\n5\nrubbish\n")
    assert reopen(platter).logs[name(0)].log_end_offset == 10


@pytest.mark.parametrize(
    ("cluster", "node", "says"),
    [("other", 1, "belongs to cluster c, this node to other"), ("c", 9, "belongs to node 1")],
)
def test_a_directory_of_another_cluster_or_node_is_refused_in_one_line(
    disk: SimulatedDisk, cluster: str, node: int, says: str
) -> None:
    format_directory(disk, "/a", 1)
    with pytest.raises(LogDirectoryError, match=says) as caught:
        manager_on(disk, "/a", cluster=cluster, node=node).open_all(NOW_MS)
    assert "\n" not in str(caught.value)


def test_an_unformatted_a_copied_and_a_locked_directory_are_refused(disk: SimulatedDisk) -> None:
    disk.make_directories("/a")
    with pytest.raises(LogDirectoryError, match="not formatted"):
        manager_on(disk, "/a").open_all(NOW_MS)
    with pytest.raises(LogDirectoryError, match="in use by another process"):
        manager_on(disk, "/a").open_all(NOW_MS)
    for path in ("/b", "/c"):
        format_directory(disk, path, 5)
    with pytest.raises(LogDirectoryError, match="is a copy"):
        manager_on(disk, "/b", "/c").open_all(NOW_MS)


def test_a_directory_that_fails_takes_its_own_partitions_offline(
    manager: LogManager, platter: Platter, make_batch: MakeBatch, failed: Failed
) -> None:
    create(manager, 4)
    platter.fail("/a", errno.EIO)
    with pytest.raises(KafkaError) as caught:
        manager.logs[name(0)].append_as_leader(make_batch(), 0, NOW_MS)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == [(manager.roots[0], [name(0), name(2)])]
    assert list(manager.logs) == [name(1), name(3)]
    assert manager.logs[name(1)].append_as_leader(make_batch(), 0, NOW_MS).first_offset == 0
    with pytest.raises(KafkaError):
        manager.get_or_create(name(0), CONFIG, TOPIC_ID, now_ms=NOW_MS)
    assert manager.get_or_create(name(7), CONFIG, TOPIC_ID, now_ms=NOW_MS).root.path == "/b"
    manager.purge(NOW_MS)
    manager.checkpoints.save_points()
    manager.check_space()
    manager.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_start_without_descriptors_or_memory_ends_and_blames_no_disk(
    manager: LogManager, platter: Platter, number: int
) -> None:
    """Half of the partitions would be offline until somebody starts the node again, or be made anew beside what is there."""
    manager.get_or_create(name(0), CONFIG, TOPIC_ID, bytes(15) + b"\2", now_ms=NOW_MS)
    manager.close()
    platter.close_sessions()
    mend = platter.fail("/b", number, ("read",))
    with pytest.raises(LogDirectoryError, match="/b cannot be opened, for want of descriptors"):
        manager_on(SimulatedDisk(platter), "/a", "/b").open_all(NOW_MS)
    mend()
    platter.close_sessions()
    again = manager_on(SimulatedDisk(platter), "/a", "/b")
    assert list(again.open_all(NOW_MS)) == [name(0)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_directory_that_could_not_be_opened_for_want_of_room_takes_nothing(
    manager: LogManager, platter: Platter, number: int
) -> None:
    """An empty replica in the place of the one that is there could pass for the whole."""
    manager.get_or_create(name(0), CONFIG, TOPIC_ID, bytes(15) + b"\2", now_ms=NOW_MS)
    manager.close()
    platter.close_sessions()
    platter.fail("/b/flights-0", number, ("read",))
    again = manager_on(SimulatedDisk(platter), "/a", "/b")
    again.open_all(NOW_MS)
    with pytest.raises(KafkaError, match="/b: failed"):
        again.get_or_create(name(0), CONFIG, TOPIC_ID, bytes(15) + b"\2", now_ms=NOW_MS)


def test_a_directory_that_fails_at_start_leaves_the_others(manager: LogManager, platter: Platter) -> None:
    create(manager, 4)
    manager.close()
    platter.fail("/b", errno.EIO)
    again = reopen(platter)
    assert list(again.logs) == [name(0), name(2)]
    assert again.roots[1].failure is not None
    platter.fail("/a", errno.EIO)
    with pytest.raises(LogDirectoryError, match="no log directory works"):
        reopen(platter)


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
    manager.purge(NOW_MS + 59_999)
    assert disk.exists(f"/a/{gone}")
    manager.purge(NOW_MS + 60_000)
    assert not disk.exists(f"/a/{gone}")


def test_a_condemned_partition_is_removed_after_a_restart(
    manager: LogManager, disk: SimulatedDisk, platter: Platter
) -> None:
    create(manager, 2)
    manager.delete(name(0), NOW_MS)
    again = reopen(platter)
    assert list(again.logs) == [name(1)]
    again.purge(NOW_MS)
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


def test_a_directory_below_the_floor_takes_nothing_until_there_is_room(
    disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    format_directory(disk, "/a", 1)
    manager = manager_on(disk, "/a", floor=100_000)
    manager.open_all(NOW_MS)
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(), 0, NOW_MS)
    assert manager.check_space() == []
    platter.capacity_bytes = platter.used_bytes + 99_999
    assert manager.check_space() == [manager.roots[0]]
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make_batch(), 0, NOW_MS)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "no space" in caught.value.message
    assert log.read(0, 1000).data
    platter.capacity_bytes = platter.used_bytes + 100_001
    assert manager.check_space() == []  # not yet: it would flutter
    platter.capacity_bytes = platter.used_bytes + 200_000
    assert manager.check_space() == [manager.roots[0]]
    assert log.append_as_leader(make_batch(), 0, NOW_MS).first_offset == 1


def test_a_disk_that_ran_full_takes_data_again_by_itself(
    manager: LogManager, platter: Platter, make_batch: MakeBatch
) -> None:
    create(manager, 1)
    log = manager.logs[name(0)]
    capacity, platter.capacity_bytes = platter.capacity_bytes, platter.used_bytes
    with pytest.raises(KafkaError):
        log.append_as_leader(make_batch(), 0, NOW_MS)
    assert manager.check_space() == []
    platter.capacity_bytes = capacity
    assert len(manager.check_space()) >= 1
    assert log.append_as_leader(make_batch(), 0, NOW_MS).first_offset == 0


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


def test_a_failed_directorys_logs_are_not_flushed(manager: LogManager, make_batch: MakeBatch) -> None:
    create(manager, 2)
    for log in manager.logs.values():
        log.configure(LogConfig(flush_messages=1))
        log.append_as_leader(make_batch(), 0, NOW_MS)
    lost, kept = manager.logs.values()
    lost.root.failed(OSError(errno.EIO, "gone"))
    assert manager.due_flushes(NOW_MS) == [kept]


def test_retention_takes_the_logs_in_turn(manager: LogManager, make_batch: MakeBatch) -> None:
    create(manager, 3)
    for log in manager.logs.values():
        log.append_as_leader(make_batch(), 0, NOW_MS)
        log.set_high_watermark(1)
    later = NOW_MS + CONFIG.retention_ms + 1
    assert [manager.delete_old_segments(later, 2) for _ in range(3)] == [2, 1, 0]
    assert [log.log_start_offset for log in manager.logs.values()] == [1, 1, 1]


def test_recovery_points_on_disk_are_what_was_synced(
    manager: LogManager, disk: SimulatedDisk, make_batch: MakeBatch
) -> None:
    create(manager, 2)
    for log in manager.logs.values():
        log.append_as_leader(make_batch(3), 0, NOW_MS)
    manager.logs[name(0)].flush()
    manager.checkpoints.save_points()
    assert read_owned(disk, f"/a/{RECOVERY_POINTS}") == {key(0): 3}
    assert read_owned(disk, f"/b/{RECOVERY_POINTS}") == {}


def test_a_truncation_overtakes_a_checkpoint_that_waits_to_be_written(
    disk: SimulatedDisk, make_batch: MakeBatch
) -> None:
    """After a crash no recovery point may stand above what the truncation left."""
    waiting: list[tuple[Work, OnDone]] = []
    manager = put_off(disk, write_later=lambda *entry: waiting.append(entry))
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(10), 0, NOW_MS)
    log.flush()
    manager.checkpoints.save_points()
    assert log.root.saved_recovery_point(key(0)) == 0, "not written yet"
    log.truncate_to(4)
    for work, on_done in waiting:
        at_once(work, on_done)
    assert read_owned(manager.disk, f"{log.root.path}/{RECOVERY_POINTS}")[key(0)] <= 4
    assert log.root.saved_recovery_point(key(0)) <= 4


def test_the_high_watermarks_that_were_given_last_stay(disk: SimulatedDisk, make_batch: MakeBatch) -> None:
    waiting: list[tuple[Work, OnDone]] = []
    manager = put_off(disk, write_later=lambda *entry: waiting.append(entry))
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(10), 0, NOW_MS)
    for offset in (3, 8):
        log.set_high_watermark(offset)
        manager.checkpoints.save_high_watermarks()
    for work, on_done in reversed(waiting):
        at_once(work, on_done)
    assert read_owned(manager.disk, f"{log.root.path}/{HIGH_WATERMARKS}") == {key(0): 8}


def test_what_is_condemned_is_removed_by_whom_the_shell_says(disk: SimulatedDisk, make_batch: MakeBatch) -> None:
    waiting: list[tuple[Work, OnDone]] = []
    manager = put_off(disk, remove_later=lambda *entry: waiting.append(entry))
    create(manager, 2)
    log, path = manager.logs[name(1)], manager.logs[name(0)].root.path
    log.append_as_leader(make_batch(10), 0, NOW_MS)
    log.truncate_fully_and_start_at(20)
    later_ms = NOW_MS + 10 * CONFIG.file_delete_delay_ms
    manager.purge(NOW_MS)  # sees what was condemned for the first time
    manager.delete(name(0), NOW_MS)
    manager.purge(later_ms)
    assert any(entry.endswith("-delete") for entry in manager.disk.list_directory(path)), "nobody removed it yet"
    for work, on_done in waiting:
        at_once(work, on_done)
    assert not any(entry.endswith("-delete") for entry in manager.disk.list_directory(path))
    assert not any(entry.endswith(".deleted") for entry in manager.disk.list_directory(log.directory))

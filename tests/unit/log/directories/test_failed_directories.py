"""Directories that are refused, fail, or have no room."""

import errno

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.directories.refusals import CALM_LOOKS, GROWTH_BYTES
from ottla.log.directories.roots import LogDirectoryError
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.directories.manager_bench import (
    CONFIG,
    NOW_MS,
    TOPIC_ID,
    Failed,
    MakeBatch,
    create,
    format_directory,
    manager_on,
    name,
    reopen,
)


def test_what_may_lie_in_a_lost_directory_is_not_made_anew(manager: LogManager) -> None:
    manager.roots[0].failed(OSError(errno.EIO, "gone"))
    for place in (None, *(bytes(15) + bytes([number]) for number in (9, 1, 2))):  # it may have moved since
        with pytest.raises(KafkaError) as caught:
            manager.get_or_create(name(0), CONFIG, TOPIC_ID, place, now_ms=NOW_MS, is_new=False)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    there = manager.get_or_create(name(0), CONFIG, TOPIC_ID, bytes(15) + b"\x02", now_ms=NOW_MS)
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
    manager.removals.purge(NOW_MS)
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


def test_a_failed_directorys_logs_are_not_flushed(manager: LogManager, make_batch: MakeBatch) -> None:
    create(manager, 2)
    for log in manager.logs.values():
        log.configure(LogConfig(flush_messages=1))
        log.append_as_leader(make_batch(), 0, NOW_MS)
    lost, kept = manager.logs.values()
    lost.root.failed(OSError(errno.EIO, "gone"))
    assert manager.due_flushes(NOW_MS) == [kept]


def test_a_directory_that_refuses_with_bytes_free_is_tried_after_longer_and_longer_pauses(manager: LogManager) -> None:
    """A quota, or a want of inodes: no look at the space shows it."""
    root = manager.roots[0]
    pauses = []
    for _ in range(6):
        root.failed(OSError(errno.EDQUOT, "quota exceeded"))
        root.failed(OSError(errno.EDQUOT, "another log's, too"))
        looks = 0
        while not root.writable:
            manager.check_space()
            looks += 1
        pauses.append(looks)
    assert pauses == [1, 2, 3, 5, 9, 9]
    for _ in range(CALM_LOOKS):
        manager.check_space()
    root.failed(OSError(errno.EDQUOT, "quota exceeded"))
    assert manager.check_space() == [root], "all was well for a minute"


def test_with_more_room_than_there_was_a_directory_is_tried_at_once(manager: LogManager, platter: Platter) -> None:
    root = manager.roots[0]
    for _ in range(6):
        root.failed(OSError(errno.ENOSPC, "no space"))
        root.set_full(False)
    manager.check_space()
    root.failed(OSError(errno.ENOSPC, "no space"))
    platter.capacity_bytes += GROWTH_BYTES - 1
    assert manager.check_space() == []
    platter.capacity_bytes += 1
    assert manager.check_space() == [root]

"""What is to be removed and cannot be yet: it is tried again, and does not come back under its name."""

import errno

import pytest

from ottla.log.directories.manager import LogManager
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.directories.manager_bench import CONFIG, NOW_MS, TOPIC_ID, MakeBatch, create, name, reopen

LATER_MS = NOW_MS + CONFIG.file_delete_delay_ms
PASSES = [errno.EBUSY, errno.EMFILE]


def left(disk: SimulatedDisk, path: str, suffix: str) -> list[str]:
    return [entry for entry in disk.list_directory(path) if entry.endswith(suffix)]


@pytest.mark.parametrize("number", PASSES, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("operation", ["unlink", "rmdir"])
def test_a_partition_that_could_not_be_removed_is_removed_the_next_time(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, number: int, operation: str
) -> None:
    create(manager, 1)
    manager.delete(name(0), NOW_MS)
    repair = platter.fail("/a/", number, (operation,))
    manager.removals.purge(LATER_MS)
    assert left(disk, "/a", "-delete")
    repair()
    assert manager.roots[0].writable
    manager.removals.purge(LATER_MS + 1)
    assert not left(disk, "/a", "-delete")


@pytest.mark.parametrize("number", PASSES, ids=errno.errorcode.__getitem__)
def test_a_segment_that_could_not_be_removed_is_removed_the_next_time(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch, number: int
) -> None:
    log = segment_condemned(manager, make_batch)
    manager.removals.purge(NOW_MS)
    repair = platter.fail(log.directory, number, ("unlink",))
    manager.removals.purge(LATER_MS)
    assert left(disk, log.directory, ".log.deleted")
    repair()
    manager.removals.purge(LATER_MS + 1)
    assert not left(disk, log.directory, ".deleted")


def test_a_log_that_purges_itself_tries_again(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    log = segment_condemned(manager, make_batch)
    log.purge(NOW_MS)
    repair = platter.fail(log.directory, errno.EMFILE, ("unlink",))
    with pytest.raises(StorageError):
        log.purge(LATER_MS)
    repair()
    log.purge(LATER_MS)
    log.purge(2 * LATER_MS)
    assert not left(disk, log.directory, ".deleted")


def segment_condemned(manager: LogManager, make_batch: MakeBatch) -> Log:
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(), 0, NOW_MS)
    log.roll()
    log.set_high_watermark(1)
    log.advance_log_start(1)
    assert log.delete_old_segments(NOW_MS)
    return log


def refuse_to_delete(manager: LogManager, platter: Platter, make_batch: MakeBatch) -> None:
    """Leaves the name as it is."""
    create(manager, 1)
    manager.logs[name(0)].append_as_leader(make_batch(), 0, NOW_MS)
    repair = platter.fail("/a/flights-0", errno.ENOSPC, ("rename",))
    with pytest.raises(StorageError):
        manager.delete(name(0), NOW_MS)
    repair()
    manager.roots[0].set_full(False)


def test_a_partition_that_could_not_be_renamed_is_deleted_the_next_time(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    refuse_to_delete(manager, platter, make_batch)
    manager.removals.purge(NOW_MS)
    assert not disk.exists("/a/flights-0")
    assert left(disk, "/a", "-delete")
    manager.removals.purge(LATER_MS)
    assert not left(disk, "/a", "-delete")


def test_a_replica_that_comes_back_gets_nothing_of_the_one_that_was_to_go(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    refuse_to_delete(manager, platter, make_batch)
    log = manager.get_or_create(name(0), CONFIG, TOPIC_ID, now_ms=NOW_MS)
    assert (log.log_end_offset, log.root.path) == (0, "/a")
    manager.removals.purge(LATER_MS)
    assert not left(disk, "/a", "-delete")
    assert disk.exists("/a/flights-0")


def test_a_log_that_was_to_go_is_nobodys_at_the_next_start(
    manager: LogManager, platter: Platter, make_batch: MakeBatch
) -> None:
    refuse_to_delete(manager, platter, make_batch)
    again = reopen(platter)
    assert again.get_or_create(name(0), CONFIG, TOPIC_ID, now_ms=NOW_MS).log_end_offset == 0


def test_a_stop_tries_once_more(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    refuse_to_delete(manager, platter, make_batch)
    manager.close()
    assert list(reopen(platter).logs) == []
    assert not left(SimulatedDisk(platter), "/a", "-stray")


def test_a_log_that_is_gone_is_not_read_anew(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    """It may have been left half-way, and whoever asks it last comes late."""
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(), 0, NOW_MS)
    repair = platter.fail(log.directory, errno.EMFILE, ("sync_directory", "list"))
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(7)
    repair()
    manager.delete(name(0), NOW_MS)
    with pytest.raises(StorageError):
        log.read(0, 100)
    assert not disk.exists("/a/flights-0")

"""A log that nobody writes to has a directory and its topic's id, and no other file; its first batch makes the others."""

from collections.abc import Callable

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import HIGH_WATERMARKS, PARTITION_METADATA
from ottla.log.directories.names_sync import NamesSync
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.log import Log
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError
from tests.unit.log.conftest import NOW_MS, MakeBatch
from tests.unit.log.directories.test_new_logs import NAME, create, formatted, manager_on, sync_names

DIRECTORY = "/data/flights-0"
FIRST_FILES = [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]


def files(disk: Disk) -> list[str]:
    return [name for name in disk.list_directory(DIRECTORY) if name != PARTITION_METADATA]


def lead(log: Log, batch: bytearray) -> None:
    log.append_as_leader(batch, 0, NOW_MS)


def follow(log: Log, batch: bytearray) -> None:
    log.append_as_follower(batch, 0)


def test_it_has_none_however_often_it_is_closed_and_opened() -> None:
    platter = formatted(1)
    for _ in range(3):
        manager = manager_on(platter)
        log = create(manager)
        log.epochs.assign(1, 0)
        log.roll()
        assert log.delete_old_segments(NOW_MS) == []
        assert not log.truncate_to(0)
        manager.checkpoints.save_points()
        manager.close()
        assert files(manager.disk) == []
        platter.close_sessions()


def test_it_has_none_after_a_hard_stop() -> None:
    platter = formatted(1)
    create(manager_on(platter)).flush()
    platter.close_sessions()
    manager = manager_on(platter)
    assert (manager.logs[NAME].log_end_offset, files(manager.disk)) == (0, [])


def test_it_reads_as_an_empty_log() -> None:
    log = create(manager_on(formatted(1)))
    assert log.read(0, 1000).data == b""
    with pytest.raises(KafkaError):
        log.read(1, 1000)
    assert log.scrub_from(0) is None
    assert log.end_offset_for_epoch(0) == (-1, -1)
    assert files(log.disk) == []


@pytest.mark.parametrize("append", [lead, follow])
def test_the_first_batch_makes_them(append: Callable[[Log, bytearray], None], make_batch: MakeBatch) -> None:
    platter = formatted(1)
    manager = manager_on(platter)
    log = create(manager)
    append(log, make_batch(3))
    assert files(log.disk) == FIRST_FILES
    manager.close()
    platter.close_sessions()
    assert manager_on(platter).logs[NAME].log_end_offset == 3


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_is_there_after_a_power_cut(seed: int, make_batch: MakeBatch) -> None:
    """The files' names count as little as the records until they are synced, and are synced before them."""
    platter = formatted(seed)
    log = create(manager_on(platter))
    sync_names(log)
    log.append_as_leader(make_batch(3), 0, NOW_MS)
    while (ticket := log.unsynced()) is not None:
        ticket.file.sync()
        log.mark_synced(ticket)
    assert log.recovery_point == 3
    platter.power_loss()
    assert manager_on(platter).logs[NAME].log_end_offset == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_sync_of_many_names_that_was_under_way_does_not_stand_for_the_files(seed: int, make_batch: MakeBatch) -> None:
    platter = formatted(seed)
    manager = manager_on(platter)
    log = create(manager)
    log.configure(LogConfig(flush_before_ack=True))
    names = NamesSync(manager.disk, [log.names_to_sync()])
    shared = log.unsynced_names(names)
    names.sync()
    log.append_as_leader(make_batch(3), 0, NOW_MS)
    assert log.unsynced() is shared  # its name and its topic's id do not wait for another one
    log.mark_synced(shared)
    while (ticket := log.unsynced()) is not None:
        ticket.file.sync()
        log.mark_synced(ticket)
    platter.power_loss()
    assert manager_on(platter).logs[NAME].log_end_offset == 3


def test_what_it_has_from_then_on_is_said_not_to_be_committed(make_batch: MakeBatch) -> None:
    """For those who read a stopped node's files: without a row they would take everything."""
    manager = manager_on(formatted(1))
    log = create(manager)
    log.append_as_leader(make_batch(3), 0, NOW_MS)
    manager.checkpoints.save_high_watermarks()
    assert read_owned(manager.disk, f"/data/{HIGH_WATERMARKS}") == {log.key: 0}

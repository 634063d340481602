"""Index entries that a node cut, and died before they were synced: a power cut, much later, brings them back. Below the recovery point
no scan looks for them, so none is saved that is higher before they are gone for good."""

import errno

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import RECOVERY_POINTS
from ottla.log.directories.manager import LogManager
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.log import Log
from ottla.log.tools.verify import verify
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.work_later import Later, OnDone, Work, at_once
from tests.unit.log.directories.manager_bench import NOW_MS, TOPIC_ID, MakeBatch, format_directory, key, name, put_off

CONFIG = LogConfig(index_interval_bytes=100)
COUNT = 20


def started(platter: Platter, write_later: Later = at_once) -> LogManager:
    """As the next life finds it."""
    platter.close_sessions()
    manager = put_off(SimulatedDisk(platter), write_later=write_later)
    for log in manager.logs.values():
        log.configure(CONFIG)
    return manager


def fill(log: Log, make_batch: MakeBatch, epoch: int) -> None:
    """Up to so many records. Those of each epoch have times of their own."""
    for offset in range(log.log_end_offset, COUNT):
        log.append_as_leader(make_batch(time=NOW_MS + 1_000 * epoch + offset), epoch, NOW_MS)
    log.flush()


def cut_and_killed(platter: Platter, make_batch: MakeBatch, cut_to: int) -> None:
    """All was on the disk, then some was cut off; of that only what an append would have waited for is synced."""
    disk = SimulatedDisk(platter)
    format_directory(disk, "/a", 1)
    disk.sync_directory("/")
    manager = started(platter)
    log = manager.get_or_create(name(0), CONFIG, TOPIC_ID, now_ms=NOW_MS)
    fill(log, make_batch, 0)
    manager.close()
    started(platter).logs[name(0)].truncate_to(cut_to)


@pytest.mark.parametrize("cut_to", [0, 7])
@pytest.mark.parametrize("seed", range(5))
def test_they_do_not_come_back_with_a_power_cut(make_batch: MakeBatch, seed: int, cut_to: int) -> None:
    platter = Platter.seeded(seed)
    cut_and_killed(platter, make_batch, cut_to)
    manager = started(platter)
    fill(manager.logs[name(0)], make_batch, 1)
    manager.checkpoints.save_points()
    platter.power_loss()
    manager = started(platter)
    log = manager.logs[name(0)]
    assert (log.recovery_point, log.log_end_offset) == (COUNT, COUNT)
    manager.close()
    assert [str(each) for each in verify(SimulatedDisk(platter), log.directory) if each.fault] == []


def test_no_recovery_point_rises_while_that_is_under_way(platter: Platter, make_batch: MakeBatch) -> None:
    cut_and_killed(platter, make_batch, 7)
    waiting: list[tuple[Work, OnDone]] = []
    manager = started(platter, lambda *entry: waiting.append(entry))

    def saved() -> int:
        return read_owned(manager.disk, f"/a/{RECOVERY_POINTS}")[key(0)]

    fill(manager.logs[name(0)], make_batch, 1)
    for _ in range(2):
        manager.checkpoints.save_points()
        assert (len(waiting), saved()) == (1, 7), "one sync, and nothing to write"
    at_once(*waiting.pop())
    manager.checkpoints.save_points()
    at_once(*waiting.pop())
    assert saved() == COUNT


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_sync_that_fails_is_none(platter: Platter, make_batch: MakeBatch, number: int) -> None:
    cut_and_killed(platter, make_batch, 7)
    manager = started(platter)
    log = manager.logs[name(0)]
    fill(log, make_batch, 1)
    repaired = platter.fail("/a", number, ("sync",))
    manager.checkpoints.save_points()
    repaired()
    assert read_owned(SimulatedDisk(platter), f"/a/{RECOVERY_POINTS}")[key(0)] == 7
    assert (log.root.failure is None) == (number == errno.ENOSPC)
    manager.checkpoints.save_points()
    after = COUNT if number == errno.ENOSPC else 7
    assert read_owned(SimulatedDisk(platter), f"/a/{RECOVERY_POINTS}")[key(0)] == after


def test_after_a_clean_stop_there_are_none(platter: Platter, make_batch: MakeBatch) -> None:
    cut_and_killed(platter, make_batch, 7)
    started(platter).close()
    assert not started(platter).roots[0].cuts_unsynced

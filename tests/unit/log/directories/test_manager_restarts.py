"""What a start finds again, after a stop and after a kill; what of it is believed."""

import errno

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.directories.manager import LogManager
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.log import Log
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.work_later import OnDone, Work, at_once
from tests.unit.log.directories.manager_bench import (
    NOW_MS,
    TOPIC_ID,
    MakeBatch,
    create,
    format_directory,
    key,
    name,
    put_off,
    reopen,
)


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


def test_the_partitions_of_a_topic_share_its_name_and_id_after_a_restart(
    manager: LogManager, platter: Platter, make_batch: MakeBatch
) -> None:
    """Of 100,000 partitions they are 13 MB."""
    create(manager, 8)
    for log in manager.logs.values():
        log.append_as_leader(make_batch(), 0, NOW_MS)
    manager.close()
    again = reopen(platter)
    logs = [log for log in again.logs.values() if log.root.path == "/a"]
    saved = again.roots[0].recovery_points
    assert saved is not None
    assert len(logs) == 4
    assert len({id(log.topic_id) for log in logs}) == 1
    names = [log.partition.topic for log in again.logs.values()] + [key.partition.topic for key in saved.saved]
    assert len({id(each) for each in names}) == 1


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


def shortened(platter: Platter, make_batch: MakeBatch) -> tuple[LogManager, int]:
    """A log to which nobody writes, begun where its fourth segment does: the files of those before got other names."""
    disk = SimulatedDisk(platter)
    format_directory(disk, "/a", 1)
    disk.sync_directory("/")
    manager = reopen(platter, "/a")
    log = manager.get_or_create(name(0), LogConfig(segment_bytes=500, retention_ms=-1), TOPIC_ID, now_ms=NOW_MS)
    while len(log.segments) < 6:
        log.append_as_leader(make_batch(3), 0, NOW_MS)
    log.flush()
    log.set_high_watermark(log.log_end_offset)
    manager.checkpoints.save_points()
    log.advance_log_start(log.segments[3].base_offset)
    manager.checkpoints.save_points()
    assert log.delete_old_segments(NOW_MS)
    for _ in range(2):
        manager.checkpoints.save_points()
    return manager, log.log_start_offset


@pytest.mark.parametrize("seed", range(8))
def test_a_log_start_that_was_written_down_does_not_go_back_with_the_names_of_what_was_deleted(
    seed: int, make_batch: MakeBatch
) -> None:
    platter = Platter.seeded(seed)
    _, start = shortened(platter, make_batch)
    platter.power_loss()
    assert reopen(platter, "/a").logs[name(0)].log_start_offset == start


def test_a_log_start_is_left_out_once_the_names_say_it_for_sure(platter: Platter, make_batch: MakeBatch) -> None:
    manager, start = shortened(platter, make_batch)
    assert read_owned(manager.disk, f"/a/{LOG_START_OFFSETS}") == {key(0): start}
    manager.logs[name(0)].sync_names()
    manager.checkpoints.save_points()
    assert read_owned(manager.disk, f"/a/{LOG_START_OFFSETS}") == {}
    platter.power_loss()
    assert reopen(platter, "/a").logs[name(0)].log_start_offset == start


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


def test_high_watermarks_that_moved_during_a_write_come_with_the_next(
    disk: SimulatedDisk, make_batch: MakeBatch
) -> None:
    waiting: list[tuple[Work, OnDone]] = []
    manager = put_off(disk, write_later=lambda *entry: waiting.append(entry))
    create(manager, 1)
    log = manager.logs[name(0)]
    log.append_as_leader(make_batch(10), 0, NOW_MS)
    for expected in (3, 8):
        for offset in (3, 8):
            log.set_high_watermark(offset)
            manager.checkpoints.save_high_watermarks()
        assert len(waiting) == 1, "one at a time"
        at_once(*waiting.pop())
        assert read_owned(manager.disk, f"{log.root.path}/{HIGH_WATERMARKS}") == {key(0): expected}
    manager.checkpoints.save_high_watermarks()
    assert not waiting


def four_that_are_stable(manager: LogManager, make_batch: MakeBatch) -> Log:
    """A log of so many batches, all of them below its saved recovery point."""
    create(manager, 1)
    log = manager.logs[name(0)]
    for _ in range(4):
        log.append_as_leader(make_batch(), 0, NOW_MS)
    log.flush()
    manager.checkpoints.save_points()
    return log


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_disk_lost_is_neither_stable_nor_clean_once_the_log_has_grown_again(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch, clean: bool
) -> None:
    log = four_that_are_stable(manager, make_batch)
    *_, last = log.active.walk_from(0)
    manager.checkpoints.cleaned.record("/a", log.key, 4)
    if clean:
        manager.close()
    disk.open(log.active.path).truncate(last[0])
    again = reopen(platter)
    again.logs[name(0)].append_as_leader(make_batch(3), 0, NOW_MS)
    assert again.checkpoints.cleaned.of("/a", log.key) == -1
    stable = 3 if clean else 0  # all may be torn
    assert read_owned(SimulatedDisk(platter), f"/a/{RECOVERY_POINTS}")[log.key] == stable
    assert reopen(platter).checkpoints.cleaned.of("/a", log.key) == -1


def test_a_log_that_lost_all_in_a_cut_that_a_crash_ended_says_nothing_is_stable(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch
) -> None:
    """What comes to those offsets then is looked at by the next start: its epochs, and whether it was torn."""
    log = four_that_are_stable(manager, make_batch)
    for file in disk.list_directory(log.directory):
        if file.startswith("0"):
            disk.unlink(f"{log.directory}/{file}")
    again = reopen(platter)
    assert read_owned(SimulatedDisk(platter), f"/a/{RECOVERY_POINTS}")[log.key] == 0
    for _ in range(5):
        again.logs[name(0)].append_as_leader(make_batch(), 8, NOW_MS)
    assert reopen(platter).logs[name(0)].epochs.entries() == ((8, 0),)


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_start_that_cannot_lower_a_recovery_point_leaves_that_to_the_next(
    manager: LogManager, disk: SimulatedDisk, platter: Platter, make_batch: MakeBatch, operation: str
) -> None:
    log = four_that_are_stable(manager, make_batch)
    *_, last = log.active.walk_from(0)
    disk.open(log.active.path).truncate(last[0])
    path = "/a" if operation == "sync_directory" else f"/a/{RECOVERY_POINTS}"
    not_yet = platter.fail_once(1, errno.EIO, (operation,), path)
    assert reopen(platter).roots[0].failure is not None
    assert not_yet(), "the failure came"
    again = reopen(platter)
    assert again.logs[name(0)].log_end_offset == 3
    assert read_owned(SimulatedDisk(platter), f"/a/{RECOVERY_POINTS}")[log.key] == 0

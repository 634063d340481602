"""Operations of a log that end half-way: what is left then, and at the next start."""

import errno
from pathlib import Path
from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.producers.snapshot import offsets
from ottla.log.records import Record, encode_batch
from ottla.log.segments.layout import RELATIVE_OFFSET_MAX
from ottla.log.segments.scrub import NOTHING
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.conftest import NOW_MS, PARTITION, MakeBatch, OpenLog
from tests.unit.log.contents import values

SEGMENT_BYTES = 4000
NEXT = "/data/flights-0/00000000000000000003"


def batch(size: int, offset: int = 0) -> bytearray:
    return encode_batch([Record(offset, NOW_MS, None, b"x" * size)], base_offset=offset, leader_epoch=1)


def filled(open_log: OpenLog) -> Log:
    log = open_log(segment_bytes=SEGMENT_BYTES)
    for _ in range(3):
        log.append_as_leader(batch(1200), 1, NOW_MS)
    return log


@pytest.mark.parametrize("file", [".log", ".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("clean", [True, False])
def test_what_is_appended_after_a_roll_that_failed_is_there_at_the_next_start(
    open_log: OpenLog, platter: Platter, file: str, number: int, clean: bool
) -> None:
    log = filled(open_log)
    repair = platter.fail(NEXT + file, number)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(1200), 1, NOW_MS)
    repair()
    log.root.set_full(False)
    for _ in range(5):
        log.append_as_leader(batch(10), 1, NOW_MS)
    log.close()
    assert open_log(segment_bytes=SEGMENT_BYTES, clean_shutdown=clean, recovery_point=8).log_end_offset == 8


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_that_the_one_before_has_gone_past_is_an_orphan(
    open_log: OpenLog, disk: SimulatedDisk, clean: bool
) -> None:
    log = filled(open_log)
    log.append_as_leader(batch(10), 1, NOW_MS)
    log.append_as_leader(batch(10), 1, NOW_MS)
    log.close()
    disk.open(NEXT + ".log", create=True)  # as a roll left it before rolls were of one piece
    log = open_log(segment_bytes=SEGMENT_BYTES, clean_shutdown=clean, recovery_point=5)
    assert log.log_end_offset == 5
    assert not disk.exists(NEXT + ".log")


def test_a_gap_that_cannot_be_marked_is_refused_and_marked_the_next_time(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter, disk: SimulatedDisk
) -> None:
    log = open_log()
    log.append_as_follower(make_batch(leader_epoch=0))
    repair = platter.fail("/data/flights-0/ottla.gaps", errno.EMFILE)
    with pytest.raises(StorageError):
        log.append_as_follower(make_batch(base_offset=5, leader_epoch=0))
    assert not log.gaps_allowed
    repair()
    log.append_as_follower(make_batch(base_offset=5, leader_epoch=0))
    assert log.gaps_marked
    assert disk.exists("/data/flights-0/ottla.gaps")


def refused_for_room(log: Log, platter: Platter, refused: bytearray, segment: int) -> None:
    """A leader's batch, for which a segment begins at that offset, finds no room in it."""
    repair = platter.fail(f"{log.directory}/{segment:020d}.log", errno.ENOSPC, ("write",))
    with pytest.raises(StorageError):
        log.append_as_follower(refused)
    repair()
    log.root.set_full(False)
    assert (log.active.base_offset, log.active.size) == (segment, 0)


def append_at_end(log: Log, make_batch: MakeBatch, by: str, **more: int) -> None:
    if by == "leader":
        log.append_as_leader(make_batch(1, f"{log.log_end_offset}-", **more), 2, NOW_MS)
    else:
        end = log.log_end_offset
        log.append_as_follower(make_batch(1, f"{end}-", base_offset=end, leader_epoch=2, **more))


@pytest.mark.parametrize("by", ["leader", "follower"])
def test_what_is_appended_after_a_batch_across_the_log_start_failed_is_there_at_the_next_start(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter, disk: SimulatedDisk, by: str
) -> None:
    """An empty log's segment was made to begin below the log start: there a start missed what is between."""
    log = open_log()
    log.truncate_fully_and_start_at(15)
    refused_for_room(log, platter, make_batch(10, base_offset=10, leader_epoch=1), 10)
    for _ in range(3):
        append_at_end(log, make_batch, by)
    log.flush()
    again = open_log(log_start_offset=15)
    assert values(again) == [(offset, b"%d-0" % offset) for offset in (15, 16, 17)]


def test_a_batch_across_the_log_start_that_failed_may_come_again(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    log = open_log()
    log.truncate_fully_and_start_at(15)
    refused = make_batch(10, base_offset=10, leader_epoch=1)
    refused_for_room(log, platter, refused, 10)
    log.append_as_follower(refused)
    assert (log.active.base_offset, log.log_start_offset, log.log_end_offset) == (10, 15, 20)
    assert open_log(log_start_offset=15).log_end_offset == 20


@pytest.mark.parametrize("by", ["leader", "follower"])
def test_what_is_appended_after_a_batch_behind_a_wide_gap_failed_is_there_at_the_next_start(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter, disk: SimulatedDisk, by: str
) -> None:
    """A segment was made for it that begins above the log end, and a snapshot: of what there is, not of what may come."""
    log = open_log()
    for _ in range(2):
        append_at_end(log, make_batch, by)
    far = RELATIVE_OFFSET_MAX + 10
    refused_for_room(log, platter, make_batch(base_offset=far, leader_epoch=2), far)
    for sequence in range(2):
        append_at_end(log, make_batch, by, producer_id=5, producer_epoch=0, base_sequence=sequence)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert all(snapshot <= log.log_end_offset for snapshot in offsets(disk, log.directory))
    log.flush()
    again = open_log()
    assert values(again) == [(offset, b"%d-0" % offset) for offset in range(4)]
    assert again.producers.producer_ids == [5]


def test_what_lies_in_a_file_without_a_stable_name_is_not_stable(open_log: OpenLog, platter: Platter) -> None:
    log = filled(open_log)
    log.flush()
    log.append_as_leader(batch(1200), 1, NOW_MS)
    cancel = platter.fail_once(1, errno.EMFILE, ("sync_directory",), log.directory)
    with pytest.raises(StorageError):
        log.flush()
    assert cancel()
    assert log.recovery_point == 3
    assert log.unsynced() is not None, "whoever waits for it has to sync the name"
    log.flush()
    assert log.recovery_point == 4


def test_a_truncation_that_ends_half_way_leaves_what_a_crash_would(open_log: OpenLog, platter: Platter) -> None:
    log = filled(open_log)
    log.append_as_leader(batch(1200), 1, NOW_MS)
    repair = platter.fail("/data/flights-0", errno.EMFILE, ("sync_directory",))
    with pytest.raises(StorageError):
        log.truncate_to(1)
    repair()
    assert log.log_end_offset == 3  # one segment went
    assert log.truncate_to(1)
    assert log.log_end_offset == 1


def test_a_log_that_cannot_be_read_anew_serves_nothing_until_it_can(open_log: OpenLog, platter: Platter) -> None:
    log = filled(open_log)
    log.append_as_leader(batch(1200), 1, NOW_MS)
    repair = platter.fail("/data/flights-0", errno.EMFILE, ("sync_directory", "open", "list"))
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(1)
    for use in (lambda: log.append_as_follower(batch(10, 4)), lambda: log.read(0, 100), lambda: log.truncate_to(0)):
        with pytest.raises(StorageError):
            use()
    with pytest.raises(StorageError):
        log.make_whole()
    assert log.unsynced() is None
    repair()
    with pytest.raises(StorageError):  # once more: whoever asks knows another log end
        log.append_as_follower(batch(10, 4))
    assert log.log_end_offset == 3
    log.truncate_fully_and_start_at(1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_a_sync_that_waits_while_its_log_is_read_anew_finds_its_file_open(tmp_path: Path) -> None:
    log = Log.open(RealDisk(), str(tmp_path), PARTITION, LogConfig(), now_ms=NOW_MS)
    log.append_as_leader(batch(10), 1, NOW_MS)
    log.flush()
    log.append_as_leader(batch(10), 1, NOW_MS)
    ticket = log.unsynced()
    assert ticket is not None
    log.half_done = True
    log.make_whole()
    ticket.file.sync()
    log.mark_synced(ticket)
    assert log.recovery_point == 1, "it was of a file that is not the log's any more"
    log.close()


def test_whoever_takes_a_role_has_the_log_read_anew_first(open_log: OpenLog, platter: Platter) -> None:
    log = filled(open_log)
    log.append_as_leader(batch(1200), 1, NOW_MS)
    repair = platter.fail("/data/flights-0", errno.EMFILE, ("sync_directory", "list"))
    with pytest.raises(StorageError):
        log.truncate_to(1)
    repair()
    log.make_whole()
    assert log.log_end_offset == 3
    assert log.read(0, 100).data


def started(disk: SimulatedDisk) -> LogManager:
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, "/data")
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(disk, ["/data"], LogConfig(), settings, Random(1))
    manager.open_all(NOW_MS)
    return manager


def test_beginnings_that_fail_again_and_again_do_not_pile_up(disk: SimulatedDisk, platter: Platter) -> None:
    manager = started(disk)
    before = disk.list_directory("/data")
    repairs = [
        platter.fail("/data/flights-0", errno.EMFILE, ("create",)),
        platter.fail("/data/flights-0", 24, ("rmdir",)),
    ]
    for _ in range(3):
        with pytest.raises(StorageError):
            manager.get_or_create(PARTITION, LogConfig(), bytes(16), now_ms=NOW_MS)
    assert disk.list_directory("/data") == sorted([*before, "flights-0"])
    for repair in repairs:
        repair()
    log = manager.get_or_create(PARTITION, LogConfig(), b"x" * 16, now_ms=NOW_MS)
    assert log.append_as_leader(batch(10), 1, NOW_MS).first_offset == 0
    assert disk.list_directory("/data") == sorted([*before, "flights-0"])


def test_records_of_a_topic_that_could_not_go_are_not_the_next_ones(disk: SimulatedDisk, platter: Platter) -> None:
    manager = started(disk)
    manager.get_or_create(PARTITION, LogConfig(), b"x" * 16, now_ms=NOW_MS).append_as_leader(batch(10), 1, NOW_MS)
    repair = platter.fail("/data/flights-0", errno.ENOSPC, ("rename",))
    with pytest.raises(StorageError):
        manager.delete(PARTITION, NOW_MS)
    repair()
    manager.roots[0].set_full(False)
    log = manager.get_or_create(PARTITION, LogConfig(), b"y" * 16, now_ms=NOW_MS)
    assert (log.log_end_offset, log.topic_id) == (0, b"y" * 16)
    assert [name for name in disk.list_directory("/data") if name.endswith("-delete")]


def test_a_log_that_lost_all_its_files_half_way_has_no_cut_to_sync(open_log: OpenLog, platter: Platter) -> None:
    log = open_log()
    log.append_as_leader(batch(10), 1, NOW_MS)
    log.append_as_leader(batch(10), 1, NOW_MS)
    log.truncate_to(1, sync=False)
    repair = platter.fail("/data/flights-0/00000000000000000007.log", errno.ENOSPC)
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(7)
    repair()
    log.root.set_full(False)
    log.append_as_follower(batch(10), 1)
    assert (log.log_end_offset, log.root.failure) == (1, None)


@pytest.mark.parametrize("seed", range(8))
def test_half_a_batch_that_was_cut_off_at_a_roll_does_not_come_back_with_a_power_cut(
    open_log: OpenLog, seed: int
) -> None:
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    disk.sync_directory("/")
    log = open_log(disk, segment_bytes=SEGMENT_BYTES)
    log.append_as_leader(batch(1200), 1, NOW_MS)
    platter.fail_once(1, errno.ENOSPC, ("write",), log.active.path, written=0.5)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(1200), 1, NOW_MS)
    log.root.set_full(False)
    log.flush()
    log.append_as_leader(batch(3000), 1, NOW_MS)
    log.flush()
    platter.power_loss()
    log = open_log(SimulatedDisk(platter), segment_bytes=SEGMENT_BYTES, recovery_point=2)
    assert log.log_end_offset == 2
    scrub = log.scrub_from(0)
    assert scrub is not None
    assert scrub.step(SEGMENT_BYTES)
    assert scrub.suspect == NOTHING

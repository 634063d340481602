"""What a log is after a stop: clean, by kill, by a power cut, with torn and damaged files."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.log import recovery
from ottla.log.directories.checkpoints import LEADER_EPOCHS
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.producers.snapshot import offsets
from ottla.log.records import EndMarker, end_marker_batch
from ottla.log.segments.soundness import sound_prefix
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from tests.unit.log.contents import values

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/flights-0"


def fill(log: Log, make_batch: MakeBatch, count: int, *, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(1, f"{log.log_end_offset}-"), epoch, NOW_MS)


def overwrite(disk: SimulatedDisk, name: str, position: int, data: bytes) -> None:
    file = disk.open(f"{DIRECTORY}/{name}")
    file.write_at([data], position)
    file.close()


def cut(disk: SimulatedDisk, name: str, size: int) -> None:
    file = disk.open(f"{DIRECTORY}/{name}")
    file.truncate(size)
    file.close()


def log_name(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_log_opens_as_it_was(open_log: OpenLog, make_batch: MakeBatch, clean: bool) -> None:
    log = open_log(segment_bytes=400, index_interval_bytes=100)
    fill(log, make_batch, 30)
    fill(log, make_batch, 5, epoch=3)
    expected = values(log)
    log.close()
    again = open_log(segment_bytes=400, index_interval_bytes=100, clean_shutdown=clean, high_watermark=20)
    assert values(again) == expected
    assert again.epochs.entries() == ((0, 0), (3, 30))
    assert again.high_watermark == 20
    assert again.recovery_point == (35 if clean else 0)
    assert again.size_bytes == log.size_bytes
    assert again.active.max_timestamp == NOW_MS
    fill(again, make_batch, 3, epoch=3)
    assert len(values(again)) == 38


def test_a_killed_process_loses_nothing(open_log: OpenLog, make_batch: MakeBatch, platter: Platter) -> None:
    log = open_log(segment_bytes=400)
    fill(log, make_batch, 30)
    platter.close_sessions()
    assert len(values(open_log(SimulatedDisk(platter)))) == 30


def test_a_torn_batch_at_the_end_is_cut_off(open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk) -> None:
    log = open_log()
    fill(log, make_batch, 3)
    expected = values(log)
    disk.open(log.active.path).write_at([make_batch(base_offset=3)[:-4]], log.active.size)
    again = open_log()
    assert values(again) == expected
    assert disk.open(log.active.path).size() == log.active.size
    fill(again, make_batch, 1)
    assert values(open_log()) == values(again)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A scan reads pieces of 200 bytes; the sizes of those that it looks at. One that does not end ends the test."""
    looked_at: list[int] = []

    def counted(piece: memoryview, *arguments: Any) -> Any:
        looked_at.append(len(piece))
        assert len(looked_at) < 100, "the scan reads the same piece again and again"
        return sound_prefix(piece, *arguments)

    monkeypatch.setattr(recovery, "_PIECE_BYTES", 200)
    monkeypatch.setattr(recovery, "sound_prefix", counted)
    return looked_at


@pytest.mark.parametrize("kept", [100, 199, 200, 201, 900])
def test_a_torn_batch_that_is_larger_than_a_piece_is_cut_off(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, small_pieces: list[int], kept: int
) -> None:
    log = open_log()
    fill(log, make_batch, 3)
    disk.open(log.active.path).write_at([make_batch(1, "v" * 1000, base_offset=3)[:kept]], log.active.size)
    again = open_log()
    assert len(values(again)) == again.log_end_offset == 3
    assert disk.open(log.active.path).size() == log.active.size


def test_a_batch_that_is_larger_than_a_piece_is_read_whole(
    open_log: OpenLog, make_batch: MakeBatch, small_pieces: list[int]
) -> None:
    log = open_log()
    for _ in range(3):
        log.append_as_leader(make_batch(1, "v" * 1000), 0, NOW_MS)
    assert open_log().log_end_offset == 3
    assert small_pieces == [200, log.active.size // 3] * 3


@pytest.mark.parametrize("length", [300, 800, 0x40000000])
def test_a_length_that_rots_with_more_than_a_piece_behind_it_ends_the_log(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk, small_pieces: list[int], length: int
) -> None:
    log = open_log()
    fill(log, make_batch, 10)
    overwrite(disk, log_name(0), log.active.size // 10 + 8, length.to_bytes(4, "big"))
    assert open_log().log_end_offset == 1


def test_a_log_that_is_read_anew_gets_over_a_torn_batch_that_is_larger_than_a_piece(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter, small_pieces: list[int]
) -> None:
    """On the loop, and nothing may be served meanwhile."""
    log = open_log(retention_bytes=50, retention_ms=-1)
    fill(log, make_batch, 1)
    log.roll()
    fill(log, make_batch, 1)
    log.set_high_watermark(2)
    log.flush()
    platter.fail_once(1, errno.ENOSPC, ("write",), written=0.9)
    with pytest.raises(StorageError):
        log.append_as_leader(make_batch(1, "v" * 1000), 0, NOW_MS)
    log.root.set_full(False)
    platter.fail_once(1, errno.ENOSPC, ("rename",))
    with pytest.raises(StorageError):
        log.delete_old_segments(NOW_MS)
    assert (log.half_done, log.log_end_offset) == (False, 2)
    log.root.set_full(False)
    fill(log, make_batch, 1)


def test_zeros_at_the_end_are_cut_off(open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk) -> None:
    log = open_log()
    fill(log, make_batch, 3)
    disk.open(log.active.path).write_at([bytes(5000)], log.active.size)
    assert open_log().log_end_offset == 3


def test_a_bad_batch_ends_the_log_and_later_segments_go(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=400)
    fill(log, make_batch, 20)
    bases = [segment.base_offset for segment in log.segments]
    overwrite(disk, log_name(bases[1]), 70, b"\xff")
    again = open_log(segment_bytes=400)
    assert again.log_end_offset == bases[1]
    assert [segment.base_offset for segment in again.segments] == bases[:2]
    assert [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")] == [
        log_name(b) for b in bases[:2]
    ]


def test_below_the_recovery_point_nothing_is_scanned(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(index_interval_bytes=100)
    fill(log, make_batch, 20)
    expected = values(log)
    log.close()
    overwrite(disk, log_name(0), 70, b"\xff")  # in the first batch's records
    again = open_log(index_interval_bytes=100, recovery_point=10)
    assert again.log_end_offset == 20
    assert again.read(10, 1 << 20).data == log.read(10, 1 << 20).data
    assert open_log(recovery_point=0).log_end_offset == 0
    assert len(expected) == 20


def test_indexes_that_are_gone_or_wrong_are_built_anew(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=2000, index_interval_bytes=100)
    fill(log, make_batch, 60)
    expected = values(log)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    before = disk.read_bytes(f"{DIRECTORY}/{log_name(0, '.index')}")
    disk.unlink(f"{DIRECTORY}/{log_name(0, '.index')}")
    overwrite(disk, log_name(bases[1], ".index"), 8, b"\xff" * 8)
    cut(disk, log_name(bases[2], ".index"), 13)
    overwrite(disk, log_name(bases[2], ".timeindex"), 0, bytes(24))
    again = open_log(segment_bytes=2000, index_interval_bytes=100, clean_shutdown=True)
    assert values(again) == expected
    assert [again.read(offset, 1).next_offset for offset in range(60)] == list(range(1, 61))
    assert disk.read_bytes(f"{DIRECTORY}/{log_name(0, '.index')}") == before


def test_an_index_entry_that_points_into_a_batch_is_noticed(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(index_interval_bytes=100)
    fill(log, make_batch, 30)
    log.close()
    data = bytearray(disk.read_bytes(f"{DIRECTORY}/{log_name(0, '.index')}"))
    data[15] ^= 1  # a position, still rising
    overwrite(disk, log_name(0, ".index"), 0, bytes(data))
    again = open_log(index_interval_bytes=100, clean_shutdown=True)
    assert [again.read(offset, 1).next_offset for offset in range(30)] == list(range(1, 31))


def test_indexes_without_batches_are_swept_up(open_log: OpenLog, disk: SimulatedDisk) -> None:
    open_log()
    for suffix in (".index", ".timeindex", ".txnindex"):
        disk.open(f"{DIRECTORY}/{log_name(50, suffix)}", create=True)
    disk.open(f"{DIRECTORY}/{log_name(50)}.deleted", create=True)
    open_log()
    assert [name for name in disk.list_directory(DIRECTORY) if "50" in name] == []


def test_epochs_that_were_not_checkpointed_are_found_in_the_batches(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    log = open_log()
    fill(log, make_batch, 5, epoch=1)
    log.flush()
    fill(log, make_batch, 5, epoch=4)
    platter.close_sessions()
    again = open_log(SimulatedDisk(platter), recovery_point=5)
    assert again.epochs.entries() == ((1, 0), (4, 5))


def test_a_damaged_epoch_checkpoint_is_built_anew(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log()
    fill(log, make_batch, 5, epoch=1)
    fill(log, make_batch, 5, epoch=2)
    log.close()
    disk.write_atomically(f"{DIRECTORY}/{LEADER_EPOCHS}", b"0\n7\nrubbish")
    assert open_log(clean_shutdown=True).epochs.entries() == ((1, 0), (2, 5))


def test_old_bytes_behind_a_forgotten_truncation_are_not_taken_for_the_log(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log()
    fill(log, make_batch, 10, epoch=1)
    size = log.active.size // 10
    batch = make_batch(1, "5-", base_offset=5, leader_epoch=2)
    assert len(batch) == size
    overwrite(disk, log_name(0), 5 * size, bytes(batch))
    again = open_log()
    assert again.log_end_offset == 6
    assert again.epochs.entries() == ((1, 0), (2, 5))


def test_a_segment_that_lost_its_end_ends_the_log(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=400)
    fill(log, make_batch, 20)
    first = log.segments[0]
    cut(disk, log_name(0), first.size - first.size // log.segments[1].base_offset)
    assert open_log(segment_bytes=400).log_end_offset == log.segments[1].base_offset - 1


def test_a_log_that_ends_before_its_start_begins_anew(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    fill(log, make_batch, 5)
    log.close()
    again = open_log(log_start_offset=9)
    assert (again.log_start_offset, again.log_end_offset) == (9, 9)
    fill(again, make_batch, 1)
    assert values(again) == [(9, b"9-0")]


def test_producers_are_known_again_after_every_stop(open_log: OpenLog, make_batch: MakeBatch, platter: Platter) -> None:
    log = open_log(segment_bytes=400)
    for number in range(10):
        log.append_as_leader(make_batch(1, producer_id=7, producer_epoch=1, base_sequence=number), 0, NOW_MS)
    platter.close_sessions()
    again = open_log(SimulatedDisk(platter), segment_bytes=400)
    entry = again.producers.entry(7)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence, entry.last_offset) == (1, 9, 9)
    again.close()
    clean = open_log(SimulatedDisk(platter), segment_bytes=400, clean_shutdown=True)
    assert clean.producers.producer_ids == [7]


@pytest.mark.parametrize("loses", ["the process", "the end"])
def test_a_transaction_whose_marker_lies_below_the_log_start_is_over(
    open_log: OpenLog, make_batch: MakeBatch, loses: str
) -> None:
    """DeleteRecords passed it; but the snapshot of the segment's beginning has the transaction open."""

    def write(sequence: int, producer_id: int, **more: bool) -> None:
        batch = make_batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **more)
        log.append_as_leader(batch, 0, NOW_MS, verified=True)

    log = open_log()
    write(0, 7, transactional=True)
    write(0, 8)
    log.roll()
    log.append_own(end_marker_batch(EndMarker(True, 0), producer_id=7, producer_epoch=0, timestamp=NOW_MS), 0, NOW_MS)
    write(1, 8)
    fill(log, make_batch, 2)
    log.set_high_watermark(5)
    log.advance_log_start(5)
    if loses == "the end":
        log.truncate_to(5)
    else:
        log = open_log(log_start_offset=5, high_watermark=5)
    assert log.last_stable_offset == 5
    fill(log, make_batch, 1)
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    write(2, 8)  # nor has it forgotten how far an idempotent producer was


def test_the_topic_id_is_kept_and_a_torn_one_is_none(open_log: OpenLog, disk: SimulatedDisk) -> None:
    log = open_log()
    log.set_topic_id(bytes(range(16)))
    assert open_log().topic_id == bytes(range(16))
    cut(disk, "partition.metadata", 0)
    assert open_log().topic_id is None


def test_a_truncation_is_durable_when_it_returns(open_log: OpenLog, make_batch: MakeBatch) -> None:
    for seed in range(20):
        platter = Platter.seeded(seed)
        disk = SimulatedDisk(platter)
        disk.make_directories("/data")
        disk.sync_directory("/")
        log = open_log(disk, segment_bytes=400)
        fill(log, make_batch, 20)
        log.flush()
        log.truncate_to(7)
        platter.power_loss()
        assert open_log(SimulatedDisk(platter), segment_bytes=400).log_end_offset == 7


def test_a_segment_from_before_a_truncation_is_not_taken_for_the_next(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=400)
    fill(log, make_batch, 10, epoch=2)
    second = log.segments[1].base_offset
    old = disk.read_bytes(log.segments[1].path)
    log.truncate_fully_and_start_at(0)
    fill(log, make_batch, second, epoch=3)
    disk.write_atomically(f"{DIRECTORY}/{log_name(second)}", old)
    again = open_log(segment_bytes=400)
    assert again.log_end_offset == second
    assert again.epochs.entries() == ((3, 0),)


def test_snapshots_of_earlier_stops_go_but_for_the_latest(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=400)
    for number in range(12):
        log.append_as_leader(make_batch(producer_id=5, producer_epoch=0, base_sequence=number), 0, NOW_MS)
        if number % 2:
            log.close()
            log = open_log(segment_bytes=400, clean_shutdown=True)
    begun = [segment.base_offset for segment in log.segments[1:]]
    assert len(begun) > 1
    assert offsets(disk, log.directory) == sorted({*begun, 12})
    entry = log.producers.entry(5)
    assert entry is not None
    assert entry.next_sequence == 12


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_beyond_the_end_does_not_come_back_with_the_next_power_cut(
    open_log: OpenLog, make_batch: MakeBatch, seed: int
) -> None:
    """By then the log may be as long again, and of another past."""
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    log = open_log(disk)
    log.append_as_leader(make_batch(producer_id=5, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    log.close()
    file = disk.open(log.active.path)
    file.truncate(0)  # as a power cut leaves it
    disk.sync_everything("/data")
    log = open_log(disk)
    log.append_as_leader(make_batch(producer_id=6, producer_epoch=0, base_sequence=0), 1, NOW_MS)
    log.active.sync()
    platter.power_loss()
    log = open_log(SimulatedDisk(platter))
    assert (log.log_end_offset, log.producers.producer_ids) == (1, [6])

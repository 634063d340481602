"""Cutting the end off: batches, segments, epochs, producers, marks; and what is remembered of synced offsets."""

from collections.abc import Callable

import pytest

from ottla.log.batch import headers
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.tools.verify import verify
from ottla.runtime.errors import KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(open_log: OpenLog, make_batch: MakeBatch) -> Log:
    """40 batches of two records, an epoch for each ten, in several segments."""
    log = open_log(segment_bytes=1000, index_interval_bytes=200)
    for number in range(40):
        batch = make_batch(2, producer_id=5, producer_epoch=0, base_sequence=2 * number)
        log.append_as_leader(batch, number // 10, NOW_MS)
    return log


@pytest.mark.parametrize("offset", [1, 2, 21, 30, 44, 78, 79])
def test_what_lies_behind_an_offset_goes(log: Log, offset: int, open_log: OpenLog) -> None:
    end = offset // 2 * 2  # a batch that straddles it goes whole: the leader has it again
    assert log.truncate_to(offset)
    assert log.log_end_offset == end
    assert log.epochs.entries() == tuple((epoch, 20 * epoch) for epoch in range(4) if 20 * epoch < end)
    entry = log.producers.entry(5)
    assert (entry.last_sequence if entry else -1) == end - 1
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert [log.read(at, 1).next_offset for at in range(0, end, 2)] == list(range(2, end + 1, 2))
    log.close()
    assert open_log(segment_bytes=1000, clean_shutdown=True).log_end_offset == end


def test_entries_cut_from_an_index_do_not_come_back_with_a_power_cut(open_log: OpenLog, make_batch: MakeBatch) -> None:
    for seed in range(20):
        platter = Platter.seeded(seed)
        disk = SimulatedDisk(platter)
        disk.make_directories("/data")
        disk.sync_directory("/")
        log = open_log(disk, index_interval_bytes=0)
        for number in range(20):
            log.append_as_leader(make_batch(2, time=NOW_MS + 10 * number), 0, NOW_MS)
        log.roll()  # the segment is closed, its indexes are durable
        log.flush()
        log.truncate_to(10)
        for number in range(5):  # the same offsets, at other times
            log.append_as_leader(make_batch(2, time=NOW_MS + 1000 + number), 1, NOW_MS)
        log.flush()  # what a scan from here would not put right is durable
        platter.power_loss()
        again = open_log(SimulatedDisk(platter), index_interval_bytes=0, recovery_point=20)
        assert again.log_end_offset == 20
        again.close()
        assert [str(finding) for finding in verify(SimulatedDisk(platter), again.directory) if finding.fault] == []


def test_an_offset_at_or_behind_the_end_cuts_nothing(log: Log) -> None:
    assert not log.truncate_to(80)
    assert not log.truncate_to(500)
    assert log.log_end_offset == 80


@pytest.mark.parametrize("offset", [80, 500])
def test_an_epoch_that_began_at_the_end_goes_though_no_batch_does(log: Log, offset: int, open_log: OpenLog) -> None:
    log.epochs.assign(9, 80)  # it led for a moment, and appended nothing
    assert not log.truncate_to(offset)
    assert log.epochs.entries() == ((0, 0), (1, 20), (2, 40), (3, 60))
    assert log.end_offset_for_epoch(9) == (-1, -1)
    log.close()
    assert open_log(segment_bytes=1000, clean_shutdown=True).last_epoch == 3


def test_an_epoch_that_begins_at_the_cut_goes_with_it(log: Log) -> None:
    assert log.truncate_to(60)
    assert log.epochs.entries() == ((0, 0), (1, 20), (2, 40))


def test_the_marks_go_back_with_the_end(log: Log) -> None:
    log.set_high_watermark(60)
    log.flush()
    log.truncate_to(40)
    assert (log.high_watermark, log.recovery_point) == (40, 40)


def test_a_log_goes_on_after_a_truncation(log: Log, make_batch: MakeBatch) -> None:
    for offset in (70, 30, 4):
        log.truncate_to(offset)
        info = log.append_as_leader(make_batch(2), 7, NOW_MS)
        assert info.first_offset == offset
        assert log.offset_for_timestamp(0) is not None


def test_everything_goes_and_the_log_starts_elsewhere(log: Log, make_batch: MakeBatch, open_log: OpenLog) -> None:
    log.set_high_watermark(60)
    for start in (500, 20):
        log.truncate_fully_and_start_at(start)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (start, start, start)
        assert log.epochs.entries() == ()
        assert log.producers.producer_ids == []
        assert log.append_as_leader(make_batch(2), 9, NOW_MS).first_offset == start
    log.close()
    assert open_log(clean_shutdown=True, log_start_offset=20).log_start_offset == 20


def test_the_log_start_goes_up_to_the_high_watermark_and_no_further(log: Log) -> None:
    log.set_high_watermark(30)
    with pytest.raises(KafkaError):
        log.advance_log_start(31)
    log.advance_log_start(25)
    log.advance_log_start(10)
    assert log.log_start_offset == 25
    assert log.epochs.entries()[0] == (1, 25)
    with pytest.raises(KafkaError):
        log.read(24, 100)
    log.set_high_watermark(3)
    assert log.high_watermark == 25


# Durability


def test_a_ticket_promises_the_oldest_unsynced_segment_first(log: Log) -> None:
    ends = []
    while (ticket := log.unsynced()) is not None:
        ticket.file.sync()
        ends.append(ticket.end_offset)
        log.mark_synced(ticket)
        assert log.recovery_point == ticket.end_offset
    assert ends == [0, *(segment.base_offset for segment in log.segments[1:]), 80], "its names come first"
    assert log.root.rolled == {}


def test_a_ticket_from_before_a_truncation_counts_for_nothing(log: Log, make_batch: MakeBatch) -> None:
    log.flush()
    log.append_as_leader(make_batch(2), 4, NOW_MS)
    ticket = log.unsynced()
    assert ticket is not None
    assert ticket.end_offset == 82
    log.truncate_to(60)
    for _ in range(20):
        log.append_as_leader(make_batch(2), 5, NOW_MS)
    log.mark_synced(ticket)
    assert log.recovery_point == 60


def test_after_a_sync_of_the_active_file_everything_is_stable(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    for seed in range(10):
        platter = Platter.seeded(seed)
        disk = SimulatedDisk(platter)
        disk.make_directories("/data")
        disk.sync_directory("/")
        log = open_log(disk, segment_bytes=500)
        for _ in range(20):
            log.append_as_leader(make_batch(2), 0, NOW_MS)
        while ticket := log.unsynced():
            ticket.file.sync()
            log.mark_synced(ticket)
        assert log.recovery_point == 40
        platter.power_loss()
        again = open_log(SimulatedDisk(platter), segment_bytes=500, recovery_point=40)
        assert again.log_end_offset == 40


def test_a_file_that_waits_for_its_sync_stays_open_over_a_roll(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.files.capacity = 1
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    file = log.active_file
    log.roll()
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    log.active_file.sync()
    file.sync()


def test_flushes_are_due_by_count_and_by_age(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(flush_messages=3, flush_ms=1000)
    assert not log.flush_is_due(NOW_MS)
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    assert not log.flush_is_due(NOW_MS)
    assert log.flush_is_due(NOW_MS + 1000)
    log.flush()
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    assert not log.flush_is_due(NOW_MS + 1500)
    log.append_as_leader(make_batch(1), 0, NOW_MS)
    assert log.flush_is_due(NOW_MS + 1500)


def test_a_failing_sync_fails_the_directory(log: Log, platter: Platter) -> None:
    platter.fail("/data", operations=("sync",))
    with pytest.raises(KafkaError):
        log.flush()
    assert log.root.failure is not None
    assert log.recovery_point == 0


def test_a_cut_behind_a_gap_goes_back_over_it(open_log: OpenLog, make_batch: MakeBatch) -> None:
    """Compaction empties whole segments; no reader could come to an end that has nothing before it."""
    log = open_log(cleanup_policy=("compact",))
    far = 2**31 + 5
    for base_offset in (0, far):
        log.append_as_follower(make_batch(base_offset=base_offset, leader_epoch=0))
    assert [segment.base_offset for segment in log.segments] == [0, far]
    log.truncate_to(far)
    assert log.log_end_offset == 1
    assert log.read(0, 1000).next_offset == 1
    log.append_as_follower(make_batch(base_offset=far, leader_epoch=1))
    assert log.log_end_offset == far + 1


def test_a_segment_that_is_the_last_one_again_goes_by_the_settings_of_now(log: Log, make_batch: MakeBatch) -> None:
    log.configure(LogConfig(segment_bytes=100_000))
    log.truncate_to(4)
    for _ in range(20):
        log.append_as_leader(make_batch(2), 7, NOW_MS)
    assert len(log.segments) == 1


@pytest.mark.parametrize("seed", range(6))
def test_what_was_cut_off_before_a_roll_does_not_come_back_with_a_power_cut(
    open_log: OpenLog, make_batch: MakeBatch, seed: int
) -> None:
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    disk.sync_directory("/")
    log = open_log(disk)
    for _ in range(5):
        log.append_as_leader(make_batch(2), 0, NOW_MS)
    log.flush()
    log.truncate_to(4, sync=False)
    log.roll()
    log.append_as_follower(make_batch(2, base_offset=4, leader_epoch=1), 1)
    log.flush()
    platter.power_loss()
    log = open_log(SimulatedDisk(platter), recovery_point=4)
    assert [header.leader_epoch for _, header in headers(log.read(0, 10_000).data)] == [0, 0]

"""Reading by offset: whole batches, limits, neighbours, damage; and finding records by time."""

from collections.abc import Callable

import pytest

from ottla.log.batch import read_header
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.results import TimestampAndOffset
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/flights-0"


@pytest.fixture
def log(open_log: OpenLog, make_batch: MakeBatch) -> Log:
    """60 batches of two records in several segments, an index entry for every second or third."""
    log = open_log(segment_bytes=1000, index_interval_bytes=200)
    for number in range(60):
        log.append_as_leader(make_batch(2, time=NOW_MS + 10 * number), 0, NOW_MS)
    return log


def offsets(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        found.append(header.base_offset)
        at += header.size_bytes
    assert at == len(data)
    return found


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: Log) -> None:
    for offset in range(120):
        read = log.read(offset, 1)
        assert offsets(read.data) == [offset // 2 * 2]
        assert read.next_offset == offset // 2 * 2 + 2


@pytest.mark.parametrize("max_bytes", [100, 101, 250, 1000, 5000])
def test_reads_one_after_another_give_everything_once(log: Log, max_bytes: int) -> None:
    for remembered in (True, False):
        found, offset = [], 0
        while offset < 120:
            read = log.read(offset, max_bytes)
            assert len(read.data) <= max(max_bytes, 101)
            found += offsets(read.data)
            offset = read.next_offset
            if not remembered:
                log.places.clear()
        assert found == list(range(0, 120, 2))


def test_a_read_fills_what_it_may_take_with_whole_batches(log: Log) -> None:
    size = len(log.read(0, 1).data)
    assert offsets(log.read(2, 3 * size).data) == [2, 4, 6]
    assert offsets(log.read(2, 4 * size - 1).data) == [2, 4, 6]


def test_nothing_at_or_above_the_limit_is_read(log: Log) -> None:
    assert offsets(log.read(0, 1000, 6).data) == [0, 2, 4]
    assert offsets(log.read(0, 1000, 5).data) == [0, 2]  # the limit lies in a batch: none of it
    assert offsets(log.read(118, 1000, 119).data) == []
    assert log.read(6, 1000, 6).data == b""
    assert log.read(6, 1000, 4).data == b""


def test_the_first_batch_comes_though_it_is_too_large_only_if_it_must(log: Log) -> None:
    assert offsets(log.read(4, 10, minimum_one=True).data) == [4]
    read = log.read(4, 10, minimum_one=False)
    assert (read.data, read.next_offset) == (b"", 4)


def test_outside_the_log_is_out_of_range_and_its_end_is_empty(log: Log) -> None:
    assert log.read(120, 1000).data == b""
    for offset in (-1, 121):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_in_progress_reads_on_in_a_deleted_segment_and_then_finds_a_later_start(log: Log) -> None:
    handle, first = log.segment_of(0).handle, log.read(0, 500)
    file = handle.pin()
    log.set_high_watermark(120)
    log.advance_log_start(100)
    assert log.delete_old_segments(NOW_MS)
    assert file.read_at(len(first.data), 0) == first.data
    handle.unpin()
    with pytest.raises(KafkaError) as caught:
        log.read(first.next_offset, 500)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_bytes_between_two_offsets_are_about_right(log: Log) -> None:
    size = len(log.read(0, 1).data)
    assert log.bytes_between(0, 120) == 60 * size
    assert abs(log.bytes_between(20, 80) - 30 * size) <= 400
    assert log.bytes_between(118, 120) >= 1
    assert log.bytes_between(7, 7) == 0


def damage(disk: SimulatedDisk, log: Log, number: int, position: int, mask: int = 1) -> None:
    file = disk.open(log.segments[number].path)
    file.write_at([bytes([file.read_at(1, position)[0] ^ mask])], position)
    file.close()


@pytest.mark.parametrize("byte", [7, 16, 30, 80], ids=["base offset", "magic", "header", "record"])
def test_damaged_bytes_are_never_served(
    log: Log, open_log: OpenLog, disk: SimulatedDisk, byte: int, platter: Platter
) -> None:
    size = len(log.read(0, 1).data)
    log.close()
    damage(disk, log, 1, 3 * size + byte, mask=2)
    base = log.segments[1].base_offset
    again = open_log(SimulatedDisk(platter), segment_bytes=1000, index_interval_bytes=200, clean_shutdown=True)
    assert offsets(again.read(0, 1000).data)  # the others are as they were
    good = offsets(again.read(base, 1000).data)
    assert good == [base, base + 2, base + 4][: len(good)]
    with pytest.raises(DamagedLogError) as caught:
        again.read(good[-1] + 2, 1000)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert caught.value.offset <= base + 8


def test_what_this_process_wrote_or_checked_is_not_checked_again(
    log: Log, open_log: OpenLog, disk: SimulatedDisk
) -> None:
    size = len(log.read(0, 500).data)
    assert log.segment_of(0).trusts(0, size)
    log.close()
    again = open_log(segment_bytes=1000, index_interval_bytes=200, clean_shutdown=True)
    assert not again.segment_of(0).trusts(0, size)
    again.read(0, 500)
    assert again.segment_of(0).trusts(0, size)
    assert not again.segment_of(0).trusts(0, size + 1)


def test_a_missing_offset_is_damage_unless_the_log_may_have_gaps(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    log = open_log(segment_bytes=300)
    for _ in range(6):
        log.append_as_leader(make_batch(2), 0, NOW_MS)
    size = len(log.read(0, 1).data)
    base = log.segments[1].base_offset
    log.close()
    disk.open(log.segments[0].path).truncate(log.segments[0].size - size)
    again = open_log(segment_bytes=300, clean_shutdown=True)
    with pytest.raises(DamagedLogError):
        again.read(base - 1, 1000)
    compacted = open_log(segment_bytes=300, clean_shutdown=True, cleanup_policy=("compact",))
    assert offsets(compacted.read(base - 1, 1000).data)[0] == base


def test_a_follower_of_a_log_with_gaps_remembers_that_it_has_them(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_follower(make_batch(1, leader_epoch=0), 0)
    log.append_as_follower(make_batch(1, base_offset=7, leader_epoch=0), 0)
    log.close()
    again = open_log(clean_shutdown=True)
    assert offsets(again.read(3, 1000).data) == [7]


def test_a_failing_disk_is_a_storage_error(log: Log, platter: Platter) -> None:
    platter.fail(DIRECTORY, operations=("read", "open"))
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.root.failure is not None


# Times


def test_the_first_record_at_or_after_a_time_is_found(log: Log) -> None:
    for number in range(60):
        start = NOW_MS + 10 * number
        assert log.offset_for_timestamp(start) == TimestampAndOffset(2 * number, start, 0)
        assert log.offset_for_timestamp(start + 1) == TimestampAndOffset(2 * number + 1, start + 1, 0)
        following = TimestampAndOffset(2 * number + 2, start + 10, 0) if number < 59 else None
        assert log.offset_for_timestamp(start + 2) == following
    assert log.offset_for_timestamp(0) == TimestampAndOffset(0, NOW_MS, 0)


def test_no_record_below_the_log_start_is_found(log: Log) -> None:
    log.set_high_watermark(120)
    log.advance_log_start(41)
    assert log.offset_for_timestamp(0) == TimestampAndOffset(41, NOW_MS + 201, 0)


def test_times_that_go_back_are_found_in_offset_order(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(index_interval_bytes=1)
    for time in (50, 90, 10, 70, 90):
        log.append_as_leader(make_batch(time=time), 0, NOW_MS)
    assert log.offset_for_timestamp(60) == TimestampAndOffset(1, 90, 0)
    assert log.offset_for_timestamp(10) == TimestampAndOffset(0, 50, 0)
    assert log.offset_for_timestamp(log.largest_timestamp()) == TimestampAndOffset(1, 90, 0)


def test_log_append_times_are_the_batchs(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    log.append_as_leader(make_batch(3, time=5), 0, NOW_MS)
    log.append_as_leader(make_batch(3, time=5), 0, NOW_MS + 7)
    assert log.offset_for_timestamp(NOW_MS + 1) == TimestampAndOffset(3, NOW_MS + 7, 0)


def test_a_log_without_times_has_no_largest(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_bytes=200, index_interval_bytes=1)
    for _ in range(5):
        log.append_as_leader(make_batch(time=-1), 0, NOW_MS)
    assert log.largest_timestamp() == -1
    log.close()
    assert open_log(segment_bytes=200, clean_shutdown=True).largest_timestamp() == -1


def test_times_survive_a_restart_and_a_damaged_time_index(log: Log, open_log: OpenLog, disk: SimulatedDisk) -> None:
    log.close()
    again = open_log(segment_bytes=1000, index_interval_bytes=200, clean_shutdown=True)
    assert again.offset_for_timestamp(again.largest_timestamp()) == TimestampAndOffset(119, NOW_MS + 591, 0)
    for segment in log.segments:
        path = segment.path.replace(".log", ".timeindex")
        data = bytearray(disk.read_bytes(path))
        for at in range(7, len(data), 12):
            data[at] ^= 4  # times that were never written, still rising mostly
        disk.write_atomically(path, bytes(data))
    damaged = open_log(segment_bytes=1000, index_interval_bytes=200, clean_shutdown=True)
    for number in range(60):
        assert damaged.offset_for_timestamp(NOW_MS + 10 * number) == TimestampAndOffset(
            2 * number, NOW_MS + 10 * number, 0
        )

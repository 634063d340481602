"""What a leader and a follower append, where it goes and what is refused."""

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from ottla.log.batch import CorruptBatchError, read_header
from ottla.log.config import LogConfig
from ottla.log.directories.directory import DirectoryState
from ottla.log.log import Log
from ottla.log.records import EndMarker, decode_records, end_marker_batch
from ottla.log.results import AppendInfo
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
NOW_MS = 1_700_000_000_000


def values(log: Log, offset: int = 0) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from ``offset`` on."""
    found = []
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        data = read.data
        at = 0
        while at < len(data):
            header = read_header(data, at)
            found += [(record.offset, record.value) for record in decode_records(data, header, position=at)]
            at += header.size_bytes
        offset = read.next_offset
    return found


def test_the_leader_stamps_offset_and_epoch_in_the_buffer_it_was_given(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    log.append_as_leader(make_batch(3), 4, NOW_MS)
    batch = make_batch(2)
    info = log.append_as_leader(memoryview(batch), 4, NOW_MS)
    assert info == AppendInfo(3, 4, NOW_MS + 1, -1, 0, False, len(batch))
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (3, 4)
    assert log.log_end_offset == 5
    assert values(log) == [(0, b"v0"), (1, b"v1"), (2, b"v2"), (3, b"v0"), (4, b"v1")]


def test_a_new_leader_epoch_begins_at_the_log_end(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_leader(make_batch(3), 1, NOW_MS)
    log.append_as_leader(make_batch(1), 4, NOW_MS)
    assert log.epochs.entries() == ((1, 0), (4, 3))
    assert log.last_epoch == 4
    assert log.end_offset_for_epoch(2) == (1, 3)


def test_an_epoch_that_is_over_appends_nothing(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_leader(make_batch(), 4, NOW_MS)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make_batch(), 3, NOW_MS)
    assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
    assert log.log_end_offset == 1


def test_log_append_time_is_stamped_and_answered(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(make_batch(time=5), 0, NOW_MS)
    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS, NOW_MS)


def test_a_repeated_batch_is_answered_with_its_offsets_and_not_written(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    for sequence in (0, 2):
        log.append_as_leader(make_batch(2, producer_id=9, producer_epoch=0, base_sequence=sequence), 0, NOW_MS)
    info = log.append_as_leader(make_batch(2, producer_id=9, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    assert (info.first_offset, info.last_offset, info.duplicate) == (2, 3, True)
    assert log.log_end_offset == 6


def test_a_batch_out_of_sequence_is_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_leader(make_batch(2, producer_id=9, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make_batch(2, producer_id=9, producer_epoch=0, base_sequence=5), 0, NOW_MS)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_larger_than_a_segment_is_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_bytes=200)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make_batch(100), 0, NOW_MS)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_another_codec_is_recompressed_to_the_topics_own(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(compression_type="zstd")
    log.append_as_leader(make_batch(50), 0, NOW_MS)
    assert read_header(log.read(0, 1 << 20).data).compression == 4
    assert len(values(log)) == 50


def test_a_transactions_end_moves_the_last_stable_offset(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    open_transaction = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append_as_leader(make_batch(2, **open_transaction), 0, NOW_MS, verified=True)
    log.append_as_leader(make_batch(1), 0, NOW_MS)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 0
    marker = end_marker_batch(EndMarker(False, 0), producer_id=9, producer_epoch=0, timestamp=NOW_MS)
    log.append_own(marker, 0, NOW_MS)
    log.set_high_watermark(4)
    assert log.last_stable_offset == 4
    (aborted,) = log.aborted_transactions(0, 4)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (9, 0, 3)


def test_records_of_an_open_transaction_may_be_deleted_and_no_reader_is_sent_below_the_log(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    open_transaction = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append_as_leader(make_batch(2, **open_transaction), 0, NOW_MS, verified=True)
    log.append_as_leader(make_batch(3), 0, NOW_MS)
    log.set_high_watermark(5)
    log.advance_log_start(4)
    assert log.last_stable_offset == 4
    log.append_own(end_marker_batch(EndMarker(False, 0), producer_id=9, producer_epoch=0, timestamp=NOW_MS), 0, NOW_MS)
    log.set_high_watermark(6)
    assert log.last_stable_offset == 6


def test_a_cut_behind_a_transaction_that_ended_leaves_it_stable(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    open_transaction = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append_as_leader(make_batch(2, **open_transaction), 0, NOW_MS, verified=True)
    log.append_own(end_marker_batch(EndMarker(True, 0), producer_id=9, producer_epoch=0, timestamp=NOW_MS), 0, NOW_MS)
    log.set_high_watermark(3)
    log.append_as_leader(make_batch(2), 0, NOW_MS)
    log.truncate_to(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_a_follower_takes_the_leaders_bytes_as_they_are(
    open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    leader = open_log(segment_bytes=400)
    for number in range(20):
        leader.append_as_leader(
            make_batch(2, producer_id=9, producer_epoch=0, base_sequence=2 * number), number // 5, NOW_MS
        )
    disk.make_directories("/other")
    follower = Log.open(disk, "/other/flights-0", leader.partition, leader.config, now_ms=NOW_MS)
    while follower.log_end_offset < leader.log_end_offset:
        data = leader.read(follower.log_end_offset, 700).data
        info = follower.append_as_follower(memoryview(data), 3)
        assert info.last_offset == follower.log_end_offset - 1
    assert values(follower) == values(leader)
    assert follower.epochs.entries() == leader.epochs.entries()
    assert len(follower.segments) == 5
    with pytest.raises(KafkaError):  # it remembers the producer
        follower.append_as_leader(make_batch(2, producer_id=9, producer_epoch=0, base_sequence=7), 4, NOW_MS)


def test_a_follower_leaves_out_a_partial_batch_and_what_is_of_a_later_epoch(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    first, second = make_batch(2, leader_epoch=1), make_batch(2, base_offset=2, leader_epoch=2)
    info = log.append_as_follower(bytes(first + second), 1)
    assert (info.first_offset, info.last_offset) == (0, 1)
    assert log.append_as_follower(bytes(second[:-1]), 2).first_offset == -1
    assert log.log_end_offset == 2


def test_a_follower_refuses_a_torn_batch_and_offsets_that_go_back(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    batch = make_batch(2, leader_epoch=0)
    log.append_as_follower(bytes(batch), 0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(bytes(batch), 0)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    torn = make_batch(2, base_offset=2, leader_epoch=0)
    torn[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(bytes(torn), 0)
    assert log.log_end_offset == 2


def test_a_segment_rolls_when_it_is_full(open_log: OpenLog, make_batch: MakeBatch, disk: SimulatedDisk) -> None:
    log = open_log(segment_bytes=500)
    size = len(make_batch(3))
    for _ in range(12):
        log.append_as_leader(make_batch(3), 0, NOW_MS)
    per_segment = 500 // size
    assert [segment.base_offset for segment in log.segments] == list(range(0, 36, 3 * per_segment))
    assert disk.exists("/data/flights-0/" + f"{3 * per_segment:020d}.snapshot")
    assert log.size_bytes == 12 * size


def test_a_segment_rolls_when_it_is_old_by_its_records_times(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_ms=1000)
    log.append_as_leader(make_batch(time=NOW_MS), 0, NOW_MS)
    log.append_as_leader(make_batch(time=NOW_MS + 1000), 0, NOW_MS)
    assert len(log.segments) == 1
    log.append_as_leader(make_batch(time=NOW_MS + 1001), 0, NOW_MS)
    assert len(log.segments) == 2


def test_records_without_times_roll_by_the_clock(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_ms=1000)
    log.append_as_leader(make_batch(time=-1), 0, NOW_MS)
    log.append_as_leader(make_batch(time=-1), 0, NOW_MS + 1001)
    assert len(log.segments) == 2


def test_jitter_rolls_earlier_and_differs_between_segments(open_log: OpenLog) -> None:
    log = open_log(segment_ms=1000, segment_jitter_ms=500)
    jitters = [log.jitter_ms(base) for base in range(50)]
    assert len(dict.fromkeys(jitters)) > 20
    assert all(0 <= jitter < 500 for jitter in jitters)


def test_a_segment_rolls_when_its_index_is_full(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_index_bytes=24, index_interval_bytes=1)  # two time index entries
    for number in range(10):
        log.append_as_leader(make_batch(time=NOW_MS + number), 0, NOW_MS)
    assert all(len(segment.offset_index().offsets) <= 2 for segment in log.segments)
    assert len(log.segments) > 2


def test_offsets_too_far_from_the_base_begin_a_segment(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_follower(bytes(make_batch(leader_epoch=0)), 0)
    far = 2**31
    log.append_as_follower(bytes(make_batch(base_offset=far, leader_epoch=0)), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert values(log) == [(0, b"v0"), (far, b"v0")]
    log.append_as_follower(bytes(make_batch(base_offset=3 * far, leader_epoch=0)), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 3 * far]
    assert values(log)[-1] == (3 * far, b"v0")


def test_changed_settings_hold_from_the_next_append_on(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_leader(make_batch(), 0, NOW_MS)
    log.configure(LogConfig(segment_bytes=100))
    log.append_as_leader(make_batch(), 0, NOW_MS)
    assert len(log.segments) == 2


def test_settings_that_do_not_age_segments_read_none(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    """They may come for ten thousand logs at once."""
    log = open_log()
    log.append_as_leader(make_batch(), 0, NOW_MS)
    platter.fail(log.directory, errno.EIO)
    log.configure(LogConfig(retention_ms=1_000))
    assert log.root.failure is None
    with pytest.raises(KafkaError):
        log.configure(LogConfig(retention_ms=1_000, segment_ms=5))


def test_a_full_disk_refuses_and_leaves_the_log_as_it_was(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    log = open_log()
    log.append_as_leader(make_batch(), 0, NOW_MS)
    platter.capacity_bytes = platter.used_bytes + 10
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make_batch(), 0, NOW_MS)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.root.full
    assert log.root.failure is None
    assert values(log) == [(0, b"v0")]
    platter.capacity_bytes = 1 << 30
    with pytest.raises(KafkaError):  # until somebody looked
        log.append_as_leader(make_batch(), 0, NOW_MS)
    log.root.set_full(False)
    log.append_as_leader(make_batch(text="w"), 0, NOW_MS)
    assert values(log) == [(0, b"v0"), (1, b"w0")]


def test_an_error_of_the_disk_fails_the_directory(open_log: OpenLog, make_batch: MakeBatch, platter: Platter) -> None:
    log = open_log()
    failed: list[DirectoryState] = []
    log.root.on_failure = failed.append
    platter.fail("/data", operations=("write",))
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader(make_batch(), 0, NOW_MS)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == [log.root]


def test_too_many_open_files_are_not_the_directorys_fault(
    open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    log = open_log()
    log.active.close()
    repair = platter.fail("/data", errno.EMFILE, ("open",))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make_batch(), 0, NOW_MS)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    repair()
    assert log.append_as_leader(make_batch(), 0, NOW_MS).first_offset == 0


def test_an_empty_log_may_begin_within_a_batch(open_log: OpenLog, make_batch: MakeBatch) -> None:
    """As DeleteRecords leaves it on the replicas that were there: whole in the file, its first records out of sight."""
    log = open_log(log_start_offset=5)
    log.append_as_follower(bytes(make_batch(10, leader_epoch=3)) + bytes(make_batch(base_offset=10, leader_epoch=3)), 3)
    assert (log.log_start_offset, log.log_end_offset) == (5, 11)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert values(log, 5)[0] == (0, b"v0")
    assert log.epochs.entries() == ((3, 5),)
    assert not log.gaps_marked
    log.abandon()
    again = open_log(log_start_offset=5, recovery_point=5)
    assert (again.log_start_offset, again.log_end_offset, again.epochs.entries()) == (5, 11, ((3, 5),))


def test_a_batch_that_does_not_hold_the_end_of_an_empty_log_is_refused(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log(log_start_offset=5)
    with pytest.raises(KafkaError, match=r"0\.\.4 does not follow log end offset 5"):
        log.append_as_follower(bytes(make_batch(5, leader_epoch=0)), 0)


def test_a_log_that_has_records_takes_no_batch_that_begins_below_its_end(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    log.append_as_follower(bytes(make_batch(5, leader_epoch=0)), 0)
    log.set_high_watermark(5)
    log.advance_log_start(5)
    with pytest.raises(KafkaError, match=r"3\.\.7 does not follow log end offset 5"):
        log.append_as_follower(bytes(make_batch(5, base_offset=3, leader_epoch=0)), 0)


@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_beginning_within_a_batch_for_which_there_was_no_room_is_made_later(
    operation: str, open_log: OpenLog, make_batch: MakeBatch, platter: Platter
) -> None:
    log = open_log(log_start_offset=5)
    repair = platter.fail("/data", errno.ENOSPC, (operation,))
    with pytest.raises(KafkaError):
        log.append_as_follower(bytes(make_batch(10, leader_epoch=3)), 3)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    repair()
    log.root.set_full(False)
    with suppress(KafkaError):  # who comes first may find that the log has to be read anew
        log.append_as_follower(b"", 3)
    log.append_as_follower(bytes(make_batch(10, leader_epoch=3)), 3)
    assert (log.log_start_offset, log.log_end_offset) == (5, 10)

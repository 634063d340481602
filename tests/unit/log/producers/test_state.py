"""Idempotence and transactions on one partition, rule by rule (kraft.md 4.8)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.batch import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from ottla.log.producers.entry import SEQUENCE_MAX, add_to_sequence
from ottla.log.producers.snapshot import SnapshotError, SnapshotRow, decode, decode_rows, encode, encode_rows, offsets
from ottla.log.producers.state import CompletedTransaction, Origin, ProducerStateManager
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch, value_batch
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.real_disk import RealDisk

DISK = RealDisk()
COMMIT, ABORT = EndMarker(True, 0), EndMarker(False, 0)

TRANSACTION_SNAPSHOT = bytes.fromhex(  # written by Apache Kafka 4.3.1 after three transactions of ten records
    "0001 ace66c2c 00000001 0000000000000005 0000 0000001d 000000000000001f 00000009 000001a1fd251068 00000000 ffffffffffffffff"
)


def header_of(
    sequence: int, count: int = 1, *, pid: int = 7, epoch: int = 0, timestamp: int = 100, transactional: bool = False
) -> BatchHeader:
    attributes = TRANSACTIONAL if transactional else 0
    return BatchHeader(0, 49, 0, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)


def marker_header(pid: int = 7, epoch: int = 0, timestamp: int = 100) -> BatchHeader:
    return BatchHeader(0, 49, 0, 2, 0, TRANSACTIONAL | CONTROL, 0, timestamp, timestamp, pid, epoch, -1, 1)


class Partition:
    """A log that is only an end offset: batches are checked, placed and noted."""

    def __init__(self) -> None:
        self.producers = ProducerStateManager()
        self.end = 0

    def append(self, header: BatchHeader, origin: Origin = Origin.CLIENT) -> int:
        """The first offset: the old one when it is a repetition."""
        duplicate = self.producers.check(header, origin)
        if duplicate is not None:
            return duplicate.first_offset
        first, self.end = self.end, self.end + header.records_count
        self.producers.update(header, first)
        return first

    def mark(self, marker: EndMarker, header: BatchHeader | None = None) -> CompletedTransaction | None:
        header = header or marker_header()
        self.producers.check_marker(header, marker)
        self.end += 1
        return self.producers.update(header, self.end - 1, marker)

    def refused(self, header: BatchHeader, origin: Origin = Origin.CLIENT) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.append(header, origin)
        return caught.value.code


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_batches_without_a_producer_leave_no_trace(partition: Partition) -> None:
    partition.append(header_of(-1, pid=-1, epoch=-1))
    assert partition.producers.producer_ids == []


def test_sequences_follow_on(partition: Partition) -> None:
    assert [partition.append(header_of(0, 3)), partition.append(header_of(3, 2)), partition.append(header_of(5))] == [
        0,
        3,
        5,
    ]


def test_a_gap_and_a_step_back_are_out_of_order(partition: Partition) -> None:
    partition.append(header_of(0, 3))
    assert partition.refused(header_of(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(header_of(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(header_of(3)) == 3


def test_an_unknown_producer_may_begin_anywhere(partition: Partition) -> None:
    assert partition.append(header_of(41)) == 0
    assert partition.append(header_of(42)) == 1


def test_each_of_the_last_five_batches_is_known_when_it_comes_again(partition: Partition) -> None:
    for sequence in range(0, 12, 2):
        partition.append(header_of(sequence, 2))
    assert [partition.append(header_of(sequence, 2)) for sequence in range(2, 12, 2)] == [2, 4, 6, 8, 10]
    assert partition.end == 12
    assert partition.refused(header_of(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repetition_must_match_both_sequences(partition: Partition) -> None:
    partition.append(header_of(0, 3))
    assert partition.refused(header_of(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero_after_the_largest(partition: Partition) -> None:
    partition.append(header_of(SEQUENCE_MAX - 1, 2))
    assert partition.append(header_of(0)) == 2


def test_a_batch_may_straddle_the_wrap_and_is_known_again(partition: Partition) -> None:
    partition.append(header_of(SEQUENCE_MAX, 3))
    assert partition.append(header_of(2)) == 3
    assert partition.append(header_of(SEQUENCE_MAX, 3)) == 0


def test_a_new_epoch_begins_at_zero(partition: Partition) -> None:
    partition.append(header_of(0, 3))
    assert partition.refused(header_of(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(header_of(0, epoch=1)) == 3
    assert partition.append(header_of(1, epoch=1)) == 4


def test_an_older_epoch_is_fenced_even_with_the_right_sequence(partition: Partition) -> None:
    partition.append(header_of(0, epoch=1))
    assert partition.refused(header_of(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_an_older_epoch_are_no_longer_known(partition: Partition) -> None:
    partition.append(header_of(0, epoch=0))
    partition.append(header_of(0, epoch=1))
    assert partition.refused(header_of(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_coordinators_are_not_held_to_sequences_but_to_epochs(partition: Partition) -> None:
    partition.append(header_of(0, epoch=1))
    partition.append(header_of(9, epoch=1), Origin.COORDINATOR)
    assert partition.refused(header_of(0), Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_replication_is_never_refused(partition: Partition) -> None:
    partition.append(header_of(0, epoch=1))
    partition.append(header_of(9, epoch=0), Origin.REPLICATION)
    assert partition.end == 2


def test_an_open_transaction_bounds_the_stable_offset(partition: Partition) -> None:
    partition.append(header_of(0))
    assert partition.producers.first_unstable_offset is None
    partition.append(header_of(1, transactional=True))
    partition.append(header_of(2, transactional=True))
    assert partition.producers.first_unstable_offset == 1


def test_a_transaction_stays_unstable_until_its_marker_is_replicated(partition: Partition) -> None:
    partition.append(header_of(0, transactional=True))
    assert partition.mark(COMMIT) == CompletedTransaction(7, 0, 1, aborted=False, last_stable_offset=2)
    partition.producers.on_high_watermark(1)
    assert partition.producers.first_unstable_offset == 0
    partition.producers.on_high_watermark(2)
    assert partition.producers.first_unstable_offset is None


def test_the_earliest_of_several_open_transactions_counts(partition: Partition) -> None:
    for pid in (1, 2, 3):
        partition.append(header_of(0, pid=pid, transactional=True))
    assert partition.mark(ABORT, marker_header(2)) == CompletedTransaction(2, 1, 3, aborted=True, last_stable_offset=0)
    assert partition.mark(COMMIT, marker_header(1)) == CompletedTransaction(
        1, 0, 4, aborted=False, last_stable_offset=2
    )
    assert partition.producers.first_unstable_offset == 0
    partition.producers.on_high_watermark(5)
    assert partition.producers.first_unstable_offset == 2


def test_an_ended_transaction_may_lie_before_an_open_one_and_hold_it_back(partition: Partition) -> None:
    partition.append(header_of(0, pid=1, transactional=True))
    partition.mark(COMMIT, marker_header(1))
    partition.append(header_of(0, pid=2, transactional=True))
    assert partition.producers.first_unstable_offset == 0


def test_a_marker_without_data_completes_nothing(partition: Partition) -> None:
    assert partition.mark(ABORT) is None
    assert partition.producers.first_unstable_offset is None


def test_after_a_marker_sequences_go_on_in_the_same_epoch(partition: Partition) -> None:
    partition.append(header_of(0, transactional=True))
    partition.mark(COMMIT)
    assert partition.append(header_of(1, transactional=True)) == 2


def test_after_a_marker_of_a_new_epoch_sequences_begin_at_zero(partition: Partition) -> None:
    partition.append(header_of(0, 3, transactional=True))
    partition.mark(COMMIT, marker_header(epoch=1))
    assert partition.refused(header_of(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(header_of(3, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.append(header_of(0, epoch=1)) == 4


def test_a_batch_outside_the_open_transaction_is_refused(partition: Partition) -> None:
    partition.append(header_of(0, transactional=True))
    assert partition.refused(header_of(1)) is ErrorCode.INVALID_TXN_STATE


def marker_refused(partition: Partition, header: BatchHeader, marker: EndMarker, version: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        partition.producers.check_marker(header, marker, version)
    return caught.value.code


def test_a_marker_of_an_older_producer_epoch_is_fenced(partition: Partition) -> None:
    partition.append(header_of(0, epoch=3, transactional=True))
    assert marker_refused(partition, marker_header(epoch=2), COMMIT) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.producers.check_marker(marker_header(epoch=3), COMMIT)


def test_a_marker_of_an_older_coordinator_is_fenced(partition: Partition) -> None:
    partition.append(header_of(0, transactional=True))
    partition.mark(EndMarker(True, 5))
    assert marker_refused(partition, marker_header(), EndMarker(True, 4)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.producers.check_marker(marker_header(), EndMarker(True, 5))


def test_markers_of_version_two_must_bump_the_epoch(partition: Partition) -> None:
    assert partition.producers.check_marker(marker_header(epoch=0), COMMIT, 2)
    partition.append(header_of(0, transactional=True))
    assert marker_refused(partition, marker_header(epoch=0), COMMIT, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.producers.check_marker(marker_header(epoch=1), COMMIT, 2)


def test_a_repeated_version_two_marker_is_not_written_again(partition: Partition) -> None:
    partition.append(header_of(0, transactional=True))
    partition.mark(COMMIT, marker_header(epoch=1))
    assert partition.producers.check_marker(marker_header(epoch=1), COMMIT, 2) is False


def test_idle_producers_are_forgotten_but_not_those_with_a_transaction_open(partition: Partition) -> None:
    partition.append(header_of(0, pid=1, timestamp=1000))
    partition.append(header_of(0, pid=2, timestamp=1000, transactional=True))
    partition.append(header_of(0, pid=3, timestamp=1001))
    assert partition.producers.expire(1000, 1000) == 0
    assert partition.producers.expire(2000, 1000) == 1
    assert partition.producers.producer_ids == [2, 3]
    assert partition.append(header_of(77, pid=1)) == 3


def test_who_writes_old_records_is_not_forgotten_while_he_does(partition: Partition) -> None:
    """A repetition of what he writes would be taken for something new."""
    for number in range(5):
        header = header_of(number, pid=1, timestamp=1)
        assert partition.append(header) == number
        assert partition.producers.expire(10_000 + 600 * number, 1000) == 0
        assert partition.append(header) == number
    assert partition.producers.expire(13_399, 1000) == 0
    assert partition.producers.expire(13_400, 1000) == 1


def test_who_was_idle_before_a_restart_is_forgotten_at_the_first_look_after_it(
    partition: Partition, tmp_path: Path
) -> None:
    partition.append(header_of(0, pid=1, timestamp=1000))
    partition.producers.take_snapshot(DISK, str(tmp_path), 1)
    partition.producers.load(DISK, str(tmp_path), first_offset=0, log_end_offset=1)
    assert partition.producers.expire(2000, 1000) == 1


def test_replay_reads_the_marker_itself() -> None:
    producers = ProducerStateManager()
    data = encode_batch(
        [Record(4, 1, None, b"x")], base_offset=4, producer_id=9, producer_epoch=1, base_sequence=0, transactional=True
    )
    producers.replay(b"--" + data, read_header(data), 2)
    marker = end_marker_batch(ABORT, producer_id=9, producer_epoch=1, timestamp=5, base_offset=5)
    assert producers.replay(marker, read_header(marker)) == CompletedTransaction(
        9, 4, 5, aborted=True, last_stable_offset=6
    )
    plain = value_batch([b"m"], base_offset=6, leader_epoch=1, timestamp=1, control=True)
    assert producers.replay(plain, read_header(plain)) is None


def test_the_snapshot_bytes_are_kafkas() -> None:
    rows = [SnapshotRow(5, 0, 29, 31, 9, 0x1A1FD251068, 0, -1)]
    assert decode_rows(TRANSACTION_SNAPSHOT) == rows
    assert encode_rows(rows) == TRANSACTION_SNAPSHOT
    assert encode(decode(TRANSACTION_SNAPSHOT)) == TRANSACTION_SNAPSHOT


def test_a_snapshot_brings_back_sequences_transactions_and_the_last_batch(partition: Partition, tmp_path: Path) -> None:
    partition.append(header_of(0, 3, pid=1))
    partition.append(header_of(SEQUENCE_MAX, 2, pid=2, transactional=True))
    partition.mark(COMMIT, marker_header(3, epoch=4))
    partition.producers.take_snapshot(DISK, str(tmp_path), partition.end)
    restarted = Partition()
    assert restarted.producers.load(DISK, str(tmp_path), first_offset=0, log_end_offset=9) == partition.end
    restarted.end = partition.end
    assert restarted.producers.first_unstable_offset == 3
    assert restarted.append(header_of(0, 3, pid=1)) == 0
    assert restarted.append(header_of(1, pid=2, transactional=True)) == 6
    assert restarted.refused(header_of(5, pid=3, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert restarted.refused(header_of(5, pid=3, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_newest_sound_snapshot_at_or_below_the_end_is_loaded(partition: Partition, tmp_path: Path) -> None:
    for offset in (10, 20, 30, 40):
        partition.append(header_of(0, pid=offset))
        partition.producers.take_snapshot(DISK, str(tmp_path), offset, durable=False)
    damaged = tmp_path / f"{30:020d}.snapshot"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert partition.producers.load(DISK, str(tmp_path), first_offset=5, log_end_offset=39) == 20
    assert partition.producers.producer_ids == [10, 20]
    assert offsets(DISK, str(tmp_path)) == [10, 20]


def test_without_a_snapshot_replay_begins_at_the_log_start(partition: Partition, tmp_path: Path) -> None:
    partition.append(header_of(0))
    assert partition.producers.load(DISK, str(tmp_path), first_offset=17, log_end_offset=50) == 17
    assert partition.producers.producer_ids == []


def test_state_of_deleted_data_is_kept(partition: Partition, tmp_path: Path) -> None:
    partition.append(header_of(0))
    partition.producers.take_snapshot(DISK, str(tmp_path), 10)
    assert partition.producers.load(DISK, str(tmp_path), first_offset=30, log_end_offset=50) == 30
    assert partition.producers.producer_ids == [7]


def test_a_shorter_snapshot_overwrites_a_longer_one(tmp_path: Path) -> None:
    producers = ProducerStateManager()
    producers.update(header_of(0), 0)
    producers.take_snapshot(DISK, str(tmp_path), 1, durable=False)
    ProducerStateManager().take_snapshot(DISK, str(tmp_path), 1, durable=False)
    assert (tmp_path / f"{1:020d}.snapshot").read_bytes() == encode_rows([])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        TRANSACTION_SNAPSHOT[:-1],
        b"\x00\x02" + TRANSACTION_SNAPSHOT[2:],
        TRANSACTION_SNAPSHOT[:-1] + b"\x00",
        TRANSACTION_SNAPSHOT + b"\x00",
    ],
)
def test_a_damaged_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_rows(data)


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=40))
def test_with_repetitions_at_any_moment_every_batch_is_written_once_and_in_order(steps: list[tuple[int, bool]]) -> None:
    partition, sent = Partition(), []
    sequence = SEQUENCE_MAX - 5
    for count, repeated in steps:
        header = header_of(sequence, count)
        sent.append((header, partition.append(header)))
        sequence = add_to_sequence(sequence, count)
        if repeated:
            assert [partition.append(header) for header, _ in sent[-5:]] == [first for _, first in sent[-5:]]
    assert partition.end == sum(count for count, _ in steps)

"""No transactional batch enters a partition unverified (KIP-890)."""

import pytest

from ottla.log.batch import CONTROL, TRANSACTIONAL, BatchHeader
from ottla.log.producers.entry import SEQUENCE_MAX
from ottla.log.producers.state import ProducerStateManager
from ottla.log.producers.verification import NOT_NEEDED, VerificationGuards
from ottla.log.records import EndMarker
from ottla.runtime.errors import ErrorCode, KafkaError


def batch(sequence: int = 0, *, epoch: int = 0, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(0, 49, 0, 2, 0, attributes, 0, 5, 5, 7, epoch, sequence, 1)


class Partition:
    def __init__(self) -> None:
        self.producers = ProducerStateManager()
        self.guards = VerificationGuards(self.producers)
        self.end = 0

    def append(self, header: BatchHeader, guard: int) -> None:
        self.guards.verify(header, guard)
        self.producers.update(header, self.end)
        self.guards.appended(header.producer_id)
        self.end += 1

    def mark(self, epoch: int = 0, transaction_version: int = 0) -> None:
        self.producers.update(batch(-1, epoch=epoch, attributes=TRANSACTIONAL | CONTROL), self.end, EndMarker(True, 0))
        self.guards.ended(7, epoch, transaction_version)
        self.end += 1

    def refused(self, header: BatchHeader, guard: int) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.append(header, guard)
        return caught.value.code


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_the_first_batch_needs_a_guard_and_the_next_ones_do_not(partition: Partition) -> None:
    guard = partition.guards.begin(batch(), 0)
    partition.append(batch(), guard)
    assert partition.guards.begin(batch(1), 0) == NOT_NEEDED
    partition.append(batch(1), NOT_NEEDED)


@pytest.mark.parametrize("guard", [NOT_NEEDED, 99])
def test_without_the_guard_that_stands_nothing_is_appended(partition: Partition, guard: int) -> None:
    assert partition.refused(batch(), guard) is ErrorCode.INVALID_TXN_STATE
    partition.guards.begin(batch(), 0)
    assert partition.refused(batch(), guard) is ErrorCode.INVALID_TXN_STATE


def test_a_zombie_does_not_move_where_its_successor_has_to_begin(partition: Partition) -> None:
    guard = partition.guards.begin(batch(5, epoch=1), 0)
    partition.guards.begin(batch(0, epoch=0), 0)
    partition.append(batch(5, epoch=1), guard)


def test_a_marker_written_while_the_coordinator_was_asked_voids_the_guard(partition: Partition) -> None:
    guard = partition.guards.begin(batch(), 0)
    partition.mark()
    assert partition.refused(batch(), guard) is ErrorCode.INVALID_TXN_STATE
    again = partition.guards.begin(batch(), 0)
    assert again != guard
    partition.append(batch(), again)


def test_a_marker_of_version_two_leaves_the_guard_of_the_next_transaction(partition: Partition) -> None:
    partition.append(batch(), partition.guards.begin(batch(), 0, 2))
    following = batch(epoch=1)
    guard = partition.guards.begin(following, 0, 2)
    partition.mark(1, transaction_version=2)
    partition.append(following, guard)


@pytest.mark.parametrize(("version", "marker_epoch"), [(2, 2), (1, 1)])
def test_a_marker_voids_the_guard_of_what_it_ends(partition: Partition, version: int, marker_epoch: int) -> None:
    ended = batch(epoch=1)
    guard = partition.guards.begin(ended, 0, version)
    partition.mark(marker_epoch, transaction_version=version)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH if marker_epoch > 1 else ErrorCode.INVALID_TXN_STATE
    assert partition.refused(ended, guard) is fenced


def test_another_epoch_of_the_leader_voids_all_guards_and_gives_none_again(partition: Partition) -> None:
    guard = partition.guards.begin(batch(), 0)
    partition.guards.clear()
    assert partition.refused(batch(), guard) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = partition.guards.begin(batch(), 0)
    assert partition.refused(batch(), guard) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.append(batch(), again)


def test_a_transaction_open_in_an_older_epoch_does_not_speak_for_a_newer(partition: Partition) -> None:
    partition.append(batch(), partition.guards.begin(batch(), 0))
    assert partition.guards.begin(batch(epoch=1), 0) != NOT_NEEDED
    assert partition.refused(batch(epoch=1), NOT_NEEDED) is ErrorCode.INVALID_TXN_STATE


def test_retries_share_a_guard_and_a_new_epoch_gets_its_own(partition: Partition) -> None:
    guard = partition.guards.begin(batch(), 0)
    assert partition.guards.begin(batch(), 5) == guard
    assert partition.guards.begin(batch(epoch=1), 5) != guard
    assert partition.refused(batch(epoch=1), guard) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_does_not_overtake_an_earlier_one_under_verification(partition: Partition) -> None:
    guard = partition.guards.begin(batch(5), 0)
    assert partition.guards.begin(batch(3), 0) == guard
    assert partition.refused(batch(5), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(batch(3), guard)


def test_after_the_largest_sequence_comes_zero_here_too(partition: Partition) -> None:
    last, following = batch(SEQUENCE_MAX - 49), batch(0)
    guard = partition.guards.begin(last, 0)
    assert partition.guards.begin(following, 0) == guard
    assert partition.refused(following, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(last, guard)
    partition.append(following, guard)


def test_version_two_begins_at_zero_where_the_producer_is_unknown(partition: Partition) -> None:
    guard = partition.guards.begin(batch(4), 0, transaction_version=2)
    assert partition.refused(batch(4), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.mark()
    partition.append(batch(4), partition.guards.begin(batch(4), 0, transaction_version=2))


def test_abandoned_guards_expire(partition: Partition) -> None:
    guard = partition.guards.begin(batch(), 100)
    assert partition.guards.expire(199, 100) == 0
    assert partition.guards.expire(200, 100) == 1
    assert partition.refused(batch(), guard) is ErrorCode.INVALID_TXN_STATE

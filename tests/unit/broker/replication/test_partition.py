"""What a hosted partition refuses, and what it ignores."""

import asyncio
import errno
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest

from ottla.broker.replication.acks import await_acks
from ottla.broker.replication.appending import append
from ottla.broker.replication.decisions.isr import Proposal
from ottla.broker.replication.decisions.replica import BrokerStanding, FollowerContact
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.feeding import follower_fetched
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import ParkedRequest, WakeQueue
from ottla.log.config import LogConfig
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.sync_later import SyncLater
from tests.unit.broker.fake_timers import FakeTimers

BROKERS = {broker: BrokerStanding(broker * 10, False, False) for broker in (1, 2, 3)}
NAME = TopicPartition("flights", 0)


@pytest.fixture
def partition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Partition]:
    loop = asyncio.new_event_loop()
    proposals: list[Proposal] = []
    events = PartitionServices(
        1, WakeQueue(loop), Durability(SyncLater()), lambda: 0, lambda _, proposal: proposals.append(proposal)
    )
    directory = str(tmp_path_factory.mktemp("logs") / str(NAME))
    log = Log.open(RealDisk(), directory, NAME, LogConfig(), now_ms=0)
    yield Partition("flights", 0, b"F" * 16, log, events)
    log.abandon()
    loop.close()


def lead(partition: Partition, *, epoch: int = 5, partition_epoch: int = 8, isr: tuple[int, ...] = (1, 2, 3)) -> bool:
    return partition.lead(
        1,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        replicas=(1, 2, 3),
        brokers=BROKERS,
        lag_time_max_ms=30_000,
        now_ms=0,
    )


def follow(
    partition: Partition,
    *,
    epoch: int,
    partition_epoch: int,
    leader: int = 2,
    isr: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
) -> bool:
    return partition.follow(
        leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        replicas=(1, 2, 3),
        backoff_max_ms=1_000,
        elr=elr,
    )


def batch() -> memoryview:
    return memoryview(encode_batch([Record(0, 1, None, b"value")]))


def test_older_news_than_what_the_controller_answered_is_ignored(partition: Partition) -> None:
    lead(partition, partition_epoch=8)
    assert not lead(partition, partition_epoch=7, isr=(1,))
    assert partition.leader is not None
    assert partition.leader.committed_isr == (1, 2, 3)
    assert not follow(partition, epoch=6, partition_epoch=7)
    assert partition.leader is not None


def test_the_same_news_again_is_taken(partition: Partition) -> None:
    lead(partition)
    assert lead(partition, isr=(1,))


def test_a_fetch_of_an_earlier_life_of_a_broker_is_refused(partition: Partition) -> None:
    lead(partition)
    with pytest.raises(KafkaError) as caught:
        follower_fetched(partition, 2, 19, 0, None, 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_late_fetch_of_an_earlier_life_takes_nothing_from_what_the_new_one_said(partition: Partition) -> None:
    lead(partition)
    leader = partition.leader
    assert leader is not None
    contact = FollowerContact(0)
    follower_fetched(partition, 2, 21, 0, contact, 0)  # it registered anew, which is not known here yet
    with pytest.raises(KafkaError) as caught:
        follower_fetched(partition, 2, 20, 5, FollowerContact(0), 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    replica = leader.replicas[2]
    assert (replica.broker_epoch, replica.log_end_offset, replica.contact) == (21, 0, contact)


def test_a_fetch_of_a_broker_that_is_no_replica_makes_it_ask_again(partition: Partition) -> None:
    lead(partition)
    with pytest.raises(KafkaError) as caught:
        follower_fetched(partition, 7, -1, 0, None, 0)
    assert caught.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_takes_no_records_from_clients(partition: Partition) -> None:
    follow(partition, epoch=5, partition_epoch=8)
    with pytest.raises(KafkaError) as caught:
        append(partition, batch(), 1, 0, 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_starts_a_new_fetch_for_each_leader_epoch_only(partition: Partition) -> None:
    assert follow(partition, epoch=5, partition_epoch=8)
    first = partition.follower
    assert not follow(partition, epoch=5, partition_epoch=9)
    assert partition.follower is first
    assert follow(partition, epoch=6, partition_epoch=10)


def test_a_follower_with_epochs_fetches_from_its_end_and_one_without_from_what_is_committed(
    partition: Partition,
) -> None:
    lead(partition)
    append(partition, batch(), 1, 0, 0)
    follow(partition, epoch=6, partition_epoch=9)
    assert partition.follower is not None
    assert (partition.follower.fetch_offset, partition.follower.last_fetched_epoch) == (1, 5)
    partition.log.epochs.truncate_from_end(0)
    follow(partition, epoch=7, partition_epoch=10)
    assert (partition.follower.fetch_offset, partition.follower.last_fetched_epoch) == (0, -1)


def test_a_leader_whose_log_cannot_be_read_leads_no_more_once_another_does(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Log) -> NoReturn:
        raise StorageError("no descriptor is left")

    lead(partition)
    info = append(partition, batch(), -1, 0, 0)
    told: list[Sequence[int]] = []
    parked = ParkedRequest(told.append)
    await_acks(partition, -1, info, parked)
    parked.park(FakeTimers().call_later_ms, 30_000)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "make_whole", refuse)
        with pytest.raises(StorageError):
            follow(partition, epoch=6, partition_epoch=9)
    assert partition.leader is None
    assert told == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
    assert follow(partition, epoch=6, partition_epoch=9)
    assert partition.leader_id == 2


def test_settings_that_a_log_takes_half_way_hold_for_its_leader(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "no descriptor is left")

    lead(partition, isr=(1,))
    with monkeypatch.context() as patch:
        patch.setattr(Log, "set_roll_time", refuse)
        with pytest.raises(StorageError):
            partition.configure(LogConfig(min_insync_replicas=2, segment_ms=1_000), 0)
    with pytest.raises(KafkaError) as caught:
        append(partition, batch(), -1, 0, 0)
    assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


# --- damage


def damaged(partition: Partition, *, at: int = 2, records: int = 5) -> None:
    lead(partition)
    for _ in range(records):
        append(partition, batch(), 1, 0, 0)
    partition.damaged(at)


def test_a_damaged_replica_is_cut_when_it_follows_a_new_epoch_out_of_the_isr(partition: Partition) -> None:
    damaged(partition)
    follow(partition, epoch=6, partition_epoch=9, isr=(2, 3))
    assert partition.log.log_end_offset == 2
    assert not partition.is_damaged
    assert partition.follower is not None
    assert partition.follower.fetch_offset == 2


def test_a_damaged_replica_keeps_what_it_has_while_the_isr_names_it(partition: Partition) -> None:
    damaged(partition)
    follow(partition, epoch=6, partition_epoch=9, isr=(1, 2, 3))
    assert partition.log.log_end_offset == 5, "it could be elected the next moment"
    assert partition.is_damaged


def test_a_damaged_replica_keeps_what_it_has_while_it_is_eligible(partition: Partition) -> None:
    damaged(partition)
    follow(partition, epoch=6, partition_epoch=9, isr=(2,), elr=(1, 3))
    assert partition.log.log_end_offset == 5, "it could be elected as if it lacked nothing"
    assert partition.is_damaged, "and is reported, so that it will not be"
    follow(partition, epoch=7, partition_epoch=10, isr=(2,), elr=(3,))
    assert partition.log.log_end_offset == 2


def test_a_damaged_replica_keeps_what_it_has_in_an_epoch_that_it_fetched_in(partition: Partition) -> None:
    damaged(partition)
    follow(partition, epoch=6, partition_epoch=9, isr=(1, 2, 3))
    follow(partition, epoch=6, partition_epoch=10, isr=(2, 3))
    assert partition.log.log_end_offset == 5, "the leader may be taking it back for a fetch at 5"
    follow(partition, epoch=7, partition_epoch=11, isr=(2, 3))
    assert partition.log.log_end_offset == 2


def test_a_damaged_replica_keeps_what_it_has_while_nobody_leads(partition: Partition) -> None:
    damaged(partition)
    follow(partition, epoch=6, partition_epoch=9, leader=-1, isr=(3,))
    assert partition.log.log_end_offset == 5, "there is nobody to fetch it from"


def test_the_lowest_damage_counts(partition: Partition) -> None:
    damaged(partition, at=3)
    assert not partition.damaged(4)
    assert partition.damaged(1)
    assert partition.damaged_from == 1


def test_damage_that_retention_took_is_none(partition: Partition) -> None:
    lead(partition, isr=(1,))
    for _ in range(3):
        append(partition, batch(), 1, 0, 0)
    partition.log.roll()
    append(partition, batch(), 1, 0, 0)
    partition.damaged(1)
    partition.log.advance_log_start(3)
    assert partition.is_damaged, "the segment is there"
    partition.log.delete_old_segments(0)
    assert not partition.is_damaged
    follow(partition, epoch=6, partition_epoch=9, isr=(2, 3))
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (3, 4)
    assert partition.damaged(3)


@pytest.mark.parametrize(
    ("isr", "elr", "leader", "silent_ms", "end"),
    [
        ((2, 3), (), 2, 86_400_000, 1),
        ((2, 3), (), 2, 86_399_999, 2),
        ((1, 2, 3), (), 2, 86_400_000, 2),
        ((2, 3), (1,), 2, 86_400_000, 2),
        ((2, 3), (), -1, 86_400_000, 2),
    ],
    ids=["away for long", "away for less", "in sync", "eligible", "nobody leads"],
)
def test_what_was_open_before_a_long_absence_is_cut_where_nobody_may_need_it(
    partition: Partition, isr: tuple[int, ...], elr: tuple[int, ...], leader: int, silent_ms: int, end: int
) -> None:
    partition.log.gaps_allowed = True
    partition.log.append_as_leader(batch(), 5, 0)
    begun = encode_batch(
        [Record(0, 1, None, b"value")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    partition.log.append_as_leader(memoryview(begun), 5, 0, verified=True)
    partition.log.silent_ms = silent_ms
    partition.follow(
        leader, leader_epoch=6, partition_epoch=9, isr=isr, replicas=(1, 2, 3), backoff_max_ms=1_000, elr=elr
    )
    assert partition.log.log_end_offset == end


def test_what_was_open_stays_when_a_replica_that_was_long_away_has_followed_since(partition: Partition) -> None:
    partition.log.gaps_allowed = True
    partition.log.silent_ms = 86_400_000
    follow(partition, epoch=6, partition_epoch=9, isr=(2, 3))
    assert partition.log.silent_ms == 0, "what is written from here on comes as it is written"

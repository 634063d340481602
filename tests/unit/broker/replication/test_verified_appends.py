"""Appends of batches that begin a transaction, while the leader's epoch changes under what is asked about them."""

import asyncio
from collections.abc import Iterator

import pytest

from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.verified_appends import append_verified, guards_of
from ottla.log.batch import read_header
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater

NAME = TopicPartition("flights", 0)


@pytest.fixture
def partition() -> Iterator[Partition]:
    """Led by this broker, 1, in epoch 5."""
    loop = asyncio.new_event_loop()
    services = PartitionServices(1, WakeQueue(loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/data")
    log = Log.open(disk, f"/data/{NAME}", NAME, LogConfig(), now_ms=0)
    made = Partition("flights", 0, b"F" * 16, log, services)
    lead(made, 5)
    yield made
    log.abandon()
    loop.close()


def lead(partition: Partition, epoch: int) -> None:
    partition.lead(
        1,
        leader_epoch=epoch,
        partition_epoch=epoch,
        isr=(1,),
        replicas=(1, 2),
        brokers={2: BrokerStanding(20, False, False)},
        lag_time_max_ms=30_000,
        now_ms=0,
    )


def batch(sequence: int) -> bytearray:
    return bytearray(
        encode_batch(
            [Record(0, 1, None, b"value")],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
    )


def begin(partition: Partition, sequence: int) -> int:
    """The guard under which the coordinator is asked."""
    return guards_of(partition).begin(read_header(batch(sequence)), 0)


def vouched(partition: Partition, sequence: int, guard: int) -> ErrorCode:
    """The coordinator did: what the batch is answered."""
    made = batch(sequence)
    try:
        append_verified(partition, made, read_header(made), guard, acks=-1, wall_ms=1, now_ms=0)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_the_second_batch_is_not_written_first_though_the_leader_has_another_epoch_by_then(
    partition: Partition,
) -> None:
    """The first was sent back, and out of order when it came again: what its client takes for the loss of acknowledged records."""
    first = begin(partition, 0)
    lead(partition, 6)
    second = begin(partition, 1)
    assert vouched(partition, 1, second) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert vouched(partition, 0, first) is ErrorCode.NONE
    assert vouched(partition, 1, second) is ErrorCode.NONE


def test_what_was_proved_before_another_could_lead_is_asked_about_again(partition: Partition) -> None:
    guard = begin(partition, 0)
    lead(partition, 7)
    assert vouched(partition, 0, guard) is ErrorCode.NOT_LEADER_OR_FOLLOWER

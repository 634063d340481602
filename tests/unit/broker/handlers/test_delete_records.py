"""DeleteRecords: what is refused, and when the client is told that the records are gone."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.feeding import follower_fetched
from ottla.broker.replication.joining import retry_joins
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater
from tests.unit.broker.handlers.conftest import Site

RECORDS = 10
COMMITTED = 8
VERSION = 2
BOTH = ("compact", "delete")


class Bench:
    """Ten records, eight of them committed, on a broker with one follower: broker 2."""

    def __init__(self, topic: str = "flights") -> None:
        self.loop = asyncio.new_event_loop()
        self.site = Site()
        events = PartitionServices(1, WakeQueue(self.loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
        disk = SimulatedDisk(Platter.seeded(1))
        disk.make_directories("/data")
        name = TopicPartition(topic, 0)
        self.log = Log.open(disk, f"/data/{name}", name, LogConfig(), now_ms=0)
        for _ in range(RECORDS):
            self.log.append_as_leader(memoryview(encode_batch([Record(0, 1, b"key", b"value")])), 5, 0)
        self.log.set_high_watermark(COMMITTED)
        self.partition = Partition(topic, 0, b"F" * 16, self.log, events)
        self.brokers = {broker: BrokerStanding(broker * 10, False, False) for broker in (1, 2)}
        self.site.broker.replicas.partitions[topic, 0] = self.partition
        cast(Any, self.site.broker.replicas).missing_error = lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.lead()

    def lead(self, partition_epoch: int = 1, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)) -> None:
        self.partition.lead(
            1,
            leader_epoch=5,
            partition_epoch=partition_epoch,
            isr=isr,
            replicas=replicas,
            brokers=self.brokers,
            lag_time_max_ms=30_000,
            now_ms=0,
        )

    def follower_begins_at(self, log_start_offset: int) -> None:
        follower_fetched(self.partition, 2, 20, COMMITTED, None, 0, log_start_offset)

    def send(self, offset: int, topic: str = "flights", index: int = 0) -> None:
        asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])
        self.site.send(DeleteRecordsRequest([asked], 1_500), VERSION)

    def answer(self) -> tuple[int, int]:
        """(error, low watermark)"""
        (topic,) = self.site.received("DeleteRecordsResponse", VERSION).topics
        (result,) = topic.partitions
        return result.error_code, result.low_watermark

    @property
    def answered(self) -> bool:
        return bool(self.site.written)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.log.abandon()
    made.loop.close()


def test_the_client_is_told_once_every_replica_begins_there(bench: Bench) -> None:
    bench.send(5)
    assert bench.log.log_start_offset == 5
    assert not bench.answered
    bench.follower_begins_at(4)
    assert not bench.answered
    bench.follower_begins_at(5)
    assert bench.answer() == (ErrorCode.NONE, 5)


def test_minus_one_deletes_all_that_is_committed(bench: Bench) -> None:
    bench.follower_begins_at(COMMITTED)
    bench.send(-1)
    assert bench.answer() == (ErrorCode.NONE, COMMITTED)


def test_what_is_gone_already_is_success(bench: Bench) -> None:
    bench.log.advance_log_start(6)
    bench.follower_begins_at(6)
    bench.send(3)
    assert bench.answer() == (ErrorCode.NONE, 6)
    assert bench.log.log_start_offset == 6


def test_a_fenced_follower_is_not_waited_for(bench: Bench) -> None:
    bench.brokers[2] = BrokerStanding(20, True, False)
    bench.send(5)
    assert bench.answer() == (ErrorCode.NONE, 5)


def test_a_follower_that_is_fenced_meanwhile_is_waited_for_no_longer(bench: Bench) -> None:
    bench.send(5)
    bench.lead(2, isr=(1,))
    assert not bench.answered
    bench.brokers[2] = BrokerStanding(20, True, False)
    for (
        partition
    ) in bench.partition.services.incomplete:  # the replica manager's, when a broker changes and now and then
        retry_joins(partition, 0)
    assert bench.answer() == (ErrorCode.NONE, 5)


def test_a_replica_that_goes_meanwhile_is_waited_for_no_longer(bench: Bench) -> None:
    bench.send(5)
    bench.lead(2, isr=(1,), replicas=(1,))
    assert bench.answer() == (ErrorCode.NONE, 5)


@pytest.mark.parametrize("offset", [-2, COMMITTED + 1, RECORDS + 1])
def test_offsets_beyond_what_is_committed_are_out_of_range(bench: Bench, offset: int) -> None:
    bench.send(offset)
    assert bench.answer() == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert bench.log.log_start_offset == 0


@pytest.mark.parametrize(("policy", "error"), [(("compact",), ErrorCode.POLICY_VIOLATION), (BOTH, ErrorCode.NONE)])
def test_a_topic_that_is_only_compacted_keeps_its_records(
    bench: Bench, policy: tuple[str, ...], error: ErrorCode
) -> None:
    bench.log.configure(LogConfig(cleanup_policy=policy))
    bench.follower_begins_at(5)
    bench.send(5)
    assert bench.answer()[0] == error
    assert bench.log.log_start_offset == (0 if error else 5)


def test_only_the_leader_deletes(bench: Bench) -> None:
    bench.partition.follow(2, leader_epoch=6, partition_epoch=2, isr=(2,), replicas=(1, 2), backoff_max_ms=1)
    bench.send(5)
    assert bench.answer() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_whoever_waits_is_told_that_the_leader_changed(bench: Bench) -> None:
    bench.send(5)
    bench.partition.follow(2, leader_epoch=6, partition_epoch=2, isr=(2,), replicas=(1, 2), backoff_max_ms=1)
    assert bench.answer() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_replicas_that_do_not_follow_are_waited_for_no_longer_than_asked(bench: Bench) -> None:
    bench.follower_begins_at(2)
    bench.send(5)
    bench.site.timers.advance(1_499)
    assert not bench.site.written
    bench.site.timers.advance(1)
    assert bench.answer() == (ErrorCode.REQUEST_TIMED_OUT, 2)


def test_waiters_that_gave_up_are_forgotten(bench: Bench) -> None:
    bench.send(5)
    bench.site.timers.advance(1_500)
    bench.answer()
    bench.send(6)
    assert [offset for offset, _, _ in bench.partition.delete_waiters] == [6]


def test_a_partition_that_is_not_here_and_a_failed_one_say_so(bench: Bench) -> None:
    bench.send(5, index=1)
    assert bench.answer() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    bench.partition.retire(ErrorCode.KAFKA_STORAGE_ERROR)
    bench.send(5)
    assert bench.answer() == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_internal_topics_are_not_touched(bench: Bench) -> None:
    bench.send(5, topic="__consumer_offsets")
    assert bench.answer() == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_a_partition_that_is_named_again_and_again_is_waited_for_once_and_the_last_offset_holds(bench: Bench) -> None:
    asked = [DeleteRecordsTopic("flights", [DeleteRecordsPartition(0, offset)] * 50) for offset in (3, 5, 4)]
    bench.site.send(DeleteRecordsRequest(asked, 1_500), VERSION)
    assert [offset for offset, _, _ in bench.partition.delete_waiters] == [4]
    bench.follower_begins_at(4)
    assert bench.answer() == (ErrorCode.NONE, 4)


def test_of_many_partitions_some_are_deleted_from_in_a_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.handlers.delete_records.PIECE", 2)
    asked = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, 5) for index in (3, 2, 1)]) for topic in "ab"]
    ours = DeleteRecordsTopic("flights", [DeleteRecordsPartition(0, 5)])

    async def send() -> None:
        bench.site.send(DeleteRecordsRequest([*asked, ours], 1_500), VERSION)
        assert bench.log.log_start_offset == 0
        while not bench.log.log_start_offset:
            assert not bench.answered
            await asyncio.sleep(0)

    asyncio.run(send())
    assert bench.log.log_start_offset == 5
    assert not bench.answered, "a follower has yet to delete"
    bench.follower_begins_at(5)
    topics = bench.site.received("DeleteRecordsResponse", VERSION).topics
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in topics] == [
        ("a", [3, 2, 1]),
        ("b", [3, 2, 1]),
        ("flights", [0]),
    ]


def test_who_goes_while_it_is_deleted_is_waited_for_no_longer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.handlers.delete_records.PIECE", 1)
    there = DeleteRecordsTopic("flights", [DeleteRecordsPartition(index, 5) for index in (0, 1, 2)])

    async def send_and_go() -> None:
        bench.site.send(DeleteRecordsRequest([there], 1_500), VERSION)
        assert [waiter.done for _, waiter, _ in bench.partition.delete_waiters] == [False]
        bench.site.connection.connection_lost(None)
        await asyncio.sleep(0)

    asyncio.run(send_and_go())
    assert [waiter.done for _, waiter, _ in bench.partition.delete_waiters] == [True]

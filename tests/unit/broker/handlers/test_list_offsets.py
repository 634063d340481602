"""ListOffsets: of thousands of partitions a piece at a time, and searches that outlast who leads."""

import asyncio
from typing import cast

import pytest

from ottla.broker.handlers.list_offsets import PIECE, ListOffsets
from ottla.broker.handlers.time_searches import TimeSearches
from ottla.broker.replication.appending import append
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.log.results import ColdReadError, TimestampAndOffset
from ottla.log.times import Look, Search
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater


class NoReplicas:
    """Of a broker that hosts nothing but what the test gives it."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str | bytes, int], Partition] = {}

    def note_damage(self, partition: Partition, error: KafkaError) -> None:
        """There is none."""

    def missing_error(self, topic: str, index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("topics", "each", "pieces"), [(1, PIECE // 2 - 1, 0), (1, 3 * PIECE, 6), (3, PIECE, 6)])
def test_partitions_are_looked_at_in_pieces_whatever_their_topics(topics: int, each: int, pieces: int) -> None:
    asked = [ListOffsetsPartition(index, -1, -1) for index in range(each)]
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(f"topic-{number}", asked) for number in range(topics)])
    answering = ListOffsets(cast(ReplicaManager, NoReplicas()), cast(TimeSearches, None), body, 7)
    assert len(list(answering.look())) == pieces
    told = [len(topic.partitions) for topic in answering.response.topics]
    assert told == [each] * topics


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


class OutlivedSearches:
    """Somebody else leads while a thread looks into a batch, and has it cut off; then this broker leads again."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    async def finish(self, search: Search, step: Look | ColdReadError) -> TimestampAndOffset | None:
        assert isinstance(step, Look)
        found = step()
        partition, log = self._partition, self._partition.log
        partition.follow(2, leader_epoch=6, partition_epoch=6, isr=(1, 2), replicas=(1, 2), backoff_max_ms=1_000)
        log.truncate_to(0)
        log.append_as_follower(encode_batch([Record(0, 7, None, b"another")], leader_epoch=6), 6)
        partition.learn_high_watermark(1)
        lead(partition, 7)
        try:
            search.send(found)
        except StopIteration as end:
            return cast(TimestampAndOffset | None, end.value)
        raise AssertionError("it had what it was looking for")


def test_a_search_that_outlasts_a_leader_between_tells_nothing_of_the_log_that_was() -> None:
    """The record that it found stands there no more."""
    loop = asyncio.new_event_loop()
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/data")
    name = TopicPartition("t", 0)
    log = Log.open(disk, f"/data/{name}", name, LogConfig(), now_ms=0)
    services = PartitionServices(1, WakeQueue(loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
    partition = Partition("t", 0, b"T" * 16, log, services)
    lead(partition, 5)
    append(partition, memoryview(encode_batch([Record(0, 1_000, None, bytes(100_000))])), 1, 1_000, 0)
    replicas = NoReplicas()
    replicas.partitions["t", 0] = partition
    body = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 500)])])
    searches = cast(TimeSearches, OutlivedSearches(partition))
    answering = ListOffsets(cast(ReplicaManager, replicas), searches, body, 7)
    assert not list(answering.look())
    loop.run_until_complete(answering.finish())
    (told,) = answering.response.topics[0].partitions
    assert (told.error_code, told.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    log.abandon()
    loop.close()

"""One partition's part of a Fetch answer, read from a real log."""

import asyncio
from collections.abc import Iterator

import pytest

from ottla.broker.fetch_tuples import RECORDS, FetchPartition
from ottla.broker.handlers.fetching.fetch_read import READ_COMMITTED, Reader, note_follower, read
from ottla.broker.replication.appending import append
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.runtime.identifiers import ZERO_ID
from ottla.runtime.simulation.disk import SimulatedDisk, SimulatedFile
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater

NAME = TopicPartition("flights", 0)
ABORTED = 15


@pytest.fixture
def partition() -> Iterator[Partition]:
    """Led by this broker alone, with fifteen transactions, one after the other, all aborted: a record and its marker each."""
    loop = asyncio.new_event_loop()
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/data")
    log = Log.open(disk, f"/data/{NAME}", NAME, LogConfig(), now_ms=0)
    for number in range(ABORTED):
        records = [Record(2 * number, 1, None, b"value")]
        begun = encode_batch(
            records,
            base_offset=2 * number,
            leader_epoch=0,
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        marker = end_marker_batch(
            EndMarker(False, 0),
            base_offset=2 * number + 1,
            leader_epoch=0,
            producer_id=number,
            producer_epoch=0,
            timestamp=1,
        )
        log.append_as_follower(begun, 0)
        log.append_as_follower(marker, 0)
    services = PartitionServices(1, WakeQueue(loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
    partition = Partition("flights", 0, b"F" * 16, log, services)
    partition.lead(
        1,
        leader_epoch=0,
        partition_epoch=0,
        isr=(1,),
        replicas=(1,),
        brokers={},
        lag_time_max_ms=30_000,
        now_ms=0,
    )
    yield partition
    log.abandon()
    loop.close()


def wanted(offset: int, max_bytes: int) -> FetchPartition:
    return (0, -1, offset, -1, -1, max_bytes, ZERO_ID, -1)


def aborted(partition: Partition, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    """(producer id, first offset) of those that an answer to a consumer at read_committed names."""
    reader = Reader(12, isolation=READ_COMMITTED)
    answer, _ = read(partition, wanted(offset, max_bytes), reader, 1 << 20, minimum_one=True)
    return list(answer[5] or ())


def test_an_answer_names_the_aborted_transactions_of_the_records_in_it_and_no_others(partition: Partition) -> None:
    assert aborted(partition, 0, max_bytes=1) == [(0, 0)]
    assert aborted(partition, 8, max_bytes=1) == [(4, 8)]
    assert aborted(partition, 9, max_bytes=1) == [(4, 8)]  # the marker alone


def test_an_answer_with_all_records_names_all_aborted_transactions(partition: Partition) -> None:
    assert aborted(partition, 0) == [(number, 2 * number) for number in range(ABORTED)]


def test_of_what_a_follower_asks_for_again_no_more_is_looked_at_than_it_was_given(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost answer all its partitions come again in one request: a megabyte of each would hold everybody, and may be cold."""
    partition.lead(
        1, leader_epoch=1, partition_epoch=1, isr=(1,), replicas=(1, 2), brokers={}, lag_time_max_ms=30_000, now_ms=0
    )
    start = partition.log.log_end_offset
    for _ in range(10):
        append(partition, memoryview(encode_batch([Record(0, 1, None, bytes(100_000))])), 1, 1, 0)
    follower = Reader(17, replica_id=2, replica_epoch=20)
    given, _ = read(partition, wanted(start, max_bytes=1), follower, 1 << 20, minimum_one=True)
    looked_at: list[int] = []
    read_at = SimulatedFile.read_at

    def noted(file: SimulatedFile, length: int, offset: int) -> bytes:
        looked_at.append(length)
        return read_at(file, length, offset)

    monkeypatch.setattr(SimulatedFile, "read_at", noted)
    assert note_follower(partition, wanted(start, 1 << 20), follower, None, 0)
    assert len(given[RECORDS] or b"") <= sum(looked_at) < 300_000
    looked_at.clear()
    assert note_follower(partition, wanted(start, 1 << 20), follower, None, 0)
    assert not looked_at, "once for each time that it was given"

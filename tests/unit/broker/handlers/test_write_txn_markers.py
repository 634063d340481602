"""WriteTxnMarkers: when the coordinator is told of a partition whose replicas do not come."""

import asyncio
from collections.abc import Iterator

import pytest

from ottla.broker.links.connection import LOOKS
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater
from tests.unit.broker.handlers.conftest import Site

VERSION = 2
STALL_MS = 5_000


class Bench:
    """Broker 1 leads ``t-0`` alone, and ``t-1``, whose follower fetches nothing."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.site = Site(request_timeout_ms=str(STALL_MS))
        services = PartitionServices(1, WakeQueue(self.loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
        disk = SimulatedDisk(Platter.seeded(1))
        disk.make_directories("/data")
        self.logs = []
        for index, replicas in enumerate(((1,), (1, 2))):
            name = TopicPartition("t", index)
            log = Log.open(disk, f"/data/{name}", name, LogConfig(), now_ms=0)
            partition = Partition("t", index, b"T" * 16, log, services)
            partition.lead(
                1,
                leader_epoch=5,
                partition_epoch=1,
                isr=replicas,
                replicas=replicas,
                brokers={broker: BrokerStanding(broker * 10, False, False) for broker in replicas},
                lag_time_max_ms=30_000,
                now_ms=0,
            )
            self.logs.append(log)
            self.site.broker.replicas.partitions["t", index] = partition

    def close(self) -> None:
        for log in self.logs:
            log.abandon()
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_one_partition_without_its_replicas_does_not_end_the_connection_for_all_others(bench: Bench) -> None:
    """A coordinator takes a leader that says nothing for so long for dead, and asks everything again, of this partition too."""
    asked = WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [0, 1])], 3, 2)
    bench.site.send(WriteTxnMarkersRequest([asked]), VERSION)
    assert not bench.site.written
    bench.site.timers.advance(STALL_MS * (LOOKS - 1) // LOOKS - 1)
    (told,) = bench.site.received("WriteTxnMarkersResponse", VERSION).markers
    assert [each.error_code for each in told.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


def test_a_partition_that_is_named_again_and_again_is_told_once(bench: Bench) -> None:
    """Half a million, 2 MiB, held the broker for five seconds."""
    topic = WritableTxnMarkerTopic("t", [0, 0, 0])
    bench.site.send(WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, [topic, topic], 3, 2)]), VERSION)
    (told,) = bench.site.received("WriteTxnMarkersResponse", VERSION).markers
    assert [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in told.topics] == [
        [(0, ErrorCode.NONE)]
    ]

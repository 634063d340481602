"""What a broker reads by itself: how much in a turn, up to where, and what ends it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest

from ottla.broker.replication import own_reads
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.own_reads import PartitionReading
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.log.batch import headers
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.log.results import ColdReadError
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater

NAME = TopicPartition("__consumer_offsets", 0)
VALUE = b"v" * 1000
SLICE = 4 << 10
COUNT = 40


class Bench:
    """A log of forty records of a kilobyte, over several segments; reads that are cold wait for `warm`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.platter = Platter.seeded(1)
        disk = SimulatedDisk(self.platter)
        disk.make_directories(f"/data/{NAME}")
        self.log = Log.open(disk, f"/data/{NAME}", NAME, LogConfig(segment_bytes=10_000), now_ms=0)
        for _ in range(COUNT):
            self.append()
        services = PartitionServices(1, WakeQueue(loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
        self.partition = Partition(NAME.topic, 0, b"C" * 16, self.log, services)
        self.slices: list[tuple[int, int]] = []
        self.read: list[int] = []
        self.ends: list[KafkaError | None] = []
        self.loading: list[Callable[[], None]] = []

    def append(self) -> None:
        self.log.append_as_leader(encode_batch([Record(0, 1, b"key", VALUE)]), 5, 0)

    def load(self, cold: Sequence[ColdReadError], on_done: Callable[[], None]) -> None:
        self.loading.append(on_done)

    def begin(self, offset: int = 0, up_to: own_reads.UpTo = own_reads.log_end) -> PartitionReading:
        return PartitionReading(self.partition, offset, up_to, self, self.take, self.ends.append, SLICE)

    def take(self, data: bytes, offset: int, next_offset: int) -> None:
        self.slices.append((len(data), next_offset))
        self.read += [header.base_offset for _, header in headers(data) if header.base_offset >= offset]

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def turns(self) -> None:
        for _ in range(COUNT + 2):
            self.turn()


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = asyncio.new_event_loop()
    made = Bench(loop)
    yield made
    made.log.abandon()
    loop.close()


def within(bench: Bench, call: Callable[[], object]) -> None:
    bench.loop.call_soon(call)
    bench.turn()


def test_a_turn_of_the_loop_reads_one_slice(bench: Bench) -> None:
    within(bench, bench.begin)
    for number in range(1, 4):
        bench.turn()
        assert len(bench.slices) == number
    bench.turns()
    assert all(size <= SLICE for size, _ in bench.slices)
    assert bench.read == list(range(COUNT))
    assert bench.ends == [None]


def test_it_reads_on_what_is_appended_meanwhile(bench: Bench) -> None:
    within(bench, bench.begin)
    bench.turn()
    bench.append()
    bench.turns()
    assert bench.read == list(range(COUNT + 1))


def test_it_stops_at_the_high_watermark(bench: Bench) -> None:
    bench.log.set_high_watermark(17)
    within(bench, lambda: bench.begin(up_to=own_reads.high_watermark))
    bench.turns()
    assert bench.read == list(range(17))
    assert bench.ends == [None]


def test_it_begins_where_the_log_begins_if_that_is_later(bench: Bench) -> None:
    bench.log.set_high_watermark(COUNT)
    bench.log.advance_log_start(15)
    within(bench, lambda: bench.begin(3))
    bench.turns()
    assert bench.read == list(range(15, COUNT))


def test_a_cold_slice_is_waited_for_and_the_loop_goes_on(bench: Bench) -> None:
    bench.platter.cold["/data"] = None
    within(bench, bench.begin)
    bench.turns()
    assert bench.read == []
    while bench.loading:
        within(bench, bench.loading.pop())
        bench.turns()
    assert bench.read == list(range(COUNT))
    assert bench.ends == [None]


def test_after_a_cancellation_nothing_is_told(bench: Bench) -> None:
    begun: list[PartitionReading] = []
    within(bench, lambda: begun.append(bench.begin()))
    bench.turn()
    told = len(bench.slices)
    begun[0].cancel()
    bench.turns()
    assert len(bench.slices) == told
    assert bench.ends == []


def test_a_cancellation_while_it_waits_for_the_disk_holds(bench: Bench) -> None:
    begun: list[PartitionReading] = []
    bench.platter.cold["/data"] = None
    within(bench, lambda: begun.append(bench.begin()))
    bench.turns()
    begun[0].cancel()
    within(bench, bench.loading.pop())
    bench.turns()
    assert (bench.slices, bench.ends) == ([], [])


def test_a_disk_that_failed_ends_it(bench: Bench) -> None:
    within(bench, bench.begin)
    bench.turn()
    bench.partition.retire(ErrorCode.KAFKA_STORAGE_ERROR)
    bench.turns()
    (error,) = bench.ends
    assert error is not None
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_empty_log_ends_at_once(bench: Bench) -> None:
    within(bench, lambda: bench.begin(COUNT))
    bench.turns()
    assert (bench.slices, bench.ends) == ([], [None])

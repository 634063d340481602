"""A partition that broker 1 leads and broker 2 follows, with a shard on it, and time that stands."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from typing import Any

from ottla.broker.coordinator.decisions.effects import Record, Undo
from ottla.broker.coordinator.shard_host import ShardHost, Surroundings
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.feeding import follower_fetched
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.wire.errors import WireError
from ottla.log.batch import HEADER_BYTES
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record as LogRecord
from ottla.log.records import encode_batch, reseal
from ottla.log.results import ColdReadError
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater

BROKERS = {broker: BrokerStanding(broker * 10, False, False) for broker in (1, 2)}

NAME = TopicPartition("__consumer_offsets", 0)
EPOCH = 5
WRITE_TIMEOUT_MS = 5_000
BAD = b"bad"
CONFIG = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "2@c:9093",
    "controller.listener.names": "C",
    "log.dirs": "/data",
}

CANNOT_READ = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")


class Words:
    """A shard of values by key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.told: list[Any] = []
        self.replayed: list[bytes] = []
        self.pieces = 0
        """In so many it begins, and ends."""

    def replay(self, record: Record, place: int, producer_id: int = -1) -> Undo:
        self.replayed.append(record.key)
        if record.key == BAD:
            raise WireError("it makes no sense")
        before = self.values.get(record.key)
        self.values[record.key] = record.value

        def undo() -> None:
            self.values[record.key] = before

        return undo

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.told.append((producer_id, is_commit))

    def begin(self) -> Iterator[None]:
        self.told.append("begin")
        for _ in range(self.pieces):
            yield

    def end(self, error: ErrorCode) -> Iterator[None]:
        self.told.append(error)
        return self._end()

    def _end(self) -> Iterator[None]:
        for _ in range(self.pieces):
            yield
            self.told.append("ended")


class Timers:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = 0
        self.due: dict[object, tuple[int, Callable[[], None]]] = {}

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return 1_000_000 + self.ms

    def call_later_ms(self, in_ms: int, call: Callable[[], None]) -> "Alarm":
        alarm = Alarm(self)
        self.due[alarm] = self.ms + in_ms, call
        return alarm

    def pass_ms(self, by_ms: int) -> None:
        self.ms += by_ms
        for alarm in [each for each, (at_ms, _) in self.due.items() if at_ms <= self.ms]:
            self.due.pop(alarm)[1]()


class Alarm:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def cancel(self) -> None:
        self._timers.due.pop(self, None)


class Bench:
    """A partition that broker 1 leads and broker 2 follows, and its shard."""

    def __init__(self) -> None:
        self.timers = Timers()
        disk = SimulatedDisk(Platter.seeded(1))
        disk.make_directories(f"/data/{NAME}")
        self.log = Log.open(disk, f"/data/{NAME}", NAME, LogConfig(max_message_bytes=400), now_ms=0)
        services = PartitionServices(
            1, WakeQueue(asyncio.get_running_loop()), Durability(SyncLater()), lambda: 0, lambda *_: None
        )
        self.partition = Partition(NAME.topic, 0, b"C" * 16, self.log, services)
        self.partition.lead(
            1,
            leader_epoch=EPOCH,
            partition_epoch=self.partition.partition_epoch + 1,
            isr=(1, 2),
            replicas=(1, 2),
            brokers=BROKERS,
            lag_time_max_ms=30_000,
            now_ms=0,
        )
        self.words = Words()
        timers: Any = self.timers
        self.damage: list[KafkaError] = []
        self.around = Surroundings(
            timers, timers, Random(1), self, WRITE_TIMEOUT_MS, note_damage=lambda _, error: self.damage.append(error)
        )
        self.host = ShardHost(self.partition, EPOCH, self.around)
        self.loaded: list[KafkaError | None] = []
        self.told: list[ErrorCode] = []

    def load(self, cold: Sequence[ColdReadError], on_done: Callable[[], None]) -> None:
        raise AssertionError("nothing is cold")

    def fill(self, *records: tuple[bytes, bytes | None], **more: Any) -> None:
        batch = encode_batch([LogRecord(at, 1, key, value) for at, (key, value) in enumerate(records)], **more)
        self.log.append_as_leader(batch, EPOCH, 0)

    def damage_the_next_batch(self) -> None:
        """Its checksum will be right, and its only record longer than it is."""
        batch = bytearray(encode_batch([LogRecord(0, 1, b"lost", b"v")]))
        batch[HEADER_BYTES] = 126
        reseal(batch)
        self.log.append_own(batch, EPOCH, 0)

    async def begin(self, turns: int = 5) -> None:
        self.host.load(self.words, self.loaded.append)
        await self.turn(turns)

    def write(self, key: bytes, value: bytes) -> None:
        self.host.write([Record(key, value)], self.told.append)

    async def turn(self, times: int = 1) -> None:
        """The loop's."""
        for _ in range(times):
            await asyncio.sleep(0)

    async def follower_has_all(self) -> None:
        follower_fetched(self.partition, 2, 20, self.log.log_end_offset, None, 0)
        await self.turn()


def on_a_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test, in a loop of its own."""

    async def run() -> None:
        bench = Bench()
        await scenario(bench)
        bench.log.abandon()

    def test() -> None:
        asyncio.run(run())

    return test

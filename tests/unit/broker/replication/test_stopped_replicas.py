"""A broker that stops: a thread closes its logs while the loop goes on, and nothing else may write to them by then."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest

from ottla.broker.replication.following.leader import FetchRequest, OnFetched
from ottla.broker.replication.following.truncating import SYNCED_PER_TURN
from ottla.broker.replication.intake import Intake, Prepared, Preparers
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.log.compression import GZIP
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import partition_record
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.threads import Threads
from tests.unit.broker.handlers.conftest import Site

TOPIC_ID = b"T" * 16
PARTITIONS = SYNCED_PER_TURN + 1


class FakeLeader:
    """Broker 2. It has what it was asked, and answers when the test does."""

    is_up = True

    def __init__(self) -> None:
        self.asked: list[OnFetched] = []

    def move(self, _address: object) -> bool:
        return False

    def fetch(self, _request: FetchRequest, on_fetched: OnFetched) -> None:
        self.asked.append(on_fetched)

    def worked(self) -> None:
        """It need not know."""

    def close(self) -> None:
        """Nor that."""


class Bench:
    """Broker 1, which follows ``t`` from broker 2 with three records in each partition."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        site, nobody = Site(), cast(Any, None)
        self.timers = site.timers
        self.disk = SimulatedDisk(Platter.seeded(1))
        self.disk.make_directories("/data")
        self.logs: dict[TopicPartition, Log] = {}
        self.deleted: list[TopicPartition] = []
        self.leader = FakeLeader()
        self.opened: list[int] = []
        self.manager = ReplicaManager(
            site.config,
            cast(Any, self),
            self.timers,
            nobody,
            Random(1),
            WakeQueue(self.loop),
            SyncLater(),
            self._open_leader,
        )
        self.image = MetadataImage()
        self.learn(
            pb.MetadataRecord(topic=pb.Topic(name="t", topic_id=TOPIC_ID)),
            *(partition(index) for index in range(PARTITIONS)),
        )

    def get_or_create(self, name: TopicPartition, config: LogConfig, *_rest: object, **_more: object) -> Log:
        log = self.logs[name] = Log.open(self.disk, f"/data/{name}", name, config, now_ms=0)
        for _ in range(3):
            log.append_as_leader(encode_batch([Record(0, 1, None, b"value")]), 0, 1)
        return log

    def delete(self, name: TopicPartition, _topic_id: bytes) -> None:
        self.deleted.append(name)

    def _open_leader(self, leader_id: int, *_: object) -> Any:
        self.opened.append(leader_id)
        return self.leader

    def learn(self, *records: pb.MetadataRecord) -> None:
        delta = MetadataDelta()
        for record in records:
            self.image.apply(record, delta)

        async def publish() -> None:
            self.manager.publish(delta, self.image)
            await asyncio.sleep(0)

        self.loop.run_until_complete(publish())

    def part_at(self, offset: int) -> None:
        """The leader's answer: its epoch 0 ended there."""
        parted = [(index, 0, 0, 0, 0, None, -1, b"", (0, offset), None, None) for index in range(PARTITIONS)]
        self.loop.run_until_complete(self._take(list(parted)))

    async def _take(self, answers: list[Any]) -> None:
        (on_fetched,) = self.leader.asked
        assert list(on_fetched(0, 7, [(TOPIC_ID, answers)])) == [0] * PARTITIONS

    def advance(self, ms: int) -> None:
        async def advance() -> None:
            self.timers.advance(ms)

        self.loop.run_until_complete(advance())

    def close(self) -> None:
        for log in self.logs.values():
            log.abandon()
        self.loop.close()


def partition(index: int, *, leader: int = 2, epoch: int = 1) -> pb.MetadataRecord:
    view = PartitionView((1, 2, 3), (2, 3), leader, epoch, epoch, directories=(bytes(16),) * 3)
    return partition_record(TOPIC_ID, index, view)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_no_leader_that_is_elected_while_the_logs_are_closed_is_followed(bench: Bench) -> None:
    assert bench.opened == [2]
    bench.manager.stop()
    bench.learn(partition(0, leader=3, epoch=2))
    assert bench.opened == [2]


def test_no_log_is_made_and_none_deleted_while_the_logs_are_closed(bench: Bench) -> None:
    bench.manager.stop()
    bench.learn(partition(PARTITIONS))
    bench.learn(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
    assert len(bench.logs) == PARTITIONS
    assert not bench.deleted


@pytest.mark.parametrize("stops", [False, True])
def test_a_cut_that_waits_its_turn_is_not_made_while_the_logs_are_closed(bench: Bench, stops: bool) -> None:
    bench.part_at(1)
    assert [log.log_end_offset for log in bench.logs.values()] == [1] * SYNCED_PER_TURN + [3]
    if stops:
        bench.manager.stop()
    bench.advance(10)
    assert bench.logs[TopicPartition("t", PARTITIONS - 1)].log_end_offset == (3 if stops else 1)


@pytest.mark.parametrize("stops", [False, True])
def test_a_batch_that_a_thread_prepares_is_not_written_while_the_logs_are_closed(
    stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[Prepared | KafkaError] = []

    async def prepare() -> None:
        work: asyncio.Future[KafkaError] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(Threads, "run", lambda *_: work)
        preparers = Preparers()
        batch = encode_batch([Record(0, 1, None, b"value")], compression=GZIP)
        Intake(preparers).submit(memoryview(batch), LogConfig(), 1, ready.append)
        if stops:
            preparers.close()
        work.set_result(KafkaError(ErrorCode.CORRUPT_MESSAGE, "as good as any"))
        await asyncio.sleep(0)

    asyncio.run(prepare())
    assert bool(ready) is not stops

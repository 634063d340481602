"""Leaders, followers and clients on the simulated network: the replication code as it runs in production.

The controller is a stand-in that holds one topic's metadata: it grants what AlterPartition asks and elects whom the test says.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest

from ottla.broker.context import BrokerContext
from ottla.broker.handlers import fetch, list_offsets, offset_for_leader_epoch, produce
from ottla.broker.network.routing import RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.broker.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.broker.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from ottla.log.batch import headers
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.proto import controller_pb2 as controller_pb
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode
from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.run import simulate
from ottla.runtime.timers import LoopTimers

TOPIC, TOPIC_ID = "flights", b"F" * 16
PORT = 9092
Answer = TypeVar("Answer", bound=msgspec.Struct)
Done = Callable[[controller_pb.ControllerResponse | None], None]


class Logs:
    """Logs on the simulated disk, one directory, opened when first asked for."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.opened: dict[TopicPartition, Log] = {}

    def get_or_create(
        self, partition: TopicPartition, config: LogConfig, topic_id: bytes, directory_id: bytes | None = None
    ) -> Log:
        log = self.opened.get(partition)
        if log is None:
            directory = f"/data/{partition}"
            self._host.disk.make_directories(directory)
            now_ms = self._host.clock.wall_ms()
            log = Log.open(self._host.disk, directory, partition, config, now_ms=now_ms, topic_id=topic_id)
            self.opened[partition] = log
        return log

    def delete(self, partition: TopicPartition) -> None:
        self.opened.pop(partition).abandon()
        self._host.disk.remove_tree(f"/data/{partition}")

    def checkpoint_high_watermarks(self) -> None:
        """The tests that need it write it themselves."""


class Broker:
    """One node: the network, the handlers and the replica manager of production."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self.image = MetadataImage()
        self.manager: ReplicaManager | None = None
        self.up = asyncio.Event()
        self.node: SimulatedNode = cluster.loop.create_node(f"broker-{node_id}")
        self.node.start(self._main)

    async def _main(self, host: Host) -> None:
        config = ServerConfig(
            {
                "node.id": str(self.node_id),
                "process.roles": "broker",
                "controller.quorum.voters": "9@controller:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://broker-{self.node_id}:{PORT}",
                **self.cluster.settings,
            }
        )
        loop = asyncio.get_running_loop()
        timers = LoopTimers(loop)
        self.image = MetadataImage()
        self.manager = ReplicaManager(config, Logs(host), timers, self, host.rng, WakeQueue(loop), host.sync_later)
        context: Any = SimpleNamespace(config=config, host=host, timers=timers, replicas=self.manager)
        broker: BrokerContext = context
        modules = (produce, fetch, list_offsets, offset_for_leader_epoch)
        routes = RouteTable([route for module in modules for route in module.routes(broker)])
        network = NetworkServer()
        await network.bind("PLAINTEXT", f"broker-{self.node_id}", PORT, routes)
        await network.start()
        self.manager.start()
        self.up.set()
        await asyncio.Event().wait()

    def call_back(self, request: controller_pb.ControllerRequest, on_done: Done, timeout_ms: int) -> None:
        """The controller, two milliseconds away."""
        asyncio.get_running_loop().call_later(0.002, self.cluster.alter, request, on_done)

    def learn(self, records: Sequence[pb.MetadataRecord]) -> None:
        if self.node.process is not None:
            self.node.process.run(self._apply, records)

    def _apply(self, records: Sequence[pb.MetadataRecord]) -> None:
        assert self.manager is not None
        delta = MetadataDelta()
        for record in records:
            self.image.apply(record, delta)
        self.manager.publish(delta, self.image)

    def log(self, index: int = 0) -> Log:
        assert self.manager is not None
        log = self.manager.partitions[TOPIC_ID, index].log
        assert isinstance(log, Log)
        return log

    def kill(self) -> None:
        self.node.kill()

    async def restart(self) -> None:
        self.up.clear()
        self.node.restart()
        await self.up.wait()
        self.learn(self.cluster.records)


class Cluster:
    """Brokers 1..n and the metadata they were told."""

    def __init__(self, loop: SimulationLoop, **settings: str) -> None:
        self.loop = loop
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.records: list[pb.MetadataRecord] = []
        self.image = MetadataImage()
        self.brokers: dict[int, Broker] = {}
        self.refusal = 0
        self.alterations: list[tuple[int, ...]] = []
        self._clients: list[Client] = []

    async def client(self, node_id: int = 1) -> "Client":
        client = Client(node_id)
        await client.connect()
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def leader(self) -> int:
        return self.image.topics_by_id[TOPIC_ID].partitions[0].leader

    async def start(
        self,
        count: int = 3,
        *,
        isr: tuple[int, ...] = (1, 2, 3),
        partitions: int = 1,
        fenced: int = 0,
        elsewhere: int = 0,
        **topic: str,
    ) -> None:
        """``fenced`` is a broker that is registered so, ``elsewhere`` one whose address is told wrong."""
        for node_id in range(1, count + 1):
            self.brokers[node_id] = Broker(self, node_id)
            await self.brokers[node_id].up.wait()
        records = [
            self.registration(node_id, fenced=node_id == fenced, port=1 if node_id == elsewhere else PORT)
            for node_id in self.brokers
        ]
        for name, value in topic.items():
            config = pb.Config(resource_type=2, resource_name=TOPIC, name=name.replace("_", "."), value=value)
            records.append(pb.MetadataRecord(config=config))
        records.append(pb.MetadataRecord(topic=pb.Topic(name=TOPIC, topic_id=TOPIC_ID)))
        for index in range(partitions):
            partition = pb.Partition(
                topic_id=TOPIC_ID, partition_id=index, replicas=list(self.brokers), isr=isr, leader=1, leader_epoch=1
            )
            records.append(pb.MetadataRecord(partition=partition))
        self.tell(*records)

    def registration(self, node_id: int, *, fenced: bool = False, port: int = PORT) -> pb.MetadataRecord:
        endpoint = pb.Endpoint(name="PLAINTEXT", host=f"broker-{node_id}", port=port)
        registration = pb.RegisterBroker(broker_id=node_id, endpoints=[endpoint], fenced=fenced)
        return pb.MetadataRecord(register_broker=registration)

    def tell(self, *records: pb.MetadataRecord) -> None:
        self.records += records
        for record in records:
            self.image.apply(record, MetadataDelta())
        for broker in self.brokers.values():
            broker.learn(records)

    def elect(self, leader: int, isr: tuple[int, ...], index: int = 0) -> None:
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=index, leader=leader, isr=pb.Replicas(ids=isr))
        self.tell(pb.MetadataRecord(partition_change=change))

    def alter(self, request: controller_pb.ControllerRequest, on_done: Done) -> None:
        response = controller_pb.ControllerResponse()
        for topic in request.alter_partition.topics:
            answer = response.alter_partition.topics.add(topic_id=topic.topic_id)
            for asked in topic.partitions:
                answer.partitions.append(self._alter(topic.topic_id, asked))
        on_done(response)

    def _alter(
        self, topic_id: bytes, asked: controller_pb.AlterPartitionRequest.Partition
    ) -> controller_pb.AlterPartitionResponse.Partition:
        index = asked.partition_index
        now = self.image.topics_by_id[topic_id].partitions[index]
        told = controller_pb.AlterPartitionResponse.Partition(partition_index=index)
        isr = tuple(member.broker_id for member in asked.new_isr)
        self.alterations.append(isr)
        if self.refusal:
            told.error_code = self.refusal
            return told
        if asked.leader_epoch != now.leader_epoch or asked.partition_epoch != now.partition_epoch:
            told.error_code = ErrorCode.INVALID_UPDATE_VERSION
            return told
        change = pb.PartitionChange(topic_id=topic_id, partition_id=index, isr=pb.Replicas(ids=isr))
        record = pb.MetadataRecord(partition_change=change)
        self.loop.call_later(0.001, self.tell, record)
        told.leader_id, told.leader_epoch, told.partition_epoch = now.leader, now.leader_epoch, now.partition_epoch + 1
        told.isr.extend(isr)
        return told

    def isr(self, index: int = 0) -> tuple[int, ...]:
        return self.image.topics_by_id[TOPIC_ID].partitions[index].isr

    async def until(self, condition: Callable[[], bool], limit_s: float = 60) -> float:
        """Waits in virtual time; returns how long it took."""
        start = self.loop.time()
        while not condition():
            assert self.loop.time() - start < limit_s, "it never came true"
            await asyncio.sleep(0.001)
        return self.loop.time() - start


class Client:
    """A Kafka client: one connection, answers in order."""

    def __init__(self, node_id: int = 1) -> None:
        self._node_id = node_id
        self._ids = itertools.count(1)
        self._reader: asyncio.StreamReader | None = None

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(f"broker-{self._node_id}", PORT)

    def close(self) -> None:
        self._writer.close()

    def send(self, api: str, version: int, body: msgspec.Struct) -> None:
        key = BY_NAME[api].key
        data = encode_request_header(key, version, next(self._ids), "test") + b"".join(
            bytes(part) for part in encoder(type(body), version)(body)
        )
        self._writer.write(struct.pack(">i", len(data)) + data)

    async def receive(self, api: str, version: int, answer: type[Answer]) -> Answer:
        assert self._reader is not None
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        frame = memoryview(await self._reader.readexactly(size))
        _, position = read_response_header(frame, 0, BY_NAME[api].key, version)
        return decoder(answer, version)(frame, position)[0]

    async def produce(self, *values: bytes, version: int = 9, **options: Any) -> PartitionProduceResponse:
        self.send_produce(*values, version=version, **options)
        response = await self.receive("Produce", version, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def send_produce(
        self,
        *values: bytes,
        acks: int = -1,
        topic: str = TOPIC,
        index: int = 0,
        timeout_ms: int = 30_000,
        version: int = 9,
        **options: int,
    ) -> None:
        """``options`` are those of ``encode_batch``."""
        data = PartitionProduceData(index, bytes(batch(*values, **options)))
        body = ProduceRequest(None, acks, timeout_ms, [TopicProduceData(topic, partition_data=[data])])
        self.send("Produce", version, body)

    async def fetch(self, offset: int, *, version: int = 12, **options: Any) -> PartitionData:
        self.send("Fetch", version, fetch_request([(0, offset)], **options))
        response = await self.receive("Fetch", version, FetchResponse)
        return response.responses[0].partitions[0]

    async def list_offset(self, timestamp: int, *, version: int = 7, replica_id: int = -1) -> tuple[int, int, int]:
        """(error, offset, leader epoch)."""
        asked = ListOffsetsPartition(0, -1, timestamp)
        body = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(TOPIC, [asked])])
        self.send("ListOffsets", version, body)
        response = await self.receive("ListOffsets", version, ListOffsetsResponse)
        found = response.topics[0].partitions[0]
        return found.error_code, found.offset, found.leader_epoch

    async def latest(self) -> tuple[int, int]:
        return (await self.list_offset(-1))[:2]

    async def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderPartition(0, -1, epoch)
        body = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(TOPIC, [asked])])
        self.send("OffsetForLeaderEpoch", 4, body)
        response = await self.receive("OffsetForLeaderEpoch", 4, OffsetForLeaderEpochResponse)
        found = response.topics[0].partitions[0]
        assert found.error_code == 0
        return found.leader_epoch, found.end_offset


def batch(*values: bytes, timestamp: int = 1_000, **producer: int) -> bytearray:
    records = [Record(offset, timestamp, None, value) for offset, value in enumerate(values)]
    return encode_batch(records, **producer)  # type: ignore[arg-type]


def fetch_request(positions: list[tuple[int, int]], **options: Any) -> FetchRequest:
    partitions = [
        FetchPartition(index, fetch_offset=offset, partition_max_bytes=options.pop("partition_bytes", 1 << 20))
        for index, offset in positions
    ]
    topics = [FetchTopic(TOPIC, TOPIC_ID, partitions)] if partitions else []
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": -1}
    return FetchRequest(topics=topics, **{**defaults, **options})


def offsets(data: object) -> list[int]:
    assert isinstance(data, bytes | memoryview)
    return [header.base_offset for _, header in headers(data)]


def run(scenario: Callable[[Cluster], Any], seed: int = 1, **settings: str) -> None:
    async def program(loop: SimulationLoop) -> None:
        cluster = Cluster(loop, **settings)
        await scenario(cluster)
        cluster.close()

    simulate(program, seed)


def test_acks_all_is_answered_when_every_in_sync_replica_has_the_records() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            ack = await client.produce(b"value %d" % number)
            assert (ack.error_code, ack.base_offset) == (0, number)
            for broker in cluster.brokers.values():
                assert broker.log().log_end_offset == number + 1

    run(scenario)


def test_the_first_record_is_not_held_up_by_followers_that_come_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        start = cluster.loop.time()
        await client.produce(b"first")
        assert cluster.loop.time() - start < 0.2

    run(scenario)


def test_replicas_hold_the_same_bytes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(20):
            await client.produce(*[b"%d" % number] * (number + 1))
        logs = [broker.log().read(0, 1 << 20).data for broker in cluster.brokers.values()]
        assert logs[0] == logs[1] == logs[2] != b""

    run(scenario)


def test_acks_all_is_not_answered_while_a_member_of_the_isr_is_gone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"before")
        cluster.brokers[3].kill()
        ack = await client.produce(b"after", timeout_ms=3_000)
        assert ack.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert ack.base_offset == 1

    run(scenario)


def test_a_dead_follower_leaves_the_isr_and_the_records_are_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"before")
        cluster.brokers[3].kill()
        start = cluster.loop.time()
        ack = await client.produce(b"after", timeout_ms=60_000)
        assert ack.error_code == 0
        await cluster.until(lambda: cluster.isr() == (1, 2))
        assert 4 < cluster.loop.time() - start < 8.5

    run(scenario, replica_lag_time_max_ms="5000")


def test_a_follower_that_comes_back_catches_up_and_joins_the_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2))
        cluster.brokers[3].kill()
        client = await cluster.client()
        for number in range(10):
            await client.produce(b"%d" % number)
        await cluster.brokers[3].restart()
        took = await cluster.until(lambda: len(cluster.isr()) == 3)
        assert took < 1
        assert cluster.brokers[3].log().read(0, 1 << 20).data == cluster.brokers[1].log().read(0, 1 << 20).data

    run(scenario)


def test_an_idle_follower_that_may_not_join_yet_joins_when_it_may() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        await cluster.start(isr=(1, 2))
        await cluster.until(lambda: len(cluster.alterations) > 2)
        cluster.refusal = 0
        await cluster.until(lambda: len(cluster.isr()) == 3, 2)

    run(scenario)


def test_too_few_in_sync_refuse_acks_all_and_write_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,), min_insync_replicas="3")
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        ack = await client.produce(b"value")
        assert ack.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.brokers[1].log().log_end_offset == 0

    run(scenario)


def test_with_too_few_in_sync_consumers_do_not_see_what_acks_one_wrote() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,), min_insync_replicas="3")
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        assert (await client.produce(b"value", acks=1)).error_code == 0
        await asyncio.sleep(1)
        assert (await client.fetch(0)).high_watermark == 0

    run(scenario)


def test_acks_zero_is_not_answered() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        client.send_produce(b"silent", acks=0)
        assert (await client.produce(b"loud", acks=1)).base_offset == 1

    run(scenario)


def test_acks_zero_to_the_wrong_broker_closes_the_connection() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client(2)
        client.send_produce(b"lost", acks=0)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.receive("Produce", 9, ProduceResponse)

    run(scenario)


def test_a_client_at_the_wrong_broker_is_told_the_right_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client(2)
        data = PartitionProduceData(0, bytes(batch(b"value")))
        client.send("Produce", 10, ProduceRequest(None, 1, 1_000, [TopicProduceData(TOPIC, partition_data=[data])]))
        response = await client.receive("Produce", 10, ProduceResponse)
        told = response.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (1, 1)
        assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(1, "broker-1", PORT)]

    run(scenario)


def test_one_partition_that_fails_does_not_fail_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        good, bad = PartitionProduceData(0, bytes(batch(b"good"))), PartitionProduceData(7, bytes(batch(b"bad")))
        torn = PartitionProduceData(0, bytes(batch(b"torn"))[:-1])
        topic = TopicProduceData(TOPIC, partition_data=[good, bad, torn])
        client.send("Produce", 9, ProduceRequest(None, -1, 5_000, [topic]))
        response = await client.receive("Produce", 9, ProduceResponse)
        codes = [each.error_code for each in response.responses[0].partition_responses]
        assert codes[:2] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert codes[2] != 0

    run(scenario)


def test_acks_that_do_not_exist_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        assert (await client.produce(b"value", acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS

    run(scenario)


def test_a_repeated_batch_is_answered_with_its_old_offset_and_written_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        producer = {"producer_id": 5, "producer_epoch": 0}
        await client.produce(b"zero")
        for sequence in (0, 1, 1, 0):
            ack = await client.produce(b"%d" % sequence, base_sequence=sequence, **producer)
            assert (ack.error_code, ack.base_offset) == (0, sequence + 1)
        assert cluster.brokers[1].log().log_end_offset == 3

    run(scenario)


def test_a_new_leader_has_all_that_was_acknowledged_and_the_old_one_cuts_what_was_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        await client.produce(b"lost", acks=1)
        cluster.brokers[1].kill()
        await cluster.brokers[2].restart()
        await cluster.brokers[3].restart()
        cluster.elect(2, (2, 3))
        other = await cluster.client(2)
        assert (await other.produce(b"kept")).base_offset == 5
        await cluster.brokers[1].restart()
        await cluster.until(lambda: len(cluster.isr()) == 3)
        logs = [broker.log().read(0, 1 << 20).data for broker in cluster.brokers.values()]
        assert logs[0] == logs[1] == logs[2]
        assert b"kept" in logs[0]
        assert b"lost" not in logs[0]

    run(scenario)


def test_an_old_leader_that_began_an_epoch_and_wrote_nothing_follows_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"one")
        # Broker 2 begins an epoch that nobody else hears of before the next one.
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, leader=2)
        record = pb.MetadataRecord(partition_change=change)
        cluster.brokers[2].learn([record])
        back = pb.MetadataRecord(partition_change=pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, leader=1))
        cluster.records += [record, back]
        for each in (record, back):
            cluster.image.apply(each, MetadataDelta())
        for number, broker in cluster.brokers.items():
            broker.learn([back] if number == 2 else [record, back])
        start = cluster.loop.time()
        assert (await client.produce(b"two")).error_code == 0
        assert cluster.loop.time() - start < 1

    run(scenario)


def test_waiting_producers_are_told_when_the_leader_changes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.brokers[3].kill()
        client.send_produce(b"value")
        await asyncio.sleep(0.5)
        cluster.elect(2, (1, 2))
        response = await client.receive("Produce", 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_follower_far_behind_the_leaders_log_starts_anew() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2))
        cluster.brokers[3].kill()
        client = await cluster.client()
        for number in range(10):
            await client.produce(b"%d" % number)
        cluster.brokers[1].log().truncate_fully_and_start_at(20)
        cluster.brokers[2].log().truncate_fully_and_start_at(20)
        cluster.elect(1, (1, 2))
        await client.produce(b"after")
        await cluster.brokers[3].restart()
        await cluster.until(lambda: cluster.brokers[3].log().log_end_offset == 21)
        assert cluster.brokers[3].log().log_start_offset == 20

    run(scenario)


def test_a_follower_takes_over_where_the_leaders_log_starts() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(5):
            await client.produce(b"%d" % number)
        cluster.brokers[1].log().advance_log_start(3)
        await client.produce(b"five")
        await cluster.until(lambda: cluster.brokers[2].log().log_start_offset == 3)

    run(scenario)


@pytest.mark.parametrize("idle_s", [0.0, 0.013, 1.0, 1.2, 1.4])
def test_the_first_record_of_a_later_partition_is_not_held_up_by_fetches_that_wait(idle_s: float) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await asyncio.sleep(idle_s)
        partition = pb.Partition(topic_id=TOPIC_ID, partition_id=1, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1)
        cluster.tell(pb.MetadataRecord(partition=partition))
        start = cluster.loop.time()
        assert (await client.produce(b"first", index=1)).error_code == 0
        assert cluster.loop.time() - start < 0.1

    run(scenario)


def test_a_follower_leaves_a_leader_that_vanished_without_a_word() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(ottla_flush_before_ack="true")
        await (await cluster.client()).produce(b"before")
        cluster.brokers[1].node.crash()  # a power cut: its peers' connections stay open, to nobody
        await asyncio.sleep(1)
        await cluster.brokers[1].restart()
        client = await cluster.client()
        assert (await client.produce(b"after", timeout_ms=7_000)).error_code == 0

    run(scenario)


def test_a_leader_notes_where_its_epoch_begins_before_it_writes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        cluster.elect(1, (1, 2, 3))
        assert cluster.brokers[1].log().epochs.entries() == ((2, 0),)

    run(scenario)


def test_a_consumer_that_waits_in_an_old_epoch_is_told_of_the_new_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        asked = FetchPartition(0, 1, 0, partition_max_bytes=100)
        body = FetchRequest(max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(TOPIC, TOPIC_ID, [asked])])
        client.send("Fetch", 12, msgspec.structs.replace(body, session_epoch=-1))
        await asyncio.sleep(0.5)
        start = cluster.loop.time()
        cluster.elect(1, (1, 2, 3))
        response = await client.receive("Fetch", 12, FetchResponse)
        assert response.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert cluster.loop.time() - start < 0.1

    run(scenario)


def test_every_follower_of_an_idle_partition_learns_what_is_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await (await cluster.client()).produce(b"value")
        await asyncio.sleep(1)
        assert [broker.log().high_watermark for broker in cluster.brokers.values()] == [1, 1, 1]

    run(scenario)


def test_a_follower_learns_of_a_commit_that_came_after_its_last_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        client = await cluster.client()
        cluster.brokers[3].kill()
        await client.produce(b"value", acks=1)
        await client.produce(b"value", acks=1, index=1)
        await asyncio.sleep(1)
        fenced = pb.BrokerRegistrationChange(broker_id=3, fenced=True)
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, isr=pb.Replicas(ids=[1, 2]))
        cluster.tell(pb.MetadataRecord(broker_registration_change=fenced), pb.MetadataRecord(partition_change=change))
        await cluster.until(lambda: cluster.brokers[2].log().high_watermark == 1, 1)

    run(scenario)


def test_a_follower_that_fetches_other_partitions_only_falls_out_of_the_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        cluster.brokers[2].kill()
        follower, client = await cluster.client(), await cluster.client()
        follower.send("Fetch", 12, fetch_request([(0, 0), (1, 0)], session_epoch=0, replica_id=2))
        session = (await follower.receive("Fetch", 12, FetchResponse)).session_id
        forgotten = [ForgottenTopic(TOPIC, TOPIC_ID, [0])]
        for epoch in range(1, 20):
            body = fetch_request([], session_id=session, session_epoch=epoch, replica_id=2, max_wait_ms=500)
            follower.send("Fetch", 12, msgspec.structs.replace(body, forgotten_topics_data=forgotten))
            await follower.receive("Fetch", 12, FetchResponse)
            forgotten = []
        await client.produce(b"value", acks=1)
        # It was caught up when it forgot the partition, and that is longer ago than the lag allows.
        assert await cluster.until(lambda: 2 not in cluster.isr()) < 2.6

    run(scenario, replica_lag_time_max_ms="5000")


def test_consumers_do_not_see_what_is_not_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"value")
        cluster.brokers[3].kill()
        assert (await client.produce(b"unsafe", acks=1)).error_code == 0
        assert offsets((await client.fetch(0)).records) == [0]
        assert (await client.fetch(1, max_wait_ms=100)).records == b""

    run(scenario)


def test_zstd_needs_a_client_that_knows_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        ack = await client.produce(b"value", acks=1, version=6, compression=4)
        assert ack.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce(b"value", acks=1, version=7, compression=4)).error_code == 0

    run(scenario)


def test_clients_do_not_write_to_internal_topics() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        internal = pb.Topic(name="__consumer_offsets", topic_id=b"C" * 16)
        partition = pb.Partition(topic_id=b"C" * 16, replicas=[1], isr=[1], leader=1)
        cluster.tell(pb.MetadataRecord(topic=internal), pb.MetadataRecord(partition=partition))
        client = await cluster.client()
        ack = await client.produce(b"value", acks=1, topic="__consumer_offsets")
        assert ack.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_a_broker_that_is_unfenced_joins_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2), fenced=3)
        await asyncio.sleep(2.2)
        assert cluster.isr() == (1, 2)
        unfenced = pb.BrokerRegistrationChange(broker_id=3, fenced=False)
        cluster.tell(pb.MetadataRecord(broker_registration_change=unfenced))
        assert await cluster.until(lambda: len(cluster.isr()) == 3) < 0.1

    run(scenario)


def test_followers_find_a_leader_that_moved() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(elsewhere=1)
        client = await cluster.client()
        ack = await client.produce(b"value", timeout_ms=1_000)
        assert ack.error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster.tell(cluster.registration(1))
        assert (await client.produce(b"value", timeout_ms=1_000)).error_code == 0

    run(scenario)


def test_a_deleted_topic_is_gone_for_those_who_wait_on_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, consumer = await cluster.client(), await cluster.client()
        await client.produce(b"value")
        waiting = asyncio.ensure_future(consumer.fetch(1, max_wait_ms=20_000))
        await asyncio.sleep(0.5)
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce(b"late", acks=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        manager = cluster.brokers[2].manager
        assert manager is not None
        assert not manager.partitions

    run(scenario)


def test_changed_settings_hold_from_then_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,))
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        assert (await client.produce(b"value")).error_code == 0
        config = pb.Config(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="2")
        cluster.tell(pb.MetadataRecord(config=config))
        assert (await client.produce(b"value")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_that_syncs_first_survives_a_power_cut_of_every_broker(acks: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(ottla_flush_before_ack="true")
        client = await cluster.client()
        acknowledged = 0
        for number in range(10):
            acknowledged += (await client.produce(b"<%d>" % number, acks=acks)).error_code == 0
        assert acknowledged == 10
        for broker in cluster.brokers.values():
            if acks == -1 or broker.node_id == 1:
                assert broker.log().recovery_point == 10
            broker.node.crash()
        for broker in cluster.brokers.values():
            await broker.restart()
        data = cluster.brokers[1].log().read(0, 1 << 20).data
        assert all(b"<%d>" % number in data for number in range(10))

    run(scenario)


# Consumers.


def test_a_consumer_waits_for_records_and_gets_them_when_they_are_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        producer, consumer = await cluster.client(), await cluster.client()
        waiting = asyncio.ensure_future(consumer.fetch(0, max_wait_ms=10_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        start = cluster.loop.time()
        await producer.produce(b"value")
        assert offsets((await waiting).records) == [0]
        assert cluster.loop.time() - start < 0.5

    run(scenario)


def test_a_consumer_that_waited_long_enough_gets_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        consumer = await cluster.client()
        start = cluster.loop.time()
        answer = await consumer.fetch(0, max_wait_ms=700)
        assert (answer.error_code, answer.records) == (0, b"")
        assert 0.7 <= cluster.loop.time() - start < 0.75

    run(scenario)


def test_min_bytes_are_waited_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        producer, consumer = await cluster.client(), await cluster.client()
        waiting = asyncio.ensure_future(consumer.fetch(0, max_wait_ms=10_000, min_bytes=1_000))
        for _ in range(3):
            await producer.produce(b"x" * 400, acks=1)
            await asyncio.sleep(0.1)
        assert offsets((await waiting).records) == [0, 1, 2]

    run(scenario)


def test_the_first_batch_comes_even_if_it_is_over_the_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for _ in range(2):
            await client.produce(b"x" * 5_000, acks=1)
        assert offsets((await client.fetch(0, max_bytes=100)).records) == [0]
        assert offsets((await client.fetch(0, partition_bytes=100)).records) == [0]

    run(scenario)


def test_an_offset_out_of_range_is_an_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        assert (await client.fetch(5, max_wait_ms=1_000)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_another_leader_epoch_is_an_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for epoch, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0)):
            asked = FetchPartition(0, epoch, 0, partition_max_bytes=100)
            client.send("Fetch", 12, FetchRequest(topics=[FetchTopic(TOPIC, TOPIC_ID, [asked])], session_epoch=-1))
            response = await client.receive("Fetch", 12, FetchResponse)
            assert response.responses[0].partitions[0].error_code == error

    run(scenario)


def test_a_session_answers_with_what_changed_only() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=3)
        client = await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0), (1, 0), (2, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in opened.responses[0].partitions] == [0, 1, 2]
        assert opened.session_id != 0
        await client.produce(b"value", acks=1, index=1)
        client.send("Fetch", 13, fetch_request([], session_id=opened.session_id, session_epoch=1))
        second = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in second.responses[0].partitions] == [1]
        client.send("Fetch", 13, fetch_request([(1, 1)], session_id=opened.session_id, session_epoch=2))
        third = await client.receive("Fetch", 13, FetchResponse)
        assert third.responses == []

    run(scenario)


def test_a_parked_session_wakes_for_a_partition_the_request_did_not_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        client, producer = await cluster.client(), await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0), (1, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        client.send("Fetch", 13, fetch_request([], session_id=opened.session_id, session_epoch=1, max_wait_ms=20_000))
        await asyncio.sleep(1)
        await producer.produce(b"value", acks=1, index=1)
        woken = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in woken.responses[0].partitions] == [1]

    run(scenario)


def test_a_forgotten_partition_is_answered_no_more() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        client = await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0), (1, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        forgotten = [ForgottenTopic(TOPIC, TOPIC_ID, [1])]
        body = fetch_request([], session_id=opened.session_id, session_epoch=1, forgotten_topics_data=forgotten)
        client.send("Fetch", 13, body)
        await client.receive("Fetch", 13, FetchResponse)
        await client.produce(b"value", acks=1, index=1)
        client.send("Fetch", 13, fetch_request([], session_id=opened.session_id, session_epoch=2))
        assert (await client.receive("Fetch", 13, FetchResponse)).responses == []

    run(scenario)


def test_a_request_that_does_not_wait_for_the_one_before_gets_both_answers() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        client = await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        for epoch in (1, 2):
            body = fetch_request([], session_id=opened.session_id, session_epoch=epoch, max_wait_ms=5_000)
            client.send("Fetch", 13, body)
        start = cluster.loop.time()
        await client.receive("Fetch", 13, FetchResponse)
        assert cluster.loop.time() - start < 1
        await client.receive("Fetch", 13, FetchResponse)
        assert 4.5 < cluster.loop.time() - start < 5.5

    run(scenario)


def test_a_closed_connection_leaves_nothing_behind() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        client.send("Fetch", 12, fetch_request([(0, 0)], max_wait_ms=60_000))
        await asyncio.sleep(0.1)
        manager = cluster.brokers[1].manager
        assert manager is not None
        partition = manager.partitions[TOPIC_ID, 0]
        assert len(partition.commit_watches) == 1
        client.close()
        await asyncio.sleep(0.1)
        assert not partition.commit_watches

    run(scenario)


def test_consumers_may_read_from_a_follower_what_it_knows_to_be_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        producer, consumer = await cluster.client(), await cluster.client(2)
        await producer.produce(b"value")
        answer = await consumer.fetch(0, max_wait_ms=5_000)
        assert offsets(answer.records) == [0]
        old = await consumer.fetch(0, version=10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_the_end_offset_is_not_told_until_it_is_certain() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(3):
            await client.produce(b"%d" % number)
        assert await client.latest() == (0, 3)
        cluster.brokers[3].kill()
        await client.produce(b"unsure", timeout_ms=500)
        # Broker 2 has four records, knows three to be committed, and waits for broker 3.
        cluster.elect(2, (2, 3))
        other = await cluster.client(2)
        assert await other.latest() == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        await cluster.brokers[3].restart()
        await cluster.until(lambda: cluster.brokers[2].log().high_watermark == 4)
        assert await other.latest() == (0, 4)

    run(scenario)


def test_offsets_are_found_by_place_and_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for timestamp in (1_000, 5_000, 3_000):
            await client.produce(b"value", acks=1, timestamp=timestamp)
        cluster.brokers[1].log().advance_log_start(1)
        assert await client.list_offset(-1) == (0, 3, 1)
        assert await client.list_offset(-2) == (0, 1, 1)
        assert await client.list_offset(-3) == (0, 1, 1)
        assert await client.list_offset(4_000) == (0, 1, 1)
        assert await client.list_offset(9_000) == (0, -1, -1)
        assert await client.list_offset(-4, version=8) == (0, 1, 1)
        assert await client.list_offset(-5, version=9) == (0, -1, -1)

    run(scenario)


def test_a_timestamp_newer_than_the_request_version_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        assert (await client.list_offset(-3, version=6))[0] == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.list_offset(-4, version=7))[0] == ErrorCode.UNSUPPORTED_VERSION

    run(scenario)


def test_clients_find_what_is_committed_and_followers_what_is_written() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"safe", timestamp=1_000)
        cluster.brokers[3].kill()
        await client.produce(b"unsafe", acks=1, timestamp=2_000)
        assert (await client.list_offset(-1))[:2] == (0, 1)
        assert (await client.list_offset(-1, replica_id=2))[:2] == (0, 2)
        assert (await client.list_offset(2_000))[:2] == (0, -1)
        wrong = await cluster.client(2)
        assert (await wrong.list_offset(-1))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_partition_asked_for_twice_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        asked = ListOffsetsPartition(0, -1, -1)
        client.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, [asked, asked])]))
        response = await client.receive("ListOffsets", 7, ListOffsetsResponse)
        assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2

    run(scenario)


def test_the_end_of_an_epoch_is_where_the_next_one_began() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        await client.produce(b"one")
        cluster.elect(1, (1,))
        await client.produce(b"two")
        assert await client.end_of_epoch(1) == (1, 1)
        assert await client.end_of_epoch(2) == (2, 2)
        assert await client.end_of_epoch(3) == (-1, -1)

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost_while_leaders_change(seed: int) -> None:
    """A producer, and brokers that die one after another; whoever is in the ISR may be elected."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        acknowledged: list[bytes] = []
        stop = asyncio.Event()

        async def keep_producing() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                value = b"<%d>" % number
                try:
                    async with asyncio.timeout(2):
                        client = await cluster.client(cluster.leader())
                        ack = await client.produce(value, timeout_ms=1_000)
                        client.close()
                except (OSError, TimeoutError, asyncio.IncompleteReadError):
                    continue
                if ack.error_code == 0:
                    acknowledged.append(value)

        producing = asyncio.ensure_future(keep_producing())
        rng = cluster.loop.rng("faults")
        for _ in range(4):
            await asyncio.sleep(rng.random() / 2)
            victim = rng.choice(list(cluster.brokers))
            cluster.brokers[victim].kill()
            rest = tuple(member for member in cluster.isr() if member != victim)
            cluster.elect(rest[0], rest)
            await asyncio.sleep(rng.random())
            await cluster.brokers[victim].restart()
            await cluster.until(lambda: len(cluster.isr()) == 3)
        stop.set()
        await producing
        logs = [broker.log().read(0, 1 << 24).data for broker in cluster.brokers.values()]
        leader = cluster.brokers[cluster.leader()].log()
        await cluster.until(lambda: leader.high_watermark == leader.log_end_offset)
        logs = [broker.log().read(0, 1 << 24).data for broker in cluster.brokers.values()]
        assert logs[0] == logs[1] == logs[2]
        assert len(acknowledged) > 20
        assert all(logs[0].count(value) == 1 for value in acknowledged)

    run(scenario, seed)

"""Brokers and the metadata they are told. The controller is a stand-in that grants what AlterPartition asks and elects whom
the test says.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ottla.proto import controller_pb2 as controller_pb
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.testing.replication.broker import PORT, TOPIC, TOPIC_ID, Broker, Done
from ottla.testing.replication.client import Client
from ottla.testing.replication.transactions import Transactions


class Cluster:
    """Brokers 1..n and the metadata they were told."""

    def __init__(self, loop: SimulationLoop, **settings: str) -> None:
        self.loop = loop
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.records: list[pb.MetadataRecord] = []
        self.image = MetadataImage()
        self.brokers: dict[int, Broker] = {}
        self.refusal = 0
        self.damage_reports = 0
        self.transactions = Transactions()
        self.alterations: list[tuple[int, ...]] = []
        self._clients: list[Client] = []

    async def client(self, node_id: int = 1) -> Client:
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
        racks: Mapping[int, str] | None = None,
        **topic: str,
    ) -> None:
        """``fenced`` is a broker that is registered so, ``elsewhere`` one whose address is told wrong."""
        for node_id in range(1, count + 1):
            self.brokers[node_id] = Broker(self, node_id)
            await self.brokers[node_id].up.wait()
        records = [
            self.registration(
                node_id,
                fenced=node_id == fenced,
                port=1 if node_id == elsewhere else PORT,
                rack=(racks or {}).get(node_id),
            )
            for node_id in self.brokers
        ]
        records += _configs(topic)
        records.append(pb.MetadataRecord(topic=pb.Topic(name=TOPIC, topic_id=TOPIC_ID)))
        for index in range(partitions):
            partition = pb.Partition(
                topic_id=TOPIC_ID, partition_id=index, replicas=list(self.brokers), isr=isr, leader=1, leader_epoch=1
            )
            records.append(pb.MetadataRecord(partition=partition))
        self.tell(*records)

    def registration(
        self, node_id: int, *, fenced: bool = False, port: int = PORT, rack: str | None = None
    ) -> pb.MetadataRecord:
        endpoint = pb.Endpoint(name="PLAINTEXT", host=f"broker-{node_id}", port=port)
        registration = pb.RegisterBroker(broker_id=node_id, endpoints=[endpoint], fenced=fenced, rack=rack)
        return pb.MetadataRecord(register_broker=registration)

    def tell(self, *records: pb.MetadataRecord) -> None:
        self.records += records
        for record in records:
            self.image.apply(record, MetadataDelta())
        for broker in self.brokers.values():
            broker.learn(records)

    def set_topic(self, **topic: str) -> None:
        self.tell(*_configs(topic))

    def elect(self, leader: int, isr: tuple[int, ...], index: int = 0) -> None:
        change = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=index, leader=leader, isr=pb.Replicas(ids=isr))
        self.tell(pb.MetadataRecord(partition_change=change))

    def alter(self, request: controller_pb.ControllerRequest, on_done: Done) -> None:
        response = controller_pb.ControllerResponse()
        for told in request.report_damage.topics:
            granted = response.report_damage.topics.add(topic_id=told.topic_id)
            for each in told.partitions:
                error = self._let_leave(request.report_damage.broker_id, each.partition_index)
                granted.partitions.add(partition_index=each.partition_index, error_code=error)
        for topic in request.alter_partition.topics:
            answer = response.alter_partition.topics.add(topic_id=topic.topic_id)
            for asked in topic.partitions:
                answer.partitions.append(self._alter(topic.topic_id, asked))
        on_done(response)

    def _let_leave(self, broker_id: int, index: int) -> int:
        now = self.image.topics_by_id[TOPIC_ID].partitions[index]
        isr = tuple(member for member in now.isr if member != broker_id)
        self.damage_reports += 1
        if not isr:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        leader = isr[0] if now.leader == broker_id else now.leader
        self.loop.call_later(0.001, self.elect, leader, isr, index)
        return ErrorCode.NONE

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


def _configs(topic: dict[str, str]) -> list[pb.MetadataRecord]:
    configs = [
        pb.Config(resource_type=2, resource_name=TOPIC, name=name.replace("_", "."), value=value)
        for name, value in topic.items()
    ]
    return [pb.MetadataRecord(config=config) for config in configs]


def run(scenario: Callable[[Cluster], Any], seed: int = 1, **settings: str) -> None:
    async def program(loop: SimulationLoop) -> None:
        cluster = Cluster(loop, **settings)
        await scenario(cluster)
        cluster.close()

    simulate(program, seed)

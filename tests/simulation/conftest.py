"""A running simulated cluster for tests that look at one thing at a time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.server import Server
from ottla.broker.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.records import Record, encode_batch
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.testing.simulation.client import Client
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.workload import PRODUCE_VERSION, History, SimulatedProducer, create_topic


class Rig:
    """A cluster that is up, and what tests ask of it. Times are virtual."""

    def __init__(self, loop: SimulationLoop, **options: Any) -> None:
        self.loop = loop
        self.cluster = SimulatedCluster(loop, **options)
        self.clients: list[Client] = []
        self.users: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.cluster.start()
        await self.until(self.ready)

    def ready(self) -> bool:
        servers = [self.cluster.running(number) for number in self.cluster.nodes]
        return all(server is not None and server.ready.is_set() for server in servers)

    async def restart(self, number: int) -> None:
        """Kills a node if it runs, starts it again, and waits until it takes requests."""
        self.cluster.nodes[number].restart()
        await self.until(lambda: self.up(number))

    def server(self, number: int) -> Server:
        server = self.cluster.running(number)
        assert server is not None
        return server

    def client(self) -> Client:
        self.clients.append(Client(self.cluster.brokers))
        return self.clients[-1]

    async def topic(self, name: str, partitions: int, replicas: int, **config: str) -> None:
        """Creates it and waits until every broker knows."""
        await create_topic(self.client(), name, partitions, replicas, **config)
        await self._known(name)

    async def _known(self, name: str) -> None:
        await self.until(
            lambda: all(name in self.image(number).topics_by_name for number in self.cluster.nodes if self.up(number))
        )

    async def place(self, name: str, brokers: list[int], **config: str) -> None:
        """Creates it with one partition on these, and waits until every broker knows."""
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()]
        topic = CreatableTopic(name, -1, -1, [CreatableReplicaAssignment(0, brokers)], settings)
        answer = await self.client().ask_any(CreateTopicsRequest([topic], timeout_ms=1000), CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE
        await self._known(name)

    def produce(self, topic: str, partition: int, interval_s: float = 0.05) -> SimulatedProducer:
        producer = SimulatedProducer(self.client(), History(topic, partition), interval_s)
        self.users.append(asyncio.ensure_future(producer.run()))
        return producer

    async def produce_once(self, topic: str, index: int, value: bytes = b"value") -> int:
        """The error that the first broker answers with."""
        batch = encode_batch([Record(0, 1, b"", value, (("number", value),))])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=bytes(batch))])
        request = ProduceRequest(acks=-1, timeout_ms=500, topic_data=[data])
        answer = await self.client().call(self.cluster.brokers[0], request, ProduceResponse, PRODUCE_VERSION)
        return answer.responses[0].partition_responses[0].error_code

    def up(self, number: int) -> bool:
        server = self.cluster.running(number)
        return server is not None and server.ready.is_set()

    def image(self, number: int = 1) -> MetadataImage:
        broker = self.server(number).broker
        assert broker is not None
        return broker.context.image

    def view(self, topic: str, index: int, number: int = 1) -> PartitionView:
        return self.image(number).topics_by_name[topic].partitions[index]

    async def until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> None:
        deadline_s = self.loop.time() + limit_s
        while not condition():
            assert self.loop.time() < deadline_s, "it never came true"
            await asyncio.sleep(0.02)

    async def goes_on(self, *producers: SimulatedProducer) -> None:
        """Waits until each has something more acknowledged."""
        before = [len(each.history.acknowledged) for each in producers]
        await self.until(
            lambda: all(len(each.history.acknowledged) > count for each, count in zip(producers, before, strict=True))
        )

    def close(self) -> None:
        for user in self.users:
            user.cancel()
        for client in self.clients:
            client.close()


def play(scenario: Callable[[Rig], Coroutine[Any, Any, None]], seed: int = 1, **options: Any) -> None:
    """Runs ``scenario`` against a cluster that is up; ``options`` are SimulatedCluster's. Nothing may fail unseen."""

    async def program(loop: SimulationLoop) -> None:
        rig = Rig(loop, **options)
        await rig.start()
        await scenario(rig)
        rig.close()
        assert loop.unhandled == []

    simulate(program, seed)

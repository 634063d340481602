"""A broker whose image, controller and quorum are values of the test, asked through a real connection."""

import struct
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from ottla.broker.handlers.routes import client_routes
from ottla.broker.network.beside import Beside
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replication.traffic import Traffic
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder, message_class
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.quorum.listener import QuorumDescription
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import BrokerView, EndpointView, PartitionView, TopicView
from ottla.runtime.clock import SystemClock
from ottla.runtime.identifiers import random_id
from ottla.runtime.settings.server import ServerConfig
from ottla.testing.broker_context import broker_context
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.network.conftest import FakeTransport, Held, Turns
from tests.unit.fake_controller import FakeController

RNG = Random(5)
DIRECTORY = random_id(RNG)


def broker_view(broker_id: int, *, rack: str | None = None, listeners: tuple[str, ...] = ("PLAINTEXT",)) -> BrokerView:
    """A registered broker that is not fenced."""
    return BrokerView(
        id=broker_id,
        epoch=50 + broker_id,
        incarnation_id=random_id(RNG),
        endpoints=tuple(EndpointView(name, f"host{broker_id}.{name.lower()}", 9092) for name in listeners),
        features={},
        rack=rack,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(DIRECTORY,),
    )


def partition_view(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int) -> PartitionView:
    return PartitionView(replicas, isr, leader, leader_epoch=7, partition_epoch=0)


class FakeQuorumView:
    def __init__(self) -> None:
        self.description: QuorumDescription | None = None

    def describe(self, on_done: Callable[[QuorumDescription | None], None]) -> None:
        on_done(self.description)


class FakeReplicas:
    """What others than the data path ask of it."""

    def __init__(self) -> None:
        self.partitions: dict[object, object] = {}
        self.sessions = None
        self.traffic = Traffic()
        self.lost: frozenset[int] = frozenset()
        self.fenced: frozenset[int] = frozenset()

    def lost_leaders(self) -> frozenset[int]:
        return self.lost

    def fenced_lately(self) -> frozenset[int]:
        return self.fenced


class Site:
    """The broker under test (node 1) and one client."""

    def __init__(self, **settings: str) -> None:
        self.image = MetadataImage()
        self.image.offset = 100
        self.image.features = {"metadata.version": 30}
        self.image.brokers = {1: broker_view(1, rack="r1"), 2: broker_view(2), 3: broker_view(3)}
        self.controller = FakeController()
        self.quorum_view = FakeQuorumView()
        texts = {
            "node.id": "1",
            "process.roles": "broker",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092",
            "controller.listener.names": "CONTROLLER",
        }
        self.config = ServerConfig(texts | {name.replace("_", "."): text for name, text in settings.items()})
        self.timers = FakeTimers()
        self.replicas = FakeReplicas()
        self.broker = broker_context(
            self.config,
            host=SimpleNamespace(clock=SystemClock()),
            timers=self.timers,
            image=self.image,
            controller=self.controller,
            quorum=SimpleNamespace(kraft_version=0),
            # The data path has its own tests.
            replicas=self.replicas,
            producer_ids=ProducerIds(cast(Any, self.controller), 1, lambda: 55),
            quorum_view=self.quorum_view,
            moves=SimpleNamespace(under_way={}),
        )
        self.routes = client_routes(self.broker)
        self.connect()

    def change_broker(self, broker_id: int, **changes: Any) -> None:
        self.image.brokers[broker_id] = structs.replace(self.image.brokers[broker_id], **changes)

    def change_partition(self, topic: str, index: int, **changes: Any) -> None:
        """As a record does: the partition epoch grows."""
        partitions = self.image.topics_by_name[topic].partitions
        before = partitions[index]
        partitions[index] = structs.replace(before, partition_epoch=before.partition_epoch + 1, **changes)

    def add_topic(self, name: str, *partitions: PartitionView) -> TopicView:
        topic = TopicView(name, random_id(RNG), dict(enumerate(partitions)))
        self.image.topics_by_name[name] = self.image.topics_by_id[topic.id] = topic
        return topic

    def connect(self, listener_name: str = "PLAINTEXT") -> None:
        self.turns, self.beside = Turns(), Held()
        self.connection = Connection(
            self.routes,
            ReceivePool(),
            ConnectionLimits(),
            listener_name,
            turn=self.turns.turn,
            beside=cast(Beside, self.beside),
        )
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)

    def send(self, request: msgspec.Struct, version: int) -> None:
        """Sends a request; its class says which API."""
        name = type(request).__name__
        body = b"".join(bytes(each) for each in encoder(name, version)(request))
        self.send_raw(BY_NAME[name.removesuffix("Request")].key, version, body)

    def send_raw(self, key: int, version: int, body: bytes) -> None:
        payload = encode_request_header(key, version, 3, "test") + body
        data = struct.pack(">i", len(payload)) + payload
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    @property
    def written(self) -> bytearray:
        """What left by the end of the loop's turn."""
        self.turns.end_all()
        return self.transport.written

    def received(self, name: str, version: int) -> Any:
        """The response that came, decoded; it must be the only one, and nothing may be left over."""
        data = memoryview(bytes(self.written))
        self.written.clear()
        assert len(data) >= 8, "nothing was answered"
        assert struct.unpack_from(">i", data)[0] == len(data) - 4
        correlation_id, position = read_response_header(data, 4, BY_NAME[name.removesuffix("Response")].key, version)
        assert correlation_id == 3
        message, end = decoder(message_class(name), version)(data, position)
        assert end == len(data)
        return message

    def ask(self, request: msgspec.Struct, version: int) -> Any:
        """Sends a request that is answered at once."""
        self.send(request, version)
        return self.received(type(request).__name__.replace("Request", "Response"), version)


@pytest.fixture
def site() -> Site:
    return Site()

"""What the tests of the controller's decisions share: a cluster that lives in its records alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.chores import has_chores, next_chore
from ottla.quorum.controller.decisions.cluster import broker_heartbeat, register_broker
from ottla.quorum.controller.decisions.decision import Decision
from ottla.quorum.controller.decisions.features import bootstrap_records, supported_ranges
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.controller.decisions.topics import create_topics
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import partition_record
from ottla.quorum.metadata.views import PartitionView

R = TypeVar("R")

CLUSTER_ID = "test-cluster"
TOPIC_ID = b"topic-id" + bytes(8)


class World:
    """A controller's state, brokers and topics; every change goes through decisions and replay."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 1_000_000
        self.next_offset = 0
        settings.setdefault("cluster_id", CLUSTER_ID)
        self.state = ControllerState(MetadataImage(), ControllerSettings(**settings), Random(7))
        self.replay(bootstrap_records())

    def replay(self, records: Iterable[pb.MetadataRecord]) -> None:
        for record in records:
            self.state.replay(pb.MetadataRecord.FromString(record.SerializeToString()))
            self.next_offset += 1

    def do_chores(self) -> None:
        """All that is left of large changes."""
        while has_chores(self.state):
            self.replay(next_chore(self.state).records)

    def do(self, decision: Decision[R]) -> R:
        """Replays what was decided and hands back the response."""
        self.replay(decision.records)
        return decision.response

    def registration(self, broker_id: int, incarnation: int = 1, **more: Any) -> rpc.RegisterBrokerRequest:
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "features": supported_ranges(),
            "directories": [directory(broker_id)],
            "endpoints": [pb.Endpoint(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
        }
        incarnation_id = bytes([broker_id, incarnation]) * 8
        return rpc.RegisterBrokerRequest(broker_id=broker_id, incarnation_id=incarnation_id, **{**fields, **more})

    def register(self, broker_id: int, incarnation: int = 1, **more: Any) -> int:
        """Registers and hands back the epoch."""
        request = self.registration(broker_id, incarnation, **more)
        return self.do(register_broker(self.state, request, self.next_offset, self.now_ms)).broker_epoch

    def heartbeat(
        self, broker_id: int, *, offset: int | None = None, fence: bool = False, down: bool = False, **more: Any
    ) -> rpc.BrokerHeartbeatResponse:
        """A heartbeat of a registered broker, by default one that has read everything, replayed."""
        epoch = self.epoch(broker_id)
        read = self.next_offset if offset is None else offset
        self.state.sessions.contact(broker_id, epoch, read, self.now_ms)
        request = rpc.BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=read, want_fence=fence,
            want_shut_down=down, **more,
        )  # fmt: skip
        return self.do(broker_heartbeat(self.state, request))

    def brokers(self, *ids: int, racks: Mapping[int, str] | None = None) -> "World":
        """Registers and unfences brokers."""
        for broker_id in ids:
            self.register(broker_id, rack=racks[broker_id] if racks else None)
            self.heartbeat(broker_id)
        return self

    def fenced(self, *ids: int) -> "World":
        for broker_id in ids:
            self.heartbeat(broker_id, fence=True)
        return self

    def epoch(self, broker_id: int) -> int:
        return self.state.image.brokers[broker_id].epoch

    def partition_of(
        self,
        replicas: Sequence[int],
        isr: Sequence[int] | None = None,
        leader: int | None = None,
        *,
        places: Mapping[int, bytes] | None = None,
        **more: Any,
    ) -> "World":
        """One topic ``t`` with one partition as given, all its directories known, but for ``places``."""
        view = PartitionView(
            tuple(replicas),
            tuple(replicas if isr is None else isr),
            replicas[0] if leader is None else leader,
            leader_epoch=5,
            partition_epoch=10,
            directories=tuple((places or {}).get(each, directory(each)) for each in replicas),
            **more,
        )
        self.replay([pb.MetadataRecord(topic=pb.Topic(name="t", topic_id=TOPIC_ID))])
        self.replay([partition_record(TOPIC_ID, 0, view)])
        return self

    @property
    def partition(self) -> PartitionView:
        """That partition now."""
        return self.state.image.topics_by_id[TOPIC_ID].partitions[0]

    @property
    def standing(self) -> tuple[int, tuple[int, ...], int, int]:
        """Leader, ISR, leader epoch and partition epoch of that partition."""
        now = self.partition
        return now.leader, now.isr, now.leader_epoch, now.partition_epoch

    def configure(self, name: str, value: str, resource_type: int = 2, resource: str = "t") -> "World":
        body = pb.Config(resource_type=resource_type, resource_name=resource, name=name, value=value)
        self.replay([pb.MetadataRecord(config=body)])
        return self

    def create(self, *topics: rpc.CreateTopicsRequest.Topic, validate: bool = False) -> list[tuple[int, str]]:
        """Creates topics; the error code and message of each."""
        request = rpc.CreateTopicsRequest(topics=topics, validate_only=validate)
        response = self.do(create_topics(self.state, request))
        return [(each.error_code, each.error_message) for each in response.topics]


def directory(broker_id: int) -> bytes:
    return bytes([0xD0, broker_id]) * 8


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> rpc.CreateTopicsRequest.Topic:
    return rpc.CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=factor, **more)


@pytest.fixture
def world() -> World:
    """Three brokers in service."""
    return World().brokers(1, 2, 3)


MakeWorld = Callable[..., World]

"""Requests of any content, from whoever reaches the controllers' port: each is refused, or what is decided can be written, applied, and
read back. What cannot be applied costs the leadership, one controller after another."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.batches import into_batches
from ottla.quorum.controller.decisions.features import metadata_version
from ottla.quorum.controller.decisions.record_levels import check_records
from ottla.quorum.controller.decisions.topics import create_topics
from ottla.quorum.controller.dispatch import decide
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.testing.quorum.memory import MemoryStore
from tests.unit.quorum.controller.conftest import CLUSTER_ID, World, directory

BODIES = [field.name for field in rpc.ControllerRequest.DESCRIPTOR.oneofs_by_name["body"].fields]
ENDING = ("unregister_broker", "delete_topics")  # after which there is little left to ask about
WEIGHTED = [name for name in BODIES for _ in range(1 if name in ENDING else 6)]
NAMES = ("", "t", "u", "new", "t.x", "t_x", "x" * 300, "a/b", "..", "1", "\0", "é", CLUSTER_ID)
SETTINGS = ("metadata.version", "retention.ms", "cleanup.policy", "min.insync.replicas", "-1", "1e9", "x" * 40_000)
NUMBERS = (-2, -1, 0, 1, 1, 2, 2, 3, 3, 4, 10, 1000)


class Stranger:
    """Makes up requests; ``world`` is a cluster of three brokers and two topics."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(default_replication_factor=1).brokers(1, 2, 3)
        topics = [rpc.CreateTopicsRequest.Topic(name="t", num_partitions=3, replication_factor=3)]
        topics += [rpc.CreateTopicsRequest.Topic(name="u", num_partitions=1, replication_factor=2)]
        self.world.do(create_topics(self.world.state, rpc.CreateTopicsRequest(topics=topics)))

    def request(self) -> tuple[str, rpc.ControllerRequest]:
        name, request = self.rng.choice(WEIGHTED), rpc.ControllerRequest()
        getattr(request, name).SetInParent()
        self._fill(getattr(request, name))
        return name, request

    def _fill(self, message: Any) -> None:
        for field in message.DESCRIPTOR.fields:
            if self.rng.random() < 0.08:
                continue
            repeated = field.is_repeated
            if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
                values = [self._value(field) for _ in range(self.rng.randrange(4) if repeated else 1)]
                getattr(message, field.name).extend(values) if repeated else setattr(message, field.name, values[0])
            elif repeated:
                for _ in range(self.rng.randrange(4)):
                    self._fill(getattr(message, field.name).add())
            else:
                getattr(message, field.name).SetInParent()
                self._fill(getattr(message, field.name))
        if "broker_epoch" in message.DESCRIPTOR.fields_by_name and self.rng.random() < 0.8:
            self._give_a_true_name(message)

    def _give_a_true_name(self, message: Any) -> None:
        brokers = list(self.world.state.image.brokers.values())
        if brokers and "broker_id" in message.DESCRIPTOR.fields_by_name:
            broker = self.rng.choice(brokers)
            message.broker_id, message.broker_epoch = broker.id, broker.epoch

    def _value(self, field: FieldDescriptor) -> Any:
        rng, image = self.rng, self.world.state.image
        if field.type == FieldDescriptor.TYPE_STRING:
            return rng.choice((*NAMES, *SETTINGS))
        if field.type == FieldDescriptor.TYPE_BYTES:
            known = (*image.topics_by_id, directory(1), directory(2), bytes([1, 1]) * 8)
            return rng.choice((*known, *known, b"", bytes(16), bytes(15) + b"\1", b"short", bytes(1000)))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        if field.type == FieldDescriptor.TYPE_UINT32:
            return rng.choice((0, 9092, 65535, 65536, 2**32 - 1))
        if "epoch" in field.name and rng.random() < 0.6:
            return rng.choice((*(broker.epoch for broker in image.brokers.values()), 0, 1))
        largest = 2**31 if field.type == FieldDescriptor.TYPE_INT32 else 2**63
        return rng.choice((*NUMBERS, largest - 1, -largest))


def is_sound(partition: PartitionView) -> bool:
    """Replicas are told apart, each has a directory, and who leads is in sync."""
    replicas, isr = partition.replicas, partition.isr
    apart: Sequence[Sequence[int]] = (replicas, isr)
    return (
        all(len(set(each)) == len(each) for each in apart)
        and len(partition.directories) == len(replicas)
        and len(isr) > 0
        and set(isr) <= set(replicas)
        and partition.leader in (-1, *isr)
    )


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_whatever_is_asked_what_is_decided_can_be_applied(first: int) -> None:
    applied = 0
    for seed in range(first, first + 30):
        stranger = Stranger(seed)
        world = stranger.world
        for _ in range(60):
            name, request = stranger.request()
            world.now_ms += stranger.rng.choice((0, 1, 100))
            try:
                decision = decide(world.state, name, request, world.next_offset, world.now_ms)
                check_records(decision.records, metadata_version(world.state))
                into_batches(decision.records, atomic=decision.atomic, records_max=500, bytes_max=1 << 20, name="")
            except KafkaError:
                continue
            world.replay(decision.records)
            applied += bool(decision.records)
            topics = world.state.image.topics_by_id.values()
            assert all(is_sound(each) for topic in topics for each in topic.partitions.values()), f"{seed}: {request}"
        store = MemoryStore()
        ImageStore(store).replace(world.state.image)
        assert ImageStore(store).load().topics_by_id.keys() == world.state.image.topics_by_id.keys()
    assert applied > 100


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("kind", ["elect_leaders", "alter_partition_reassignments"])
def test_a_long_name_is_not_told_again_for_each_of_very_many_partitions(kind: str, is_there: bool) -> None:
    """They are told by topic: 2 MiB name half a million of one, and their answer was one of gigabytes."""
    world, name = Stranger(1).world, "x" * (249 if is_there else 30_000)
    if is_there:
        world.create(rpc.CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1))
    indexes = range(1000, 1900)
    request = rpc.ControllerRequest()
    if kind == "elect_leaders":
        request.elect_leaders.topics.add(name=name, partitions=indexes)
    else:
        moved = request.alter_partition_reassignments.topics.add(name=name)
        for index in indexes:
            moved.partitions.add(partition_index=index, cancel=True)
    decision = decide(world.state, kind, request, world.next_offset, 0)
    assert decision.is_last
    [topic] = decision.response.topics
    assert topic.name == name
    assert [each.partition_index for each in topic.partitions] == list(indexes)
    assert {each.error_code for each in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert all(each.error_message for each in topic.partitions)
    assert decision.response.ByteSize() - len(name) < 50 * len(indexes)

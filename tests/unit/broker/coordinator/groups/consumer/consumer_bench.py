"""Members of the consumer protocol beside a shard on its bench."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Asked, Bench

Parts = Mapping[bytes, Iterable[int]]

REBALANCE_MS = 60_000
INTERVAL_MS = 1_000
T, U = b"t".ljust(16, b"."), b"u".ljust(16, b".")


def beat(
    bench: Bench, member_id: str, epoch: int, *, owned: Parts | None = None, version: int = 1, **said: Any
) -> Asked:
    """One heartbeat, which says only that."""
    asked = Asked(version)
    told = None if owned is None else [TopicPartitions(each, sorted(owned[each])) for each in sorted(owned)]
    group = said.pop("group", "g")
    request = ConsumerGroupHeartbeatRequest(group, member_id, epoch, topic_partitions=told, **said)
    bench.shard.heartbeats.heartbeat(asked, request)
    return asked


def join(bench: Bench, member_id: str, topics: Sequence[str] | None = ("t",), **said: Any) -> Asked:
    """It says everything, as it has to."""
    more = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": topics and list(topics), "owned": {}} | said
    return beat(bench, member_id, 0, **more)


class Member:
    """A client as KIP-848 wants it: it gives up what it is not assigned any more, then takes what is new, and says what it has."""

    def __init__(
        self, bench: Bench, member_id: str, topics: Sequence[str] = ("t",), instance_id: str | None = None
    ) -> None:
        self.bench, self.id, self.topics, self.instance_id = bench, member_id, tuple(topics), instance_id
        self.epoch = 0
        self.owned: dict[bytes, frozenset[int]] = {}
        self.revoked: list[tuple[bytes, int]] = []
        self.is_in = False

    def join(self, **said: Any) -> ErrorCode:
        self.epoch, self.owned = 0, {}
        return self.hear(join(self.bench, self.id, self.topics, instance_id=self.instance_id, **said))

    def beat(self, **said: Any) -> ErrorCode:
        """Joins again when it is fenced, with the next one."""
        if not self.is_in:
            return self.join()
        if self.instance_id is not None:
            said["instance_id"] = self.instance_id
        return self.hear(beat(self.bench, self.id, self.epoch, owned=self.owned, **said))

    def leave(self, epoch: int = -1) -> ErrorCode:
        self.is_in, self.owned = False, {}
        return beat(self.bench, self.id, epoch, instance_id=self.instance_id).error

    def hear(self, asked: Asked) -> ErrorCode:
        if asked.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.is_in, self.owned = False, {}
        if asked.error:
            return asked.error
        self.is_in, self.epoch = True, asked.said.member_epoch
        if asked.said.assignment is not None:
            self.take({each.topic_id: frozenset(each.partitions) for each in asked.said.assignment.topic_partitions})
        return asked.error

    def take(self, assigned: dict[bytes, frozenset[int]]) -> None:
        self.revoked += sorted(self.places - places(assigned))
        self.owned = assigned

    @property
    def places(self) -> set[tuple[bytes, int]]:
        return places(self.owned)


def places(held: Parts) -> set[tuple[bytes, int]]:
    return {(topic, each) for topic, partitions in held.items() for each in partitions}


def settle(members: Sequence[Member], rounds: int = 8) -> None:
    """Heartbeats until everybody has come to the target."""
    for _ in range(rounds):
        for each in members:
            each.beat()
        if members:
            members[0].bench.wait(INTERVAL_MS)


def assigned(asked: Asked) -> dict[bytes, list[int]]:
    return {each.topic_id: each.partitions for each in asked.said.assignment.topic_partitions}


def group_of(bench: Bench) -> ConsumerGroup:
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


def pair(bench: Bench) -> tuple[Member, Member]:
    """Two members that have come to their target."""
    one, two = Member(bench, "one"), Member(bench, "two")
    settle([one, two])
    assert (len(one.owned[T]), len(two.owned[T])) == (2, 2)
    return one, two

"""Members of both protocols of one group, which reads a topic with four partitions."""

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.broker.coordinator.decisions.effects import Done, Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.embedded_protocol import read_assignment, written_assignment
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Asked, Bench
from tests.unit.broker.coordinator.groups.subscribing import written_subscription

Owned = Mapping[str, Sequence[int]]


class Classic:
    """A classic consumer. It gives everything up before it joins again, unless it is ``cooperative``."""

    def __init__(self, bench: "MigrationBench", *, cooperative: bool = False, instance: str | None = None) -> None:
        self.bench = bench
        self.cooperative = cooperative
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.owned: set[int] = set()

    def ask_to_join(self) -> Asked:
        owned = {"t": sorted(self.owned)} if self.cooperative and self.owned else {}
        metadata = written_subscription(["t"], owned, version=1)
        asked = self.bench.join(self.id, metadata=metadata, instance=self.instance)
        if not asked.waits and asked.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = asked.said.member_id
            asked = self.bench.join(self.id, metadata=metadata, instance=self.instance)
        if not self.cooperative:
            self.owned = set()
        return asked

    def joined(self, asked: Asked) -> Any:
        assert asked.error is ErrorCode.NONE, asked.error
        self.id, self.generation = asked.said.member_id, asked.said.generation_id
        return asked.said

    def ask_for_assignment(self, assignments: Mapping[str, Sequence[int]] | None = None) -> Asked:
        brought = {
            member_id.replace("-", "_"): written_assignment(1, {"t": each})
            for member_id, each in (assignments or {}).items()
        }
        return self.bench.sync(self.id, self.generation, instance=self.instance, **brought)

    def synced(self, asked: Asked) -> None:
        assert asked.error is ErrorCode.NONE, asked.error
        self.owned = set(read_assignment(asked.said.assignment).partitions.get("t", ()))

    def rejoin(self) -> None:
        """In a consumer group, where nobody waits for anybody."""
        self.joined(self.ask_to_join())
        self.synced(self.ask_for_assignment())

    def beat(self) -> ErrorCode:
        return self.bench.heartbeat(self.id, self.generation, self.instance)

    def go_on(self) -> None:
        """What such a client does within some heartbeats."""
        if not self.id or self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()


class Modern:
    """A member of the consumer protocol."""

    def __init__(self, bench: "MigrationBench", name: str, *, instance: str | None = None) -> None:
        self.bench, self.id, self.instance = bench, name, instance
        self.epoch = 0
        self.owned: set[int] = set()

    def ask(self, epoch: int | None = None, *, says_everything: bool = False) -> Asked:
        epoch = self.epoch if epoch is None else epoch
        told = [TopicPartitions(self.bench.topic_ids["t"], sorted(self.owned))] if self.owned and epoch else []
        asked = Asked(1, "modern")
        is_full = says_everything or epoch == 0
        self.bench.shard.heartbeats.heartbeat(
            asked,
            ConsumerGroupHeartbeatRequest(
                "g",
                self.id,
                epoch,
                self.instance,
                rebalance_timeout_ms=60_000 if is_full else -1,
                subscribed_topic_names=["t"] if is_full else None,
                topic_partitions=told,
            ),
        )
        return asked

    def heard(self, asked: Asked) -> None:
        assert asked.error is ErrorCode.NONE, asked.said
        self.epoch = asked.said.member_epoch
        if asked.said.assignment is not None:
            self.owned = {each for topic in asked.said.assignment.topic_partitions for each in topic.partitions}

    def go_on(self) -> None:
        self.heard(self.ask())

    def leave(self) -> Asked:
        return self.ask(-1)


class MigrationBench(Bench):
    """The group is "g"."""

    refuses_classic = ErrorCode.NONE
    """Records of a classic group are refused, and what is written with them."""

    @classmethod
    def taken_over(cls, bench: "MigrationBench") -> "MigrationBench":
        """Another coordinator, which has what was written."""
        other = cls(migration_policy=bench.settings.migration_policy)
        other.topic_ids, other.partitions, other._ids = bench.topic_ids, bench.partitions, bench._ids
        other.time_ms, other.log = bench.time_ms, list(bench.log)
        for offset, record in enumerate(bench.log):
            other.shard.replay(Record(record.key, record.value), offset)
        assert other.shard.contents() == bench.shard.contents()
        for _ in other.shard.begin():
            pass
        return other

    def write(self, records: Sequence[Record], done: Done) -> None:
        if self.refuses_classic and any(each.key[:2] == b"\0\2" and each.value for each in records):
            done(self.refuses_classic)
        else:
            super().write(records, done)

    def consumers(self) -> ConsumerGroup:
        found = self.shard.consumers.find("g")
        assert found is not None
        assert self.shard.find("g") is None
        return found

    def classic(self) -> ClassicGroup:
        found = self.shard.find("g")
        assert found is not None
        assert self.shard.consumers.find("g") is None
        return found

    def stable_classic(self, *members: Classic) -> None:
        """All in generation 1; the partitions of t are dealt to them like cards."""
        asked = [each.ask_to_join() for each in members]
        self.wait(2 * self.settings.initial_rebalance_delay_ms)
        self._deal(members, asked)

    def rejoin_classic(self, *members: Classic) -> None:
        """All join again, as their heartbeats told them."""
        self._deal(members, [each.ask_to_join() for each in members])

    @staticmethod
    def _deal(members: Sequence[Classic], asked: Sequence[Asked]) -> None:
        for member, answer in zip(members, asked, strict=True):
            member.joined(answer)
        dealt = {each.id: list(range(at, 4, len(members))) for at, each in enumerate(members)}
        waiting = [(each, each.ask_for_assignment(dealt)) for each in members]
        for each, answer in waiting:
            each.synced(answer)

    @staticmethod
    def assigned_bytes(*members: Classic) -> set[bytes]:
        return {written_assignment(1, {"t": each.owned}) for each in members}

    def settle(self, *members: Classic | Modern) -> None:
        """Everybody heartbeats for a while; at no time have two members the same partition."""
        for _ in range(8):
            self.wait(1_000)
            for each in members:
                each.go_on()
                owned = [partition for one in members for partition in one.owned]
                assert len(owned) == len(set(owned)), "a partition has two owners"
        assert sorted(partition for each in members for partition in each.owned) == [0, 1, 2, 3]

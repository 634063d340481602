"""The metadata image: what the committed records say, as dictionaries."""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.views import (
    TOPIC_RESOURCE,
    BrokerView,
    ConfigKey,
    ControllerView,
    EndpointView,
    FeatureRangeView,
    PartitionView,
    TopicView,
)

__all__ = ["BrokerView", "MetadataImage", "PartitionView", "TopicView", "UnreadableRecordError"]


_DISSOLVED_AT_ONCE = 10_000


class UnreadableRecordError(Exception):
    """A record that this image cannot take: of a newer version, or one that contradicts what is there. There is no way
    on from here, for the next records rely on it."""


class MetadataImage:
    """One mutable object for each node, changed by `apply` alone. A change costs what it changes, not what there is.

    ``offset``/``epoch``: of the last record applied, -1 before the first. Brokers, partitions and the inner dictionaries
    of ``configs`` are values: hold them as long as you like. A `TopicView` is not; look it up each time.
    """

    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1
        self.brokers: dict[int, BrokerView] = {}
        self.controllers: dict[int, ControllerView] = {}
        self.topics_by_id: dict[bytes, TopicView] = {}
        self.topics_by_name: dict[str, TopicView] = {}
        self.configs: dict[ConfigKey, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self._owner = object()
        # Replica lists repeat: a million partitions on ten brokers have a few hundred different ones.
        self._interned: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def __eq__(self, other: object) -> bool:
        """Equal contents; where they stand in the log does not matter."""
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return self._contents() == other._contents()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _contents(self) -> tuple[object, ...]:
        return (
            self.brokers, self.controllers, self.topics_by_id, self.topics_by_name,
            self.configs, self.features, self.next_producer_id,
        )  # fmt: skip

    def fork(self) -> "MetadataImage":
        """Another image with the same contents, which then goes its own way.

        The two share every value and every topic until one of them changes it: whoever does first copies the topic
        (`_own_topic`). So a fork costs a look at each topic, not at each partition.
        """
        other = MetadataImage()
        other.offset, other.epoch = self.offset, self.epoch
        other.brokers, other.controllers = dict(self.brokers), dict(self.controllers)
        other.topics_by_id, other.topics_by_name = dict(self.topics_by_id), dict(self.topics_by_name)
        other.configs, other.features = dict(self.configs), dict(self.features)
        other.next_producer_id = self.next_producer_id
        other._interned = self._interned  # values only, so that sharing is safe
        self._owner = object()
        return other

    def become(self, other: "MetadataImage") -> None:
        """Takes the contents of ``other``, which must not be used any more. Those who hold this image keep it."""
        self.__dict__.update(other.__dict__)

    def dissolve(self) -> Iterator[None]:
        """Lets go of its topics in pieces, and must not be used any more: to free a million partitions at once takes 80 ms."""
        self.topics_by_name.clear()
        partitions = 0
        while self.topics_by_id:
            partitions += len(self.topics_by_id.popitem()[1].partitions)
            if partitions >= _DISSOLVED_AT_ONCE:
                partitions = 0
                yield

    def topic(self, name: str) -> TopicView | None:
        return self.topics_by_name.get(name)

    def partition(self, topic_id: bytes, index: int) -> PartitionView | None:
        topic = self.topics_by_id.get(topic_id)
        return topic.partitions.get(index) if topic is not None else None

    def intern(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The one tuple of that value."""
        return self._interned.setdefault(values, values)

    def _known_topic(self, topic_id: bytes) -> TopicView:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise UnreadableRecordError(f"a record for the topic id {topic_id.hex()}, which does not exist")
        return topic

    def _own_topic(self, topic_id: bytes) -> TopicView:
        """The topic, as one that only this image holds."""
        topic = self._known_topic(topic_id)
        if topic.owner is not self._owner:
            topic = TopicView(topic.name, topic.id, dict(topic.partitions), self._owner)
            self.topics_by_id[topic_id] = self.topics_by_name[topic.name] = topic
        return topic

    def apply(self, record: pb.MetadataRecord, delta: MetadataDelta) -> None:
        """Makes the change that ``record`` says and notes it in ``delta``. Raises UnreadableRecordError.

        Offsets and transactions are the caller's business: it must not come here with a record that may be aborted.
        """
        kind = record.WhichOneof("body")
        if kind is None:
            raise UnreadableRecordError("a record of a kind this version does not know")
        _APPLY[kind](self, getattr(record, kind), delta)

    def add_topic(self, name: str, topic_id: bytes) -> None:
        """Adds a topic without partitions."""
        if topic_id in self.topics_by_id or name in self.topics_by_name:
            raise UnreadableRecordError(f"topic {name} ({topic_id.hex()}) is created a second time")
        self.topics_by_id[topic_id] = self.topics_by_name[name] = TopicView(name, topic_id, {}, self._owner)

    def _topic(self, record: pb.Topic, delta: MetadataDelta) -> None:
        self.add_topic(record.name, record.topic_id)
        delta.created_topics[record.topic_id] = record.name

    def _remove_topic(self, record: pb.RemoveTopic, delta: MetadataDelta) -> None:
        topic = self._known_topic(record.topic_id)
        delta.delete_topic(topic)
        del self.topics_by_id[topic.id]
        del self.topics_by_name[topic.name]
        key = (TOPIC_RESOURCE, topic.name)
        if key in self.configs:
            delta.configs.setdefault(key, self.configs.pop(key))

    def _partition(self, record: pb.Partition, delta: MetadataDelta) -> None:
        topic, index = self._own_topic(record.topic_id), record.partition_id
        delta.partitions.setdefault((topic.id, index), topic.partitions.get(index))
        replicas = self.intern(tuple(record.replicas))
        topic.partitions[index] = PartitionView(
            replicas=replicas,
            isr=self.intern(tuple(record.isr)),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            adding=tuple(record.adding_replicas),
            removing=tuple(record.removing_replicas),
            directories=self.intern(tuple(record.directories)),
        )

    def _partition_change(self, record: pb.PartitionChange, delta: MetadataDelta) -> None:
        topic, index = self._own_topic(record.topic_id), record.partition_id
        before = topic.partitions.get(index)
        if before is None:
            raise UnreadableRecordError(f"a change of {topic.name}-{index}, which does not exist")
        delta.partitions.setdefault((topic.id, index), before)
        topic.partitions[index] = changed_partition(before, record, self.intern)

    def _register_broker(self, record: pb.RegisterBroker, delta: MetadataDelta) -> None:
        delta.brokers.setdefault(record.broker_id, self.brokers.get(record.broker_id))
        self.brokers[record.broker_id] = BrokerView(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.endpoints),
            features=_features(record.features),
            rack=record.rack if record.HasField("rack") else None,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.directories),
        )

    def _registered(self, broker_id: int, epoch: int, delta: MetadataDelta) -> BrokerView:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise UnreadableRecordError(f"a record for broker {broker_id} with epoch {epoch}, which is not registered")
        delta.brokers.setdefault(broker_id, broker)
        return broker

    def _unregister_broker(self, record: pb.UnregisterBroker, delta: MetadataDelta) -> None:
        self._registered(record.broker_id, record.broker_epoch, delta)
        del self.brokers[record.broker_id]

    def _change_registration(self, record: pb.BrokerRegistrationChange, delta: MetadataDelta) -> None:
        old = self._registered(record.broker_id, record.broker_epoch, delta)
        shutdown = record.in_controlled_shutdown if record.HasField("in_controlled_shutdown") else None
        self.brokers[old.id] = BrokerView(
            id=old.id,
            epoch=old.epoch,
            incarnation_id=old.incarnation_id,
            endpoints=old.endpoints,
            features=old.features,
            rack=old.rack,
            fenced=record.fenced if record.HasField("fenced") else old.fenced,
            in_controlled_shutdown=old.in_controlled_shutdown if shutdown is None else shutdown,
            directories=tuple(record.directories.ids) if record.HasField("directories") else old.directories,
        )

    def _config(self, record: pb.Config, delta: MetadataDelta) -> None:
        key = (record.resource_type, record.resource_name)
        before = self.configs.get(key, {})
        delta.configs.setdefault(key, before)
        values = dict(before)
        if record.HasField("value"):
            values[record.name] = record.value
        else:
            values.pop(record.name, None)
        if values:
            self.configs[key] = values
        else:
            self.configs.pop(key, None)

    def _feature_level(self, record: pb.FeatureLevel, delta: MetadataDelta) -> None:
        delta.features.setdefault(record.name, self.features.get(record.name, 0))
        if record.level:
            self.features[record.name] = record.level
        else:
            self.features.pop(record.name, None)

    def _producer_ids(self, record: pb.ProducerIds, delta: MetadataDelta) -> None:
        if record.next_producer_id <= self.next_producer_id:
            raise UnreadableRecordError(f"producer ids from {record.next_producer_id} on are handed out a second time")
        delta.producer_ids_changed = True
        self.next_producer_id = record.next_producer_id

    def _register_controller(self, record: pb.RegisterController, delta: MetadataDelta) -> None:
        delta.controllers[record.controller_id] = None
        self.controllers[record.controller_id] = ControllerView(
            record.controller_id,
            record.incarnation_id,
            _endpoints(record.endpoints),
            _features(record.features),
            record.rack if record.HasField("rack") else None,
        )

    def _unregister_controller(self, record: pb.UnregisterController, delta: MetadataDelta) -> None:
        if self.controllers.pop(record.controller_id, None) is None:
            raise UnreadableRecordError(f"controller {record.controller_id} leaves, which is not registered")
        delta.controllers[record.controller_id] = None

    def _nothing(self, _record: object, _delta: MetadataDelta) -> None:
        """NoOp, and the marks of transactions, which the loader has dealt with."""


def changed_partition(
    before: PartitionView, record: pb.PartitionChange, intern: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple
) -> PartitionView:
    """The partition after the change: epochs are derived here, on every node alike (kraft.md 2.5)."""

    has = record.HasField
    has_leader = has("leader")
    return PartitionView(
        intern(tuple(record.replicas.ids)) if has("replicas") else before.replicas,
        intern(tuple(record.isr.ids)) if has("isr") else before.isr,
        record.leader if has_leader else before.leader,
        before.leader_epoch + has_leader,
        before.partition_epoch + 1,
        record.leader_recovery_state if has("leader_recovery_state") else before.leader_recovery_state,
        tuple(record.adding_replicas.ids) if has("adding_replicas") else before.adding,
        tuple(record.removing_replicas.ids) if has("removing_replicas") else before.removing,
        intern(tuple(record.directories.ids)) if has("directories") else before.directories,
    )


def _endpoints(endpoints: Any) -> tuple[EndpointView, ...]:
    return tuple(EndpointView(each.name, each.host, each.port, each.security_protocol) for each in endpoints)


def _features(features: Any) -> dict[str, FeatureRangeView]:
    return {each.name: FeatureRangeView(each.min_version, each.max_version) for each in features}


_APPLY: dict[str, Callable[[MetadataImage, Any, MetadataDelta], None]] = {
    "register_broker": MetadataImage._register_broker,
    "unregister_broker": MetadataImage._unregister_broker,
    "broker_registration_change": MetadataImage._change_registration,
    "topic": MetadataImage._topic,
    "remove_topic": MetadataImage._remove_topic,
    "partition": MetadataImage._partition,
    "partition_change": MetadataImage._partition_change,
    "config": MetadataImage._config,
    "feature_level": MetadataImage._feature_level,
    "producer_ids": MetadataImage._producer_ids,
    "register_controller": MetadataImage._register_controller,
    "unregister_controller": MetadataImage._unregister_controller,
    "no_op": MetadataImage._nothing,
    "begin_transaction": MetadataImage._nothing,
    "end_transaction": MetadataImage._nothing,
    "abort_transaction": MetadataImage._nothing,
}

"""The metadata image: what the committed records say, as dictionaries."""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.family import K, RecordFamily, UnreadableRecordError, V
from ottla.quorum.metadata.families.settings import CONFIGS
from ottla.quorum.metadata.families.table import FAMILIES, KINDS
from ottla.quorum.metadata.views import (
    NEXT_PRODUCER_ID,
    NO_LEADER,
    TOPIC_RESOURCE,
    BrokerView,
    ConfigKey,
    ControllerView,
    PartitionView,
    TopicView,
)

__all__ = ["BrokerView", "MetadataImage", "PartitionView", "TopicView", "UnreadableRecordError"]


_DISSOLVED_AT_ONCE = 10_000


class MetadataImage:
    """One mutable object for each node, changed by `apply` alone. A change costs what it changes, not what there is.

    ``offset``/``epoch``: of the last record applied, -1 before the first. Brokers, partitions and the inner dictionaries
    of ``configs`` are values: hold them as long as you like. A `TopicView` is not; look it up each time.

    Every record family has a dictionary here; those that are read by name are named.
    """

    brokers: dict[int, BrokerView]
    controllers: dict[int, ControllerView]
    configs: dict[ConfigKey, dict[str, str]]
    features: dict[str, int]
    producer_ids: dict[str, int]

    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1
        for family in FAMILIES:
            setattr(self, family, {})
        self.topics_by_id: dict[bytes, TopicView] = {}
        self.topics_by_name: dict[str, TopicView] = {}
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
        return (self.topics_by_id, self.topics_by_name, *(getattr(self, family) for family in FAMILIES))

    def fork(self) -> "MetadataImage":
        """Another image with the same contents, which then goes its own way.

        The two share every value and every topic until one of them changes it: whoever does first copies the topic
        (`_own_topic`). So a fork costs a look at each topic, not at each partition.
        """
        other = MetadataImage()
        other.offset, other.epoch = self.offset, self.epoch
        for family in FAMILIES:
            setattr(other, family, dict(getattr(self, family)))
        other.topics_by_id, other.topics_by_name = dict(self.topics_by_id), dict(self.topics_by_name)
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

    def entries(self, family: RecordFamily[K, V]) -> dict[K, V]:
        """The entries of a record family."""
        entries: dict[K, V] = getattr(self, family.attribute)
        return entries

    @property
    def next_producer_id(self) -> int:
        """The first that is still free."""
        return self.producer_ids.get(NEXT_PRODUCER_ID, 0)

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
        topic_change = _TOPIC_CHANGES.get(kind)
        if topic_change is not None:
            topic_change(self, getattr(record, kind), delta)
        elif kind not in _CHANGES_NOTHING:
            self._change_entry(kind, getattr(record, kind), delta)

    def _change_entry(self, name: str, body: Any, delta: MetadataDelta) -> None:
        family, kind = KINDS[name]
        entries = getattr(self, family.attribute)
        key, value = kind.change(entries, body)
        delta.note(family, key, entries.get(key))
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value

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
            delta.note(CONFIGS, key, self.configs.pop(key))

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
            elr=tuple(record.eligible_leader_replicas),
            last_known_elr=tuple(record.last_known_elr),
        )

    def _partition_change(self, record: pb.PartitionChange, delta: MetadataDelta) -> None:
        topic, index = self._own_topic(record.topic_id), record.partition_id
        before = topic.partitions.get(index)
        if before is None:
            raise UnreadableRecordError(f"a change of {topic.name}-{index}, which does not exist")
        delta.partitions.setdefault((topic.id, index), before)
        topic.partitions[index] = changed_partition(before, record, self.intern)

    def _clear_elr(self, record: pb.ClearElr, delta: MetadataDelta) -> None:
        """Of every partition, if need be: a look at each, as seldom as somebody sets min.insync.replicas."""
        named = self.topics_by_name.get(record.topic_name)
        if record.topic_name and named is None:
            raise UnreadableRecordError(f"eligible leaders of {record.topic_name}, which does not exist")
        for topic in [named] if named is not None else list(self.topics_by_id.values()):
            for index, before in list(topic.partitions.items()):
                if before.elr and before.leader != NO_LEADER:
                    change = pb.PartitionChange(topic_id=topic.id, partition_id=index)
                    change.eligible_leader_replicas.SetInParent()
                    self._partition_change(change, delta)


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
        tuple(record.eligible_leader_replicas.ids) if has("eligible_leader_replicas") else before.elr,
        tuple(record.last_known_elr.ids) if has("last_known_elr") else before.last_known_elr,
    )


_TOPIC_CHANGES: dict[str, Callable[[MetadataImage, Any, MetadataDelta], None]] = {
    "topic": MetadataImage._topic,
    "remove_topic": MetadataImage._remove_topic,
    "partition": MetadataImage._partition,
    "partition_change": MetadataImage._partition_change,
    "clear_elr": MetadataImage._clear_elr,
}

_CHANGES_NOTHING = ("no_op", "begin_transaction", "end_transaction", "abort_transaction")
"""The marks of transactions are the loader's business."""

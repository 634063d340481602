"""What a stretch of the metadata log changed: what publishers are told, so that their work is proportional to it."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ottla.quorum.metadata.families.family import K, RecordFamily, V
from ottla.quorum.metadata.families.table import FAMILIES
from ottla.quorum.metadata.views import BrokerView, ConfigKey, ControllerView, PartitionView, TopicView

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import MetadataImage

PIECE_PARTITIONS = 1000
"""So many are compared and told of at once: 1 to 2 ms."""

_NOTHING: Mapping[Any, Any] = MappingProxyType({})

PartitionKey = tuple[bytes, int]
"""Topic id and partition index."""


class MetadataDelta:
    """The keys that changed, each with the value from before (None: it was not there). The image has the values of now.

    A partition that was created and deleted within the stretch stands in `partitions` although neither image has it.
    """

    def __init__(self) -> None:
        self.created_topics: dict[bytes, str] = {}
        self.deleted_topics: dict[bytes, TopicView] = {}
        self.partitions: dict[PartitionKey, PartitionView | None] = {}
        self._entries: dict[str, dict[Any, Any]] = {}  # by record family; of those alone that changed

    def changed(self, family: RecordFamily[K, V]) -> Mapping[K, V | None]:
        """The entries of a record family."""
        return self._entries.get(family.attribute, _NOTHING)

    def note(self, family: RecordFamily[K, V], key: K, before: V | None) -> None:
        """An entry changes; what it was before its first change counts."""
        self._entries.setdefault(family.attribute, {}).setdefault(key, before)

    @property
    def brokers(self) -> Mapping[int, BrokerView | None]:
        return self._entries.get("brokers", _NOTHING)

    @property
    def controllers(self) -> Mapping[int, ControllerView | None]:
        return self._entries.get("controllers", _NOTHING)

    @property
    def configs(self) -> Mapping[ConfigKey, dict[str, str] | None]:
        return self._entries.get("configs", _NOTHING)

    @property
    def features(self) -> Mapping[str, int | None]:
        return self._entries.get("features", _NOTHING)

    @property
    def is_empty(self) -> bool:
        return not (self.partitions or self.created_topics or self.deleted_topics or self._entries)

    @classmethod
    def between(cls, before: "MetadataImage", after: "MetadataImage") -> "MetadataDelta":
        """From one image to another; what only the first has counts as deleted. It costs a look at all there is."""
        delta = cls()
        for piece in differences(before, after):
            delta._add(piece)
        return delta

    def _add(self, piece: "MetadataDelta") -> None:
        for family, entries in piece._entries.items():
            self._entries.setdefault(family, {}).update(entries)
        self.created_topics.update(piece.created_topics)
        self.deleted_topics.update(piece.deleted_topics)
        self.partitions.update(piece.partitions)

    def delete_topic(self, topic: TopicView) -> None:
        """``topic`` as it was just before it went."""
        self.deleted_topics[topic.id] = topic
        self.created_topics.pop(topic.id, None)
        for index, partition in topic.partitions.items():
            self.partitions.setdefault((topic.id, index), partition)


def differences(before: "MetadataImage", after: "MetadataImage") -> Iterator[MetadataDelta]:
    """`MetadataDelta.between` in pieces: everything but topics, then the topics that went, then those there are. Neither image may
    change meanwhile (a fork does not). Pieces may be empty: then nothing was found in the time that one takes."""
    yield _beside_topics(before, after)
    yield from _deleted_topics(before, after)
    yield from _changed_topics(before, after)


def _beside_topics(before: "MetadataImage", after: "MetadataImage") -> MetadataDelta:
    delta = MetadataDelta()
    for family in FAMILIES.values():
        old, new = before.entries(family), after.entries(family)
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                delta.note(family, key, old.get(key))
    return delta


def _deleted_topics(before: "MetadataImage", after: "MetadataImage") -> Iterator[MetadataDelta]:
    delta = MetadataDelta()
    for topic_id, topic in before.topics_by_id.items():
        if topic_id not in after.topics_by_id:
            delta.delete_topic(topic)
        if len(delta.partitions) >= PIECE_PARTITIONS:
            yield delta
            delta = MetadataDelta()
    yield delta


def _changed_topics(before: "MetadataImage", after: "MetadataImage") -> Iterator[MetadataDelta]:
    delta, looks = MetadataDelta(), 0
    for topic_id, topic in after.topics_by_id.items():
        known = before.topics_by_id.get(topic_id)
        if known is None:
            delta.created_topics[topic_id] = topic.name
        old = known.partitions if known is not None else {}
        delta.partitions.update(((topic_id, index), old[index]) for index in old if index not in topic.partitions)
        for index, partition in topic.partitions.items():
            if (was := old.get(index)) != partition:
                delta.partitions[topic_id, index] = was
            looks += 1
            if looks == PIECE_PARTITIONS:
                yield delta
                delta, looks = MetadataDelta(), 0
    yield delta

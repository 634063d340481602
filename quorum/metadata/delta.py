"""What a stretch of the metadata log changed: what publishers are told, so that their work is proportional to it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from ottla.quorum.metadata.views import BrokerView, ConfigKey, PartitionView, TopicView

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import MetadataImage

_K = TypeVar("_K")
_V = TypeVar("_V")

PIECE_PARTITIONS = 1000
"""So many are compared and told of at once: 1 to 2 ms."""

PartitionKey = tuple[bytes, int]
"""Topic id and partition index."""


class MetadataDelta:
    """The keys that changed, each with the value from before (None: it was not there). The image has the values of now.

    A partition that was created and deleted within the stretch stands in `partitions` although neither image has it.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerView | None] = {}
        self.created_topics: dict[bytes, str] = {}
        self.deleted_topics: dict[bytes, TopicView] = {}
        self.partitions: dict[PartitionKey, PartitionView | None] = {}
        self.configs: dict[ConfigKey, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.controllers: dict[int, None] = {}
        self.producer_ids_changed = False

    @property
    def is_empty(self) -> bool:
        changed = self.brokers or self.created_topics or self.deleted_topics or self.partitions
        return not (changed or self.configs or self.features or self.controllers or self.producer_ids_changed)

    @classmethod
    def between(cls, before: "MetadataImage", after: "MetadataImage") -> "MetadataDelta":
        """From one image to another; what only the first has counts as deleted. It costs a look at all there is."""
        delta = cls()
        for piece in differences(before, after):
            delta._add(piece)
        return delta

    def _add(self, piece: "MetadataDelta") -> None:
        self.brokers.update(piece.brokers)
        self.created_topics.update(piece.created_topics)
        self.deleted_topics.update(piece.deleted_topics)
        self.partitions.update(piece.partitions)
        self.configs.update(piece.configs)
        self.features.update(piece.features)
        self.controllers.update(piece.controllers)
        self.producer_ids_changed |= piece.producer_ids_changed

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
    delta.brokers = _changed(before.brokers, after.brokers)
    delta.configs = {key: value or {} for key, value in _changed(before.configs, after.configs).items()}
    delta.features = {name: level or 0 for name, level in _changed(before.features, after.features).items()}
    delta.controllers = dict.fromkeys(_changed(before.controllers, after.controllers))
    delta.producer_ids_changed = before.next_producer_id != after.next_producer_id
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


def _changed(before: dict[_K, _V], after: dict[_K, _V]) -> dict[_K, _V | None]:
    """With the values from before."""
    keys = {**before, **after}
    return {key: before.get(key) for key in keys if before.get(key) != after.get(key)}

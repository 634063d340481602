"""What a stretch of the metadata log changed: what publishers are told, so that their work is proportional to it."""

from typing import TYPE_CHECKING, TypeVar

from ottla.quorum.metadata.views import BrokerView, ConfigKey, PartitionView, TopicView

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import MetadataImage

_K = TypeVar("_K")
_V = TypeVar("_V")

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
    def everything(cls, image: "MetadataImage") -> "MetadataDelta":
        """From an empty image to ``image``: what a publisher is told first."""
        delta = cls()
        delta.brokers = dict.fromkeys(image.brokers)
        delta.created_topics = {topic.id: topic.name for topic in image.topics_by_id.values()}
        for topic in image.topics_by_id.values():
            for index in topic.partitions:
                delta.partitions[topic.id, index] = None
        delta.configs = {key: {} for key in image.configs}
        delta.features = dict.fromkeys(image.features, 0)
        delta.controllers = dict.fromkeys(image.controllers)
        delta.producer_ids_changed = image.next_producer_id > 0
        return delta

    @classmethod
    def between(cls, before: "MetadataImage", after: "MetadataImage") -> "MetadataDelta":
        """From one image to another; what only the first has counts as deleted. For snapshots: it costs a look at all."""
        delta = cls()
        delta.brokers = _differences(before.brokers, after.brokers)
        delta.configs = {
            key: before.configs.get(key, {})
            for key in {**before.configs, **after.configs}
            if before.configs.get(key) != after.configs.get(key)
        }
        delta.features = {
            name: before.features.get(name, 0)
            for name in {**before.features, **after.features}
            if before.features.get(name) != after.features.get(name)
        }
        delta.controllers = dict.fromkeys(_differences(before.controllers, after.controllers))
        delta.producer_ids_changed = before.next_producer_id != after.next_producer_id
        delta._compare_topics(before, after)
        return delta

    def _compare_topics(self, before: "MetadataImage", after: "MetadataImage") -> None:
        for topic_id, old in before.topics_by_id.items():
            if topic_id not in after.topics_by_id:
                self.delete_topic(old)
        for topic_id, new in after.topics_by_id.items():
            known = before.topics_by_id.get(topic_id)
            if known is None:
                self.created_topics[topic_id] = new.name
            changed = _differences(known.partitions if known else {}, new.partitions)
            for index, partition in changed.items():
                self.partitions[topic_id, index] = partition

    def delete_topic(self, topic: TopicView) -> None:
        """``topic`` as it was just before it went."""
        self.deleted_topics[topic.id] = topic
        self.created_topics.pop(topic.id, None)
        for index, partition in topic.partitions.items():
            self.partitions.setdefault((topic.id, index), partition)


def _differences(before: dict[_K, _V], after: dict[_K, _V]) -> dict[_K, _V | None]:
    keys = {**before, **after}
    return {key: before.get(key) for key in keys if before.get(key) != after.get(key)}

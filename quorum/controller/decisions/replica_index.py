"""Which topics a broker has replicas of, and which partitions are not led by their first replica."""

from collections.abc import Iterator

from ottla.quorum.metadata.delta import MetadataDelta, PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import PartitionView, TopicView


class ReplicaIndex:
    """Built at its first use, with a look at every partition; from then on it follows the deltas.

    Brokers are mapped to topics and counts, not to partitions: a few bytes for each, and fencing looks only at topics
    that the broker has part in.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._counts: dict[int, dict[bytes, int]] | None = None
        self._unpreferred: dict[PartitionKey, None] = {}

    def partitions_of(self, broker_id: int) -> Iterator[tuple[PartitionKey, PartitionView]]:
        """The partitions with a replica on that broker."""
        topics = self._built().get(broker_id, {})
        for topic_id in topics:
            for index, partition in self._image.topics_by_id[topic_id].partitions.items():
                if broker_id in partition.replicas:
                    yield (topic_id, index), partition

    def unpreferred(self) -> list[PartitionKey]:
        """The partitions whose leader is not the first replica."""
        self._built()
        return list(self._unpreferred)

    def update(self, delta: MetadataDelta) -> None:
        """Follows what was just applied to the image."""
        if self._counts is None:
            return
        for key, before in delta.partitions.items():
            self._replace(key, before, self._image.partition(*key))

    def _built(self) -> dict[int, dict[bytes, int]]:
        if self._counts is None:
            self._counts = {}
            for topic in self._image.topics_by_id.values():
                self._add(topic)
        return self._counts

    def _add(self, topic: TopicView) -> None:
        """A topic that is not counted yet: a new controller does this for every partition there is."""
        assert self._counts is not None
        counted: dict[int, int] = {}
        for index, partition in topic.partitions.items():
            replicas = partition.replicas
            if partition.leader != replicas[0]:
                self._unpreferred[topic.id, index] = None
            for broker_id in replicas:
                counted[broker_id] = counted.get(broker_id, 0) + 1
        for broker_id, count in counted.items():
            self._counts.setdefault(broker_id, {})[topic.id] = count

    def _replace(self, key: PartitionKey, before: PartitionView | None, after: PartitionView | None) -> None:
        if after is not None and after.leader != after.replicas[0]:
            self._unpreferred[key] = None
        else:
            self._unpreferred.pop(key, None)
        old, new = before.replicas if before else (), after.replicas if after else ()
        if old == new:
            return
        for broker_id in old:
            self._count(broker_id, key[0], -1)
        for broker_id in new:
            self._count(broker_id, key[0], 1)

    def _count(self, broker_id: int, topic_id: bytes, by: int) -> None:
        assert self._counts is not None
        counts = self._counts.setdefault(broker_id, {})
        counts[topic_id] = counts.get(topic_id, 0) + by
        if not counts[topic_id]:
            del counts[topic_id]

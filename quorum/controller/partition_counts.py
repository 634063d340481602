"""How many partitions the cluster has, and how many of them have no leader, or not their first replica as leader.

There may be a million of them, so they are counted once, over many turns of the loop, and from then on the deltas tell.
"""

from collections.abc import Generator

from ottla.quorum.metadata.delta import MetadataDelta, PartitionKey
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.views import NO_LEADER, PartitionView, TopicView

PARTITIONS_A_SLICE = 2_000


class PartitionCounts:
    """A `MetadataPublisher`, from the first `built` on: before, it costs nothing."""

    def __init__(self, loader: MetadataLoader) -> None:
        self.partitions = self.offline = self.unpreferred = 0
        self._loader = loader
        self._uncounted: dict[bytes, None] | None = None  # topics; None: not begun

    def built(self) -> Generator[None, None, "PartitionCounts"]:
        """Counts what is not counted yet, and yields now and then for others to have their turn."""
        yield from self._told()
        if self._uncounted is None:
            self._uncounted = dict.fromkeys(self._loader.image.topics_by_id)
            self._loader.follow(self)
        loader, uncounted, seen = self._loader, self._uncounted, 0
        while uncounted:
            yield from self._told()
            topic = loader.image.topics_by_id.get(uncounted.popitem()[0])
            if topic is None:
                continue
            self._count_topic(topic)
            seen += len(topic.partitions)
            if seen >= PARTITIONS_A_SLICE:
                seen = 0
                yield
        return self

    def _told(self) -> Generator[None, None, None]:
        """Waits while a snapshot that was taken over is told in pieces: what is counted then would be told, too."""
        while self._loader.published_offset != self._loader.image.offset:
            yield

    def _count_topic(self, topic: TopicView) -> None:
        for partition in topic.partitions.values():
            self._count(partition, 1)

    def publish(self, delta: MetadataDelta, image: object) -> None:
        """Follows the image; topics that are still to be counted will be as they are then, if they still are."""
        uncounted = self._uncounted or {}
        for key, before in delta.partitions.items():
            if key[0] not in uncounted:
                self._replace(key, before)

    def _replace(self, key: PartitionKey, before: PartitionView | None) -> None:
        after = self._loader.image.partition(*key)
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)

    def _count(self, partition: PartitionView, by: int) -> None:
        self.partitions += by
        if partition.leader == NO_LEADER:
            self.offline += by
        if partition.leader != partition.replicas[0]:
            self.unpreferred += by

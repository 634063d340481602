"""Which topics a broker has replicas of, how many partitions it leads, and where leaders are missing or not the first choice."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from ottla.quorum.controller.decisions.sweep import Concerns, Sweep
from ottla.quorum.metadata.delta import MetadataDelta, PartitionKey
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import NO_LEADER, PartitionView

_K = TypeVar("_K")

COUNTED_AT_ONCE = 5_000
"""Partitions: about 4 ms."""


class ReplicaIndex:
    """Counts by topic, not partitions: a few bytes for each, and whoever looks for partitions looks only at topics that
    have some. Counting what was there before takes a second for a million partitions, and so it is done in pieces
    (`count`); from then on the counts follow the deltas.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._uncounted = dict.fromkeys(image.topics_by_id)
        self._hosted: dict[int, dict[bytes, int]] = {}
        self._led: dict[int, int] = {}
        self._leaderless: dict[bytes, int] = {}
        self._unpreferred: dict[bytes, int] = {}
        self._first: dict[int, int] = {}  # partitions of which a broker is the first replica
        self._first_unled: dict[int, int] = {}  # and those of them that it does not lead
        self._sweeps: dict[Hashable, Sweep] = {}

    # --- what it knows ------------------------------------------------------------------------------------------------

    def topics_of(self, broker_id: int) -> Iterable[bytes]:
        """The topics with a replica on that broker."""
        self._count_all()
        return self._hosted.get(broker_id, ())

    def leads_any(self, broker_id: int) -> bool:
        self._count_all()
        return self._led.get(broker_id, 0) > 0

    def leaderless_topics(self) -> Iterable[bytes]:
        """The topics with a partition that has no leader."""
        self._count_all()
        return self._leaderless

    def unpreferred_topics(self) -> Iterable[bytes]:
        """The topics with a partition whose leader is not the first replica."""
        self._count_all()
        return self._unpreferred

    def imbalanced_brokers(self, percentage: int) -> frozenset[int]:
        """Those that do not lead more than so much of what they are the first replicas of."""
        self._count_all()
        unled = self._first_unled.items()
        return frozenset(each for each, count in unled if 100 * count > percentage * self._first[each])

    def unpreferred(self) -> Iterator[tuple[PartitionKey, PartitionView]]:
        """The partitions whose leader is not the first replica. Costs a look at each of their topics."""
        for topic_id in self.unpreferred_topics():
            for index, partition in self._image.topics_by_id[topic_id].partitions.items():
                if partition.leader != partition.replicas[0]:
                    yield (topic_id, index), partition

    # --- sweeps -------------------------------------------------------------------------------------------------------

    def sweep(self, name: Hashable, topics: Callable[[], Iterable[bytes]], concerns: Concerns) -> Sweep:
        """The one of that name that is under way, or a new one. It is told of changes until `end`."""
        sweep = self._sweeps.get(name)
        if sweep is None:
            sweep = self._sweeps[name] = Sweep(self._image, topics(), concerns)
        return sweep

    def end(self, name: Hashable) -> None:
        self._sweeps.pop(name, None)

    # --- counting -----------------------------------------------------------------------------------------------------

    @property
    def is_counted(self) -> bool:
        return not self._uncounted

    def count(self, partitions: int = COUNTED_AT_ONCE) -> bool:
        """Counts about so many partitions more; whether all are counted now."""
        while self._uncounted and partitions > 0:
            topic_id, _ = self._uncounted.popitem()
            for partition in self._image.topics_by_id[topic_id].partitions.values():
                self._note(topic_id, partition, 1)
                partitions -= 1
        return not self._uncounted

    def _count_all(self) -> None:
        while not self.count():
            pass

    def update(self, delta: MetadataDelta) -> None:
        """Follows what was just applied to the image."""
        for key, before in delta.partitions.items():
            if key[0] in self._uncounted:
                continue
            after = self._image.partition(*key)
            if before is not None:
                self._note(key[0], before, -1)
            if after is not None:
                self._note(key[0], after, 1)
                self._tell_sweeps(key, after)
        for topic_id in delta.deleted_topics:
            self._uncounted.pop(topic_id, None)

    def _tell_sweeps(self, key: PartitionKey, after: PartitionView) -> None:
        for name, sweep in list(self._sweeps.items()):
            if not sweep.changed(key, after):
                del self._sweeps[name]

    def _note(self, topic_id: bytes, partition: PartitionView, by: int) -> None:
        leader, replicas = partition.leader, partition.replicas
        for broker_id in replicas:
            hosted = self._hosted.get(broker_id)
            if hosted is None:
                hosted = self._hosted[broker_id] = {}
            _add(hosted, topic_id, by)
        if leader == NO_LEADER:
            _add(self._leaderless, topic_id, by)
        else:
            _add(self._led, leader, by)
        _add(self._first, replicas[0], by)
        if leader != replicas[0]:
            _add(self._unpreferred, topic_id, by)
            _add(self._first_unled, replicas[0], by)


def _add(counts: dict[_K, int], key: _K, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]

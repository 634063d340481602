"""What all coordinators are: a shard for each partition of their internal topic that this broker leads."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from ottla.broker.coordinator.load_times import LoadTimes
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.coordinator.shard_host import Shard, ShardHost, Surroundings
from ottla.broker.replication.appending import OnCommitted
from ottla.broker.replication.markers import Marker
from ottla.broker.replication.partition import Partition
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.timers import Repeated

logger = logging.getLogger(__name__)

RELOAD_MS = 1_000
RELOAD_MS_MAX = 60_000


class Counts(Protocol):
    """What was done, as metrics count it."""

    def plus(self, other: Self) -> Self: ...


ShardKind = TypeVar("ShardKind", bound=Shard)
CountsKind = TypeVar("CountsKind", bound=Counts)


class Coordinator(ABC, Generic[ShardKind, CountsKind]):
    """Listens to the elections of its topic (`TopicListener`)."""

    topic: ClassVar[str]
    keeps: ClassVar[str]
    """What its partitions keep, for messages: one of them."""

    def __init__(self, image: MetadataImage, surroundings: Surroundings, nothing: CountsKind) -> None:
        """``image`` is the node's own, which changes. ``nothing``: the counts of who has done nothing yet."""
        self._image = image
        self._around = surroundings
        self._hosts: dict[int, tuple[ShardHost, ShardKind]] = {}
        self._load_times = LoadTimes()
        self._failures: dict[int, int] = {}
        """How often a partition could not be loaded, since it could be last or another led it."""
        self._past = nothing  # of shards that are not here any more
        self._repeated = Repeated(surroundings.timers)

    @abstractmethod
    def _shard(self, host: ShardHost, leader_epoch: int) -> ShardKind:
        """A new shard, which nothing was replayed to."""

    @abstractmethod
    def _counts_of(self, shard: ShardKind) -> CountsKind:
        """Since it was loaded."""

    def stop(self) -> None:
        self._repeated.cancel()
        for host, _ in self._hosts.values():
            host.close()
        self._hosts.clear()

    # --- what its topic tells -----------------------------------------------------------------------------------------

    def elected(self, partition: Partition, leader_epoch: int) -> None:
        host = ShardHost(partition, leader_epoch, self._around)
        shard = self._shard(host, leader_epoch)
        self._hosts[partition.index] = host, shard
        host.load(shard, partial(self._loaded, partition, leader_epoch, host))

    def _loaded(self, partition: Partition, leader_epoch: int, host: ShardHost, error: KafkaError | None) -> None:
        """What keeps it from being read may pass, such as a want of descriptors; nobody else leads meanwhile. Damage is healed by
        another replica, which then leads."""
        if error is None:
            self._failures.pop(partition.index, None)
            self._load_times.record(host.clock_ms, host.load_ms)
            return
        failures = self._failures[partition.index] = self._failures.get(partition.index, 0) + 1
        pause_ms = min(RELOAD_MS << min(failures - 1, 16), RELOAD_MS_MAX)
        logger.error(
            "%s cannot be loaded, every %s of it waits; tried again in %d s: %s",
            partition,
            self.keeps,
            pause_ms // 1_000,
            error,
        )
        host.remind("load", pause_ms, partial(self._load_again, partition, leader_epoch, host))

    def _load_again(self, partition: Partition, leader_epoch: int, host: ShardHost) -> None:
        host.close()
        self.elected(partition, leader_epoch)

    def resigned(self, partition: Partition, leader_epoch: int) -> None:
        self._failures.pop(partition.index, None)
        found = self._hosts.pop(partition.index, None)
        if found is not None:
            host, shard = found
            self._past = self._past.plus(self._counts_of(shard))
            host.close()
            logger.info("%s has another coordinator, epoch %d is over", partition, leader_epoch)

    def deleted(self, partition: Partition) -> None:
        """It has resigned before."""

    # --- transactions -------------------------------------------------------------------------------------------------

    def end_transaction(self, partition: Partition, marker: Marker, on_done: OnCommitted) -> None:
        """In a partition of its topic; ``on_done`` as `append_own` says. Raises KafkaError if the marker is not written."""
        found = self._hosts.get(partition.index)
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {partition.leader_id}")
        found[0].end_transaction(marker, on_done)

    # --- who coordinates ----------------------------------------------------------------------------------------------

    def place_of(self, name: str) -> int | None:
        """The partition that keeps what is called so; None while there is no topic for it."""
        topic = self._image.topics_by_name.get(self.topic)
        return partition_of(name, len(topic.partitions)) if topic is not None and topic.partitions else None

    def shard_of(self, name: str) -> ShardKind:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        return self._hosted(name)[1]

    def partition_of(self, name: str) -> Partition:
        """Where its shard is kept. Raises KafkaError as `shard_of`."""
        return self._hosted(name)[0].partition

    def _hosted(self, name: str) -> tuple[ShardHost, ShardKind]:
        place = self.place_of(name)
        found = self._hosts.get(place) if place is not None else None
        if found is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.keeps} {name} is coordinated by another broker")
        if not found[0].is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.keeps} {name} is being loaded")
        return found

    def shards(self) -> Iterator[ShardKind]:
        """Those that are loaded."""
        return (shard for host, shard in list(self._hosts.values()) if host.is_loaded)

    def begun_shards(self) -> Iterator[ShardKind]:
        """Those also that know all that was written, and still go through it."""
        return (shard for host, shard in list(self._hosts.values()) if host.has_begun)

    @property
    def is_loading(self) -> bool:
        return any(not host.is_loaded for host, _ in self._hosts.values())

    # --- for metrics --------------------------------------------------------------------------------------------------

    def counts(self) -> CountsKind:
        """Since this process began."""
        counts = self._past
        for shard in self.shards():
            counts = counts.plus(self._counts_of(shard))
        return counts

    def states(self) -> dict[str, int]:
        """How many partitions are in each."""
        active = sum(host.is_loaded for host, _ in self._hosts.values())
        return {"active": active, "loading": len(self._hosts) - active}

    def load_times_ms(self) -> list[int]:
        """Of the last minute."""
        return self._load_times.recent_ms(self._around.timers.now_ms())


class Topics:
    """The topics of the node's image, as deciders ask for them."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def id_of(self, name: str) -> bytes | None:
        topic = self._image.topics_by_name.get(name)
        return topic.id if topic is not None else None

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def has(self, name: str, index: int) -> bool:
        topic = self._image.topics_by_name.get(name)
        return topic is not None and index in topic.partitions

    def partition_count(self, topic_id: bytes) -> int:
        topic = self._image.topics_by_id.get(topic_id)
        return len(topic.partitions) if topic is not None else 0

    def names(self) -> list[str]:
        return list(self._image.topics_by_name)

    @property
    def version(self) -> int:
        return self._image.offset

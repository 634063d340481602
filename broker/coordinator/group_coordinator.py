"""The groups that this broker coordinates: a shard for each partition of `__consumer_offsets` that it leads."""

import logging
from collections.abc import Iterator
from functools import partial

from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.coordinator.shard_host import ShardHost, Surroundings
from ottla.broker.internal_topics import GROUPS
from ottla.broker.replication.partition import Partition
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import Repeated

logger = logging.getLogger(__name__)

RELOAD_MS = 1_000


class GroupCoordinator:
    """Listens to the elections of its topic (`TopicListener`), and to the metadata."""

    def __init__(self, config: ServerConfig, image: MetadataImage, surroundings: Surroundings) -> None:
        """``image`` is the node's own, which changes."""
        self._settings = group_settings(config)
        self._check_interval_ms = config.integer("offsets.retention.check.interval.ms")
        self._image = image
        self._around = surroundings
        self._hosts: dict[int, tuple[ShardHost, GroupShard]] = {}
        self._repeated = Repeated(surroundings.timers)

    def start(self) -> None:
        self._repeated.every(self._check_interval_ms, self._expire)

    def stop(self) -> None:
        self._repeated.cancel()
        for host, _ in self._hosts.values():
            host.close()
        self._hosts.clear()

    # --- what its topic tells -----------------------------------------------------------------------------------------

    def elected(self, partition: Partition, leader_epoch: int) -> None:
        host = ShardHost(partition, leader_epoch, self._around)
        shard = GroupShard(host, self._settings, Topics(self._image))
        self._hosts[partition.index] = host, shard
        host.load(shard, partial(self._loaded, partition, leader_epoch, host))

    def _loaded(self, partition: Partition, leader_epoch: int, host: ShardHost, error: KafkaError | None) -> None:
        """What keeps it from being read may pass, such as a want of descriptors; nobody else leads meanwhile."""
        if error is not None:
            logger.error("%s cannot be loaded, which is tried again soon: %s", partition, error)
            host.remind("load", RELOAD_MS, partial(self._load_again, partition, leader_epoch, host))

    def _load_again(self, partition: Partition, leader_epoch: int, host: ShardHost) -> None:
        host.close()
        self.elected(partition, leader_epoch)

    def resigned(self, partition: Partition, leader_epoch: int) -> None:
        found = self._hosts.pop(partition.index, None)
        if found is not None:
            found[0].close()
            logger.info("%s: its groups have another coordinator, epoch %d is over", partition, leader_epoch)

    def deleted(self, partition: Partition) -> None:
        """It has resigned before."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Offsets of deleted topics are forgotten."""
        if delta.deleted_topics:
            for shard in self.shards():
                shard.expire()

    def _expire(self) -> None:
        for shard in self.shards():
            shard.expire()

    # --- who coordinates ----------------------------------------------------------------------------------------------

    def place_of(self, group_id: str) -> int | None:
        """The partition that keeps the group; None while there is no topic for it."""
        topic = self._image.topics_by_name.get(GROUPS)
        return partition_of(group_id, len(topic.partitions)) if topic is not None and topic.partitions else None

    def shard_of(self, group_id: str) -> GroupShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        place = self.place_of(group_id)
        found = self._hosts.get(place) if place is not None else None
        if found is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group_id} is coordinated by another broker")
        host, shard = found
        if not host.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id} is being loaded")
        return shard

    def shards(self) -> Iterator[GroupShard]:
        """Those that are loaded."""
        return (shard for host, shard in list(self._hosts.values()) if host.is_loaded)

    @property
    def is_loading(self) -> bool:
        return any(not host.is_loaded for host, _ in self._hosts.values())


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


def group_settings(config: ServerConfig) -> GroupSettings:
    number = config.integer
    return GroupSettings(
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=number("group.min.session.timeout.ms"),
        max_session_timeout_ms=number("group.max.session.timeout.ms"),
        max_size=number("group.max.size"),
        offset_metadata_bytes_max=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
    )

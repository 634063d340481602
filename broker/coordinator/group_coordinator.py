"""The groups that this broker coordinates: a shard for each partition of `__consumer_offsets` that it leads."""

from collections.abc import Mapping
from dataclasses import replace

from ottla.broker.coordinator.coordinator import Coordinator, Topics
from ottla.broker.coordinator.decisions.groups.counts import GroupCounts
from ottla.broker.coordinator.decisions.groups.migration.policy import MigrationPolicy
from ottla.broker.coordinator.decisions.groups.settings import MEMBERS_MAX, GroupSettings
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.coordinator.shard_host import ShardHost, Surroundings
from ottla.broker.internal_topics import GROUPS
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import GROUP_RESOURCE
from ottla.runtime.settings.server import ServerConfig

_NONE: Mapping[str, str] = {}


class GroupCoordinator(Coordinator[GroupShard, GroupCounts]):
    """Listens to the metadata beside."""

    topic = GROUPS
    keeps = "group"

    def __init__(self, config: ServerConfig, image: MetadataImage, surroundings: Surroundings) -> None:
        super().__init__(
            image, replace(surroundings, codec=config.integer("offsets.topic.compression.codec")), GroupCounts()
        )
        self._settings = group_settings(config)
        self._check_interval_ms = config.integer("offsets.retention.check.interval.ms")

    def _shard(self, host: ShardHost, leader_epoch: int) -> GroupShard:
        return GroupShard(host, self._settings, Topics(self._image), self._own_settings)

    def _own_settings(self, group_id: str) -> Mapping[str, str]:
        return self._image.configs.get((GROUP_RESOURCE, group_id), _NONE)

    def _counts_of(self, shard: GroupShard) -> GroupCounts:
        return shard.counts()

    def start(self) -> None:
        self._repeated.every(self._check_interval_ms, self._expire)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Offsets of deleted topics are forgotten. Consumer groups look again at topics that came, went or grew."""
        topics = reshaped(delta, image)
        for shard in self.begun_shards() if topics else ():
            shard.consumers.refresh(topics)
            if delta.created_topics or delta.deleted_topics:
                shard.patterns.topics_changed()
        if delta.deleted_topics:
            self._expire()

    def _expire(self) -> None:
        for shard in self.shards():
            shard.expire()


def reshaped(delta: MetadataDelta, image: MetadataImage) -> set[str]:
    """Names of the topics whose partitions are not those of before."""
    names = {*delta.created_topics.values(), *(each.name for each in delta.deleted_topics.values())}
    for (topic_id, _), before in delta.partitions.items():
        topic = image.topics_by_id.get(topic_id) if before is None else None
        if topic is not None:
            names.add(topic.name)
    return names


def group_settings(config: ServerConfig) -> GroupSettings:
    number = config.integer

    def bounds(what: str) -> tuple[int, int]:
        return number(f"group.consumer.min.{what}"), number(f"group.consumer.max.{what}")

    return GroupSettings(
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=number("group.min.session.timeout.ms"),
        max_session_timeout_ms=number("group.max.session.timeout.ms"),
        max_size=min(number("group.max.size"), MEMBERS_MAX),
        offset_metadata_bytes_max=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        regex_refresh_interval_ms=number("group.consumer.regex.refresh.interval.ms"),
        migration_policy=MigrationPolicy(config.string("group.consumer.migration.policy").lower()),
        consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=number("group.consumer.assignment.interval.ms"),
        consumer_session_bounds=bounds("session.timeout.ms"),
        consumer_heartbeat_bounds=bounds("heartbeat.interval.ms"),
        consumer_assignment_bounds=bounds("assignment.interval.ms"),
        consumer_max_size=min(number("group.consumer.max.size"), MEMBERS_MAX),
        consumer_assignors=config.strings("group.consumer.assignors"),
    )

"""What the group coordinator takes from its node's configuration; the names are Kafka's."""

import msgspec

from ottla.broker.coordinator.decisions.groups.migration.policy import MigrationPolicy

MEMBERS_MAX = 10_000
"""Of one group, whatever the settings say. The record of a classic generation, of a megabyte unless somebody changed that, holds fewer;
and what is done for all members at once keeps everybody else waiting."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds, unless a name says otherwise."""

    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = MEMBERS_MAX  # group.max.size
    new_member_join_timeout_ms: int = 300_000
    """Of a member that has no id yet, and so can send no heartbeat while it waits."""
    offset_metadata_bytes_max: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes

    regex_refresh_interval_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL  # group.consumer.migration.policy
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_assignment_interval_ms: int = 1_000  # group.consumer.assignment.interval.ms
    consumer_session_bounds: tuple[int, int] = (
        45_000,
        60_000,
    )  # group.consumer.min.session.timeout.ms and .max.: of one group
    consumer_heartbeat_bounds: tuple[int, int] = (5_000, 15_000)  # group.consumer.min.heartbeat.interval.ms and .max.
    consumer_assignment_bounds: tuple[int, int] = (0, 15_000)  # group.consumer.min.assignment.interval.ms and .max.
    consumer_max_size: int = MEMBERS_MAX  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors; the first is the default

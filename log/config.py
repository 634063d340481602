"""The settings of one log, as the log reads them (Kafka's topic-level names with dots as underscores)."""

import msgspec

FOREVER = 2**63 - 1


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic that concern its logs.

    Sizes in bytes, times in milliseconds; -1 means no limit where Kafka says so.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = 86_400_000
    min_insync_replicas: int = 1
    preallocate: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    flush_before_ack: bool = False  # ottla.flush.before.ack

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

"""From a topic's settings (texts in the metadata log) to what its log reads."""

from collections.abc import Mapping

import msgspec
from msgspec import structs

from ottla.log.config import LogConfig
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.settings.topic import resolve_topic

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


def log_config(server: ServerConfig, topic: Mapping[str, str], cluster: Mapping[str, str] | None = None) -> LogConfig:
    """The log's own settings: topic > cluster-wide > server file > default."""
    values = resolve_topic(server, topic, cluster)
    fields = {name.replace(".", "_"): value for name, value in values.items()}
    fields["flush_before_ack"] = values["ottla.flush.before.ack"]
    config = msgspec.convert({name: fields[name] for name in LogConfig.__struct_fields__}, LogConfig)
    if config.compacted and config.max_compaction_lag_ms < config.segment_ms:
        # Only closed segments are cleaned, so they close in time for it (Kafka's LogConfig.maxSegmentMs).
        config = structs.replace(config, segment_ms=config.max_compaction_lag_ms)
    return config

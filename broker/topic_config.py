"""From a topic's settings (texts in the metadata log) to what its log reads."""

from collections.abc import Mapping

import msgspec
from msgspec import structs

from ottla.log.config import LogConfig
from ottla.runtime.settings.definitions import Value
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.settings.topic import check_topic_setting, resolve_topic

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


_KNOWN_MAX = 1000


class LogConfigs:
    """A log's settings: topic > cluster-wide > server file > default.

    What a topic does not set is resolved once, until a cluster-wide setting changes; of a topic only its own texts are read,
    and topics with the same texts share a value.
    """

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._cluster: Mapping[str, str] = {}
        self._defaults = resolve_topic(server, {})
        self._known: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def of(self, topic: Mapping[str, str], cluster: Mapping[str, str] | None = None) -> LogConfig:
        """``topic`` holds a topic's own texts, ``cluster`` the dynamic ones of all brokers. Raises SettingError."""
        if (cluster or {}) != self._cluster:
            self._defaults = resolve_topic(self._server, {}, cluster)
            self._cluster = dict(cluster or {})
            self._known.clear()
        key = tuple(topic.items())
        config = self._known.get(key)
        if config is None:
            own = {name: check_topic_setting(name, text) for name, text in topic.items()}
            if len(self._known) == _KNOWN_MAX:
                self._known.clear()
            config = self._known[key] = _log_config({**self._defaults, **own})
        return config


def _log_config(values: Mapping[str, Value]) -> LogConfig:
    fields = {field: values[name] for field, name in _NAMES.items()}
    config = msgspec.convert(fields, LogConfig)
    if config.compacted and config.max_compaction_lag_ms < config.segment_ms:
        # Only closed segments are cleaned, so they close in time for it (Kafka's LogConfig.maxSegmentMs).
        config = structs.replace(config, segment_ms=config.max_compaction_lag_ms)
    return config


def _setting_of(field: str) -> str:
    return "ottla.flush.before.ack" if field == "flush_before_ack" else field.replace("_", ".")


_NAMES = {field: _setting_of(field) for field in LogConfig.__struct_fields__}

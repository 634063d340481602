"""From a topic's settings (texts in the metadata log) to what its log reads."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from ottla.log.config import LogConfig
from ottla.quorum.metadata.views import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigKey
from ottla.runtime.settings.definitions import Value, server_settings, topic_settings
from ottla.runtime.settings.dynamic import readable
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.settings.topic import resolve_topic

_KNOWN_MAX = 1000


class LogConfigs:
    """A log's settings: topic > this node's dynamic ones > those of all nodes > server file > default.

    What a topic does not set is resolved once, until a dynamic setting changes; of a topic only its own texts are read, and
    topics with the same texts share a value. What a newer version wrote and this one cannot read is passed over.
    """

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._node: Mapping[str, str] = {}
        self._defaults = resolve_topic(server, {})
        self._known: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def of_topic(self, topic: str, configs: Mapping[ConfigKey, Mapping[str, str]], node_id: int) -> LogConfig:
        """As the image has them in ``configs``."""
        return self.of(configs.get((TOPIC_RESOURCE, topic), {}), dynamic_texts(configs, node_id))

    def of(self, topic: Mapping[str, str], node: Mapping[str, str] | None = None) -> LogConfig:
        """``topic`` holds a topic's own texts, ``node`` the dynamic ones that hold for this node (`dynamic_texts`)."""
        if (node or {}) != self._node:
            self._node = dict(node or {})
            self._defaults = resolve_topic(self._server.changed(readable(self._node, server_settings())), {})
            self._known.clear()
        key = tuple(topic.items())
        config = self._known.get(key)
        if config is None:
            own = readable(topic, topic_settings())
            if len(self._known) == _KNOWN_MAX:
                self._known.clear()
            config = self._known[key] = _log_config({**self._defaults, **own})
        return config


def dynamic_texts(configs: Mapping[ConfigKey, Mapping[str, str]], node_id: int) -> Mapping[str, str]:
    """What was set at run time and holds for a node: its own goes before what was set for all."""
    own, of_all = configs.get((BROKER_RESOURCE, str(node_id)), {}), configs.get((BROKER_RESOURCE, ""), {})
    return {**of_all, **own} if own else of_all


def concern_node(keys: Iterable[ConfigKey], node_id: int) -> bool:
    """Whether any of these changes `dynamic_texts`."""
    return any(kind == BROKER_RESOURCE and name in ("", str(node_id)) for kind, name in keys)


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

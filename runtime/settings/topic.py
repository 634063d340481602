"""A topic's settings: checked one by one, and resolved topic > server > default."""

from collections.abc import Mapping

from ottla.runtime.settings.definitions import Setting, SettingError, Value, topic_settings
from ottla.runtime.settings.server import ServerConfig

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_MIN_LAG, _MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"

COARSER = {
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
}
"""Kafka's coarser names for the same setting, with their unit in ms: they give the default too, the finest that is set winning
(ServerTopicConfigSynonyms, DynamicBrokerConfig)."""


def check_topic_setting(name: str, text: str) -> Value:
    """The typed value of one topic setting. Raises SettingError for an unknown name or an impossible value."""
    setting = topic_settings().get(name)
    if setting is None:
        raise SettingError(f"unknown topic setting {name}")
    return setting.parse(text)


def check_topic_settings(values: Mapping[str, str], server: ServerConfig) -> None:
    """What Kafka checks across the settings that a topic is to have, the server's behind them (LogConfig). Raises SettingError."""
    at_least, at_most = (_resolved(topic_settings()[name], server, values) for name in (_MIN_LAG, _MAX_LAG))
    if isinstance(at_least, int) and isinstance(at_most, int) and at_least > at_most:
        raise SettingError(f"{_MIN_LAG}={at_least}: it cannot be more than {_MAX_LAG}, which is {at_most}")


def server_default(setting: Setting, server: ServerConfig) -> Value:
    """The value a topic without its own setting has on this server."""
    name = setting.broker_name
    if name and server.is_set(name):
        return server.get(name)
    for coarser, unit_ms in COARSER.get(name, ()):
        if server.is_set(coarser):
            hours_or_minutes = server.integer(coarser)
            return hours_or_minutes * unit_ms if hours_or_minutes >= 0 else -1
    return setting.default_value


def resolve_topic(server: ServerConfig, topic: Mapping[str, str]) -> dict[str, Value]:
    """Every topic setting's effective value."""
    return {name: _resolved(setting, server, topic) for name, setting in topic_settings().items()}


def _resolved(setting: Setting, server: ServerConfig, topic: Mapping[str, str]) -> Value:
    text = topic.get(setting.name)
    return server_default(setting, server) if text is None else setting.parse(text)

"""Settings as DescribeConfigs tells them: value, where it comes from, and what else could have set it.

Source: Kafka's ConfigHelper. What a running node does not take (`ottla.runtime.settings.dynamic`) is read-only.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.context import NodeContext
from ottla.quorum.metadata.views import BROKER_RESOURCE
from ottla.runtime.settings.definitions import (
    Setting,
    SettingError,
    group_settings,
    server_settings,
    topic_settings,
    value_text,
)
from ottla.runtime.settings.dynamic import changeable_settings
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.settings.topic import COARSER, server_default

# ConfigSource in the protocol.
DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_CLUSTER = 3
STATIC_BROKER = 4
DEFAULT = 5
CLIENT_METRICS = 7
GROUP = 8

_TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}


class Synonym(NamedTuple):
    """One place that gives the setting a value."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One setting of a resource. ``synonyms`` begins with the one that holds."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: int

    @property
    def shown_value(self) -> str | None:
        """What may leave this node: a secret never does."""
        return None if self.is_sensitive else self.value


def topic_entries(node: NodeContext, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic whose own settings are ``own``."""
    return [_topic_entry(node, setting, own.get(name)) for name, setting in topic_settings().items()]


def broker_entries(node: NodeContext) -> list[ConfigEntry]:
    """Every setting of this broker."""
    changeable = changeable_settings()
    return [
        _entry(setting, _broker_synonyms(node, name), read_only=name not in changeable)
        for name, setting in server_settings().items()
    ]


def cluster_entries(node: NodeContext) -> list[ConfigEntry]:
    """What was set for all brokers at run time."""
    known = server_settings()
    return [
        _entry(known[name], (Synonym(name, value, DYNAMIC_CLUSTER),), read_only=False)
        for name, value in sorted(_dynamic(node, "").items())
        if name in known
    ]


def group_entries(node: NodeContext, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a group whose own settings are ``own``; those, too, that a newer version let into the log."""
    unknown = {name: value for name, value in own.items() if name not in group_settings()}
    known = [_group_entry(node, setting, own.get(name)) for name, setting in group_settings().items()]
    return known + plain_entries(unknown, GROUP)


def _group_entry(node: NodeContext, setting: Setting, own: str | None) -> ConfigEntry:
    synonyms = _synonyms(node, (setting.broker_name,)) or (Synonym(setting.name, setting.default, DEFAULT),)
    if own is not None:
        synonyms = (Synonym(setting.name, _as_read(setting, own), GROUP), *synonyms)
    _, value, source = synonyms[0]
    return ConfigEntry(setting.name, value, False, source, False, synonyms, _TYPES[setting.type])


def plain_entries(own: Mapping[str, str], source: int) -> list[ConfigEntry]:
    """The entries of a resource that only has what was set on it (client metrics)."""
    return [
        ConfigEntry(name, value, False, source, False, (Synonym(name, value, source),), _TYPES["STRING"])
        for name, value in sorted(own.items())
    ]


def _topic_entry(node: NodeContext, setting: Setting, own: str | None) -> ConfigEntry:
    names = (setting.broker_name, *_coarser(setting.broker_name)) if setting.broker_name else ()
    synonyms = _synonyms(node, names)
    if own is not None:
        synonyms = (Synonym(setting.name, _as_read(setting, own), DYNAMIC_TOPIC), *synonyms)
    # The value of a coarser name is in another unit; the topic's own default is the same time in milliseconds.
    value = synonyms[0].value if synonyms and not _is_coarser(synonyms[0].name) else _resolved(node.config, setting)
    source = synonyms[0].source if synonyms else DEFAULT
    return ConfigEntry(setting.name, value, False, source, _sensitive(setting), synonyms, _TYPES.get(setting.type, 0))


def _as_read(setting: Setting, text: str) -> str | None:
    """What the node makes of it, as Kafka tells it: 0.1 of 1e-1. Of what only a newer version can read, the text."""
    try:
        return value_text(setting.parse(text))
    except SettingError:
        return text


def _resolved(config: ServerConfig, setting: Setting) -> str | None:
    return value_text(server_default(setting, config))


def _coarser(name: str) -> list[str]:
    """The coarser names of a setting, in the order in which they are asked."""
    return [coarser for coarser, _ in COARSER.get(name, ())]


def _is_coarser(name: str) -> bool:
    return any(name in _coarser(finest) for finest in COARSER)


def _broker_synonyms(node: NodeContext, name: str) -> tuple[Synonym, ...]:
    return _synonyms(node, (name, *_coarser(name)))


def _synonyms(node: NodeContext, names: tuple[str, ...]) -> tuple[Synonym, ...]:
    known = server_settings()
    of_node, of_cluster = _dynamic(node, str(node.node_id)), _dynamic(node, "")
    found = [Synonym(name, of_node[name], DYNAMIC_BROKER) for name in names if name in of_node]
    found += [Synonym(name, of_cluster[name], DYNAMIC_CLUSTER) for name in names if name in of_cluster]
    found += [Synonym(name, node.config.texts[name], STATIC_BROKER) for name in names if name in node.config.texts]
    for name in names:
        default = value_text(known[name].default_value) if name in known else None
        if default is not None:
            found.append(Synonym(name, default, DEFAULT))
    return tuple(found)


def _entry(setting: Setting, synonyms: tuple[Synonym, ...], *, read_only: bool) -> ConfigEntry:
    own = [each for each in synonyms if each.name == setting.name]
    value = _as_read(setting, own[0].value) if own and own[0].value is not None else None
    source = synonyms[0].source if synonyms else DEFAULT
    kind = _TYPES.get(setting.type, 0)
    return ConfigEntry(setting.name, value, read_only, source, _sensitive(setting), synonyms, kind)


def _sensitive(setting: Setting) -> bool:
    return setting.type == "PASSWORD"


def _dynamic(node: NodeContext, name: str) -> Mapping[str, str]:
    return node.image.configs.get((BROKER_RESOURCE, name), {})

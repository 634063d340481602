"""A metadata image as a tree of names, in the manner of Kafka's metadata shell, and as tables.

Directories are mappings that look into the image when they are asked, so that a million partitions cost nothing before
somebody lists them; everything else is a file, whose text is JSON.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ottla import __version__
from ottla.cli.output import Row
from ottla.quorum.metadata.families.family import RecordFamily
from ottla.quorum.metadata.families.settings import CONFIGS, PRODUCER_IDS
from ottla.quorum.metadata.families.table import FAMILIES
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import (
    BROKER_RESOURCE,
    NEXT_PRODUCER_ID,
    TOPIC_RESOURCE,
    ConfigKey,
    PartitionView,
    TopicView,
)
from ottla.runtime.identifiers import id_to_text

Node = Any
"""A `Directory`, or a file's value."""

_ALL_BROKERS = "default"


class Directory(Mapping[str, Node]):
    """Names and what is behind them."""

    def __init__(self, names: Callable[[], Iterable[str]], get: Callable[[str], Node]) -> None:
        """``get`` raises KeyError or ValueError for a name that is not there."""
        self._names = names
        self._get = get

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return sum(1 for _ in self._names())

    def __getitem__(self, name: str) -> Node:
        try:
            return self._get(name)
        except ValueError as error:
            raise KeyError(name) from error


def _fixed(children: Mapping[str, Node]) -> Directory:
    return Directory(lambda: children, children.__getitem__)


def root_of(image: MetadataImage) -> Directory:
    """The whole tree."""
    families: dict[str, Any] = {}
    for attribute, family in FAMILIES.items():
        above = families
        for name in family.path[:-1]:
            above = above.setdefault(name, {})
        shape: Callable[[Any], Directory] = _IN_ANOTHER_FORM.get(attribute, _entries)
        above[family.path[-1]] = shape(image.entries(family))
    tree = {
        "provenance": {"offset": image.offset, "epoch": image.epoch},
        "topics": _fixed({"byName": _topics_by_name(image), "byId": _topics_by_id(image)}),
        **_directories(families),
    }
    return _fixed({"image": _fixed(tree), "local": _fixed({"version": __version__})})


def _directories(tree: dict[str, Any]) -> Directory:
    return _fixed({name: _directories(node) if isinstance(node, dict) else node for name, node in tree.items()})


def _entries(entries: Mapping[Any, Any]) -> Directory:
    """Those of a record family, each a file."""
    named = {_name(key): entries[key] for key in sorted(entries)}
    return Directory(lambda: named, lambda name: _plain(named[name]))


def _name(key: Any) -> str:
    if isinstance(key, bytes):
        return id_to_text(key)
    return ",".join(map(_name, key)) if isinstance(key, tuple) else str(key)


def _topics_by_name(image: MetadataImage) -> Directory:
    topics = image.topics_by_name
    return Directory(lambda: sorted(topics), lambda name: _topic(topics[name]))


def _topics_by_id(image: MetadataImage) -> Directory:
    ids = {id_to_text(topic_id): topic for topic_id, topic in image.topics_by_id.items()}
    return Directory(lambda: sorted(ids), lambda name: _topic(ids[name]))


def _topic(topic: TopicView) -> Directory:
    def get(name: str) -> Node:
        return (
            {"id": id_to_text(topic.id), "name": topic.name}[name] if name in ("id", "name") else partition(int(name))
        )

    def partition(index: int) -> Node:
        return plain_partition(topic.partitions[index])

    return Directory(lambda: ["id", "name", *map(str, sorted(topic.partitions))], get)


def _configs(configs: Mapping[ConfigKey, dict[str, str]]) -> Directory:
    return _fixed({"broker": _configs_of(configs, BROKER_RESOURCE), "topic": _configs_of(configs, TOPIC_RESOURCE)})


def _configs_of(configs: Mapping[ConfigKey, dict[str, str]], kind: int) -> Directory:
    found = {name or _ALL_BROKERS: values for (its, name), values in configs.items() if its == kind}
    return Directory(lambda: sorted(found), lambda name: _fixed(found[name]))


_IN_ANOTHER_FORM: Mapping[str, Callable[[Any], Directory]] = {
    CONFIGS.attribute: _configs,
    PRODUCER_IDS.attribute: lambda ids: _fixed({NEXT_PRODUCER_ID: 0, **ids}),
}


def plain_partition(partition: PartitionView) -> Row:
    return {
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "leader_recovery_state": partition.leader_recovery_state,
        "eligible_leader_replicas": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
        "directories": [id_to_text(each) for each in partition.directories],
    }


def _plain(value: Any) -> Any:
    """As JSON has it; ids as people write them."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return id_to_text(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def expanded(node: Node) -> Any:
    """A tree as plain values."""
    return {name: expanded(node[name]) for name in node} if isinstance(node, Directory) else node


def plain_image(image: MetadataImage) -> Any:
    """Everything, for JSON; topics once."""
    tree = root_of(image)["image"]
    return {name: expanded(tree[name]["byName"] if name == "topics" else tree[name]) for name in tree}


# --- tables -----------------------------------------------------------------------------------------------------------


def summary(image: MetadataImage) -> list[tuple[str, list[Row], list[str]]]:
    """Title, rows and columns of each table that has any rows."""
    features: list[Row] = [{"feature": name, "level": level} for name, level in sorted(image.features.items())]
    settings: list[Row] = [
        {"resource": resource or "all brokers", "setting": name, "value": value}
        for (_, resource), values in sorted(image.configs.items())
        for name, value in sorted(values.items())
    ]
    tables = [
        (f"at offset {image.offset}, epoch {image.epoch}", features, ["feature", "level"]),
        ("brokers", _broker_rows(image), ["broker", "epoch", "standing", "address", "rack"]),
        ("topics", _topic_rows(image), ["topic", "partitions", "under-replicated", "leaderless", "id"]),
        ("settings", settings, ["resource", "setting", "value"]),
    ]
    tables += [_table_of(each, image) for name, each in FAMILIES.items() if name not in _TABLES_ABOVE]
    return [table for number, table in enumerate(tables) if number == 0 or table[1]]


_TABLES_ABOVE = ("features", "brokers", "configs")


def _table_of(family: RecordFamily[Any, Any], image: MetadataImage) -> tuple[str, list[Row], list[str]]:
    rows: list[Row] = []
    if (telling := family.telling) is not None:
        for key, value in sorted(image.entries(family).items()):
            rows += [{telling.noun: name, "value": text} for name, text in telling.lines(key, value)]
    noun = telling.noun if telling is not None else ""
    return (f"{noun}s", rows, [noun, "value"])


def _broker_rows(image: MetadataImage) -> list[Row]:
    return [
        {
            "broker": each.id,
            "epoch": each.epoch,
            "standing": each.standing,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
        }
        for _, each in sorted(image.brokers.items())
    ]


def _topic_rows(image: MetadataImage) -> list[Row]:
    return [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "under-replicated": sum(len(each.isr) < len(each.replicas) for each in topic.partitions.values()),
            "leaderless": sum(each.leader < 0 for each in topic.partitions.values()),
            "id": id_to_text(topic.id),
        }
        for name, topic in sorted(image.topics_by_name.items())
    ]

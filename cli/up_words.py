"""What `ottla up` is told: settings for every node's server.properties, topics, where the nodes live."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import click

DEFAULT_HOME = Path("ottla-data")
BROKERS_MAX = 64
CORES = "cores"

_OF_EACH_NODE = (
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "ottla.log.file",
    "ottla.metrics.listener",
    "ottla.pid.file",
    "ottla.ready.file",
    "process.roles",
)


class BrokerCount(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """A number, or as many as this process may use cores: a node is one loop, and one loop is one core."""

    name = "count"
    _number = click.IntRange(1, BROKERS_MAX)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[N|{CORES}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == CORES:
            return min(BROKERS_MAX, len(os.sched_getaffinity(0)))
        return int(self._number.convert(value, param, ctx))


def parse_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """``name=value`` each; whether there is such a setting and it may have the value, whoever makes the nodes checks.

    Raises UsageError for what is another text, and for what each node has of its own.
    """
    settings = {}
    for text in texts:
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not name:
            raise click.UsageError(f"--set {text}: write name=value")
        if "\n" in value or value.endswith("\\"):
            raise click.UsageError(f"--set {name}: a value is one line of a server.properties")
        if name in _OF_EACH_NODE:
            raise click.UsageError(f"--set {name}: each node has its own; change DIR/node-I/server.properties")
        settings[name] = value
    return settings


class NewTopic(NamedTuple):
    """One ``--topic``."""

    name: str
    partitions: int
    replicas: int


def parse_topics(texts: tuple[str, ...], brokers: int) -> list[NewTopic]:
    """``NAME:PARTITIONS:REPLICAS`` each. Raises UsageError."""
    topics = [_parse(text) for text in texts]
    for topic in topics:
        if topic.replicas > brokers:
            raise click.UsageError(
                f"--topic {topic.name}: {topic.replicas} replicas need as many brokers, not {brokers}"
            )
    return topics


def _parse(text: str) -> NewTopic:
    name, _, rest = text.partition(":")
    partitions, _, replicas = rest.partition(":")
    numbers = [int(each) if each.isascii() and each.isdigit() else 0 for each in (partitions, replicas)]
    if not name or min(numbers) < 1:
        raise click.UsageError(f"--topic {text}: write NAME:PARTITIONS:REPLICAS, as in flights:6:3")
    return NewTopic(name, *numbers)


def stop_command(home: Path) -> str:
    """What a person types to stop the nodes."""
    return "ottla down" if home == DEFAULT_HOME else f"ottla down --dir {home}"

"""The topics that a fleet's records go to: made where they are missing, and looked at where they are there."""

import time
from collections.abc import Iterable

from ottla.cli.failures import CommandError
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.metadata import Topic
from ottla.pipeline.wire.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipeline.wire.settings import client_settings
from ottla.runtime.errors import ErrorCode

_TOPIC_RESOURCE = 2
_CREATE_TIMEOUT_MS = 30_000


def prepare(
    bootstrap: str, names: Iterable[str], partitions: int, replicas: int | None, start_ms: int, *, append: bool
) -> None:
    """Sees to it that the topics are there and what is sent will stay. Raises CommandError."""
    with Cluster(client_settings({"bootstrap.servers": bootstrap})) as cluster:
        wanted = list(names)
        missing = [name for name in wanted if name not in cluster.topics(wanted)]
        made = _create(cluster, missing, partitions, replicas) if missing else set()
        for topic in _seen(cluster, wanted):
            if topic.name not in made:
                _look_at(cluster, topic, start_ms, append=append)


def _seen(cluster: Cluster, names: list[str]) -> list[Topic]:
    """The topics, once the broker that is asked knows them all: it may be a little behind the controller."""
    for _ in cluster.attempts():
        found = cluster.topics(names)
        if len(found) == len(names):
            return list(found.values())
    raise CommandError(f"topics {', '.join(sorted(set(names) - set(found)))} were made, and brokers do not show them")


def _look_at(cluster: Cluster, topic: Topic, start_ms: int, *, append: bool) -> None:
    held = records_in(cluster, topic)
    if held and not append:
        raise CommandError(
            f"topic {topic.name} holds {held:,} records: delete it, write to others with --prefix, or add --append"
        )
    kept_ms = _retention_ms(cluster, topic.name)
    if 0 <= kept_ms < time.time() * 1000 - start_ms:
        raise CommandError(
            f"topic {topic.name} deletes records older than {kept_ms} ms, and these begin before that:"
            " set its retention.ms to -1, or give a later --start"
        )


def records_in(cluster: Cluster, topic: Topic) -> int:
    """Between the ends of all its partitions."""
    places = [(topic.name, partition) for partition in topic.partitions]
    first = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    last = list_offsets(cluster, dict.fromkeys(places, LATEST))
    return sum(last[place].offset - first[place].offset for place in places)


def _retention_ms(cluster: Cluster, topic: str) -> int:
    """-1 for a topic that keeps everything, by age."""
    settings = {"cleanup.policy": "delete", "retention.ms": "-1"}
    resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": list(settings)}
    for result in cluster.ask_any("DescribeConfigs", {"resources": [resource]}).results:
        settings |= {each.name: each.value for each in result.configs}
    return int(settings["retention.ms"]) if "delete" in settings["cleanup.policy"] else -1


def _create(cluster: Cluster, names: list[str], partitions: int, replicas: int | None) -> set[str]:
    """Those that were made; others were there after all. Kept for ever: the records' times are those of the fleet's story, which may lie
    long back."""
    topics = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas or -1,
            "configs": [{"name": "retention.ms", "value": "-1"}],
        }
        for name in names
    ]
    answer = cluster.ask_any("CreateTopics", {"topics": topics, "timeout_ms": _CREATE_TIMEOUT_MS})
    for each in answer.topics:
        if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            said = f": {each.error_message}" if each.error_message else ""
            raise CommandError(f"topic {each.name} cannot be created: {ErrorCode(each.error_code).name}{said}")
    return {each.name for each in answer.topics if each.error_code == ErrorCode.NONE}

"""A topic as it is at one moment: where its partitions begin and end, and how long it keeps tombstones."""

from collections.abc import Mapping

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.places import LATEST, Place
from ottla.pipeline.jobs.snapshot_plan import Now, SnapshotError, ended_at
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.metadata import Topic
from ottla.pipeline.wire.offsets import EARLIEST, list_offsets
from ottla.pipeline.wire.offsets import LATEST as END
from ottla.pipeline.wire.settings import READ_COMMITTED, client_settings
from ottla.runtime.identifiers import id_to_text

FOR_EVER_MS = 1 << 62
_TOPIC_RESOURCE = 2


def topic_now(bootstrap: str, name: str, until: Place, now_ms: int, options: Mapping[str, str]) -> Now:
    """With ``until`` for its ends. ``options``: of the source, which say how a cluster is reached. Raises CommandError, ClientError."""
    with Cluster(client_settings({"bootstrap.servers": bootstrap, **_of_kafka(options)})) as cluster:
        topic = cluster.topics([name]).get(name)
        if topic is None:
            raise CommandError(f"there is no topic {name}")
        now = Now(
            name,
            id_to_text(topic.id),
            _places(cluster, topic, EARLIEST),
            _places(cluster, topic, END),
            now_ms,
            _tombstones_kept_ms(cluster, name),
        )
        try:
            return ended_at(_wanted(cluster, topic, until, now), now)
        except SnapshotError as error:
            raise CommandError(f"--until: {error}") from None


def _of_kafka(options: Mapping[str, str]) -> dict[str, str]:
    """Names in any case, as the source takes them."""
    lower = {name.lower(): text for name, text in options.items()}
    return {name.removeprefix("kafka."): text for name, text in lower.items() if name.startswith("kafka.")}


def _wanted(cluster: Cluster, topic: Topic, until: Place, now: Now) -> dict[int, int]:
    if until.time_ms is not None:
        found = _places(cluster, topic, until.time_ms)
        return {partition: offset if offset >= 0 else now.ends[partition] for partition, offset in found.items()}
    if until.offsets is None:
        return {} if until.word == LATEST else dict(now.starts)
    if set(until.offsets) != {topic.name}:
        raise SnapshotError(f"write offsets of {topic.name}, and of nothing else")
    words = {-1: now.ends, -2: now.starts}
    told = {int(partition): offset for partition, offset in until.offsets[topic.name].items()}
    return {partition: words[offset].get(partition, 0) if offset < 0 else offset for partition, offset in told.items()}


def _places(cluster: Cluster, topic: Topic, time_ms: int) -> dict[int, int]:
    """Transactions that are open are not there yet."""
    wanted = {(topic.name, partition): time_ms for partition in topic.partitions}
    found = list_offsets(cluster, wanted, READ_COMMITTED)
    return {partition: listed.offset for (_, partition), listed in sorted(found.items())}


def _tombstones_kept_ms(cluster: Cluster, topic: str) -> int:
    """0 where the cluster does not tell: it may be any topic, one that is compacted among them."""
    settings = {"cleanup.policy": "delete", "delete.retention.ms": "86400000"}
    resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": list(settings)}
    for result in cluster.ask_any("DescribeConfigs", {"resources": [resource]}).results:
        if result.error_code:
            return 0
        settings |= {each.name: each.value for each in result.configs}
    return int(settings["delete.retention.ms"]) if "compact" in settings["cleanup.policy"] else FOR_EVER_MS

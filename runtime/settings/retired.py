"""Settings of Kafka's years with ZooKeeper, which Kafka 4 does not have either, and what to write instead."""

from collections.abc import Mapping

_NO_ZOOKEEPER = (
    "there is no ZooKeeper, the controllers keep the metadata; remove it, and write process.roles=broker,controller "
    "and controller.quorum.voters=1@host:9093"
)
_LISTENERS = "write listeners=PLAINTEXT://host:port"
_ADVERTISED = "write advertised.listeners=PLAINTEXT://host:port"
_OWN_ID = "nobody makes up ids; remove it, and give each node a node.id"
_FEATURE_LEVEL = "remove it; `ottla features upgrade` raises the level once all nodes run the new version"
_HAND_OVER = "remove it; a node that stops asks until its partitions are led by others"

RETIRED: Mapping[str, str] = {
    "broker.id.generation.enable": _OWN_ID,
    "reserved.broker.max.id": _OWN_ID,
    "port": _LISTENERS,
    "host.name": _LISTENERS,
    "advertised.port": _ADVERTISED,
    "advertised.host.name": _ADVERTISED,
    "control.plane.listener.name": "controllers have listeners of their own; write controller.listener.names",
    "inter.broker.protocol.version": _FEATURE_LEVEL,
    "log.message.format.version": "remove it; records are kept in Kafka's format 2",
    "log.message.timestamp.difference.max.ms": "write log.message.timestamp.before.max.ms, and log.message.timestamp.after.max.ms",
    "controlled.shutdown.max.retries": _HAND_OVER,
    "controlled.shutdown.retry.backoff.ms": _HAND_OVER,
}


def instead(name: str) -> str | None:
    """What to do about a name that once was a setting of Kafka's; None for any other."""
    return _NO_ZOOKEEPER if name.startswith("zookeeper.") else RETIRED.get(name)

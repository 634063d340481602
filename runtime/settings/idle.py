"""Settings of Kafka's that are read, checked and shown, and have nothing to turn here. A node says so at its start."""

from collections.abc import Mapping

from ottla.runtime.settings.definitions import Value, server_settings
from ottla.runtime.settings.dynamic import WITHOUT_EFFECT

_SLICES = "internal topics are loaded in slices of 64 kB"
_NO_WINDOWS = "a throttle holds from the first byte on, without windows"
_ONE_LOOP = WITHOUT_EFFECT["num.io.threads"]
_NO_PURGATORY = "what waited is dropped as soon as it is done"
_PULLED = "metrics are pulled (ottla.metrics.listener)"
_BY_THE_SYSTEM = "the system sizes the buffers of sockets"
_IN_A_TURN = "what is decided in one turn of the loop shares a batch, and nothing waits longer"
_NO_QUOTAS = "there are no quotas yet"
_NO_TIERS = "there is no tiered storage"
_WHOLE = "a connection between nodes is given up with the request that needs it"

_NAMES = {
    **WITHOUT_EFFECT,
    "alter.log.dirs.replication.quota.window.num": _NO_WINDOWS,
    "alter.log.dirs.replication.quota.window.size.seconds": _NO_WINDOWS,
    "config.providers": "values are taken as they are written",
    "controlled.shutdown.enable": "a node that stops in order always hands its leaders over first",
    "controller.performance.always.log.threshold.ms": "every turn of the loop over 100 ms is logged",
    "controller.performance.sample.period.ms": "every turn of the loop over 100 ms is logged",
    "controller.quorum.append.linger.ms": _IN_A_TURN,
    "controller.quota.window.num": _NO_QUOTAS,
    "controller.quota.window.size.seconds": _NO_QUOTAS,
    "controller.socket.timeout.ms": "a request to the controller waits as long as its client does",
    "cordoned.log.dirs": "directories cannot be cordoned yet",
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    "early.start.listeners": "listeners are bound before anything else, and served when the node is ready",
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "follower.fetch.last.tiered.offset.enable": _NO_TIERS,
    "group.coordinator.append.linger.ms": _IN_A_TURN,
    "group.coordinator.background.threads": _ONE_LOOP,
    "group.coordinator.cached.buffer.max.bytes": "no buffers are kept",
    "group.coordinator.threads": _ONE_LOOP,
    "log.flush.scheduler.interval.ms": "what is due to be synced is looked at five times a second",
    "log.flush.start.offset.checkpoint.interval.ms": "log starts are written with the recovery points (log.flush.offset.checkpoint.interval.ms)",
    "log.initial.task.delay.ms": "each task waits for its own interval",
    "log.local.retention.bytes": _NO_TIERS,
    "log.local.retention.ms": _NO_TIERS,
    "log.preallocate": "files grow as they are written",
    "metadata.max.idle.interval.ms": "an idle quorum writes nothing: the leader's answers show that it lives",
    "metric.reporters": _PULLED,
    "num.replica.alter.log.dirs.threads": _ONE_LOOP,
    "offsets.load.buffer.size": _SLICES,
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "replica.socket.receive.buffer.bytes": _BY_THE_SYSTEM,
    "replication.quota.window.num": _NO_WINDOWS,
    "replication.quota.window.size.seconds": _NO_WINDOWS,
    "server.max.startup.time.ms": "a start takes the time it needs, and says how far it is",
    "socket.connection.setup.timeout.max.ms": _WHOLE,
    "socket.connection.setup.timeout.ms": _WHOLE,
    "socket.receive.buffer.bytes": _BY_THE_SYSTEM,
    "socket.send.buffer.bytes": _BY_THE_SYSTEM,
    "telemetry.max.bytes": "clients' telemetry (KIP-714) is not there yet",
    "transaction.state.log.load.buffer.size": _SLICES,
    "unstable.api.versions.enable": "unstable versions are not served",
    "unstable.feature.versions.enable": "there are no unstable levels of features",
}
_PREFIXES = {
    "group.share.": "there are no share groups yet",
    "group.streams.": "there are no streams groups yet",
    "kafka.metrics.": _PULLED,
    "metrics.": _PULLED,
    "quota.window.": _NO_QUOTAS,
    "remote.": _NO_TIERS,
    "share.": "there are no share groups yet",
}
_OF_TOPICS = {
    "local.retention.bytes": _NO_TIERS,
    "local.retention.ms": _NO_TIERS,
    "preallocate": _NAMES["log.preallocate"],
}
_OF_TOPICS_AND_GROUPS = {
    "remote.": _NO_TIERS,
    "share.": _PREFIXES["group.share."],
    "streams.": _PREFIXES["group.streams."],
}


def why_idle(name: str) -> str | None:
    """Why a setting of a node changes nothing; None for one that does."""
    return _NAMES.get(name) or _by_prefix(name, _PREFIXES)


def why_idle_of_resource(name: str) -> str | None:
    """The same of a topic's or a group's own setting."""
    return _OF_TOPICS.get(name) or _by_prefix(name, _OF_TOPICS_AND_GROUPS)


def _by_prefix(name: str, prefixes: Mapping[str, str]) -> str | None:
    return next((why for prefix, why in prefixes.items() if name.startswith(prefix)), None)


def idle_settings(values: Mapping[str, Value]) -> list[str]:
    """A line for each that was given another value than its default."""
    return [
        f"{name} changes nothing here: {why}"
        for name, value in sorted(values.items())
        if (why := why_idle(name)) is not None and value != server_settings()[name].default_value
    ]

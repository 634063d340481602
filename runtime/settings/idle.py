"""Settings of Kafka's that are read, checked and shown, and have nothing to turn here. A node says so at its start."""

from collections.abc import Mapping

from ottla.runtime.settings.definitions import Value, server_settings
from ottla.runtime.settings.dynamic import WITHOUT_EFFECT

_SLICES = "internal topics are loaded in slices of 64 kB"
_NO_WINDOWS = "a throttle holds from the first byte on, without windows"
_ONE_LOOP = WITHOUT_EFFECT["num.io.threads"]

_NAMES = {
    **WITHOUT_EFFECT,
    "group.coordinator.append.linger.ms": "what is decided in one turn of the loop shares a batch, and nothing waits longer",
    "group.coordinator.background.threads": _ONE_LOOP,
    "group.coordinator.cached.buffer.max.bytes": "no buffers are kept",
    "group.coordinator.threads": _ONE_LOOP,
    "offsets.load.buffer.size": _SLICES,
    "transaction.state.log.load.buffer.size": _SLICES,
    "alter.log.dirs.replication.quota.window.num": _NO_WINDOWS,
    "alter.log.dirs.replication.quota.window.size.seconds": _NO_WINDOWS,
    "replication.quota.window.num": _NO_WINDOWS,
    "replication.quota.window.size.seconds": _NO_WINDOWS,
}
_PREFIXES = {"group.share.": "there are no share groups yet", "group.streams.": "there are no streams groups yet"}


def why_idle(name: str) -> str | None:
    """Why a setting changes nothing; None for one that does."""
    return _NAMES.get(name) or next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), None)


def idle_settings(values: Mapping[str, Value]) -> list[str]:
    """A line for each that was given another value than its default."""
    return [
        f"{name} changes nothing here: {why}"
        for name, value in sorted(values.items())
        if (why := why_idle(name)) is not None and value != server_settings()[name].default_value
    ]

"""Which settings of a node may change while it runs, and why the others may not. docs/settings.md has the same for people."""

import logging
from collections.abc import Mapping
from functools import cache

from ottla.runtime.settings.definitions import Setting, SettingError, Value, server_settings, topic_settings
from ottla.runtime.settings.security import missing_promise

logger = logging.getLogger(__name__)

_NO_TIERS = "there is no tiered storage"
_ONE_LOOP = "a node runs on one event loop"

APPLIED = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "transaction.partition.verification.enable",
)
"""Beside the defaults of topics."""

WITHOUT_EFFECT = {
    "background.threads": _ONE_LOOP,
    "log.cleaner.io.buffer.load.factor": "the map of keys is used to its end",
    "log.cleaner.io.buffer.size": "the system reads ahead",
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": "logs are recovered one after another",
    "num.replica.fetchers": "there is one fetcher for each broker that leads",
}
"""Taken as in ``server.properties``: what speeds Kafka up and has nothing to turn here. A tool that sets them goes on."""

_REFUSED = {
    "cordoned.log.dirs": "directories cannot be cordoned here",
    "follower.fetch.last.tiered.offset.enable": _NO_TIERS,
    "log.local.retention.bytes": _NO_TIERS,
    "log.local.retention.ms": _NO_TIERS,
    "log.retention.hours": "set log.retention.ms",
    "log.retention.minutes": "set log.retention.ms",
    "log.roll.hours": "set log.roll.ms",
    "log.roll.jitter.hours": "set log.roll.jitter.ms",
    "metric.reporters": "reporters are Java classes; metrics are pulled here (ottla.metrics.listener)",
}
_FIXED = "cannot change while a node runs: write it into server.properties"


@cache
def changeable_settings() -> dict[str, Setting]:
    """Those that are taken while a node runs, by name."""
    known = server_settings()
    defaults = [each.broker_name for each in topic_settings().values() if each.broker_name in known]
    names = (*(name for name in defaults if name not in _REFUSED), *APPLIED, *WITHOUT_EFFECT)
    return {name: known[name] for name in names}


def check_change(name: str, text: str | None) -> None:
    """Raises SettingError with the reason when a running node does not take the setting, or not that value (None: any)."""
    setting = changeable_settings().get(name)
    if setting is None:
        raise SettingError(f"{name}: {_reason(name)}")
    if text is not None:
        setting.parse(text)


def _reason(name: str) -> str:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith("remote.log."):
        return _NO_TIERS
    missing = missing_promise(name)
    if missing is not None:
        return missing
    is_of_listener = name.startswith("listener.name.")
    return _FIXED if name in server_settings() or is_of_listener else "is no setting"


def readable(texts: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, Value]:
    """The values of what this version can read. The log may have been written by a newer one: the rest is passed over, and said."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        setting = known.get(name)
        try:
            if setting is None:
                raise SettingError(f"unknown setting {name}")
            values[name] = setting.parse(text)
        except SettingError as error:
            logger.warning("A setting in the metadata log is passed over: %s", error)
    return values

"""The settings of a client metrics subscription (KIP-714), checked as Kafka's ClientMetricsConfigs does.

They are kept and told; no metrics are taken from clients yet.
"""

from collections.abc import Mapping

from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.definitions import Setting, SettingError

_INTERVAL = Setting("interval.ms", "INT", "300000", "")
_INTERVAL_MIN_MS, _INTERVAL_MAX_MS = 100, 3_600_000
_MATCH = Setting("match", "LIST", "", "")
_METRICS = Setting("metrics", "LIST", "", "")
_SETTINGS = {each.name: each for each in (_INTERVAL, _MATCH, _METRICS)}
_CLIENTS_BY = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def client_metrics_settings() -> dict[str, Setting]:
    """Every setting that a subscription may have, by name."""
    return _SETTINGS


def check_client_metrics(texts: Mapping[str, str]) -> None:
    """All that a subscription is to have. Raises SettingError, and KafkaError (INVALID_REQUEST) where Kafka does."""
    unknown = [name for name in texts if name not in _SETTINGS]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown client metrics setting {unknown[0]}")
    interval_ms = _INTERVAL.parse(texts.get(_INTERVAL.name, _INTERVAL.default))
    if isinstance(interval_ms, int) and not _INTERVAL_MIN_MS <= interval_ms <= _INTERVAL_MAX_MS:
        allowed = f"allowed is {_INTERVAL_MIN_MS} to {_INTERVAL_MAX_MS}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{_INTERVAL.name}={interval_ms}: {allowed}")
    _check_patterns(_MATCH.parse(texts.get(_MATCH.name, "")))


def _check_patterns(patterns: object) -> None:
    for each in patterns if isinstance(patterns, tuple) else ():
        by, _, pattern = (word.strip() for word in each.partition("="))
        if by not in _CLIENTS_BY or not pattern:
            raise SettingError(f"match={each}: write NAME=PATTERN, NAME one of {', '.join(_CLIENTS_BY)}")

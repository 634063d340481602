"""What a snapshot asks of a cluster, and how it is reached."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.jobs import topic_state
from ottla.pipeline.jobs.places import LATEST, Place
from ottla.pipeline.jobs.topic_state import _tombstones_kept_ms, topic_now
from ottla.pipeline.wire.settings import ClientSettings
from ottla.runtime.errors import ErrorCode

HOUR = 3_600_000


class Settings:
    """A cluster that is asked for a topic's settings."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, **told: str) -> None:
        configs = [SimpleNamespace(name=name.replace("_", "."), value=value) for name, value in told.items()]
        self._result = SimpleNamespace(error_code=code, configs=configs)

    def ask_any(self, api: str, body: Any) -> Any:
        assert api == "DescribeConfigs"
        return SimpleNamespace(results=[self._result])


@pytest.mark.parametrize(
    ("cluster", "kept_ms"),
    [
        (Settings(cleanup_policy="compact", delete_retention_ms=f"{2 * HOUR}"), 2 * HOUR),
        (Settings(cleanup_policy="compact,delete", delete_retention_ms="5"), 5),
        (Settings(cleanup_policy="delete", delete_retention_ms="5"), 1 << 62),
        (Settings(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0),
        (Settings(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0),
    ],
    ids=["compacted", "both", "deleted by age", "not to be asked", "not heard of yet"],
)
def test_tombstones_are_kept_as_long_as_the_topic_says_and_no_time_where_it_does_not(
    cluster: Any, kept_ms: int
) -> None:
    assert _tombstones_kept_ms(cluster, "t") == kept_ms


def test_the_topic_is_looked_at_in_the_way_in_which_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ClientSettings] = []

    def connect(settings: ClientSettings) -> None:
        asked.append(settings)
        raise ConnectionError

    monkeypatch.setattr(topic_state, "Cluster", connect)
    more = {"Kafka.Security.Protocol": "SSL", "kafka.ssl.ca.location": "/ca.pem", "minPartitions": "4"}
    with pytest.raises(ConnectionError):
        topic_now("a:9093", "t", Place(word=LATEST), 0, more)
    assert asked == [ClientSettings((("a", 9093),), security_protocol="SSL", ssl_ca_location="/ca.pem")]

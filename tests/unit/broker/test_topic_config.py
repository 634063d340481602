"""What a log reads of its topic's settings, and how seldom they are parsed."""

import pytest

from ottla.broker import topic_config
from ottla.broker.topic_config import LogConfigs
from ottla.runtime.settings.definitions import Setting, SettingError
from ottla.runtime.settings.server import ServerConfig

NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "9@localhost:9093",
}


def configs(**server: str) -> LogConfigs:
    return LogConfigs(ServerConfig({**NODE, **{name.replace("_", "."): text for name, text in server.items()}}))


def test_a_topic_goes_before_the_cluster_and_the_cluster_before_the_file() -> None:
    known = configs(log_retention_ms="1000", log_segment_bytes="2000000", min_insync_replicas="3")
    cluster = {"log.retention.ms": "2000", "log.segment.bytes": "3000000"}
    config = known.of({"retention.ms": "3000"}, cluster)
    assert (config.retention_ms, config.segment_bytes, config.min_insync_replicas) == (3000, 3_000_000, 3)
    assert known.of({}, cluster).retention_ms == 2000
    assert known.of({}).retention_ms == 1000, "the cluster's was removed"


def test_a_setting_that_cannot_be_is_refused() -> None:
    with pytest.raises(SettingError, match="retention"):
        configs().of({"retention.ms": "soon"})


def test_only_what_a_topic_sets_is_parsed_and_the_same_texts_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known, parsed = configs(), list[str]()
    parse = Setting.parse

    def counted(setting: Setting, text: str) -> object:
        parsed.append(setting.name)
        return parse(setting, text)

    monkeypatch.setattr(Setting, "parse", counted)
    first = known.of({"retention.ms": "3000", "cleanup.policy": "compact"})
    assert known.of({"retention.ms": "3000", "cleanup.policy": "compact"}) is first
    known.of({"retention.ms": "4000"})
    assert parsed == ["retention.ms", "cleanup.policy", "retention.ms"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_config, "_KNOWN_MAX", 10)
    known = configs()
    assert [known.of({"retention.ms": str(number)}).retention_ms for number in range(100)] == list(range(100))
    assert len(known._known) <= 10

"""What a log reads of its topic's settings, and how seldom they are parsed."""

import pytest

from ottla.broker import topic_config
from ottla.broker.topic_config import LogConfigs, concern_node, dynamic_texts
from ottla.quorum.metadata.views import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.runtime.settings.definitions import Setting
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


def test_a_node_may_have_settings_of_its_own() -> None:
    of_all = {"message.max.bytes": "2000", "log.retention.ms": "2000"}
    texts = {(BROKER_RESOURCE, ""): of_all, (BROKER_RESOURCE, "1"): {"message.max.bytes": "1000"}}
    config = configs(message_max_bytes="4000").of({}, dynamic_texts(texts, 1))
    assert (config.max_message_bytes, config.retention_ms) == (1000, 2000)
    assert configs().of({}, dynamic_texts(texts, 2)).max_message_bytes == 2000
    assert concern_node(texts, 2)
    assert not concern_node([(BROKER_RESOURCE, "1"), (TOPIC_RESOURCE, "")], 2)


def test_what_a_newer_controller_let_into_the_log_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    own = {"retention.ms": "soon", "retention.moons": "1", "segment.bytes": "2000000"}
    config = configs(log_retention_ms="1000").of(own, {"message.max.bytes": "a lot", "min.insync.replicas": "2"})
    assert (config.retention_ms, config.segment_bytes) == (1000, 2_000_000)
    assert (config.max_message_bytes, config.min_insync_replicas) == (1_048_588, 2)
    assert len(caplog.messages) == 3


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

"""What holds for a node: its file, what was set for all nodes, what was set for it."""

import pytest

from ottla.broker.node_settings import NodeSettings
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.settings import CONFIGS
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import BROKER_RESOURCE, ConfigKey
from ottla.runtime.settings.definitions import SettingError, server_settings, topic_settings
from ottla.runtime.settings.dynamic import APPLIED, WITHOUT_EFFECT, changeable_settings, check_change
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.handlers.conftest import Site

OWN, ALL, OTHER = (BROKER_RESOURCE, "1"), (BROKER_RESOURCE, ""), (BROKER_RESOURCE, "2")
LIMIT = "max.connections"


class Bench:
    def __init__(self, *before: tuple[ConfigKey, str]) -> None:
        self.image = MetadataImage()
        for key, value in before:
            self.image.configs[key] = {LIMIT: value}
        self.settings = NodeSettings(Site(max_connections="4").config, self.image)
        self.told: list[int] = []
        self.settings.on_change(lambda config: self.told.append(config.integer(LIMIT)))

    def set(self, key: ConfigKey, value: str | None, name: str = LIMIT) -> None:
        delta = MetadataDelta()
        delta.note(CONFIGS, key, self.image.configs.pop(key, None))
        if value is not None:
            self.image.configs[key] = {name: value}
        self.settings.publish(delta, self.image)


def test_a_nodes_own_setting_goes_before_that_of_all_nodes_and_that_before_its_file() -> None:
    bench = Bench()
    bench.set(ALL, "5")
    bench.set(OWN, "6")
    bench.set(ALL, "7")
    assert bench.settings.current.integer(LIMIT) == 6
    bench.set(OWN, None)
    bench.set(ALL, None)
    assert bench.told == [5, 6, 7, 4], "nobody is told of what changes nothing"


def test_another_nodes_setting_is_not_this_ones() -> None:
    bench = Bench()
    bench.set(OTHER, "5")
    assert (bench.told, bench.settings.current.integer(LIMIT)) == ([], 4)


def test_a_node_that_starts_has_what_was_set_before() -> None:
    assert Bench((ALL, "5"), (OWN, "6")).settings.current.integer(LIMIT) == 6


def test_what_a_newer_node_let_into_the_log_is_passed_over() -> None:
    bench = Bench()
    bench.set(OWN, "many")
    bench.set(OWN, "6", "max.connections.per.planet")
    assert (bench.told, bench.settings.current.integer(LIMIT)) == ([], 4)
    bench.set(OWN, "6")
    assert bench.told == [6]


def test_the_defaults_of_topics_are_the_logs_concern() -> None:
    bench = Bench()
    bench.set(ALL, "5", "message.max.bytes")
    assert bench.told == []
    assert not bench.settings.current.is_set("message.max.bytes"), "it would stay when the setting goes"


def test_what_changes_nothing_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    Bench().set(OWN, "16", "num.io.threads")
    assert "num.io.threads is 16 from now on: it changes nothing here, a node runs on one event loop" in caplog.messages


# Which may change.


def test_every_setting_that_may_change_is_one_and_does_something_or_says_why_not() -> None:
    defaults = {each.broker_name for each in topic_settings().values()}
    for name in changeable_settings():
        assert name in server_settings()
        assert (name in defaults) + (name in APPLIED) + (name in WITHOUT_EFFECT) == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("node.id", "2", "cannot change while a node runs: write it into server.properties"),
        ("listeners", "PLAINTEXT://:1", "write it into server.properties"),
        ("listener.name.outside.socket.send.buffer.bytes", "1", "write it into server.properties"),
        ("ssl.keystore.location", "/x", "there is no TLS yet"),
        ("listener.name.outside.ssl.keystore.location", "/x", "there is no TLS yet"),
        ("sasl.jaas.config", "x", "there is no SASL yet"),
        ("max.connection.creation.rate", "5", "not limited here"),
        ("leader.replication.throttled.rate", "-5", "the least allowed is 0"),
        ("remote.log.reader.threads", "5", "there is no tiered storage"),
        ("log.retention.hours", "5", "set log.retention.ms"),
        ("cordoned.log.dirs", "/x", "cannot be cordoned"),
        ("no.such.setting", "5", "is no setting"),
        ("max.connections", "-1", "the least allowed is 0"),
        ("max.connections.per.ip.overrides", "10.0.0.1:²", "is not address:number"),
        ("log.cleaner.io.max.bytes.per.second", "nan", "write a number"),
    ],
)
def test_what_a_running_node_does_not_take_is_refused_with_the_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason) as caught:
        check_change(name, text)
    assert str(caught.value).startswith(name)


def test_a_changed_configuration_is_another_one() -> None:
    config: ServerConfig = Site(max_connections="4").config
    assert config.changed({LIMIT: 5}).integer(LIMIT) == 5
    assert config.integer(LIMIT) == 4

"""Settings: what is refused, and what a value resolves to."""

import socket
from pathlib import Path

import pytest

from ottla.runtime.settings.definitions import SettingError, group_settings, server_settings, topic_settings
from ottla.runtime.settings.endpoints import (
    Endpoint,
    Listener,
    parse_detours,
    parse_endpoint,
    parse_voters,
    reached_by,
)
from ottla.runtime.settings.idle import idle_settings
from ottla.runtime.settings.properties import from_environment, parse_properties
from ottla.runtime.settings.retired import RETIRED
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.settings.topic import check_topic_setting, resolve_topic

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9192",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9192",
}


def test_every_default_passes_its_own_check() -> None:
    for setting in (*server_settings().values(), *topic_settings().values(), *group_settings().values()):
        if setting.default != "":
            setting.parse(setting.default)


def test_what_was_set_and_changes_nothing_is_told() -> None:
    changed = {"group.coordinator.threads": "8", "group.share.max.size": "10", "group.max.size": "5"}
    defaults = {"offsets.load.buffer.size": "5242880", "num.io.threads": "8"}
    assert idle_settings(ServerConfig(NODE | changed | defaults).set_values) == [
        "group.coordinator.threads changes nothing here: a node runs on one event loop",
        "group.share.max.size changes nothing here: there are no share groups yet",
    ]


def test_a_listener_on_all_addresses_is_advertised_by_this_machines_name() -> None:
    """As in Kafka, whose own example says ``PLAINTEXT://:9092``: an empty host leads each client, and each broker, to itself."""
    own = socket.getfqdn()
    config = ServerConfig(NODE | {"listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9192"})
    assert config.advertised_listeners == (Listener("PLAINTEXT", own, 9092),)
    assert config.inter_broker_listener.host == own
    config = ServerConfig(NODE | {"advertised.listeners": "PLAINTEXT://:9094"})
    assert config.advertised_listeners == (Listener("PLAINTEXT", own, 9094),)


@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9192"},
        {"listeners": "PLAINTEXT://[::]:9092,CONTROLLER://localhost:9192"},
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    ],
)
def test_an_address_that_nobody_can_connect_to_is_not_advertised(texts: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=r"advertised.listeners.*write PLAINTEXT://host:9092"):
        ServerConfig(NODE | texts)
    ServerConfig(NODE | texts | {"advertised.listeners": "PLAINTEXT://a:9092"})


def test_a_node_knows_its_listeners_apart() -> None:
    config = ServerConfig(NODE)

    assert [each.name for each in config.client_listeners] == ["PLAINTEXT"]
    assert config.controller_listener is not None
    assert config.controller_listener.port == 9192
    assert config.inter_broker_listener.port == 9092


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log.dir.s": "/x"}, "did you mean log.dirs"),
        ({"node.id": "one"}, "whole number"),
        ({"node.id": "-1"}, "least allowed is 0"),
        ({"node.id": "2"}, "does not name this node's id 2"),
        ({"num.partitions": "99999999999"}, "does not fit INT"),
        ({"process.roles": "broker,zookeeper"}, "allowed is one of broker, controller"),
        ({"group.consumer.migration.policy": "sideways"}, "allowed is one of bidirectional, upgrade, downgrade"),
        ({"listeners": "PLAINTEXT:localhost"}, "not NAME://host:port"),
        ({"listeners": "CONTROLLER://localhost:9192"}, "none for clients"),
        (
            {"advertised.listeners": "EXTERNAL://localhost:9092"},
            "advertised.listeners=EXTERNAL://.*: no listener has that name",
        ),
        ({"controller.quorum.voters": "1@localhost"}, "not host:port"),
        ({"auto.create.topics.enable": "yes"}, "true or false"),
        (
            {"group.consumer.heartbeat.interval.ms": "500"},
            "allowed is group.consumer.min.heartbeat.interval.ms=5000 to",
        ),
        ({"group.consumer.session.timeout.ms": "70000"}, "to group.consumer.max.session.timeout.ms=60000"),
        ({"group.consumer.max.assignment.interval.ms": "10"}, "group.consumer.assignment.interval.ms=1000: allowed"),
        (
            {f"group.consumer.{each}session.timeout.ms": "5000" for each in ("", "min.")},
            "heartbeat.interval.ms=5000: write less than group.consumer.session.timeout.ms=5000",
        ),
        ({"group.consumer.assignors": "org.example.Mine"}, "allowed is one of uniform, range"),
        ({"group.consumer.assignors": ""}, "names none"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "has to name classic"),
        ({"group.min.session.timeout.ms": "1800001"}, "write no more than group.max.session.timeout.ms=1800000"),
        ({"offsets.topic.compression.codec": "5"}, "allowed is 0 to 4"),
        ({"max.connections.per.ip": "0"}, "write who may, and how often, into max.connections.per.ip.overrides"),
    ],
)
def test_an_impossible_configuration_gets_one_line(change: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        ServerConfig(NODE | change)

    assert "\n" not in str(caught.value)


def refusal(texts: dict[str, str]) -> list[str]:
    with pytest.raises(SettingError) as caught:
        ServerConfig(texts)
    return str(caught.value).splitlines()


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """Names, values, addresses, what is missing, what contradicts what."""
    lines = refusal(
        {
            "process.roles": "broker,controller",
            "log.dir.s": "/x",
            "num.partitions": "many",
            "advertised.listeners": "PLAINTEXT://here",
            "controller.quorum.voters": "1@localhost",
            "ottla.metrics.listener": "here",
            "listeners": "CONTROLLER://localhost:9192",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert [line.split()[0] for line in lines] == [
        "settings:",
        "num.partitions=many:",
        "controller.quorum.voters:",
        "advertised.listeners:",
        "ottla.metrics.listener:",
        "node.id",
        "listeners",
    ]


def test_what_cannot_be_read_is_not_told_twice() -> None:
    unreadable = {
        "process.roles": "broker,zookeeper",
        "node.id": "one",
        "listeners": "PLAINTEXT:localhost",
        "controller.quorum.voters": "1@localhost",
    }
    assert len(refusal(NODE | unreadable)) == len(unreadable)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zookeeper.connect", "there is no ZooKeeper"),
        ("zookeeper.session.timeout.ms", "there is no ZooKeeper"),
        ("advertised.host.name", "write advertised.listeners"),
        ("inter.broker.protocol.version", "ottla features upgrade"),
    ],
)
def test_a_setting_of_the_years_with_zookeeper_has_a_hint(name: str, words: str) -> None:
    [line] = refusal(NODE | {name: "x"})
    assert f"{name} is a setting of older Kafka: " in line
    assert words in line


def test_no_setting_that_there_is_has_been_retired() -> None:
    assert RETIRED.keys() & server_settings().keys() == set()


def test_a_broker_id_alone_is_told_where_it_goes() -> None:
    texts = {name: text for name, text in NODE.items() if name != "node.id"}
    assert refusal(texts | {"broker.id": "4"}) == ["node.id is not set: write node.id=4 in place of broker.id"]


def test_a_file_in_another_encoding_is_told_with_its_line(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_bytes(b"node.id=1\n# f\xfcr uns\n")
    with pytest.raises(SettingError, match=r"server.properties, line 2: not UTF-8"):
        ServerConfig.load(properties, {})


def test_a_line_that_is_none_is_told_with_the_rest(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("node.id\nprocess.roles: broker\nlog.dir.s=/x\n")
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(properties, {})
    lines = str(caught.value).splitlines()
    assert ["line 1" in lines[0], "line 2" in lines[1], "log.dir.s" in lines[2]] == [True, True, True]


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("host", ("host", 9092)),
        ("host:9093", ("host", 9093)),
        ("[::1]", ("::1", 9092)),
        ("[::1]:9093", ("::1", 9093)),
    ],
)
def test_an_endpoint_without_a_port_has_the_one_it_is_given(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text, "-b", default_port=9092) == endpoint


@pytest.mark.parametrize("text", ["", ":", "host:", "host:x", "host:65536", "host:٣"])
def test_what_is_no_endpoint_is_refused_also_where_the_port_may_be_left_out(text: str) -> None:
    with pytest.raises(SettingError, match="is not host:port"):
        parse_endpoint(text, "-b", default_port=9092)


def test_a_missing_setting_says_what_to_write() -> None:
    with pytest.raises(SettingError, match=r"node\.id is not set"):
        ServerConfig({name: text for name, text in NODE.items() if name != "node.id"})


def test_properties_take_comments_and_joined_lines() -> None:
    assert parse_properties("# x\n! y\na = 1\nb=2,\\\n  3\n", "f") == {"a": "1", "b": "2,3"}
    with pytest.raises(SettingError, match="f, line 2"):
        parse_properties("a=1\nnonsense\n", "f")


def test_no_setting_is_swallowed_by_a_backslash_at_a_lines_end() -> None:
    assert parse_properties("# kept in C:\\\na=1\n", "f") == {"a": "1"}, "a comment is one line, as in Java"
    assert parse_properties("#log.dirs=/a,\\\nlog.dirs=/b\n", "f") == {"log.dirs": "/b"}
    assert parse_properties("a=1,\\\n#2\n", "f") == {"a": "1,#2"}, "and what is joined is none"
    assert parse_properties("a=1\nb=2\\", "f") == {"a": "1", "b": "2"}, "the last line has none to be joined with"


def test_the_environment_is_read_as_kafkas_image_reads_it() -> None:
    environment = {
        "KAFKA_LOG_DIRS": "/x",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_SSL_KEY___X": "1",
        "KAFKA_A__B_C": "2",
        "HOME": "/",
    }

    assert from_environment(environment) == {"log.dirs": "/x", "ssl.key-x": "1", "a_b.c": "2"}


def test_the_addresses_of_a_service_called_kafka_are_no_settings() -> None:
    """Kubernetes tells each container of the services beside it, and Kafka passes over what it does not know."""
    links = {
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_SERVICE_PORT": "9092",
        "KAFKA_SERVICE_PORT_CLIENTS": "9092",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_PORT_9092_TCP_PORT": "9092",
        "KAFKA_PORT_9092_TCP_PROTO": "tcp",
        "KAFKA_HEADLESS_SERVICE_HOST": "None",
        "KAFKA_HEADLESS_PORT_9092_TCP_ADDR": "10.0.0.2",
    }
    assert from_environment(links) == {}
    told = {"KAFKA_PORT": "9092", "KAFKA_SASL_KERBEROS_SERVICE_NAME": "kafka"}
    assert from_environment(told) == {"port": "9092", "sasl.kerberos.service.name": "kafka"}


def test_a_topic_setting_wins_over_the_cluster_the_server_and_the_default() -> None:
    server = ServerConfig(NODE | {"log.retention.hours": "2", "log.segment.bytes": "2097152"})

    assert resolve_topic(server, {})["retention.ms"] == 7_200_000
    assert resolve_topic(server, {})["segment.bytes"] == 2_097_152
    changed = server.changed({"log.segment.bytes": 3_145_728})
    assert resolve_topic(changed, {})["segment.bytes"] == 3_145_728
    assert resolve_topic(changed, {"segment.bytes": "4194304"})["segment.bytes"] == 4_194_304
    assert resolve_topic(server, {})["segment.bytes"] == 2_097_152
    assert resolve_topic(server, {})["cleanup.policy"] == ("delete",)


def test_the_finer_retention_name_wins() -> None:
    server = ServerConfig(NODE | {"log.retention.hours": "2", "log.retention.minutes": "5"})

    assert resolve_topic(server, {})["retention.ms"] == 300_000


def test_a_log_directory_is_one_however_often_it_is_written() -> None:
    """It was in use by another process, or a copy that was to be formatted anew."""
    config = ServerConfig(NODE | {"log.dirs": "/a/,/b,/a", "metadata.log.dir": "/b/"})
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/b"


def test_an_unknown_topic_setting_is_refused() -> None:
    with pytest.raises(SettingError, match="unknown topic setting retention"):
        check_topic_setting("retention", "1")


def test_a_detour_leads_from_one_address_to_another() -> None:
    detours = parse_detours(("a:1=proxy:2", "[::1]:3=b:4"), "ottla.peer.detours")
    assert reached_by(detours, "a", 1) == ("proxy", 2)
    assert reached_by(detours, "::1", 3) == ("b", 4)
    assert reached_by(detours, "a", 3) == ("a", 3)


@pytest.mark.parametrize(
    ("texts", "words"),
    [(("a:1",), "not host:port=host:port"), (("a:1=b",), "not host:port"), (("a:1=b:1", "a:1=c:1"), "twice")],
)
def test_a_detour_that_leads_nowhere_is_refused(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        parse_detours(texts, "ottla.peer.detours")


def test_voters_are_read_by_id() -> None:
    assert parse_voters(("1@a:1", "2@b:2")) == {1: Endpoint("a", 1), 2: Endpoint("b", 2)}
    with pytest.raises(SettingError, match="stands twice"):
        parse_voters(("1@a:1", "1@b:2"))


def test_the_policy_of_migrations_may_be_written_in_any_case() -> None:
    config = ServerConfig(NODE | {"group.consumer.migration.policy": "Bidirectional"})
    assert config.string("group.consumer.migration.policy") == "Bidirectional"


@pytest.mark.parametrize(("name", "text"), [("retention.ms", "1_000"), ("min.cleanable.dirty.ratio", "0.0_1")])
def test_a_number_that_only_python_reads_is_refused(name: str, text: str) -> None:
    """Kafka would not start, or make the topic, with it."""
    with pytest.raises(SettingError, match=text):
        check_topic_setting(name, text)


def test_a_voters_id_of_other_digits_is_refused() -> None:
    with pytest.raises(SettingError, match="is not id@host:port"):
        parse_voters(("\u00b2@localhost:9192",))


def test_gzip_has_no_level_zero() -> None:
    """KIP-390: -1 is the default, 1 to 9 are levels."""
    assert check_topic_setting("compression.gzip.level", "-1") == -1
    for name, text in [("gzip", "0"), ("gzip", "10"), ("lz4", "0"), ("lz4", "18"), ("zstd", "23")]:
        with pytest.raises(SettingError):
            check_topic_setting(f"compression.{name}.level", text)


def test_the_metrics_listener_is_off_unless_it_is_set() -> None:
    assert ServerConfig(NODE).metrics_listener is None
    assert ServerConfig(NODE | {"ottla.metrics.listener": "[::1]:9100"}).metrics_listener == ("::1", 9100)
    with pytest.raises(SettingError, match=r"ottla.metrics.listener: 'here' is not host:port"):
        ServerConfig(NODE | {"ottla.metrics.listener": "here"})

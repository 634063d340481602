"""DescribeConfigs with sources and synonyms as Kafka tells them; AlterConfigs old and new."""

from typing import Any

import pytest

from ottla.broker.handlers import describe_configs
from ottla.broker.handlers.config_entries import ConfigEntry
from ottla.broker.wire.messages import alter_configs_request as replacing
from ottla.broker.wire.messages import incremental_alter_configs_request as incremental
from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site, partition_view

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def describe(site: Site, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True) -> Any:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    (result,) = site.ask(DescribeConfigsRequest([resource], include_synonyms=synonyms), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def told(result: Any) -> dict[str, Any]:
    assert result.error_code == ErrorCode.NONE
    return {each.name: each for each in result.configs}


def synonyms(entry: Any) -> list[tuple[str, str, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


@pytest.fixture
def with_topic(site: Site) -> Site:
    site.add_topic("flights", partition_view((1,), (1,), 1))
    return site


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_tells_a_topics_settings(with_topic: Site, version: int) -> None:
    entries = told(describe(with_topic, TOPIC, "flights", version=version))
    assert entries["cleanup.policy"].value == "delete"
    assert entries["retention.ms"].value == "604800000"
    assert entries["segment.bytes"].value == "1073741824"
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"
    assert entries["preallocate"].value == "false"
    assert entries["cleanup.policy"].config_type == (7 if version >= 3 else 0)
    assert not entries["cleanup.policy"].read_only


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("cleanup.policy", "compact, delete,compact", "compact,delete"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("retention.ms", " +0100", "100"),
        ("preallocate", "FALSE", "false"),
        ("retention.ms", "what a newer version takes", "what a newer version takes"),
    ],
)
def test_a_value_is_told_as_it_was_read(with_topic: Site, name: str, text: str, read: str) -> None:
    with_topic.image.configs[TOPIC, "flights"] = {name: text}
    entry = told(describe(with_topic, TOPIC, "flights"))[name]
    assert (entry.value, synonyms(entry)[0]) == (read, (name, read, 1))


def test_a_default_names_the_broker_setting_it_comes_from(with_topic: Site) -> None:
    entries = told(describe(with_topic, TOPIC, "flights"))
    assert entries["segment.bytes"].config_source == 5
    assert synonyms(entries["segment.bytes"]) == [("log.segment.bytes", "1073741824", 5)]
    assert synonyms(entries["retention.ms"]) == [("log.retention.hours", "168", 5)]


def test_the_places_that_set_a_value_are_told_strongest_first() -> None:
    site = Site(log_segment_bytes="2000000")
    site.add_topic("flights", partition_view((1,), (1,), 1))
    site.image.configs = {
        (TOPIC, "flights"): {"segment.bytes": "5000000"},
        (BROKER, "1"): {"log.segment.bytes": "4000000"},
        (BROKER, ""): {"log.segment.bytes": "3000000"},
    }
    expected = [
        ("segment.bytes", "5000000", 1),
        ("log.segment.bytes", "4000000", 2),
        ("log.segment.bytes", "3000000", 3),
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    places = [(TOPIC, "flights"), (BROKER, "1"), (BROKER, "")]
    while True:
        entry = told(describe(site, TOPIC, "flights"))["segment.bytes"]
        assert synonyms(entry) == expected
        assert (entry.value, entry.config_source) == expected[0][1:]
        if not places:
            break
        del site.image.configs[places.pop(0)], expected[0]


def test_a_coarser_server_setting_is_told_in_milliseconds() -> None:
    site = Site(log_retention_hours="2")
    site.add_topic("flights", partition_view((1,), (1,), 1))
    entry = told(describe(site, TOPIC, "flights"))["retention.ms"]
    assert (entry.value, entry.config_source) == ("7200000", 4)
    assert synonyms(entry) == [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]


def test_only_the_asked_keys_and_synonyms_are_told(with_topic: Site) -> None:
    result = describe(with_topic, TOPIC, "flights", "retention.ms", "no.such.key", synonyms=False)
    assert list(told(result)) == ["retention.ms"]
    assert result.configs[0].synonyms == []


@pytest.mark.parametrize(
    ("name", "code"), [("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("..", ErrorCode.INVALID_TOPIC_EXCEPTION)]
)
def test_a_topic_that_is_not_there_is_an_error(site: Site, name: str, code: ErrorCode) -> None:
    assert describe(site, TOPIC, name).error_code == code


def test_a_broker_tells_its_own_settings_and_hides_secrets() -> None:
    site = Site(num_partitions="8")
    site.config.texts["ssl.keystore.password"] = "secret"  # refused at a start, until there is TLS
    entries = told(describe(site, BROKER, "1"))
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == ("8", 4)
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only
    secret = entries["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert all(value is None for _, value, _ in synonyms(secret))


def test_the_empty_broker_name_means_what_was_set_for_all(site: Site) -> None:
    site.image.configs[BROKER, ""] = {"log.retention.ms": "9"}
    entries = told(describe(site, BROKER, ""))
    assert {name: (each.value, each.config_source) for name, each in entries.items()} == {"log.retention.ms": ("9", 3)}


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "2"), (BROKER, "one"), (99, "x"), (GROUP, "")])
def test_what_this_broker_cannot_tell_is_refused(site: Site, kind: int, name: str) -> None:
    result = describe(site, kind, name)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message


def test_client_metrics_tell_what_was_set(site: Site) -> None:
    site.image.configs[CLIENT_METRICS, "mine"] = {"interval.ms": "100"}
    entries = told(describe(site, CLIENT_METRICS, "mine"))
    assert (entries["interval.ms"].value, entries["interval.ms"].config_source) == ("100", 7)
    assert told(describe(site, CLIENT_METRICS, "another")) == {}


def test_a_group_tells_its_own_settings_with_those_they_hide() -> None:
    site = Site(group_consumer_session_timeout_ms="46000")
    name, default = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    site.image.configs[GROUP, "mine"] = {name: "50000"}
    entry = told(describe(site, GROUP, "mine"))[name]
    assert (entry.value, entry.config_source, entry.config_type, entry.read_only) == ("50000", 8, 3, False)
    assert synonyms(entry) == [(name, "50000", 8), (default, "46000", 4), (default, "45000", 5)]
    entry = told(describe(site, GROUP, "another"))[name]
    assert (entry.value, entry.config_source) == ("46000", 4)


def test_a_group_that_nobody_knows_tells_the_defaults_as_kafka_does(site: Site) -> None:
    entries = told(describe(site, GROUP, "another"))
    assert len(entries) == 17
    assert synonyms(entries["consumer.heartbeat.interval.ms"]) == [("group.consumer.heartbeat.interval.ms", "5000", 5)]
    assert synonyms(entries["share.isolation.level"]) == [("share.isolation.level", "read_uncommitted", 5)]


def test_a_group_also_tells_what_a_newer_node_let_into_the_log(site: Site) -> None:
    site.image.configs[GROUP, "mine"] = {"consumer.mood": "good"}
    entry = told(describe(site, GROUP, "mine"))["consumer.mood"]
    assert (entry.value, entry.config_source) == ("good", 8)


# What has settings.


def listed(site: Site, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    response = site.ask(ListConfigResourcesRequest(list(kinds)), version)
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


def test_groups_that_were_given_settings_are_listed(with_topic: Site) -> None:
    for key in ((GROUP, "b"), (GROUP, "a"), (CLIENT_METRICS, "m"), (TOPIC, "flights"), (BROKER, "")):
        with_topic.image.configs[key] = {"any": "1"}
    assert listed(with_topic, GROUP) == [(GROUP, "a"), (GROUP, "b")]
    assert listed(with_topic, version=0) == [(CLIENT_METRICS, "m")]
    brokers = [(BROKER, str(each)) for each in with_topic.image.brokers]
    assert brokers
    own = [(CLIENT_METRICS, "m"), (GROUP, "a"), (GROUP, "b")]
    assert listed(with_topic) == [(TOPIC, "flights"), *brokers, *own]


def test_a_kind_of_resource_that_nobody_knows_is_refused(site: Site) -> None:
    assert site.ask(ListConfigResourcesRequest([GROUP, 99]), 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def changes(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]],
) -> incremental.IncrementalAlterConfigsRequest:
    return incremental.IncrementalAlterConfigsRequest(
        [
            incremental.AlterConfigsResource(kind, name, [incremental.AlterableConfig(*each) for each in configs])
            for kind, name, configs in resources
        ]
    )


def results(site: Site, name: str, version: int) -> list[tuple[int, str, int]]:
    response = site.received(name, version)
    return [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]


@pytest.mark.parametrize("version", [0, 1])
def test_incremental_changes_go_to_the_controller(site: Site, version: int) -> None:
    site.send(changes((TOPIC, "flights", [("retention.ms", 0, "5"), ("segment.ms", 1, None)])), version)
    asked = site.controller.request.incremental_alter_configs
    (resource,) = asked.resources
    assert (resource.resource_type, resource.resource_name) == (TOPIC, "flights")
    first, second = resource.changes
    assert (first.name, first.operation, first.value) == ("retention.ms", 0, "5")
    assert (second.operation, second.HasField("value")) == (1, False)
    assert not asked.replace_all
    answer = controller_pb2.ControllerResponse()
    answer.incremental_alter_configs.resources.add(resource_type=TOPIC, resource_name="flights", error_code=40)
    site.controller.answer(answer)
    assert results(site, "IncrementalAlterConfigsResponse", version) == [(TOPIC, "flights", ErrorCode.INVALID_CONFIG)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_old_request_replaces_everything(site: Site, version: int) -> None:
    resource = replacing.AlterConfigsResource(TOPIC, "flights", [replacing.AlterableConfig("retention.ms", "5")])
    site.send(replacing.AlterConfigsRequest([resource], validate_only=True), version)
    asked = site.controller.request.incremental_alter_configs
    assert asked.replace_all
    assert asked.validate_only
    site.controller.answer(None)
    assert results(site, "AlterConfigsResponse", version) == [(TOPIC, "flights", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize(
    ("change", "told_about"),
    [
        (("num.partitions", 0, "3"), "server.properties"),
        (("no.such.setting", 0, "3"), "is no setting"),
        (("ssl.keystore.location", 0, "/x"), "there is no TLS yet"),
        (("cordoned.log.dirs", 0, "/x"), "cordoned"),
        (("log.retention.ms", 0, "soon"), "log.retention.ms=soon"),
    ],
)
def test_a_brokers_settings_are_checked_here(site: Site, change: tuple[str, int, str], told_about: str) -> None:
    response = site.ask(changes((BROKER, "1", [change])), 1)
    (result,) = response.responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert told_about in result.error_message


def test_a_running_broker_takes_what_takes_effect_and_what_changes_nothing(site: Site) -> None:
    for name in (
        "leader.replication.throttled.rate",
        "max.connections",
        "log.cleaner.threads",
        "num.io.threads",
        "message.max.bytes",
    ):
        site.send(changes((BROKER, "1", [(name, 0, "3")])), 1)
        assert site.controller.request.incremental_alter_configs.resources[0].changes[0].name == name
        site.controller.answer(None)
        site.received("IncrementalAlterConfigsResponse", 1)
    entries = told(describe(site, BROKER, "1"))
    assert [name for name in ("max.connections", "num.io.threads", "node.id") if entries[name].read_only] == ["node.id"]


def test_what_could_not_be_set_may_be_taken_away(site: Site) -> None:
    site.send(changes((BROKER, "1", [("cordoned.log.dirs", 1, None)])), 1)
    assert len(site.controller.request.incremental_alter_configs.resources) == 1


def test_a_brokers_own_setting_is_told_with_those_it_hides() -> None:
    site = Site(max_connections="4")
    site.image.configs = {(BROKER, "1"): {"max.connections": "6"}, (BROKER, ""): {"max.connections": "5"}}
    entry = told(describe(site, BROKER, "1", "max.connections"))["max.connections"]
    assert (entry.value, entry.config_source) == ("6", 2)
    assert synonyms(entry) == [
        ("max.connections", "6", 2),
        ("max.connections", "5", 3),
        ("max.connections", "4", 4),
        ("max.connections", "2147483647", 5),
    ]


def test_a_resource_or_a_setting_that_comes_twice_is_refused_and_the_others_go_on(site: Site) -> None:
    once: list[tuple[str, int, str | None]] = [("retention.ms", 0, "5")]
    site.send(changes((TOPIC, "a", once), (TOPIC, "a", once), (TOPIC, "b", once * 2), (TOPIC, "c", once)), 1)
    assert [each.resource_name for each in site.controller.request.incremental_alter_configs.resources] == ["c"]
    answer = controller_pb2.ControllerResponse()
    answer.incremental_alter_configs.resources.add(resource_type=TOPIC, resource_name="c")
    site.controller.answer(answer)
    assert results(site, "IncrementalAlterConfigsResponse", 1) == [
        (TOPIC, "c", ErrorCode.NONE),
        (TOPIC, "a", ErrorCode.INVALID_REQUEST),
        (TOPIC, "b", ErrorCode.INVALID_REQUEST),
    ]


def test_what_a_setting_does_is_told_when_it_is_asked_for(with_topic: Site) -> None:
    resources = [DescribeConfigsResource(TOPIC, "flights", ["retention.ms"])]
    asked = [DescribeConfigsRequest(resources, include_documentation=wanted) for wanted in (True, False)]
    told, silent = (with_topic.ask(each, 4).results[0].configs[0].documentation for each in asked)
    assert told.startswith("How long records are kept")
    assert silent is None


def test_a_resource_that_is_asked_for_again_and_again_is_told_once(site: Site) -> None:
    whole = [DescribeConfigsResource(BROKER, "1", None), DescribeConfigsResource(BROKER, "1", [])]
    part = DescribeConfigsResource(BROKER, "1", ["log.retention.ms"])
    results = site.ask(DescribeConfigsRequest([*whole, part, part, *whole]), 4).results
    assert [(each.resource_name, len(each.configs) > 1) for each in results] == [("1", True), ("1", False)]


class Key(str):
    """Counts how often it is compared with another."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Key.compared += 1
        return str.__eq__(self, other)


def test_very_many_keys_are_not_compared_with_every_setting(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a million of them, 2 MiB, took half a second of a turn for the settings of one broker."""
    settings = [ConfigEntry(Key(f"setting-{number}"), "", False, GROUP, False, (), 2) for number in range(100)]
    monkeypatch.setattr(describe_configs, "broker_entries", lambda node: settings)
    Key.compared = 0
    keys = [f"none-{number}" for number in range(1_000)]
    assert list(told(describe(site, BROKER, "1", *keys, "setting-7"))) == ["setting-7"]
    assert Key.compared <= 2 * len(settings)

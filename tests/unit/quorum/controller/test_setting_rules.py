"""What a controller with the tables of settings lets into the log."""

import pytest
from msgspec import structs

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.config_rules import SettingRules
from ottla.quorum.controller.decisions import configs
from ottla.quorum.controller.decisions.configs import APPEND, DELETE, SET, SUBTRACT, incremental_alter_configs
from ottla.quorum.metadata.views import BROKER_RESOURCE
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.server import ServerConfig
from tests.unit.quorum.controller.conftest import World, new_topic

TIERED = "remote.storage.enable"
SERVER = ServerConfig(
    {
        "node.id": "1",
        "process.roles": "controller",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://localhost:9093",
        "group.consumer.max.session.timeout.ms": "50000",
    }
)
GROUP, CLIENT_METRICS = 32, 16
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.fixture
def ruled(world: World) -> World:
    world.state.settings = structs.replace(world.state.settings, config_rules=SettingRules(SERVER))
    return world


def alter(
    world: World, name: str, value: str, *, kind: int = 2, validate: bool = False, replace: bool = False
) -> tuple[int, str]:
    change = rpc.IncrementalAlterConfigsRequest.Change(name=name, operation=SET, value=value)
    resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name="a", changes=[change])
    request = rpc.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate, replace_all=replace)
    decision = incremental_alter_configs(world.state, request)
    answer = decision.response.resources[0]
    return answer.error_code, answer.error_message


def test_client_metrics_have_the_settings_of_kafkas_alone(ruled: World) -> None:
    """Another could have the name of the resource's and the setting's of a third in the image's store."""
    for name, value in [
        ("interval.ms", "1000"),
        ("metrics", "a.b,c."),
        ("match", "client_id=a.*,client_source_port=1"),
    ]:
        assert alter(ruled, name, value, kind=CLIENT_METRICS) == (0, "")
    assert alter(ruled, "b\0match", "1000", kind=CLIENT_METRICS)[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a,user=b", ErrorCode.INVALID_CONFIG),
    ],
)
def test_values_that_kafkas_client_metrics_cannot_have_are_refused(
    ruled: World, name: str, value: str, code: ErrorCode
) -> None:
    assert alter(ruled, name, value, kind=CLIENT_METRICS)[0] == code


def test_no_limit_is_taken_by_which_nobody_could_connect_to_change_it() -> None:
    """Nor brokers to each other, whether they run or are started again. Kafka refuses it as well."""
    rules, limit = SettingRules(SERVER), "max.connections.per.ip"
    with pytest.raises(KafkaError, match=f"{limit}=0: nobody could connect") as caught:
        rules.check(BROKER_RESOURCE, "", {limit: "0", "log.cleaner.threads": "2"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    rules.check(BROKER_RESOURCE, "", {limit: "0", f"{limit}.overrides": "127.0.0.1:5"})
    rules.check(BROKER_RESOURCE, "", {limit: "1"})


def test_what_client_metrics_are_matched_by_grows_and_shrinks(ruled: World) -> None:
    for value in ("client_id=a", "client_id=b"):
        change = rpc.IncrementalAlterConfigsRequest.Change(name="match", operation=APPEND, value=value)
        resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=16, resource_name="a", changes=[change])
        ruled.do(incremental_alter_configs(ruled.state, rpc.IncrementalAlterConfigsRequest(resources=[resource])))
    assert ruled.state.image.configs[CLIENT_METRICS, "a"] == {"match": "client_id=a,client_id=b"}


def test_a_record_cannot_have_to_wait_longer_than_it_may(ruled: World) -> None:
    ruled.create(new_topic("a", configs=[rpc.TopicConfig(name=MAX_LAG, value="100")]))
    code, message = alter(ruled, MIN_LAG, "101")
    assert code == ErrorCode.INVALID_CONFIG
    assert f"{MIN_LAG}=101: it cannot be more than {MAX_LAG}, which is 100" in message
    assert alter(ruled, MIN_LAG, "100") == (0, "")
    both = [rpc.TopicConfig(name=MIN_LAG, value="2"), rpc.TopicConfig(name=MAX_LAG, value="1")]
    assert ruled.create(new_topic("b", configs=both))[0][0] == ErrorCode.INVALID_CONFIG


def test_the_brokers_lags_hold_where_the_topic_sets_one_of_them() -> None:
    rules = SettingRules(ServerConfig({**SERVER.texts, "log.cleaner.max.compaction.lag.ms": "50"}))
    with pytest.raises(KafkaError, match="it cannot be more than"):
        rules.check(2, "a", {MIN_LAG: "51"})
    rules.check(2, "a", {MIN_LAG: "50"})


@pytest.mark.parametrize("validate", [False, True])
def test_a_topic_whose_segments_would_be_stored_elsewhere_is_not_made(ruled: World, validate: bool) -> None:
    topic = new_topic("a", configs=[rpc.TopicConfig(name=TIERED, value="true")])
    [(code, message)] = ruled.create(topic, validate=validate)
    assert code == ErrorCode.INVALID_CONFIG
    assert "no tiered storage" in message
    assert not ruled.state.image.topics_by_name


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("validate", [False, True])
def test_nor_is_a_topic_made_one(ruled: World, validate: bool, replace: bool) -> None:
    assert ruled.create(new_topic("a", configs=[rpc.TopicConfig(name=TIERED, value="false")])) == [(0, "")]
    code, message = alter(ruled, TIERED, "true", validate=validate, replace=replace)
    assert code == ErrorCode.INVALID_CONFIG
    assert "no tiered storage" in message


# The settings of groups.


def change_group(world: World, name: str, value: str | None, operation: int = SET) -> tuple[int, str]:
    """Of any group: none has to be there."""
    change = rpc.IncrementalAlterConfigsRequest.Change(
        name=name, operation=DELETE if value is None else operation, value=value
    )
    resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=GROUP, resource_name="g", changes=[change])
    decision = incremental_alter_configs(world.state, rpc.IncrementalAlterConfigsRequest(resources=[resource]))
    answer = world.do(decision).resources[0]
    return answer.error_code, answer.error_message


def of_group(world: World) -> dict[str, str] | None:
    return world.state.image.configs.get((GROUP, "g"))


def test_a_group_has_settings_and_gives_them_back(ruled: World) -> None:
    assert change_group(ruled, SESSION, "50000") == (0, "")
    assert change_group(ruled, "share.auto.offset.reset", "by_duration:PT1H30M") == (0, "")
    assert of_group(ruled) == {SESSION: "50000", "share.auto.offset.reset": "by_duration:PT1H30M"}
    assert change_group(ruled, SESSION, None) == (0, "")
    assert change_group(ruled, "share.auto.offset.reset", None) == (0, "")
    assert change_group(ruled, SESSION, None) == (0, ""), "it is gone already"
    assert of_group(ruled) is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (SESSION, "44999", "the least allowed is group.consumer.min.session.timeout.ms=45000"),
        (SESSION, "50001", "the most allowed is group.consumer.max.session.timeout.ms=50000"),
        (SESSION, "0", "the least allowed is 1"),
        (SESSION, "soon", "write a whole number"),
        (HEARTBEAT, "4999", "group.consumer.min.heartbeat.interval.ms=5000"),
        ("consumer.assignment.interval.ms", "15001", "group.consumer.max.assignment.interval.ms=15000"),
        ("share.record.lock.duration.ms", "1000", "group.share.min.record.lock.duration.ms=15000"),
        ("share.isolation.level", "READ_COMMITTED", "read_committed"),
        ("share.auto.offset.reset", "by_duration:P", "by_duration:PT1H"),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas=2"),
        ("group.consumer.session.timeout.ms", "46000", "unknown group setting"),
    ],
)
def test_what_a_group_may_not_have_is_refused(ruled: World, name: str, value: str, words: str) -> None:
    code, message = change_group(ruled, name, value)
    assert code == ErrorCode.INVALID_CONFIG
    assert words in message
    assert of_group(ruled) is None


def test_no_setting_of_a_group_is_a_list(ruled: World) -> None:
    assert change_group(ruled, "group.consumer.assignors", "range", APPEND)[0] == ErrorCode.INVALID_CONFIG


def test_a_session_has_to_be_longer_than_the_time_between_heartbeats(ruled: World) -> None:
    texts = SERVER.texts | {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.max.heartbeat.interval.ms": "40000",
    }
    rules = SettingRules(ServerConfig(texts))
    ruled.state.settings = structs.replace(ruled.state.settings, config_rules=rules)
    assert change_group(ruled, SESSION, "9000") == (0, "")
    code, message = change_group(ruled, HEARTBEAT, "9000")
    assert code == ErrorCode.INVALID_CONFIG
    assert f"{SESSION}=9000: write more than {HEARTBEAT}=9000" in message


class Word(str):
    """Counts how often it is compared with another."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Word.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize(("operation", "left"), [(APPEND, 900), (SUBTRACT, 0)])
def test_a_list_grows_and_shrinks_by_very_many_words_without_comparing_all_with_all(
    ruled: World, monkeypatch: pytest.MonkeyPatch, operation: int, left: int
) -> None:
    """2 MiB of them held the controller for half a minute where a topic's list was long."""
    name, words = "leader.replication.throttled.replicas", [f"{number}:1" for number in range(900)]
    ruled.create(new_topic("a"))
    ruled.configure(name, ",".join(words), resource="a")
    monkeypatch.setattr(configs, "_words", lambda text: list(map(Word, text.split(","))))
    Word.compared = 0
    request = rpc.IncrementalAlterConfigsRequest()
    change = request.resources.add(resource_type=2, resource_name="a").changes.add(name=name, operation=operation)
    change.value = ",".join(reversed(words))
    assert ruled.do(incremental_alter_configs(ruled.state, request)).resources[0].error_code == ErrorCode.NONE
    assert Word.compared < 4 * len(words)
    assert len([*filter(None, ruled.state.image.configs[2, "a"][name].split(","))]) == left


def test_settings_that_stay_are_not_compared_with_all_that_are_deleted(world: World) -> None:
    """Ten thousand that were not there, deleted of the brokers' settings, held the controller for 0.4 s."""
    names = [f"setting-{number}" for number in range(50)]
    for name in names:
        world.configure(name, "1", resource_type=4, resource="")
    known = world.state.image.configs
    known[4, ""] = {Word(name): value for name, value in known[4, ""].items()}
    request = rpc.IncrementalAlterConfigsRequest()
    resource = request.resources.add(resource_type=4, resource_name="")
    for number in range(1_000):
        resource.changes.add(name=f"none-{number}", operation=DELETE)
    Word.compared = 0
    assert incremental_alter_configs(world.state, request).response.resources[0].error_code == ErrorCode.NONE
    assert Word.compared <= 4 * len(names)

"""What a controller with the tables of settings lets into the log."""

import pytest
from msgspec import structs

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.config_rules import SettingRules
from ottla.quorum.controller.decisions.configs import SET, incremental_alter_configs
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.controller.conftest import World, new_topic

TIERED = "remote.storage.enable"


@pytest.fixture
def ruled(world: World) -> World:
    world.state.settings = structs.replace(world.state.settings, config_rules=SettingRules())
    return world


def alter(
    world: World, name: str, value: str, *, validate: bool = False, replace: bool = False, kind: int = 2
) -> tuple[int, str]:
    change = rpc.IncrementalAlterConfigsRequest.Change(name=name, operation=SET, value=value)
    resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name="a", changes=[change])
    request = rpc.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate, replace_all=replace)
    decision = incremental_alter_configs(world.state, request)
    answer = decision.response.resources[0]
    return answer.error_code, answer.error_message


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


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        ("consumer.assignment.interval.ms", "0", ErrorCode.NONE),
        ("consumer.session.timeout.ms", "long", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "0", ErrorCode.INVALID_CONFIG),
        ("consumer.sessoin.timeout.ms", "50000", ErrorCode.INVALID_CONFIG),
        ("share.session.timeout.ms", "50000", ErrorCode.NONE),
    ],
)
def test_a_group_has_the_settings_that_its_coordinator_goes_by(
    ruled: World, name: str, value: str, code: ErrorCode
) -> None:
    assert alter(ruled, name, value, kind=32)[0] == code

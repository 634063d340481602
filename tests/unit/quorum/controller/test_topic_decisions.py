"""Topics, placement, configurations, producer ids and features (kraft.md 2.7 to 2.9)."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import features
from ottla.quorum.controller.decisions.configs import incremental_alter_configs
from ottla.quorum.controller.decisions.features import register_controller, supported_ranges, update_features
from ottla.quorum.controller.decisions.placement import UsableBroker, place
from ottla.quorum.controller.decisions.producer_ids import allocate_producer_ids
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.topics import create_partitions, create_topics, delete_topics
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import World, new_topic

Assignment = rpc.ReplicaAssignment

# --- create -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_of_its_name_settings_and_partitions_in_one_piece(world: World) -> None:
    topic = new_topic("a", 2, 3, configs=[rpc.TopicConfig(name="retention.ms", value="5")])
    decision = create_topics(world.state, rpc.CreateTopicsRequest(topics=[topic]))
    assert [each.WhichOneof("body") for each in decision.records] == ["topic", "config", "partition", "partition"]
    assert decision.atomic
    answer = world.do(decision).topics[0]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 2, 3)
    made = world.state.image.topics_by_name["a"]
    assert made.id == answer.topic_id
    for partition in made.partitions.values():
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert all(world.state.image.brokers[each].has_directory(partition.directory_of(each)) for each in (1, 2, 3))
    assert world.state.image.configs[2, "a"] == {"retention.ms": "5"}


def test_validation_alone_makes_nothing(world: World) -> None:
    assert world.create(new_topic("a"), validate=True) == [(0, "")]
    assert not world.state.image.topics_by_name


def by_hand(*assignments: tuple[int, tuple[int, ...]]) -> dict[str, Any]:
    return {"assignments": [Assignment(partition_index=index, broker_ids=ids) for index, ids in assignments]}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("__cluster_metadata"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (new_topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new_topic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (new_topic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (new_topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("a", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("a", 1, -1, **by_hand((0, (1,)))), ErrorCode.INVALID_REQUEST),
        (new_topic("a", -1, 1, **by_hand((0, (1,)))), ErrorCode.INVALID_REQUEST),
        (new_topic("a", -1, -1, **by_hand((1, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", -1, -1, **by_hand((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", -1, -1, **by_hand((0, (1,)), (1, (1, 2)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", -1, -1, **by_hand((0, ()))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", -1, -1, **by_hand((0, (1, 1)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", -1, -1, **by_hand((0, (9,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", configs=[rpc.TopicConfig(name="retention.ms")]), ErrorCode.INVALID_CONFIG),
        (new_topic("a", configs=[rpc.TopicConfig(name="x", value="y" * 40_000)]), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_spoils_nobody_else(
    world: World, topic: rpc.CreateTopicsRequest.Topic, code: ErrorCode
) -> None:
    world.create(new_topic("there"), new_topic("with.dot"))
    refused, good = world.create(topic, new_topic("good"))
    assert (refused[0], good[0]) == (code, 0)
    assert refused[1]
    assert list(world.state.image.topics_by_name) == ["there", "with.dot", "good"]


def test_names_of_one_request_must_not_clash_either(world: World) -> None:
    codes = [code for code, _ in world.create(new_topic("a"), new_topic("a"), new_topic("x.y"), new_topic("x_y"))]
    twice, clash = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == [twice, twice, ErrorCode.NONE, clash]


def test_a_name_is_free_again_after_its_topic_is_gone(world: World) -> None:
    world.create(new_topic("x.y"))
    assert world.create(new_topic("x_y"))[0][0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    gone = rpc.DeleteTopicsRequest(topics=[rpc.DeleteTopicsRequest.Topic(name="x.y")])
    world.do(delete_topics(world.state, gone))
    assert world.create(new_topic("x_y"))[0][0] == ErrorCode.NONE


def test_an_assignment_by_hand_is_taken_as_it_is(world: World) -> None:
    world.fenced(3)
    assert world.create(new_topic("a", -1, -1, **by_hand((1, (2, 1)), (0, (3, 1))))) == [(0, "")]
    partitions = world.state.image.topics_by_name["a"].partitions
    assert (partitions[0].replicas, partitions[0].isr, partitions[0].leader) == ((3, 1), (1,), 1)
    assert (partitions[1].replicas, partitions[1].isr, partitions[1].leader) == ((2, 1), (2, 1), 2)


def test_an_assignment_to_nobody_in_service_is_refused(world: World) -> None:
    world.fenced(3)
    assert world.create(new_topic("a", -1, -1, **by_hand((0, (3,)))))[0][0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.fenced(1, 2)
    assert world.create(new_topic("a"))[0][0] == ErrorCode.INVALID_REPLICATION_FACTOR


def test_defaults_come_from_the_settings() -> None:
    world = World(num_partitions=4, default_replication_factor=2).brokers(1, 2)
    assert world.create(new_topic("a", -1, -1)) == [(0, "")]
    partitions = world.state.image.topics_by_name["a"].partitions
    assert len(partitions) == 4
    assert len(partitions[0].replicas) == 2


def test_too_many_partitions_in_one_request_are_refused_whole(world: World) -> None:
    with pytest.raises(KafkaError) as caught:
        world.create(new_topic("a", 6_000), new_topic("b", 4_001))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


# --- delete, grow -----------------------------------------------------------------------------------------------------


def test_topics_are_deleted_by_name_or_id(world: World) -> None:
    world.create(new_topic("a"), new_topic("b"), new_topic("c"))
    ids = {name: topic.id for name, topic in world.state.image.topics_by_name.items()}
    wanted = [
        rpc.DeleteTopicsRequest.Topic(name="a"),
        rpc.DeleteTopicsRequest.Topic(topic_id=ids["b"]),
        rpc.DeleteTopicsRequest.Topic(name="none"),
        rpc.DeleteTopicsRequest.Topic(topic_id=b"x" * 16),
        rpc.DeleteTopicsRequest.Topic(name="c"),
        rpc.DeleteTopicsRequest.Topic(topic_id=ids["c"]),
    ]
    response = world.do(delete_topics(world.state, rpc.DeleteTopicsRequest(topics=wanted)))
    unknown_name, unknown_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
    twice = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in response.topics] == [0, 0, unknown_name, unknown_id, twice, twice]
    assert (response.topics[1].name, response.topics[0].topic_id) == ("b", ids["a"])
    assert list(world.state.image.topics_by_name) == ["c"]


def grow(world: World, name: str, count: int, *assignments: tuple[int, ...], given: bool = False) -> int:
    lists = [rpc.CreatePartitionsRequest.Assignment(broker_ids=each) for each in assignments]
    topic = rpc.CreatePartitionsRequest.Topic(
        name=name, count=count, assignments=lists, has_assignments=given or bool(lists)
    )
    response = world.do(create_partitions(world.state, rpc.CreatePartitionsRequest(topics=[topic])))
    code: int = response.topics[0].error_code
    return code


def test_a_topic_grows_and_never_shrinks(world: World) -> None:
    world.create(new_topic("a", 2, 2))
    assert grow(world, "a", 2) == ErrorCode.INVALID_PARTITIONS
    assert grow(world, "a", 1) == ErrorCode.INVALID_PARTITIONS
    assert grow(world, "none", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(world, "a", 4, (1, 2)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(world, "a", 3, (1,)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(world, "a", 3, given=True) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(world, "a", 3, (3, 1)) == ErrorCode.NONE
    assert grow(world, "a", 5) == ErrorCode.NONE
    partitions = world.state.image.topics_by_name["a"].partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert partitions[2].replicas == (3, 1)
    assert all(len(each.replicas) == 2 for each in partitions.values())


def test_the_topics_of_a_request_grow_by_so_many_partitions_together(world: World) -> None:
    world.create(new_topic("a"), new_topic("b"), new_topic("c"))
    most = world.state.settings.partitions_per_request_max
    counts = {"a": most // 2, "b": most, "c": most // 2}
    topics = [rpc.CreatePartitionsRequest.Topic(name=name, count=count) for name, count in counts.items()]
    decision = create_partitions(world.state, rpc.CreatePartitionsRequest(topics=topics))
    assert [each.error_code for each in decision.response.topics] == [0, ErrorCode.POLICY_VIOLATION, 0]
    assert len(decision.records) <= most


def of_topics(count: int) -> rpc.CreatePartitionsRequest:
    return rpc.CreatePartitionsRequest(topics=[rpc.CreatePartitionsRequest.Topic(name=str(n)) for n in range(count)])


def of_deleted(count: int) -> rpc.DeleteTopicsRequest:
    return rpc.DeleteTopicsRequest(topics=[rpc.DeleteTopicsRequest.Topic(name=str(n)) for n in range(count)])


def of_resources(count: int) -> rpc.IncrementalAlterConfigsRequest:
    resource = rpc.IncrementalAlterConfigsRequest.Resource
    return rpc.IncrementalAlterConfigsRequest(resources=[resource(resource_name=str(n)) for n in range(count)])


def of_changes(count: int) -> rpc.IncrementalAlterConfigsRequest:
    request = of_resources(1)
    request.resources[0].changes.extend(
        rpc.IncrementalAlterConfigsRequest.Change(name=str(n)) for n in range(count - 1)
    )
    return request


@pytest.mark.parametrize(
    ("decide", "request_of"),
    [
        (create_partitions, of_topics),
        (delete_topics, of_deleted),
        (incremental_alter_configs, of_resources),
        (incremental_alter_configs, of_changes),
    ],
)
def test_a_request_of_more_entries_than_are_decided_on_in_a_moment_is_refused(
    decide: Callable[[ControllerState, Any], Any], request_of: Callable[[int], Any]
) -> None:
    """Twenty us each: 2 MiB of them would take the active controller five seconds, and with that its office."""
    world = World(entries_per_request_max=30)
    decide(world.state, request_of(30))
    with pytest.raises(KafkaError, match="31 entries in one request: at most 30") as refused:
        decide(world.state, request_of(31))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION


def test_a_broker_that_stopped_in_order_may_be_given_replicas_and_one_that_is_about_to_may_not(world: World) -> None:
    """As one that crashed: else no topic with as many replicas as there are brokers could be made while one restarts."""
    world.partition_of([3, 1, 2]).heartbeat(3, down=True)
    assert world.create(new_topic("a", 1, 3))[0][0] == ErrorCode.INVALID_REPLICATION_FACTOR
    world.state.sessions.begin_shutdown(3, world.next_offset - 1)
    for each in (1, 2):
        world.heartbeat(each)
    assert world.heartbeat(3, down=True).should_shut_down
    assert world.create(new_topic("a", 1, 3)) == [(0, "")]
    partition = world.state.image.topics_by_name["a"].partitions[0]
    assert (sorted(partition.replicas), sorted(partition.isr)) == ([1, 2, 3], [1, 2])


# --- placement --------------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> list[UsableBroker]:
    count = draw(st.integers(1, 12))
    racks = draw(st.integers(1, 4))
    fenced = draw(st.sets(st.integers(1, count - 1))) if count > 1 else frozenset()
    return [UsableBroker(each, f"rack-{each % racks}", each in fenced) for each in range(count)]


@given(clusters(), st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6))
@settings(deadline=None)
def test_placement_spreads_over_racks_and_never_doubles(
    brokers: list[UsableBroker], partitions: int, factor: int, seed: int
) -> None:
    factor = min(factor, len(brokers))
    placed = place(Random(seed), brokers, partitions, factor)
    racks = {each.id: each.rack for each in brokers}
    fenced = {each.id for each in brokers if each.fenced}
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced
        assert len({racks[each] for each in replicas}) == min(factor, len(set(racks.values())))
    assert placed == place(Random(seed), brokers, partitions, factor)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 10**6))
@settings(deadline=None)
def test_equal_racks_get_equal_numbers_of_leaders_and_replicas(racks: int, each: int, factor: int, seed: int) -> None:
    brokers = [UsableBroker(rack * 10 + number, f"r{rack}", False) for rack in range(racks) for number in range(each)]
    factor = min(factor, len(brokers))
    placed = place(Random(seed), brokers, racks * each * 3, factor)
    leaders = [replicas[0] for replicas in placed]
    assert {leaders.count(broker.id) for broker in brokers} == {3}


def test_new_partitions_keep_their_replicas_on_different_hosts() -> None:
    world = World()
    for number in range(4):
        endpoint = pb.Endpoint(name="PLAINTEXT", host=f"host-{number // 2}", port=9000 + number)
        world.register(number, endpoints=[endpoint])
        world.heartbeat(number)
    world.create(new_topic("a", 8, 2))
    hosts = [
        {each // 2 for each in made.replicas} for made in world.state.image.topics_by_name["a"].partitions.values()
    ]
    assert hosts == [{0, 1}] * 8


# --- configurations ---------------------------------------------------------------------------------------------------


class Rules:
    def check(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        if "bad" in values:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "bad")

    def list_default(self, resource_type: int, name: str) -> tuple[str, ...] | None:
        return ("delete",) if name == "cleanup.policy" else None


SET, DELETE, APPEND, SUBTRACT = range(4)
Change = rpc.IncrementalAlterConfigsRequest.Change
Resource = rpc.IncrementalAlterConfigsRequest.Resource


def alter(
    world: World, *changes: tuple[str, int, str | None], name: str = "t", kind: int = 2, replace: bool = False
) -> int:
    body = [Change(name=key, operation=operation, value=value) for key, operation, value in changes]
    resource = Resource(resource_type=kind, resource_name=name, changes=body)
    request = rpc.IncrementalAlterConfigsRequest(resources=[resource], replace_all=replace)
    code: int = world.do(incremental_alter_configs(world.state, request)).resources[0].error_code
    return code


@pytest.fixture
def configured() -> World:
    return World(config_rules=Rules()).brokers(1).partition_of([1])


def test_settings_are_set_deleted_and_lists_grow_and_shrink(configured: World) -> None:
    image = configured.state.image
    assert alter(configured, ("a", SET, "1"), ("b", SET, "2")) == 0
    assert image.configs[2, "t"] == {"a": "1", "b": "2"}
    assert alter(configured, ("a", DELETE, None), ("cleanup.policy", APPEND, "compact,delete")) == 0
    assert image.configs[2, "t"] == {"b": "2", "cleanup.policy": "delete,compact"}
    assert alter(configured, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert image.configs[2, "t"] == {"b": "2", "cleanup.policy": "compact"}
    assert alter(configured, ("c", SET, "3"), replace=True) == 0
    assert image.configs[2, "t"] == {"c": "3"}


@pytest.mark.parametrize(
    ("changes", "name", "kind", "code"),
    [
        ([("a", SET, "1")], "none", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([("a", SET, "1")], "", 2, ErrorCode.INVALID_REQUEST),
        ([("a", SET, "1")], "9", 4, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ([("a", SET, "1")], "9" * 5_000, 4, ErrorCode.INVALID_REQUEST),
        ([("a", SET, "1")], "01", 4, ErrorCode.INVALID_REQUEST),
        ([("a", SET, "1")], "nine", 4, ErrorCode.INVALID_REQUEST),
        ([("a", SET, "1")], "t", 8, ErrorCode.INVALID_REQUEST),
        ([("a", SET, "1")], "", 32, ErrorCode.INVALID_REQUEST),
        ([("a", SET, None)], "t", 2, ErrorCode.INVALID_REQUEST),
        ([("a", 9, "1")], "t", 2, ErrorCode.INVALID_REQUEST),
        ([("a", APPEND, "1")], "t", 2, ErrorCode.INVALID_CONFIG),
        ([("a", SET, "1"), ("a", DELETE, None)], "t", 2, ErrorCode.INVALID_REQUEST),
        ([("good", SET, "1"), ("bad", SET, "1")], "t", 2, ErrorCode.INVALID_CONFIG),
        ([("a", SET, "x" * 32_768)], "t", 2, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_change_of_settings_that_cannot_be(
    configured: World, changes: list[tuple[str, int, str | None]], name: str, kind: int, code: ErrorCode
) -> None:
    before = configured.next_offset
    assert alter(configured, *changes, name=name, kind=kind) == code
    assert configured.next_offset == before


def test_a_topics_unchanged_setting_writes_nothing_but_a_brokers_does(configured: World) -> None:
    alter(configured, ("a", SET, "1"))
    alter(configured, ("a", SET, "1"), name="1", kind=4)
    before = configured.next_offset
    alter(configured, ("a", SET, "1"))
    assert configured.next_offset == before
    alter(configured, ("a", SET, "1"), name="1", kind=4)
    assert configured.next_offset == before + 1


# --- producer ids, features -------------------------------------------------------------------------------------------


def test_producer_ids_come_in_blocks_that_never_repeat(world: World) -> None:
    starts = []
    for broker_id in (1, 2, 1):
        request = rpc.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=world.epoch(broker_id))
        response = world.do(allocate_producer_ids(world.state, request))
        starts.append((response.producer_id_start, response.producer_id_count))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(KafkaError) as caught:
        allocate_producer_ids(world.state, rpc.AllocateProducerIdsRequest(broker_id=1, broker_epoch=-1))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def update(world: World, name: str, level: int, kind: int = 1) -> ErrorCode:
    body = rpc.UpdateFeaturesRequest.Update(name=name, max_version_level=level, upgrade_type=kind)
    try:
        world.do(update_features(world.state, rpc.UpdateFeaturesRequest(updates=[body])))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.fixture
def two_features(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {**features.SUPPORTED, "group.version": features.Levels(0, 1, 1)}
    monkeypatch.setattr(features, "SUPPORTED", levels)


@pytest.mark.usefixtures("two_features")
def test_features_move_within_what_everybody_reads() -> None:
    world = World().brokers(1, 2)
    invalid = ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, "metadata.version", 31) is invalid
    assert update(world, "metadata.version", 0, 2) is invalid
    assert update(world, "nonsense", 1) is invalid
    assert update(world, "metadata.version", 29) is invalid, "back is a downgrade"
    assert update(world, "metadata.version", 29, 3) is invalid
    assert update(world, "metadata.version", 29, 2) is ErrorCode.NONE
    assert update(world, "group.version", 0, 2) is ErrorCode.NONE
    assert "group.version" not in world.state.image.features
    assert update(world, "metadata.version", 30) is ErrorCode.NONE


def test_an_upgrade_waits_for_the_last_node(world: World) -> None:
    update(world, "metadata.version", 29, 2)
    old = [pb.FeatureRange(name="metadata.version", min_version=25, max_version=29), *supported_ranges()[1:]]
    world.register(4, features=old)
    assert update(world, "metadata.version", 30) is ErrorCode.INVALID_UPDATE_VERSION
    world.state.sessions.gone(4, world.epoch(4))
    world.register(4, incarnation=2)
    controller = rpc.RegisterControllerRequest(controller_id=100, incarnation_id=b"c" * 16, features=old)
    world.do(register_controller(world.state, controller))
    assert update(world, "metadata.version", 30) is ErrorCode.INVALID_UPDATE_VERSION
    newer = rpc.RegisterControllerRequest(controller_id=100, incarnation_id=b"d" * 16, features=supported_ranges())
    world.do(register_controller(world.state, newer))
    assert register_controller(world.state, newer).records == []
    assert update(world, "metadata.version", 30) is ErrorCode.NONE


def test_a_decision_changes_nothing_by_itself(world: World) -> None:
    world.partition_of([1, 2, 3])
    before = world.state.image.fork()
    create_topics(world.state, rpc.CreateTopicsRequest(topics=[new_topic("a", 5, 3)]))
    delete_topics(world.state, rpc.DeleteTopicsRequest(topics=[rpc.DeleteTopicsRequest.Topic(name="t")]))
    assert world.state.image == before

"""Changes that concern more partitions than are decided on in one go: none is forgotten, whatever happens in between."""

from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import sweep
from ottla.quorum.controller.decisions.alter_partition import alter_partition
from ottla.quorum.controller.decisions.chores import has_chores, next_chore
from ottla.quorum.controller.decisions.cluster import (
    broker_heartbeat,
    fence_first_expired,
    register_broker,
    shutdown_begins,
    unregister_broker,
)
from ottla.quorum.controller.decisions.decision import Decision
from ottla.quorum.controller.decisions.elections import elect_leaders, rebalance_leaders
from ottla.quorum.controller.decisions.elr import ELR_VERSION
from ottla.quorum.controller.decisions.pieces import LOOKS_MAX, Progress, next_piece
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.views import NO_LEADER, PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import World, directory, new_topic

MANY = 2 * sweep.CHANGES_MAX + 100  # three pieces


def partitions(world: World, topic: str = "many") -> dict[int, PartitionView]:
    return world.state.image.topics_by_name[topic].partitions


def has_part(world: World, broker_id: int) -> list[int]:
    return [index for index, each in partitions(world).items() if broker_id in each.isr or broker_id == each.leader]


def another_controller(world: World) -> None:
    """The old one's records are committed; nothing else is left of it."""
    world.state = ControllerState(world.state.image, world.state.settings, Random(1))
    for broker in world.state.image.brokers.values():
        world.state.sessions.contact(broker.id, broker.epoch, world.next_offset, world.now_ms)


def fence_some(world: World) -> bool:
    step = fence_first_expired(world.state, world.now_ms)
    if step is not None:
        world.replay(step.records)
    return step is not None and not step.is_last


def do_all(world: World, decide: Callable[[], Decision[Any]]) -> list[int]:
    """Until the last decision on the request; how many records each had."""
    sizes = []
    while True:
        decision = decide()
        sizes.append(len(decision.records))
        world.do(decision)
        if decision.is_last:
            return sizes


def assign(world: World, index: int, *replicas: int) -> None:
    """As when a reassignment that was under way is completed: all of them in sync, led by the last."""
    ids = pb.Replicas(ids=replicas)
    topic_id = world.state.image.topics_by_name["many"].id
    places = pb.Directories(ids=[directory(each) for each in replicas])
    change = pb.PartitionChange(
        topic_id=topic_id, partition_id=index, replicas=ids, isr=ids, leader=replicas[-1], directories=places
    )
    world.replay([pb.MetadataRecord(partition_change=change)])


@pytest.mark.parametrize("index", [0, MANY - 1], ids=["that was looked at", "that will be looked at"])
def test_a_partition_that_moves_to_the_broker_between_two_pieces_is_not_forgotten(index: int) -> None:
    world = World().brokers(1, 2, 3, 4)
    world.create(new_topic("many", MANY, 3))
    assign(world, index, 2, 3, 4)
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    assign(world, index, 2, 3, 1)
    while fence_some(world):
        pass
    assert has_part(world, 1) == []
    assert world.state.image.brokers[1].fenced


def test_a_topic_that_is_created_between_two_pieces_is_not_forgotten(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    world.create(new_topic("late", 3, 3))
    while fence_some(world):
        pass
    assert all(1 not in each.isr and each.leader != 1 for each in partitions(world, "late").values())


def test_a_topic_that_is_deleted_between_two_pieces_is_no_obstacle(world: World) -> None:
    for name in ("many", "others", "more"):
        world.create(new_topic(name, 200, 3))
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    for topic_id in list(world.state.image.topics_by_id)[1:]:
        world.replay([pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id))])
    while fence_some(world):
        pass
    assert has_part(world, 1) == []


def test_records_that_are_never_replayed_are_decided_again(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    world.state.sessions.gone(1, world.epoch(1))
    fence_first_expired(world.state, world.now_ms)
    while fence_some(world):
        pass
    assert has_part(world, 1) == []


def test_a_broker_that_many_partitions_come_back_to_meanwhile_is_looked_through_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "AGAIN_MAX", 300)
    world.create(new_topic("many", MANY, 3))
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    assert fence_some(world)
    for index in range(400):
        assign(world, index, 2, 3, 1)
    assert not world.state.replicas._sweeps, "it would remember each of them"
    while fence_some(world):
        pass
    assert has_part(world, 1) == []


def test_fencing_goes_on_under_another_controller(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    another_controller(world)
    world.state.sessions.gone(1, world.epoch(1))
    while fence_some(world):
        pass
    assert has_part(world, 1) == []


def test_a_broker_that_is_heard_from_in_the_middle_of_its_fencing_leads_again_what_only_it_can_lead(
    world: World,
) -> None:
    """Seed 1948 of the cluster's simulation: its partitions had no leader any more, and it never "came back"."""
    world.create(new_topic("many", MANY, 1))
    world.do_chores()
    led = {index for index, each in partitions(world).items() if each.leader == 1}
    world.state.sessions.gone(1, world.epoch(1))
    step = fence_first_expired(world.state, world.now_ms, changes_max=10)
    assert step is not None
    world.replay(step.records)
    assert {index for index, each in partitions(world).items() if each.leader == 1} != led
    world.heartbeat(1)
    assert fence_first_expired(world.state, world.now_ms) is None
    world.do_chores()
    assert {index for index, each in partitions(world).items() if each.leader == 1} == led


def test_a_partition_is_looked_at_once_or_twice_however_many_pieces_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fencing is linear in what there is, where it used to begin anew with each piece."""
    looks = 0

    class Counted(sweep.Sweep):
        def __init__(self, image: Any, topics: Any, concerns: sweep.Concerns) -> None:
            def counted(partition: PartitionView) -> bool:
                nonlocal looks
                looks += 1
                return concerns(partition)

            super().__init__(image, topics, counted)

    monkeypatch.setattr("ottla.quorum.controller.decisions.replica_index.Sweep", Counted)
    world.create(new_topic("many", MANY, 3))
    world.state.sessions.gone(1, world.epoch(1))
    pieces = 1
    while (step := fence_first_expired(world.state, world.now_ms, 10)) is not None:
        world.replay(step.records)
        pieces += 1
    assert pieces > 50
    assert looks <= 3 * MANY  # once, once more after its change, and once as it changes


def test_a_controlled_shutdown_of_many_partitions_goes_on_by_itself(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    assert not world.heartbeat(1, down=True).should_shut_down
    assert len(has_part(world, 1)) == MANY - sweep.CHANGES_MAX
    world.do_chores()
    assert has_part(world, 1) == []


def test_a_controlled_shutdown_goes_on_under_another_controller(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    world.heartbeat(1, down=True)
    another_controller(world)
    world.do_chores()
    assert has_part(world, 1) == []
    world.state.sessions.begin_shutdown(1, world.next_offset - 1)
    for broker_id in (2, 3):
        world.heartbeat(broker_id)
    assert world.heartbeat(1, down=True).should_shut_down


def test_a_broker_that_leads_still_has_no_shutdown_offset(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    world.heartbeat(1, down=True)
    assert not shutdown_begins(world.state, 1), "others must read the records that are yet to come"
    world.do_chores()
    assert shutdown_begins(world.state, 1)


def leaderless(world: World) -> int:
    return sum(each.leader == -1 for each in partitions(world).values())


def test_electing_many_leaders_goes_on_by_itself_and_under_another_controller() -> None:
    world = World().brokers(1, 2)
    world.create(new_topic("many", MANY, 1))
    for broker_id in (1, 2):
        request = rpc.BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=world.epoch(broker_id), want_fence=True)
        do_all(world, partial(broker_heartbeat, world.state, request))
    assert leaderless(world) == MANY
    world.heartbeat(1)
    assert not world.state.image.brokers[1].fenced
    assert 0 < leaderless(world) < MANY
    another_controller(world)
    world.heartbeat(2)
    world.do_chores()
    assert leaderless(world) == 0


def test_a_broker_with_many_partitions_is_unregistered_in_pieces(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    request = rpc.UnregisterBrokerRequest(broker_id=1)
    sizes = do_all(world, lambda: unregister_broker(world.state, request))
    assert sizes == [sweep.CHANGES_MAX, sweep.CHANGES_MAX, 101]
    assert (has_part(world, 1), 1 in world.state.image.brokers) == ([], False)


def test_a_new_incarnation_takes_the_place_of_one_with_many_partitions_in_pieces(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    request = world.registration(1, incarnation=2)
    sizes = do_all(world, lambda: register_broker(world.state, request, world.next_offset, world.now_ms))
    assert sizes == [sweep.CHANGES_MAX, sweep.CHANGES_MAX, 101]
    assert world.epoch(1) == world.next_offset - 1
    assert has_part(world, 1) == []


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_nobody_elects_a_broker_between_the_pieces_in_which_it_goes(is_forgotten: bool) -> None:
    """Its session is good still, and of these partitions it is the only replica: what brings back and what takes out would undo each
    other for ever."""
    world = World().brokers(1)
    world.create(new_topic("many", MANY, 1))
    another_controller(world)  # which looks for the leaderless, as after each change of controllers
    registration, farewell = world.registration(1, incarnation=2), rpc.UnregisterBrokerRequest(broker_id=1)
    for _ in range(4):
        decision: Decision[Any] = (
            unregister_broker(world.state, farewell)
            if is_forgotten
            else register_broker(world.state, registration, world.next_offset, world.now_ms)
        )
        world.do(decision)
        if decision.is_last:
            break
        assert not fence_some(world)
        world.replay(next_chore(world.state).records if has_chores(world.state) else [])
    assert decision.is_last
    assert {each.leader for each in partitions(world).values()} == {NO_LEADER}


@pytest.mark.parametrize("is_noted_first", [False, True], ids=["before it is noted that it lives", "and after"])
def test_a_broker_whose_place_somebody_else_nearly_took_leads_again(is_noted_first: bool) -> None:
    """Another process has its id, by mistake, and registers when its session is over. In the middle of that it is heard from, and the other
    is refused: what was taken from it is given back, and it may be elected from then on."""
    world = World().brokers(1, 2)
    world.create(new_topic("many", MANY, 1))
    world.do_chores()
    led = {index for index, each in partitions(world).items() if each.leader == 1}
    assert len(led) > sweep.CHANGES_MAX
    world.state.sessions.gone(1, world.epoch(1))
    other = world.registration(1, incarnation=2, directories=[directory(9)])
    first = register_broker(world.state, other, world.next_offset, world.now_ms)
    assert not first.is_last
    world.do(first)
    world.heartbeat(1)
    if is_noted_first:
        assert fence_first_expired(world.state, world.now_ms) is None
        world.do_chores()
    with pytest.raises(KafkaError) as refused:
        register_broker(world.state, other, world.next_offset, world.now_ms)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert fence_first_expired(world.state, world.now_ms) is None
    world.do_chores()
    assert {index for index, each in partitions(world).items() if each.leader == 1} == led


def test_a_dead_broker_is_fenced_though_another_comes_back_in_the_middle_of_it() -> None:
    """The dead one is the last in sync with partitions that both have. Whoever finds leaders for the other's sake must not take it, or each
    piece of the fencing would be undone by the next of that, and no piece would be the last."""
    world = World().brokers(1, 2)
    many = [rpc.ReplicaAssignment(partition_index=index, broker_ids=[1, 2]) for index in range(MANY)]
    world.create(new_topic("many", -1, -1, assignments=many))
    away = rpc.BrokerHeartbeatRequest(broker_id=2, broker_epoch=world.epoch(2), want_fence=True)
    do_all(world, lambda: broker_heartbeat(world.state, away))
    world.do_chores()
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    assert fence_some(world)
    world.heartbeat(2)
    pieces = 0
    while fence_some(world):
        pieces += 1
        assert pieces < 10, "for ever"
        world.replay(next_chore(world.state).records if has_chores(world.state) else [])
    assert world.state.image.brokers[1].fenced
    assert {each.leader for each in partitions(world).values()} == {NO_LEADER}


def test_nobody_takes_a_dead_broker_into_an_isr_between_the_pieces_of_its_fencing(world: World) -> None:
    """Its leader knows how far it was, and asks for that by itself."""
    world.create(new_topic("many", MANY, 3))
    world.state.sessions.gone(1, world.epoch(1))
    assert fence_some(world)
    index, now = next((index, each) for index, each in partitions(world).items() if 1 not in each.isr)
    members = [rpc.AlterPartitionRequest.Member(broker_id=each, broker_epoch=-1) for each in now.replicas]
    asked = rpc.AlterPartitionRequest.Partition(
        partition_index=index, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch, new_isr=members
    )
    request = rpc.AlterPartitionRequest(broker_id=now.leader, broker_epoch=world.epoch(now.leader))
    request.topics.add(topic_id=world.state.image.topics_by_name["many"].id, partitions=[asked])
    decision = alter_partition(world.state, request)
    assert decision.response.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_lost_directory_with_many_partitions_is_given_up_in_pieces(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    request = rpc.BrokerHeartbeatRequest(broker_id=1, broker_epoch=world.epoch(1), offline_directories=[directory(1)])
    sizes = do_all(world, lambda: broker_heartbeat(world.state, request))
    assert sizes == [sweep.CHANGES_MAX, sweep.CHANGES_MAX, 101]
    assert (has_part(world, 1), world.state.image.brokers[1].directories) == ([], ())


@pytest.mark.parametrize("level", [0, 1], ids=["without eligible leaders", "with eligible leaders"])
def test_a_lost_directory_is_given_up_though_leaders_are_looked_for_meanwhile(level: int) -> None:
    """The broker lives, and of these partitions it is the only replica. Who finds leaders must not take it between two pieces, or none
    would be the last, and a broker that is not answered ends."""
    world = World()
    lost, kept = directory(1), directory(9)
    world.register(1, directories=[lost, kept])
    world.heartbeat(1)
    if level:
        world.replay([pb.MetadataRecord(feature_level=pb.FeatureLevel(name=ELR_VERSION, level=level))])
    world.create(new_topic("many", MANY, 1))
    for index in range(MANY):
        assign(world, index, 1)  # to the first of its directories
    another_controller(world)  # which looks for the leaderless, as after each change of controllers
    request = rpc.BrokerHeartbeatRequest(broker_id=1, broker_epoch=world.epoch(1), offline_directories=[lost])
    for _ in range(4):
        decision = broker_heartbeat(world.state, request)
        world.do(decision)
        if decision.is_last:
            break
        world.replay(next_chore(world.state).records if has_chores(world.state) else [])
    assert decision.is_last
    assert world.state.image.brokers[1].directories == (kept,)
    assert {each.leader for each in partitions(world).values()} == {NO_LEADER}


def test_leaders_return_to_the_first_replicas_in_pieces(world: World) -> None:
    world.create(new_topic("many", MANY, 3))
    for index, each in partitions(world).items():
        assign(world, index, *each.replicas)  # led by the last
    sizes: list[int] = []
    while sizes[-1:] != [0]:
        step = rebalance_leaders(world.state)
        sizes.append(len(step.records))
        world.replay(step.records)
    assert sizes == [sweep.CHANGES_MAX, sweep.CHANGES_MAX, 100, 0]
    assert all(each.leader == each.replicas[0] for each in partitions(world).values())


def test_a_new_controller_counts_its_partitions_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        world.create(new_topic(f"topic-{number}", 10, 3))
    another_controller(world)
    index = world.state.replicas
    assert not index.count(50)
    world.create(new_topic("late", 5, 3))
    world.replay([pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=next(iter(world.state.image.topics_by_id))))])
    turns = 0
    while not index.count(50):
        turns += 1
    assert turns == 2
    assert len(list(index.topics_of(1))) == 20


@pytest.mark.parametrize("by_name", [False, True])
def test_elections_on_request_come_in_pieces_and_each_has_its_result(by_name: bool) -> None:
    world = World().brokers(1, 2)
    world.create(new_topic("many", MANY, 2))
    for index in range(MANY):
        assign(world, index, 1, 2)  # led by 2, though 1 is the first
    topics = [rpc.ElectLeadersRequest.Topic(name="many", partitions=range(MANY))] if by_name else []
    request = rpc.ElectLeadersRequest(topics=topics, all_partitions=not by_name)
    last: list[Decision[rpc.ElectLeadersResponse]] = []

    def decide() -> Decision[rpc.ElectLeadersResponse]:
        last[:] = [elect_leaders(world.state, request)]
        return last[0]

    sizes = do_all(world, decide)
    assert (max(sizes), sum(sizes)) == (sweep.CHANGES_MAX, MANY)
    [topic] = last[0].response.topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (index, 0) for index in range(MANY)
    ]
    assert {each.leader for each in partitions(world).values()} == {1}
    assert not world.state.under_way


def test_a_topic_that_goes_while_leaders_are_elected_everywhere_is_left_out() -> None:
    world = World().brokers(1, 2)
    world.create(new_topic("many", MANY, 2))
    for index in range(MANY):
        assign(world, index, 1, 2)
    request = rpc.ElectLeadersRequest(all_partitions=True)
    assert not elect_leaders(world.state, request).is_last
    topic_id = world.state.image.topics_by_name["many"].id
    world.replay([pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=topic_id))])
    do_all(world, lambda: elect_leaders(world.state, request))
    assert not world.state.under_way


class NumberedOnly:
    """A request that nobody may write down: of 2 MiB that takes longer than a piece."""

    DESCRIPTOR = SimpleNamespace(name="ElectLeadersRequest")


def test_a_request_that_has_a_number_is_known_by_that_in_each_of_its_pieces(world: World) -> None:
    state, request = world.state, cast(Any, NumberedOnly())

    def begin() -> Progress[int, rpc.ElectLeadersResponse]:
        return Progress(iter(range(LOOKS_MAX + 3)), rpc.ElectLeadersResponse())

    looked_at: list[int] = []
    state.request_id = b"one"
    assert not next_piece(state, request, begin, lambda _, number: looked_at.append(number)).is_last
    state.request_id = b"two"
    assert not next_piece(state, request, begin, lambda *_: None).is_last
    state.request_id = b"one"
    assert next_piece(state, request, begin, lambda _, number: looked_at.append(number)).is_last
    assert looked_at == [*range(LOOKS_MAX + 3)]
    assert len(state.under_way) == 1, "that of the other is where it was"

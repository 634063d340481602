"""Reassignments beside everything else that happens to a partition meanwhile (kraft.md 2.7)."""

from random import Random

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.alter_partition import alter_partition
from ottla.quorum.controller.decisions.cluster import unregister_broker
from ottla.quorum.controller.decisions.elections import elect_leaders
from ottla.quorum.controller.decisions.elr import ELR_VERSION
from ottla.quorum.controller.decisions.pieces import LOOKS_MAX
from ottla.quorum.controller.decisions.reassignments import (
    QUIET_MAX,
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.quorum.controller.decisions.topics import create_partitions, delete_topics
from ottla.quorum.metadata.views import PartitionView, TopicView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import random_id
from tests.unit.quorum.controller.conftest import TOPIC_ID, World, directory


def move(world: World, *replicas: int, cancel: bool = False) -> int:
    body = rpc.AlterPartitionReassignmentsRequest.Partition(replicas=replicas, cancel=cancel)
    topic = rpc.AlterPartitionReassignmentsRequest.Topic(name="t", partitions=[body])
    request = rpc.AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=True)
    response = world.do(alter_partition_reassignments(world.state, request))
    code: int = response.topics[0].partitions[0].error_code
    return code


def in_sync(world: World, *isr: int) -> int:
    """The leader tells of an ISR."""
    now = world.partition
    members = [rpc.AlterPartitionRequest.Member(broker_id=each, broker_epoch=-1) for each in isr]
    body = rpc.AlterPartitionRequest.Partition(
        new_isr=members, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch
    )
    topic = rpc.AlterPartitionRequest.Topic(topic_id=TOPIC_ID, partitions=[body])
    request = rpc.AlterPartitionRequest(broker_id=now.leader, broker_epoch=world.epoch(now.leader), topics=[topic])
    code: int = world.do(alter_partition(world.state, request)).topics[0].partitions[0].error_code
    return code


def unregister(world: World, broker_id: int) -> None:
    while True:
        decision = unregister_broker(world.state, rpc.UnregisterBrokerRequest(broker_id=broker_id))
        world.do(decision)
        if decision.is_last:
            return


@pytest.fixture
def moving(world: World) -> World:
    """From 1, 2, 3 to 3, 4, 5."""
    world.brokers(4, 5)
    world.partition_of([1, 2, 3])
    assert move(world, 3, 4, 5) == ErrorCode.NONE
    return world


def create_partitions_on(world: World, broker_id: int) -> int:
    """A second partition of the topic, with that broker among its replicas."""
    replicas = [broker_id, *(each for each in (1, 2, 3) if each != broker_id)][:3]
    assignment = rpc.CreatePartitionsRequest.Assignment(broker_ids=replicas)
    topic = rpc.CreatePartitionsRequest.Topic(name="t", count=2, assignments=[assignment], has_assignments=True)
    request = rpc.CreatePartitionsRequest(topics=[topic])
    code: int = world.do(create_partitions(world.state, request)).topics[0].error_code
    return code


def lists(world: World) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    now = world.partition
    return now.replicas, now.adding, now.removing


def listed(world: World, *named: tuple[str, list[int]]) -> dict[str, list[int]]:
    """Without ``named`` all are asked for."""
    topics = [rpc.ListPartitionReassignmentsRequest.Topic(name=name, partitions=indexes) for name, indexes in named]
    request = rpc.ListPartitionReassignmentsRequest(topics=topics, all_partitions=not named)
    decision = list_partition_reassignments(world.state, request)
    assert decision.records == []
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in decision.response.topics}


def test_what_is_under_way_is_listed_until_it_is_over(moving: World) -> None:
    assert listed(moving) == listed(moving, ("t", [0])) == {"t": [0]}
    assert listed(moving, ("t", [7]), ("nowhere", [0])) == {}, "what is not there has none"
    assert move(moving, cancel=True) == ErrorCode.NONE
    assert listed(moving) == listed(moving, ("t", [0])) == {}


def test_a_listing_of_very_many_topics_lets_others_have_their_turn(moving: World) -> None:
    partitions = dict.fromkeys(range(QUIET_MAX), PartitionView((1,), (1,), 1, 0, 0))
    quiet = {
        f"quiet-{number}": TopicView(f"quiet-{number}", random_id(Random(number)), partitions)
        for number in range(LOOKS_MAX)
    }
    moving.state.image.topics_by_name.update(quiet)
    request = rpc.ListPartitionReassignmentsRequest(all_partitions=True)
    first = list_partition_reassignments(moving.state, request)
    assert not first.is_last
    del moving.state.image.topics_by_name["quiet-0"]
    second = list_partition_reassignments(moving.state, request)
    assert second.is_last
    assert [topic.name for topic in second.response.topics] == ["t"]


def test_a_listing_of_very_many_partitions_of_a_topic_does_too_and_names_each_once(moving: World) -> None:
    """Two MiB may name one of them half a million times, which held the controller for seconds."""
    many = dict.fromkeys(range(LOOKS_MAX + 5), moving.partition)
    topic = moving.state.image.topics_by_name["t"]
    moving.state.image.topics_by_name["t"] = TopicView("t", topic.id, many)
    named = rpc.ListPartitionReassignmentsRequest.Topic(name="t", partitions=[*many, *many])
    request = rpc.ListPartitionReassignmentsRequest(topics=[named])
    pieces = [list_partition_reassignments(moving.state, request) for _ in range(3)]
    assert [each.is_last for each in pieces] == [False, False, True]
    [told] = pieces[-1].response.topics
    assert [each.partition_index for each in told.partitions] == list(many)


def test_another_target_takes_the_place_of_one_under_way(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    assert move(moving, 4, 2, 1) == ErrorCode.NONE
    assert lists(moving) == ((4, 2, 1), (), ()), "4 is in sync already: nothing is left to wait for"
    assert moving.partition.isr == (1, 2, 4)


def test_another_target_keeps_what_it_has_in_common_with_one_under_way(moving: World) -> None:
    assert move(moving, 2, 4, 1) == ErrorCode.NONE
    assert lists(moving) == ((2, 4, 1, 3), (4,), (3,)), "5 was not there before, and goes at once"
    in_sync(moving, 1, 2, 3, 4)
    assert lists(moving) == ((2, 4, 1), (), ())


def test_giving_up_the_second_target_leaves_nobody_of_the_first(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    assert move(moving, 2, 3, 5) == ErrorCode.NONE
    assert move(moving, cancel=True) == ErrorCode.NONE
    assert (sorted(moving.partition.replicas), moving.partition.isr) == ([1, 2, 3], (1, 2, 3))


def test_who_was_coming_and_alone_has_the_records_goes_last(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    moving.fenced(1, 2, 3)
    assert move(moving, 1, 2, 5) == ErrorCode.NONE
    assert (moving.partition.isr, moving.partition.leader, moving.partition.removing) == ((4,), 4, (3, 4))
    moving.heartbeat(1)
    moving.heartbeat(2)
    in_sync(moving, 4, 1, 2, 5)
    assert (lists(moving), moving.partition.isr) == (((1, 2, 5), (), ()), (1, 2, 5))


def test_going_back_to_where_it_was_is_giving_up(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    assert move(moving, 1, 2, 3) == ErrorCode.NONE
    assert (lists(moving), moving.partition.isr) == (((1, 2, 3), (), ()), (1, 2, 3))


def test_a_leader_that_goes_hands_over_when_the_new_replicas_are_in_sync(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    assert moving.partition.leader == 1
    assert in_sync(moving, 1, 2, 3, 4, 5) == ErrorCode.NEW_LEADER_ELECTED
    assert (moving.partition.leader, lists(moving)) == (3, ((3, 4, 5), (), ()))


def test_giving_up_takes_the_leadership_from_a_new_replica(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    moving.fenced(1, 2, 3)
    assert moving.partition.leader == 4
    moving.heartbeat(3)
    assert move(moving, cancel=True) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 4 has all the records"
    in_sync(moving, 4, 3)
    assert move(moving, cancel=True) == ErrorCode.NONE
    assert (moving.partition.leader, moving.partition.isr, sorted(moving.partition.replicas)) == (3, (3,), [1, 2, 3])


def test_giving_up_without_anybody_in_sync_needs_unclean_elections(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    moving.fenced(1, 2, 3)
    moving.heartbeat(2)
    moving.configure("unclean.leader.election.enable", "true")
    assert move(moving, cancel=True) == ErrorCode.NONE
    assert (moving.partition.leader, moving.partition.isr, moving.partition.leader_recovery_state) == (2, (2,), 1)


def test_where_anybody_may_lead_a_new_replica_comes_after_those_that_have_something(moving: World) -> None:
    in_sync(moving, 1)
    moving.fenced(1)
    moving.configure("unclean.leader.election.enable", "true")
    moving.do_chores()
    assert (moving.partition.leader, moving.partition.replicas) == (3, (3, 4, 5, 1, 2))
    in_sync(moving, 3)
    moving.fenced(3)
    assert (moving.partition.leader, moving.partition.isr) == (2, (2,)), "4 and 5 may be empty"
    moving.fenced(2)
    assert (moving.partition.leader, moving.partition.isr) == (4, (4,)), "better than nobody"


def test_a_move_that_begins_while_nobody_leads_elects_no_new_replica(world: World) -> None:
    """All of the old may be back in a moment, and the new one has nothing."""
    world.brokers(4)
    world.partition_of([1, 2]).configure("unclean.leader.election.enable", "true")
    world.fenced(1, 2)
    assert move(world, 4, 2) == ErrorCode.NONE
    assert (world.partition.leader, world.partition.adding) == (-1, (4,))
    world.heartbeat(2)
    assert (world.partition.leader, lists(world)) == (2, ((4, 2, 1), (4,), (1,)))


@pytest.mark.parametrize("level", [0, 1], ids=["without eligible leaders", "with eligible leaders"])
def test_giving_up_while_all_the_old_are_away_leaves_one_of_them_in_sync(moving: World, level: int) -> None:
    """Not the new one, which is no replica any more: it would be in nobody's place, and nobody would lead when the old come back."""
    if level:
        moving.replay([pb.MetadataRecord(feature_level=pb.FeatureLevel(name=ELR_VERSION, level=level))])
    in_sync(moving, 1, 2, 3, 4)
    moving.fenced(1, 2, 3)
    moving.configure("unclean.leader.election.enable", "true")
    assert move(moving, cancel=True) == ErrorCode.NONE
    assert (moving.partition.leader, moving.partition.isr, lists(moving)) == (-1, (3,), ((3, 1, 2), (), ()))
    moving.configure("unclean.leader.election.enable", "false")
    moving.heartbeat(3)
    assert (moving.partition.leader, moving.partition.isr) == (3, (3,))


def test_who_was_given_up_is_not_known_as_the_last_to_lead(moving: World) -> None:
    """It is no replica any more, and would keep the one in sync from being known when that comes back without having stopped in order."""
    moving.replay([pb.MetadataRecord(feature_level=pb.FeatureLevel(name=ELR_VERSION, level=1))])
    in_sync(moving, 1, 2, 3, 4)
    moving.fenced(1, 2, 3)
    moving.configure("unclean.leader.election.enable", "true")
    assert move(moving, cancel=True) == ErrorCode.NONE
    moving.configure("unclean.leader.election.enable", "false")
    assert (moving.partition.isr, moving.partition.last_known_elr) == ((3,), ())
    moving.now_ms += 60_000
    moving.register(3, incarnation=2, previous_broker_epoch=-1)
    assert (moving.partition.isr, moving.partition.last_known_elr) == ((), (3,))
    moving.heartbeat(3)
    assert (moving.partition.leader, moving.partition.isr) == (3, (3,))


def test_who_was_given_up_may_lose_the_directory_of_what_else_it_has(moving: World) -> None:
    """Its heartbeat failed with an exception, each time, and it ended."""
    assert create_partitions_on(moving, 4) == ErrorCode.NONE
    in_sync(moving, 1, 2, 3, 4)
    moving.fenced(1, 2, 3)
    moving.configure("unclean.leader.election.enable", "true")
    assert move(moving, cancel=True) == ErrorCode.NONE
    moving.heartbeat(4, offline_directories=[directory(4)])
    assert moving.state.image.brokers[4].directories == ()


def test_a_fenced_new_replica_is_waited_for(moving: World) -> None:
    moving.fenced(5)
    in_sync(moving, 1, 2, 3, 4)
    assert in_sync(moving, 1, 2, 3, 4, 5) == ErrorCode.INELIGIBLE_REPLICA
    moving.heartbeat(5)
    in_sync(moving, 1, 2, 3, 4, 5)
    assert lists(moving) == ((3, 4, 5), (), ())


def test_who_shuts_down_in_order_goes_on_moving_when_it_is_back(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    moving.heartbeat(4, down=True)
    assert moving.partition.isr == (1, 2, 3)
    assert in_sync(moving, 1, 2, 3, 4) == ErrorCode.INELIGIBLE_REPLICA
    moving.register(4, incarnation=2)
    moving.heartbeat(4)
    in_sync(moving, 1, 2, 3, 4, 5)
    assert lists(moving) == ((3, 4, 5), (), ())


def test_a_new_replica_that_is_unregistered_is_waited_for_replaced_or_given_up(moving: World) -> None:
    in_sync(moving, 1, 2, 3, 4)
    unregister(moving, 4)
    assert moving.partition.isr == (1, 2, 3)
    assert lists(moving) == ((3, 4, 5, 1, 2), (4, 5), (1, 2))
    assert move(moving, 4, 5) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "it may never come back"
    assert move(moving, 3, 5, 1) == ErrorCode.NONE
    assert lists(moving) == ((3, 5, 1, 2), (5,), (2,))
    in_sync(moving, 1, 2, 3, 5)
    assert lists(moving) == ((3, 5, 1), (), ())


def test_an_old_replica_that_is_unregistered_is_in_nobodys_way(moving: World) -> None:
    unregister(moving, 1)
    assert moving.partition.leader == 3
    in_sync(moving, 3, 4, 5)
    assert lists(moving) == ((3, 4, 5), (), ())


def test_partitions_that_are_added_meanwhile_have_as_many_replicas_as_the_move_ends_with(moving: World) -> None:
    body = rpc.CreatePartitionsRequest.Topic(name="t", count=2)
    response = moving.do(create_partitions(moving.state, rpc.CreatePartitionsRequest(topics=[body])))
    assert response.topics[0].error_code == ErrorCode.NONE
    assert len(moving.state.image.topics_by_id[TOPIC_ID].partitions[1].replicas) == 3


def test_a_topic_is_deleted_with_its_moves(moving: World) -> None:
    named = rpc.DeleteTopicsRequest.Topic(name="t")
    moving.do(delete_topics(moving.state, rpc.DeleteTopicsRequest(topics=[named])))
    response = moving.do(
        alter_partition_reassignments(
            moving.state,
            rpc.AlterPartitionReassignmentsRequest(
                topics=[
                    rpc.AlterPartitionReassignmentsRequest.Topic(
                        name="t", partitions=[rpc.AlterPartitionReassignmentsRequest.Partition(cancel=True)]
                    )
                ]
            ),
        )
    )
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_preferred_election_meanwhile_completes_nothing_too_early(moving: World) -> None:
    topic = rpc.ElectLeadersRequest.Topic(name="t", partitions=[0])
    response = moving.do(elect_leaders(moving.state, rpc.ElectLeadersRequest(topics=[topic])))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (moving.partition.leader, moving.partition.adding) == (3, (4, 5))

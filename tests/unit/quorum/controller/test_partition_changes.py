"""Elections, ISR changes and reassignments (kraft.md 2.5 to 2.7)."""

from typing import Any

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.alter_partition import alter_partition
from ottla.quorum.controller.decisions.elections import elect_leaders, rebalance_leaders
from ottla.quorum.controller.decisions.partition_change import Election, PartitionChangeBuilder
from ottla.quorum.controller.decisions.reassignments import alter_partition_reassignments
from ottla.quorum.metadata.image import changed_partition
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import TOPIC_ID, World, directory

ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


@pytest.mark.parametrize(
    ("election", "leader", "isr", "live", "elected", "isr_after"),
    [
        (ONLINE, 2, (1, 2, 3), (1, 2, 3), 2, (1, 2, 3)),  # who leads goes on
        (ONLINE, 2, (1, 2, 3), (1, 3), 1, (1, 2, 3)),  # else the first in the order of assignment
        (ONLINE, 2, (3, 2), (1, 3), 3, (3, 2)),  # that is in sync
        (ONLINE, 2, (2,), (1, 3), -1, (2,)),  # nobody: the ISR keeps its last member
        (ONLINE, -1, (2,), (1, 2, 3), 2, (2,)),
        (PREFERRED, 2, (1, 2, 3), (1, 2, 3), 1, (1, 2, 3)),
        (PREFERRED, 2, (2, 3), (1, 2, 3), 2, (2, 3)),  # the first is not in sync
        (PREFERRED, 2, (1, 2, 3), (3,), 3, (1, 2, 3)),
        (UNCLEAN, 2, (1, 2, 3), (1, 3), 1, (1, 2, 3)),  # a clean one if there is one
        (UNCLEAN, 2, (2,), (3, 1), 1, (1,)),
        (UNCLEAN, 2, (2,), (), -1, (2,)),
    ],
)
def test_elections(
    election: Election,
    leader: int,
    isr: tuple[int, ...],
    live: tuple[int, ...],
    elected: int,
    isr_after: tuple[int, ...],
) -> None:
    before = PartitionView((1, 2, 3), isr, leader, leader_epoch=5, partition_epoch=10)
    record = PartitionChangeBuilder((TOPIC_ID, 0), before, live.__contains__, lambda _: bytes(16), election).build()
    after = changed_partition(before, record.partition_change) if record is not None else before
    assert (after.leader, after.isr) == (elected, isr_after)
    assert after.leader_epoch - before.leader_epoch == (elected != leader)
    assert after.leader_recovery_state == (election is UNCLEAN and elected not in (*isr, -1))
    assert (record is None) == (elected == leader and isr_after == isr)


# --- AlterPartition ---------------------------------------------------------------------------------------------------


def asked(*isr: int, **more: Any) -> rpc.AlterPartitionRequest.Partition:
    fields: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 10, "partition_index": 0}
    members = [rpc.AlterPartitionRequest.Member(broker_id=each, broker_epoch=-1) for each in isr]
    return rpc.AlterPartitionRequest.Partition(new_isr=members, **{**fields, **more})


def alter(
    world: World, partition: rpc.AlterPartitionRequest.Partition, sender: int = 1, topic_id: bytes = TOPIC_ID
) -> rpc.AlterPartitionResponse.Partition:
    topic = rpc.AlterPartitionRequest.Topic(topic_id=topic_id, partitions=[partition])
    request = rpc.AlterPartitionRequest(broker_id=sender, broker_epoch=world.epoch(sender), topics=[topic])
    return world.do(alter_partition(world.state, request)).topics[0].partitions[0]


def test_who_is_taken_out_for_good_is_not_taken_in_between_two_pieces(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1, 2])
    world.state.going.add(3)
    assert alter(world, asked(1, 2, 3)).error_code == ErrorCode.INELIGIBLE_REPLICA
    world.state.going.clear()
    assert alter(world, asked(1, 2, 3)).error_code == 0


def test_an_isr_change_answers_with_the_new_state(world: World) -> None:
    world.partition_of([1, 2, 3])
    result = alter(world, asked(1, 2))
    assert (result.error_code, list(result.isr), result.leader_epoch, result.partition_epoch) == (0, [1, 2], 5, 11)
    assert world.standing == (1, (1, 2), 5, 11), "the leader epoch stays: nobody has to start anew"
    result = alter(world, asked(1, 2, 3, partition_epoch=11))
    assert (result.error_code, world.partition.isr) == (0, (1, 2, 3))


# Each case would also fail at every later check that it can: the order is what is tested.
@pytest.mark.parametrize(
    ("partition", "sender", "topic_id", "code"),
    [
        (asked(), 2, bytes(16), ErrorCode.UNKNOWN_TOPIC_ID),
        (asked(partition_index=9), 2, TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked(leader_epoch=6), 2, TOPIC_ID, ErrorCode.NOT_CONTROLLER),
        (asked(leader_epoch=4, partition_epoch=11), 2, TOPIC_ID, ErrorCode.NOT_CONTROLLER),
        (asked(leader_epoch=4), 2, TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH),
        (asked(partition_epoch=9), 2, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(partition_epoch=9), 1, TOPIC_ID, ErrorCode.INVALID_UPDATE_VERSION),
        (asked(), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(1, 1), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(1, 9), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(2, 3), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(1, 2, leader_recovery_state=1), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(1, leader_recovery_state=1), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
        (asked(1, leader_recovery_state=7), 1, TOPIC_ID, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_alter_partition_refuses_first(
    world: World, partition: rpc.AlterPartitionRequest.Partition, sender: int, topic_id: bytes, code: ErrorCode
) -> None:
    world.partition_of([1, 2, 3])
    before = world.partition
    assert alter(world, partition, sender, topic_id).error_code == code
    assert world.partition is before


def test_alter_partition_of_a_stale_broker_is_refused_whole(world: World) -> None:
    request = rpc.AlterPartitionRequest(broker_id=1, broker_epoch=world.epoch(1) - 1)
    with pytest.raises(KafkaError) as caught:
        alter_partition(world.state, request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_members_must_be_in_service_and_of_the_epoch_that_the_leader_knows(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1])
    world.fenced(2)
    assert alter(world, asked(1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA
    old = asked(1, 3)
    old.new_isr[1].broker_epoch = world.epoch(3) - 1
    assert alter(world, old).error_code == ErrorCode.INELIGIBLE_REPLICA
    old.new_isr[1].broker_epoch = world.epoch(3)
    assert alter(world, old).error_code == ErrorCode.NONE
    world.heartbeat(3, down=True)
    now = world.partition
    again = asked(1, 3, partition_epoch=now.partition_epoch, leader_epoch=now.leader_epoch)
    assert alter(world, again).error_code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NONE)


def test_a_recovered_leader_says_so_and_a_recovering_one_is_alone(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1], leader_recovery_state=1)
    assert alter(world, asked(1, 2, leader_recovery_state=1)).error_code == ErrorCode.INVALID_REQUEST
    assert alter(world, asked(1, leader_recovery_state=0)).leader_recovery_state == 0
    assert world.partition.leader_recovery_state == 0


def test_the_same_isr_again_changes_nothing(world: World) -> None:
    world.partition_of([1, 2, 3])
    result = alter(world, asked(1, 2, 3))
    assert (result.error_code, result.partition_epoch) == (0, 10)
    assert world.standing == (1, (1, 2, 3), 5, 10)


# --- ElectLeaders -----------------------------------------------------------------------------------------------------


def elect(world: World, election_type: int = 0, partition: int = 0, name: str = "t") -> int:
    topic = rpc.ElectLeadersRequest.Topic(name=name, partitions=[partition])
    request = rpc.ElectLeadersRequest(election_type=election_type, topics=[topic])
    code: int = world.do(elect_leaders(world.state, request)).topics[0].partitions[0].error_code
    return code


def test_a_preferred_election_brings_the_first_replica_back(world: World) -> None:
    world.partition_of([1, 2, 3], leader=2)
    assert elect(world) == ErrorCode.NONE
    assert world.standing == (1, (1, 2, 3), 6, 11)
    assert elect(world) == ErrorCode.ELECTION_NOT_NEEDED


def test_a_preferred_election_needs_the_first_replica_in_sync(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[2, 3], leader=2)
    assert elect(world) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(world, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(world, name="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unclean_election_on_request(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1])
    assert elect(world, 1) == ErrorCode.ELECTION_NOT_NEEDED
    world.fenced(1)
    assert elect(world, 1) == ErrorCode.NONE
    assert world.standing[:2] == (2, (2,))


def test_an_unclean_election_needs_somebody(world: World) -> None:
    world.partition_of([1, 2], isr=[1])
    world.fenced(1, 2)
    assert elect(world, 1) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_electing_everywhere_leaves_out_what_needs_nothing(world: World) -> None:
    world.partition_of([1, 2, 3])
    response = world.do(elect_leaders(world.state, rpc.ElectLeadersRequest(all_partitions=True)))
    assert not response.topics
    with pytest.raises(KafkaError):
        elect_leaders(world.state, rpc.ElectLeadersRequest(election_type=2))


def test_rebalancing_follows_the_index_of_partitions_led_by_others(world: World) -> None:
    world.partition_of([1, 2, 3])
    assert rebalance_leaders(world.state).records == []
    world.fenced(1)
    assert rebalance_leaders(world.state).records == [], "the first replica is not in sync"
    world.heartbeat(1)
    now = world.partition
    alter(world, asked(2, 3, 1, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch), sender=2)
    world.replay(rebalance_leaders(world.state).records)
    assert world.partition.leader == 1
    assert list(world.state.replicas.unpreferred()) == []


# --- reassignment -----------------------------------------------------------------------------------------------------


def move(world: World, *replicas: int, cancel: bool = False, factor: bool = True, partition: int = 0) -> int:
    body = rpc.AlterPartitionReassignmentsRequest.Partition(partition_index=partition, replicas=replicas, cancel=cancel)
    topic = rpc.AlterPartitionReassignmentsRequest.Topic(name="t", partitions=[body])
    request = rpc.AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=factor)
    response = world.do(alter_partition_reassignments(world.state, request))
    code: int = response.topics[0].partitions[0].error_code
    return code


def test_a_reassignment_runs_until_the_new_replicas_are_in_sync(world: World) -> None:
    world.brokers(4)
    world.partition_of([1, 2, 3])
    assert move(world, 2, 3, 4) == ErrorCode.NONE
    now = world.partition
    assert (now.replicas, now.adding, now.removing) == ((2, 3, 4, 1), (4,), (1,))
    assert now.directories == tuple(directory(each) for each in (2, 3, 4, 1))
    assert world.standing == (1, (1, 2, 3), 5, 11)
    result = alter(world, asked(1, 2, 3, 4, partition_epoch=11))
    now = world.partition
    assert result.error_code == ErrorCode.NEW_LEADER_ELECTED, "the sender is not even a replica any more"
    assert (now.replicas, now.adding, now.removing, now.isr) == ((2, 3, 4), (), (), (2, 3, 4))
    assert (now.leader, now.leader_epoch) == (2, 6)


def test_removing_a_follower_raises_the_leader_epoch(world: World) -> None:
    world.partition_of([1, 2, 3])
    assert move(world, 1, 2) == ErrorCode.NONE
    assert world.standing == (1, (1, 2), 6, 11)
    assert world.partition.replicas == (1, 2)


def test_shrinking_waits_until_all_who_stay_are_in_sync(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1, 3])
    move(world, 1, 2)
    assert world.partition.removing == (3,)
    alter(world, asked(1, 2, 3, partition_epoch=11))
    assert (world.partition.replicas, world.partition.isr) == ((1, 2), (1, 2))


def test_a_new_order_takes_effect_at_once(world: World) -> None:
    world.partition_of([1, 2, 3])
    assert move(world, 3, 2, 1) == ErrorCode.NONE
    assert (world.partition.replicas, world.partition.leader) == ((3, 2, 1), 1)


def test_a_partition_that_is_named_twice_is_moved_once(world: World) -> None:
    """The second would be decided on what was before the first, and the two together are no state."""
    world.brokers(4)
    world.partition_of([1, 2, 3])
    both = [rpc.AlterPartitionReassignmentsRequest.Partition(replicas=each) for each in ((2, 3, 4), (3, 2, 1))]
    topic = rpc.AlterPartitionReassignmentsRequest.Topic(name="t", partitions=both)
    request = rpc.AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=True)
    response = world.do(alter_partition_reassignments(world.state, request))
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert (world.partition.replicas, world.partition.adding) == ((2, 3, 4, 1), (4,))


def test_a_reassignment_can_be_given_up(world: World) -> None:
    world.brokers(4)
    world.partition_of([1, 2, 3])
    assert move(world, cancel=True) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    move(world, 2, 3, 4)
    assert move(world, cancel=True) == ErrorCode.NONE
    assert (sorted(world.partition.replicas), world.partition.adding, world.partition.removing) == ([1, 2, 3], (), ())
    assert world.partition.isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("replicas", "factor", "code"),
    [
        ((1, 2, 9), True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1, 2), True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2), False, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_reassignments_that_cannot_be(world: World, replicas: tuple[int, ...], factor: bool, code: ErrorCode) -> None:
    world.partition_of([1, 2, 3])
    assert move(world, *replicas, factor=factor) == code
    assert move(world, 1, 2, 3, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

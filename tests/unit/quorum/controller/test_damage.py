"""A damaged replica leaves the ISR in an epoch that begins with it."""

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.damage import report_damage
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import TOPIC_ID, World


def report(
    world: World,
    sender: int,
    leader_epoch: int = 5,
    index: int = 0,
    topic_id: bytes = TOPIC_ID,
    *,
    is_full: bool = False,
) -> int:
    told = rpc.ReportDamageRequest.Partition(partition_index=index, leader_epoch=leader_epoch, is_full=is_full)
    topic = rpc.ReportDamageRequest.Topic(topic_id=topic_id, partitions=[told])
    request = rpc.ReportDamageRequest(broker_id=sender, broker_epoch=world.epoch(sender), topics=[topic])
    return world.do(report_damage(world.state, request)).topics[0].partitions[0].error_code


def test_a_damaged_follower_leaves_the_isr_and_an_epoch_begins(world: World) -> None:
    world.partition_of([1, 2, 3])
    assert report(world, 2) == ErrorCode.NONE
    assert world.standing == (1, (1, 3), 6, 11), "fetches that it sent before must count for nothing"


def test_a_damaged_leader_hands_over_to_one_that_is_in_sync(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1, 3])
    assert report(world, 1) == ErrorCode.NONE
    assert world.standing == (3, (3,), 6, 11)


def test_who_has_no_room_leaves_as_well_but_for_the_last_in_sync(world: World) -> None:
    world.partition_of([1, 2, 3])
    stories = []
    for sender, epoch in [(1, 5), (3, 6), (2, 7)]:
        stories.append((report(world, sender, epoch, is_full=True), *world.standing[:2]))
    assert stories == [(0, 2, (2, 3)), (0, 2, (2,)), (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, 2, (2,))]


def test_a_damaged_replica_out_of_the_isr_gets_its_epoch_as_well(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1, 3])
    assert report(world, 2) == ErrorCode.NONE
    assert world.standing == (1, (1, 3), 6, 11), "the leader may be taking it in because of a fetch of the old epoch"


def test_the_only_replica_in_sync_stays_whatever_it_has_lost(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[1]).configure("unclean.leader.election.enable", "true")
    before = world.partition
    assert report(world, 1) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert world.partition is before, "the others lack records that were acknowledged"


def test_a_leader_does_not_hand_over_to_a_member_that_cannot_lead(world: World) -> None:
    world.fenced(2).partition_of([1, 2, 3], isr=[1, 2])
    assert report(world, 1) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_without_a_leader_there_is_nothing_to_heal_from(world: World) -> None:
    world.partition_of([1, 2, 3], isr=[3], leader=-1)
    world.fenced(3)
    before = world.partition
    assert report(world, 1) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert world.partition is before


@pytest.mark.parametrize(
    ("sender", "epoch", "index", "topic_id", "code"),
    [
        (2, 5, 0, bytes(16), ErrorCode.UNKNOWN_TOPIC_ID),
        (2, 5, 7, TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, 4, 0, TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 6, 0, TOPIC_ID, ErrorCode.NOT_CONTROLLER),
        (3, 5, 0, TOPIC_ID, ErrorCode.INVALID_REQUEST),
    ],
)
def test_reports_that_are_refused(
    world: World, sender: int, epoch: int, index: int, topic_id: bytes, code: ErrorCode
) -> None:
    world.partition_of([1, 2])
    before = world.partition
    assert report(world, sender, epoch, index, topic_id) == code
    assert world.partition is before


def test_a_report_of_an_earlier_life_is_refused(world: World) -> None:
    request = rpc.ReportDamageRequest(broker_id=1, broker_epoch=world.epoch(1) - 1)
    with pytest.raises(KafkaError) as caught:
        report_damage(world.state, request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

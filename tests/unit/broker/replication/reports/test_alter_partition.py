"""ISR changes on their way to the controller: batched, one request at a time, until they are answered."""

from typing import Any

import pytest

from ottla.broker.replication.decisions.isr import Proposal
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.reports.alter_partition import PARTITIONS_PER_REQUEST_MAX, AlterPartitionQueue
from ottla.proto import controller_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.fake_controller import FakeController

TOPIC_ID = b"T" * 16
BROKERS = {1: BrokerStanding(10, False, False), 2: BrokerStanding(20, False, False)}


class FakePartition:
    """As much of a partition as the queue looks at."""

    topic_id = TOPIC_ID

    def __init__(self, index: int) -> None:
        self.index = index
        self.changes = 0
        self.leader: PartitionLeader | None = PartitionLeader(1, BROKERS, 30_000)
        self.leader.lead(
            epoch=5,
            partition_epoch=8,
            isr=(1,),
            replicas=(1, 2),
            min_insync_replicas=1,
            log_end_offset=0,
            stable_end_offset=0,
            high_watermark=0,
            now_ms=0,
        )
        self.leader.fetched(2, 20, 0, None, 0)

    def propose(self) -> Proposal:
        assert self.leader is not None
        proposal = self.leader.propose_expand(2)
        assert proposal is not None
        return proposal

    def isr_changed(self, now_ms: int) -> None:
        self.changes += 1

    def advance(self, leader: PartitionLeader, now_ms: int) -> None:
        leader.advance(now_ms)


class World:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.controller = FakeController()
        self.queue = AlterPartitionQueue(self.controller, 1, lambda: 10, self.timers)

    @property
    def asked(self) -> list[pb.AlterPartitionRequest]:
        return [each.request.alter_partition for each in self.controller.asked]

    def submit(self, index: int = 0) -> FakePartition:
        fake = FakePartition(index)
        partition: Any = fake
        real: Partition = partition
        self.queue.submit(real, fake.propose())
        return fake

    def answer(self, error: int = 0, *, top_level: int = 0) -> None:
        request = self.asked[0]
        response = pb.ControllerResponse(error_code=top_level)
        for topic in request.topics:
            told = response.alter_partition.topics.add(topic_id=topic.topic_id)
            for asked in topic.partitions:
                told.partitions.add(
                    partition_index=asked.partition_index,
                    error_code=error,
                    leader_id=1,
                    leader_epoch=asked.leader_epoch,
                    partition_epoch=asked.partition_epoch + 1,
                    isr=[member.broker_id for member in asked.new_isr],
                )
        self.controller.answer(response)


@pytest.fixture
def world() -> World:
    return World()


def members(request: pb.AlterPartitionRequest) -> list[tuple[int, list[tuple[int, int]]]]:
    return [
        (each.partition_index, [(member.broker_id, member.broker_epoch) for member in each.new_isr])
        for topic in request.topics
        for each in topic.partitions
    ]


def test_proposals_that_come_together_leave_together(world: World) -> None:
    world.submit(0)
    world.submit(1)
    assert not world.asked
    world.timers.advance(1)
    assert [members(request) for request in world.asked] == [[(0, [(1, 10), (2, 20)]), (1, [(1, 10), (2, 20)])]]
    assert world.asked[0].broker_epoch == 10


def test_one_request_is_in_flight_at_a_time(world: World) -> None:
    world.submit(0)
    world.timers.advance(1)
    world.submit(1)
    world.timers.advance(1_000)
    assert len(world.asked) == 1
    world.answer()
    world.timers.advance(1)
    assert [members(request)[0][0] for request in world.asked] == [1]


def test_very_many_proposals_leave_one_request_after_the_other(world: World) -> None:
    many = PARTITIONS_PER_REQUEST_MAX + 5
    partitions = [world.submit(index) for index in range(many)]
    for outdated in partitions[:3]:
        outdated.leader = None
    for expected in (PARTITIONS_PER_REQUEST_MAX - 3, 5):
        world.timers.advance(1)
        assert [len(members(request)) for request in world.asked] == [expected]
        world.answer()
    assert sum(each.changes for each in partitions) == many - 3
    world.timers.advance(1_000)
    assert not world.asked


def test_what_is_behind_very_many_outdated_proposals_is_sent(world: World) -> None:
    outdated = [world.submit(index) for index in range(PARTITIONS_PER_REQUEST_MAX)]
    world.submit(PARTITIONS_PER_REQUEST_MAX)
    for each in outdated:
        each.leader = None
    world.timers.advance(1)
    assert [members(request)[0][0] for request in world.asked] == [PARTITIONS_PER_REQUEST_MAX]


def test_a_granted_isr_is_told_to_the_partition(world: World) -> None:
    partition = world.submit()
    world.timers.advance(1)
    world.answer()
    assert partition.changes == 1
    assert partition.leader is not None
    assert partition.leader.committed_isr == (1, 2)


def test_what_a_refused_replica_held_back_is_committed_at_once(world: World) -> None:
    partition = world.submit()
    assert partition.leader is not None
    partition.leader.appended(5, 0)
    world.timers.advance(1)
    assert partition.leader.high_watermark == 0
    world.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert partition.leader.high_watermark == 5


@pytest.mark.parametrize("top_level", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_refused_request_is_sent_again(world: World, top_level: ErrorCode) -> None:
    world.submit()
    world.timers.advance(1)
    world.answer(top_level=top_level)
    world.timers.advance(49)
    assert not world.asked
    world.timers.advance(1)
    assert len(world.asked) == 1


def test_a_request_without_answer_is_sent_again(world: World) -> None:
    world.submit()
    world.timers.advance(1)
    world.controller.answer(None)
    world.timers.advance(50)
    assert len(world.asked) == 1


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, 9999])
def test_a_partition_with_a_passing_or_unknown_error_is_sent_again(world: World, error: int) -> None:
    world.submit()
    world.submit(1)
    world.timers.advance(1)
    world.answer(error)
    world.timers.advance(50)
    assert [len(members(request)) for request in world.asked] == [2]


def test_a_partition_that_must_wait_for_metadata_is_not_sent_again(world: World) -> None:
    partition = world.submit()
    world.timers.advance(1)
    world.answer(ErrorCode.INVALID_UPDATE_VERSION)
    world.timers.advance(1_000)
    assert not world.asked
    assert partition.changes == 0


def test_a_proposal_that_metadata_overtook_is_not_sent(world: World) -> None:
    partition = world.submit()
    partition.leader = None
    world.timers.advance(1)
    assert not world.asked


def test_nothing_is_sent_after_the_end(world: World) -> None:
    world.submit()
    world.queue.close()
    world.timers.advance(1_000)
    assert not world.asked

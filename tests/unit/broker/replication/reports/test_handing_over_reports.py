"""Replicas without room on their way to the controller: all of a moment in one report, each seldom."""

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.replication.decisions.handing_over import PAUSE_MS
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.reports.handing_over import GATHER_MS, PARTITIONS_PER_REQUEST_MAX, HandingOver
from ottla.proto import controller_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.fake_controller import FakeController

TOPIC_ID = b"T" * 16


class FakePartition:
    """As much of a partition as is looked at."""

    topic_id = TOPIC_ID
    leader_epoch = 5

    def __init__(self, index: int, *, leads: bool = True, is_in_isr: bool = True, is_full: bool = True) -> None:
        self.index = index
        self.usable = True
        self.leader = object() if leads else None
        self.is_in_isr = is_in_isr
        self.log = SimpleNamespace(root=SimpleNamespace(full=is_full))


class World:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.controller = FakeController()
        self.handing_over = HandingOver(self.controller, 1, lambda: 10, self.timers)

    def failed(self, *partitions: FakePartition) -> list[int]:
        """The indexes that are reported then."""
        before = len(self.controller.requests)
        for partition in partitions:
            self.handing_over.failed(cast(Partition, partition))
        self.timers.advance(GATHER_MS)
        asked = self.controller.requests[before:]
        told = [each for request in asked for topic in request.report_damage.topics for each in topic.partitions]
        assert all(each.is_full and each.leader_epoch == 5 for each in told)
        return [each.partition_index for each in told]

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        response = pb.ControllerResponse()
        topic = response.report_damage.topics.add(topic_id=TOPIC_ID)
        topic.partitions.add(partition_index=1, error_code=error)
        self.controller.answer(response)


@pytest.fixture
def world() -> World:
    return World()


def test_all_that_has_no_room_is_told_in_one_report(world: World) -> None:
    led = FakePartition(1)
    assert world.failed(led, FakePartition(2, leads=False), led) == [1, 2]
    assert len(world.controller.requests) == 1


def test_who_keeps_nobody_from_anything_is_not_told_of(world: World) -> None:
    assert world.failed(FakePartition(1, leads=False, is_in_isr=False), FakePartition(2, is_full=False)) == []


def test_a_partition_is_told_of_again_after_a_pause(world: World) -> None:
    partition = FakePartition(1)
    assert world.failed(partition, partition) == [1]
    world.answer(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    assert world.failed(partition) == []
    world.timers.advance(PAUSE_MS)
    assert world.failed(partition) == [1]


def test_who_led_and_follows_now_is_told_of_at_once(world: World) -> None:
    """It came back into the ISR with all there was, and cannot take what comes."""
    partition = FakePartition(1)
    assert world.failed(partition) == [1]
    world.answer()
    partition.leader = None
    assert world.failed(partition) == [1]


def test_what_has_room_by_then_is_not_told_of(world: World) -> None:
    partition = FakePartition(1)
    world.handing_over.failed(cast(Partition, partition))
    partition.log.root.full = False
    assert world.failed() == []


def test_what_fails_while_a_report_is_on_its_way_comes_in_the_next(world: World) -> None:
    assert world.failed(FakePartition(1)) == [1]
    assert world.failed(FakePartition(2)) == []
    before = len(world.controller.requests)
    world.answer()
    world.timers.advance(GATHER_MS)
    [report] = world.controller.requests[before:]
    assert [each.partition_index for each in report.report_damage.topics[0].partitions] == [2]


def test_very_many_are_told_of_a_thousand_at_a_time(world: World) -> None:
    partitions = [FakePartition(index) for index in range(PARTITIONS_PER_REQUEST_MAX + 5)]
    assert len(world.failed(*partitions)) == PARTITIONS_PER_REQUEST_MAX
    world.answer()
    world.timers.advance(GATHER_MS)
    rest = world.controller.requests[-1].report_damage.topics[0].partitions
    assert [each.partition_index for each in rest] == list(
        range(PARTITIONS_PER_REQUEST_MAX, PARTITIONS_PER_REQUEST_MAX + 5)
    )


def test_an_answer_that_never_came_is_not_waited_for(world: World) -> None:
    partition = FakePartition(1)
    assert world.failed(partition) == [1]
    world.controller.answer(None)
    world.timers.advance(PAUSE_MS)
    assert world.failed(partition) == [1]

"""Damage on its way to the controller: all of it in one report, again until it is healed, told to people once."""

from typing import Any, cast

import pytest

from ottla.broker.replication.decisions.healing import REPORT_AGAIN_MAX_MS, REPORT_AGAIN_MS
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.reports.healing import Healing
from ottla.log.errors import DamagedLogError
from ottla.proto import controller_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.fake_controller import FakeController

TOPIC_ID = b"T" * 16


class FakePartition:
    """As much of a partition as is looked at."""

    topic_id = TOPIC_ID
    leader_epoch = 5

    def __init__(self, index: int) -> None:
        self.index = index
        self.usable = True
        self.damaged_from = -1

    def __str__(self) -> str:
        return f"flights-{self.index}"

    @property
    def is_damaged(self) -> bool:
        return self.damaged_from >= 0

    def damaged(self, offset: int) -> bool:
        new = not self.is_damaged or offset < self.damaged_from
        self.damaged_from = offset if new else self.damaged_from
        return new


class World:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.controller = FakeController()
        self.healing = Healing(self.controller, 1, lambda: 10, self.timers)

    @property
    def reports(self) -> list[pb.ReportDamageRequest]:
        return [request.report_damage for request in self.controller.requests]

    def answer(self, response: pb.ControllerResponse | None) -> None:
        self.controller.answer(response)

    def found(self, partition: FakePartition, offset: int = 7) -> None:
        self.healing.found(cast(Partition, partition), DamagedLogError("0.log", 700, offset, "a bit"))

    def refuse(self, *indexes: int) -> None:
        response = pb.ControllerResponse()
        topic = response.report_damage.topics.add(topic_id=TOPIC_ID)
        for index in indexes:
            topic.partitions.add(partition_index=index, error_code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        self.answer(response)

    def reported(self) -> list[list[int]]:
        return [
            [each.partition_index for topic in report.topics for each in topic.partitions] for report in self.reports
        ]


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_found_together_is_reported_together(world: World) -> None:
    world.found(FakePartition(0))
    world.found(FakePartition(1))
    world.timers.advance(1)
    assert world.reported() == [[0, 1]]
    report = world.reports[0]
    assert (report.broker_id, report.broker_epoch, report.topics[0].partitions[0].leader_epoch) == (1, 10, 5)


def test_damage_that_is_met_again_is_no_news(world: World, caplog: pytest.LogCaptureFixture) -> None:
    partition = FakePartition(0)
    for _ in range(5):
        world.found(partition)
    assert len(caplog.records) == 1
    world.found(partition, 3)
    assert len(caplog.records) == 2, "what lies lower is"


@pytest.mark.parametrize("answer", [None, pb.ControllerResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)])
def test_a_report_that_is_lost_is_made_again(world: World, answer: Any) -> None:
    world.found(FakePartition(0))
    world.timers.advance(1)
    world.answer(answer)
    world.timers.advance(REPORT_AGAIN_MS)
    assert world.reported() == [[0], [0]]


def test_one_report_is_in_flight_at_a_time(world: World) -> None:
    world.found(FakePartition(0))
    world.timers.advance(1)
    world.found(FakePartition(1))
    world.timers.advance(REPORT_AGAIN_MAX_MS)
    assert world.reported() == [[0]]
    world.answer(None)
    world.timers.advance(REPORT_AGAIN_MS)
    assert world.reported() == [[0], [0, 1]]


def test_a_refusal_is_told_once_and_asked_again_ever_more_rarely(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.found(FakePartition(0))
    world.timers.advance(1)
    for _ in range(8):
        world.refuse(0)
        world.timers.advance(REPORT_AGAIN_MAX_MS)
    assert len(world.reports) == 9
    assert [record.message for record in caplog.records if "cannot be healed" in record.message] == [
        "flights-0 cannot be healed: no other replica is in sync. What is damaged is refused, the rest is served"
    ]


def test_what_is_healed_or_gone_is_reported_no_more(world: World) -> None:
    healed, gone, damaged = FakePartition(0), FakePartition(1), FakePartition(2)
    for partition in (healed, gone, damaged):
        world.found(partition)
    world.timers.advance(1)
    healed.damaged_from = -1
    gone.usable = False
    world.answer(None)
    world.timers.advance(REPORT_AGAIN_MS)
    assert world.reported() == [[0, 1, 2], [2]]
    damaged.damaged_from = -1
    world.answer(None)
    world.timers.advance(REPORT_AGAIN_MAX_MS)
    assert len(world.reports) == 2


def test_nothing_is_reported_after_the_end(world: World) -> None:
    world.found(FakePartition(0))
    world.healing.close()
    world.timers.advance(REPORT_AGAIN_MAX_MS)
    assert world.reports == []

"""What waits to be told to the controller: one request at a time, when it was planned, and none after the end."""

from ottla.broker.controller_errand import ControllerErrand
from ottla.proto import controller_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.fake_controller import FakeController


class World(ControllerErrand):
    """One errand, and the controller that it goes to."""

    kind = "report_damage"

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.controller = FakeController()
        super().__init__(self.controller, 1, lambda: 77, self.timers)
        self.told: list[pb.ReportDamageResponse | None] = []
        self.has_news = True

    def _fill(self, body: pb.ReportDamageRequest) -> bool:
        assert (body.broker_id, body.broker_epoch) == (1, 77)
        return self.has_news

    def _answered(self, told: pb.ReportDamageResponse | None) -> None:
        self.told.append(told)


def test_what_is_planned_is_not_put_off_by_what_comes_later() -> None:
    world = World()
    world._plan(5)
    world.timers.advance(3)
    world._plan(5)
    world.timers.advance(2)
    assert len(world.controller.asked) == 1
    assert world.controller.request.origin == "broker 1"


def test_what_is_planned_anew_replaces_the_plan() -> None:
    world = World()
    world._plan(500)
    world._plan_anew(1)
    world.timers.advance(1)
    assert len(world.controller.asked) == 1
    world.controller.answer(None)
    world.timers.advance(1000)
    assert not world.controller.asked


def test_nothing_is_sent_before_the_last_request_is_answered() -> None:
    world = World()
    world._plan(1)
    world.timers.advance(1)
    for plan in (world._plan, world._plan_anew):
        plan(1)
    world.timers.advance(1000)
    assert len(world.controller.asked) == 1
    world.controller.answer(pb.ControllerResponse(report_damage=pb.ReportDamageResponse()))
    assert world.told == [pb.ReportDamageResponse()]
    world._plan(1)
    world.timers.advance(1)
    assert len(world.controller.asked) == 1


def test_a_refusal_counts_as_no_answer() -> None:
    world = World()
    world._plan(1)
    world.timers.advance(1)
    world.controller.answer(pb.ControllerResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert world.told == [None]


def test_nothing_to_tell_is_not_sent_and_does_not_stand_in_the_way() -> None:
    world = World()
    world.has_news = False
    world._plan(1)
    world.timers.advance(1)
    assert not world.controller.asked
    world.has_news = True
    world._plan(1)
    world.timers.advance(1)
    assert len(world.controller.asked) == 1


def test_a_closed_errand_sends_nothing_more() -> None:
    world = World()
    world._plan(1)
    world.close()
    world._plan(1)
    world.timers.advance(1000)
    assert not world.controller.asked

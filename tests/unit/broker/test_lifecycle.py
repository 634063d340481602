"""A broker's way from registration to the end, one rule at a time."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.lifecycle import BrokerLifecycle, LifecycleSettings
from ottla.broker.lifecycle_state import LifecycleState, Phase
from ottla.proto import controller_pb2 as pb
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.fake_controller import FakeController


def running() -> LifecycleState:
    state = LifecycleState(2_000)
    state.registered(7)
    state.caught_up()
    state.ready()
    state.heard(fenced=False, should_shut_down=False)
    return state


def phase_of(state: LifecycleState) -> Phase:
    return state.phase  # a call, so that mypy does not take the phase for settled after the first check


def test_a_broker_wants_to_stay_fenced_until_it_can_serve() -> None:
    state = LifecycleState(2_000)
    state.registered(7)
    state.caught_up()
    assert phase_of(state) == Phase.STARTING
    assert state.want_fence
    state.ready()
    assert phase_of(state) == Phase.READY
    assert not state.want_fence


def test_a_broker_runs_once_it_is_unfenced() -> None:
    assert running().phase is Phase.RUNNING


def test_an_answer_that_it_is_still_fenced_changes_nothing() -> None:
    state = LifecycleState(2_000)
    state.registered(7)
    state.caught_up()
    state.ready()
    state.heard(fenced=True, should_shut_down=False)
    assert phase_of(state) == Phase.READY


def test_a_broker_that_was_fenced_asks_to_come_back() -> None:
    state = running()
    state.heard(fenced=True, should_shut_down=False)
    assert phase_of(state) == Phase.READY


def test_a_broker_leaves_when_the_controller_lets_it() -> None:
    state = running()
    state.leave()
    assert state.want_shut_down
    state.heard(fenced=False, should_shut_down=False)
    assert phase_of(state) == Phase.LEAVING
    state.heard(fenced=True, should_shut_down=True)
    assert phase_of(state) == Phase.GONE


def test_a_broker_that_serves_nobody_leaves_at_once() -> None:
    state = LifecycleState(2_000)
    state.leave()
    assert phase_of(state) == Phase.GONE


def test_a_stale_epoch_makes_it_register_again() -> None:
    state = running()
    state.refused(ErrorCode.STALE_BROKER_EPOCH)
    assert phase_of(state) == Phase.REGISTERING
    state.registered(9)
    state.caught_up()
    assert phase_of(state) == Phase.READY


def test_another_error_of_a_heartbeat_is_only_waited_out() -> None:
    state = running()
    state.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert phase_of(state) == Phase.RUNNING


def test_registration_is_tried_ever_later() -> None:
    state = LifecycleState(2_000)
    assert [state.registration_failed() for _ in range(6)] == [100, 200, 400, 800, 1_600, 2_000]


def test_a_lost_heartbeat_is_followed_by_another_soon() -> None:
    assert running().next_heartbeat_ms(answered=False) == 100
    assert running().next_heartbeat_ms(answered=True) == 2_000


# The shell.


class LifeController(FakeController):
    """Answers what a broker's life asks."""

    def register(self, epoch: int = 7) -> None:
        response = pb.ControllerResponse()
        response.register_broker.broker_epoch = epoch
        assert self.answer(response).WhichOneof("body") == "register_broker"

    def heartbeat(self, *, fenced: bool = False, go: bool = False) -> pb.BrokerHeartbeatRequest:
        response = pb.ControllerResponse()
        response.broker_heartbeat.is_fenced = fenced
        response.broker_heartbeat.should_shut_down = go
        return self.answer(response).broker_heartbeat


class FakeMetadata:
    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callable[[], None]]] = []

    def on_reached(self, offset: int, callback: Callable[[], None]) -> None:
        self.waiting.append((offset, callback))


class World:
    def __init__(self) -> None:
        self.controller, self.metadata, self.timers = LifeController(), FakeMetadata(), FakeTimers()
        self.epochs: list[int] = []
        self.fatal: list[Exception] = []
        self.lifecycle = BrokerLifecycle(
            pb.RegisterBrokerRequest(broker_id=3),
            LifecycleSettings(),
            self.controller,
            self.metadata,
            lambda: 42,
            self.timers,
            on_epoch=self.epochs.append,
            on_fatal=self.fatal.append,
        )

    def run_up(self) -> None:
        self.lifecycle.start()
        self.controller.register()
        self.metadata.waiting.pop()[1]()
        self.controller.heartbeat(fenced=True)
        self.lifecycle.ready()
        self.controller.heartbeat()


@pytest.fixture
def world() -> World:
    return World()


def test_the_way_up_takes_no_timer(world: World) -> None:
    world.run_up()
    assert world.lifecycle.running.is_set()
    assert world.timers.now_ms() == 0


def test_the_epoch_is_told_and_waited_for(world: World) -> None:
    world.lifecycle.start()
    world.controller.register(7)
    assert world.epochs == [7]
    assert [offset for offset, _ in world.metadata.waiting] == [7]
    assert not world.lifecycle.caught_up.is_set()


def test_heartbeats_say_what_was_applied(world: World) -> None:
    world.lifecycle.start()
    world.controller.register(7)
    world.metadata.waiting.pop()[1]()
    heartbeat = world.controller.heartbeat(fenced=True)
    assert (heartbeat.broker_epoch, heartbeat.current_metadata_offset, heartbeat.want_fence) == (7, 42, True)


def test_heartbeats_come_every_interval(world: World) -> None:
    world.run_up()
    world.timers.advance(1_999)
    assert not world.controller.asked
    world.timers.advance(1)
    assert len(world.controller.asked) == 1


def test_one_heartbeat_is_in_flight_at_a_time(world: World) -> None:
    world.run_up()
    world.lifecycle.contact_lost()
    world.lifecycle.contact_lost()
    assert len(world.controller.asked) == 1
    world.controller.heartbeat()
    world.timers.advance(1)
    assert len(world.controller.asked) == 1


def test_a_lost_contact_is_answered_with_a_heartbeat_at_once(world: World) -> None:
    world.run_up()
    world.lifecycle.contact_lost()
    assert len(world.controller.asked) == 1


def test_a_duplicate_waits_for_the_other_to_go(world: World) -> None:
    world.lifecycle.start()
    refusal = pb.ControllerResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    world.controller.answer(refusal)
    world.timers.advance(100)
    world.controller.register(8)
    assert world.lifecycle.broker_epoch == 8
    assert not world.fatal


def test_a_broker_of_another_cluster_gives_up(world: World) -> None:
    world.lifecycle.start()
    world.controller.answer(pb.ControllerResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message="other"))
    assert str(world.fatal[0]).endswith("cannot register: other")


@pytest.mark.parametrize("answer", [None, pb.ControllerResponse(error_code=9999)])
def test_a_broker_that_cannot_register_for_a_minute_gives_up(
    world: World, answer: pb.ControllerResponse | None
) -> None:
    world.lifecycle.start()
    world.controller.answer(answer)
    for _ in range(40):
        world.timers.advance(2_000)
        if world.fatal:
            break
        world.controller.answer(answer)
    assert len(world.fatal) == 1
    assert 60_000 <= world.timers.now_ms() <= 64_000
    assert not world.controller.asked


def test_a_controlled_shutdown_waits_for_the_controller(world: World) -> None:
    world.run_up()

    async def leave() -> list[bool]:
        leaving = asyncio.create_task(world.lifecycle.shut_down(60_000))
        await asyncio.sleep(0)
        said = [world.controller.heartbeat().want_shut_down]
        world.timers.advance(50)
        said.append(leaving.done())
        world.controller.heartbeat(go=True)
        await leaving
        return said

    assert asyncio.run(leave()) == [True, False]
    world.timers.advance(10_000)
    assert not world.controller.asked


def test_lost_directories_are_told_at_once(world: World) -> None:
    world.run_up()
    world.lifecycle.directories_failed([b"d" * 16])
    assert list(world.controller.heartbeat().offline_directories) == [b"d" * 16]


@pytest.mark.parametrize("answers", [True, False])
def test_a_broker_that_cannot_say_what_it_lost_ends(world: World, answers: bool) -> None:
    """Otherwise it would stay the leader of what it cannot read."""
    world.run_up()
    world.lifecycle.directories_failed([b"d" * 16])
    if answers:
        world.controller.heartbeat()
    else:
        world.controller.answer(None)
    for _ in range(31):
        world.timers.advance(1_000)
        while world.controller.asked:
            world.controller.answer(None)
    assert len(world.fatal) == (0 if answers else 1)
    assert world.lifecycle.gone.is_set() is not answers


def test_a_heartbeat_that_left_before_does_not_count_as_told(world: World) -> None:
    world.run_up()
    world.timers.advance(2_000)
    assert len(world.controller.asked) == 1
    world.lifecycle.directories_failed([b"d" * 16])
    assert not world.controller.heartbeat().offline_directories
    world.timers.advance(30_001)
    assert len(world.fatal) == 1

"""Registration, heartbeats, fencing, controlled shutdown (kraft.md 2.4)."""

from typing import Any

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.cluster import (
    BrokerLife,
    Situation,
    broker_heartbeat,
    fence_first_expired,
    next_life,
    register_broker,
    shutdown_begins,
    unregister_broker,
)
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import World, directory, new_topic

FENCED, UNFENCED = BrokerLife.FENCED, BrokerLife.UNFENCED
LEAVING, DOWN = BrokerLife.CONTROLLED_SHUTDOWN, BrokerLife.SHUTDOWN_NOW


@pytest.mark.parametrize(
    ("life", "down", "fence", "caught_up", "leads", "seen", "after"),
    [
        (FENCED, True, False, True, False, False, DOWN),
        (FENCED, True, True, False, False, False, DOWN),
        (FENCED, False, False, True, False, False, UNFENCED),
        (FENCED, False, False, False, False, False, FENCED),
        (FENCED, False, True, True, False, False, FENCED),
        (UNFENCED, True, True, True, True, False, DOWN),
        (UNFENCED, False, True, True, True, False, FENCED),
        (UNFENCED, True, False, True, True, False, LEAVING),
        (UNFENCED, True, False, True, False, False, DOWN),
        (UNFENCED, False, False, True, True, False, UNFENCED),
        (LEAVING, True, False, True, True, True, LEAVING),
        (LEAVING, True, False, True, False, False, LEAVING),
        (LEAVING, True, False, True, False, True, DOWN),
        (LEAVING, False, False, True, False, True, DOWN),
        (LEAVING, False, True, True, True, True, LEAVING),
    ],
)
def test_the_table_of_a_brokers_life(
    life: BrokerLife, down: bool, fence: bool, caught_up: bool, leads: bool, seen: bool, after: BrokerLife
) -> None:
    assert next_life(Situation(life, down, fence, caught_up, leads, seen)) is after


def refused(world: World, request: rpc.RegisterBrokerRequest) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        register_broker(world.state, request, world.next_offset, world.now_ms)
    return caught.value.code


def test_a_brokers_epoch_is_the_offset_of_its_registration(world: World) -> None:
    world.partition_of([1, 2, 3])
    world.now_ms += 10_000  # the session of broker 1 is over
    at = world.next_offset
    decision = register_broker(world.state, world.registration(1, incarnation=2), at, world.now_ms)
    kinds = [each.WhichOneof("body") for each in decision.records]
    assert kinds == ["partition_change", "register_broker"], "the old incarnation leaves first, the new one comes last"
    assert decision.response.broker_epoch == at + 1
    world.do(decision)
    assert world.epoch(1) == at + 1
    assert world.state.image.brokers[1].fenced
    assert world.standing == (2, (2, 3), 6, 11)


def test_the_same_incarnation_again_keeps_its_epoch_and_state(world: World) -> None:
    before = world.state.image.brokers[1]
    epoch = world.register(1, endpoints=[pb.Endpoint(name="PLAINTEXT", host="elsewhere", port=1)])
    after = world.state.image.brokers[1]
    assert (epoch, after.epoch, after.fenced) == (before.epoch, before.epoch, False)
    assert (after.host, after.port) == ("elsewhere", 1)


def test_another_incarnation_waits_for_the_end_of_the_session(world: World) -> None:
    elsewhere = [directory(9)]
    assert (
        refused(world, world.registration(1, incarnation=2, directories=elsewhere))
        is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    )
    world.state.sessions.gone(1, world.epoch(1))
    assert world.register(1, incarnation=2, directories=elsewhere) == world.epoch(1)


def test_who_holds_the_old_incarnations_directories_need_not_wait(world: World) -> None:
    assert world.register(1, incarnation=2) == world.epoch(1)
    assert world.state.image.brokers[1].incarnation_id == bytes([1, 2]) * 8


def test_who_holds_what_is_left_of_them_need_not_wait(world: World) -> None:
    world.register(4, directories=[directory(4), directory(7)])
    world.register(4, incarnation=2, directories=[directory(7)])
    assert world.state.image.brokers[4].directories == (directory(7),)
    world.heartbeat(4)
    for others in ([directory(8)], []):
        refusal = refused(world, world.registration(4, incarnation=3, directories=others))
        assert refusal is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.register(4, incarnation=3, directories=[directory(4), directory(7)])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"directories": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": [directory(9), directory(9)]}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": [directory(1)]}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": [b"short"]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {"features": [pb.FeatureRange(name="metadata.version", min_version=25, max_version=29)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_registration_that_cannot_be_is_refused(world: World, change: dict[str, Any], code: ErrorCode) -> None:
    assert refused(world, world.registration(4, **change)) is code


def test_a_broker_is_unfenced_once_it_has_read_its_own_registration() -> None:
    world = World()
    epoch = world.register(1)
    behind = world.heartbeat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = world.heartbeat(1, offset=epoch)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert world.state.is_active(1)


@pytest.mark.parametrize("epoch", [-1, 10**6])
def test_a_heartbeat_with_another_epoch_is_stale(world: World, epoch: int) -> None:
    request = rpc.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
    with pytest.raises(KafkaError) as caught:
        broker_heartbeat(world.state, request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_expired_session_fences_one_broker_at_a_time(world: World) -> None:
    world.partition_of([1, 2, 3])
    world.now_ms += 8_999
    world.heartbeat(3)
    assert fence_first_expired(world.state, world.now_ms, 100) is None
    world.now_ms += 1
    fenced = []
    while (step := fence_first_expired(world.state, world.now_ms, 100)) is not None:
        fenced.append((step.broker_id, step.is_last))
        world.replay(step.records)
    assert fenced == [(1, True), (2, True)]
    assert world.standing == (3, (3,), 7, 12)
    assert not world.state.is_active(1)


def test_fencing_comes_after_the_partitions(world: World) -> None:
    world.partition_of([1, 2, 3])
    world.state.sessions.gone(1, world.epoch(1))
    step = fence_first_expired(world.state, world.now_ms, 100)
    assert step is not None
    assert [each.WhichOneof("body") for each in step.records] == ["partition_change", "broker_registration_change"]


def test_a_broker_with_many_partitions_is_fenced_in_steps(world: World) -> None:
    world.create(new_topic("many", 10, 3))
    world.state.sessions.gone(1, world.epoch(1))
    sizes = []
    while (step := fence_first_expired(world.state, world.now_ms, 4)) is not None:
        sizes.append((len(step.records), step.is_last))
        world.replay(step.records)
    assert sizes == [(4, False), (4, False), (3, True)]
    partitions = world.state.image.topics_by_name["many"].partitions.values()
    assert all(1 not in each.isr and each.leader != 1 for each in partitions)


def test_the_last_in_sync_replica_stays_in_the_isr_and_leads_again_when_it_is_back() -> None:
    world = World().brokers(1, 2).partition_of([1, 2], isr=[1])
    world.fenced(1)
    assert world.standing == (-1, (1,), 6, 11)
    world.fenced(2)
    world.heartbeat(2)
    assert world.standing == (-1, (1,), 6, 11), "broker 2 is not in sync"
    world.heartbeat(1)
    assert world.standing == (1, (1,), 7, 12)


def test_unclean_election_takes_who_is_left_and_says_so() -> None:
    world = World().brokers(1, 2).partition_of([1, 2], isr=[1]).configure("unclean.leader.election.enable", "true")
    world.fenced(1)
    assert world.standing == (2, (2,), 6, 11)
    assert world.partition.leader_recovery_state == 1


@pytest.mark.parametrize(
    ("resource_type", "resource"), [(2, "t"), (4, "")], ids=["of the topic", "of the whole cluster"]
)
def test_unclean_election_can_be_a_setting(resource_type: int, resource: str) -> None:
    world = World().brokers(1, 2).partition_of([1, 2], isr=[1])
    world.configure("unclean.leader.election.enable", "true", resource_type, resource)
    world.fenced(1)
    assert world.partition.leader == 2


def test_a_controlled_shutdown_moves_leaders_and_waits_for_everybody_to_know(world: World) -> None:
    world.partition_of([1, 2, 3])
    response = world.heartbeat(1, down=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    assert world.standing == (2, (2, 3), 6, 11)
    assert shutdown_begins(world.state, 1)
    world.state.sessions.begin_shutdown(1, world.next_offset - 1)
    assert not shutdown_begins(world.state, 1)
    assert not world.heartbeat(1, down=True).should_shut_down
    world.heartbeat(2)
    assert not world.heartbeat(1, down=True).should_shut_down, "broker 3 has not read it"
    world.heartbeat(3)
    assert world.heartbeat(1, down=True).should_shut_down
    assert world.state.image.brokers[1].fenced


def test_a_shutdown_under_a_new_controller_starts_its_count_again(world: World) -> None:
    world.partition_of([1, 2, 3])
    world.heartbeat(1, down=True)
    world.state.sessions.remove(1)  # as a new controller knows nobody
    assert not world.heartbeat(1, down=True).should_shut_down
    assert shutdown_begins(world.state, 1)


def test_a_broker_alone_may_leave() -> None:
    world = World().brokers(1).partition_of([1])
    assert not world.heartbeat(1, down=True).should_shut_down
    assert world.standing == (-1, (1,), 6, 11)
    world.state.sessions.begin_shutdown(1, world.next_offset - 1)
    assert world.heartbeat(1, down=True).should_shut_down


def test_lost_directories_take_their_replicas_out(world: World) -> None:
    world.partition_of([1, 2, 3])
    world.register(1, directories=[directory(1), directory(7)])
    world.heartbeat(1, offline_directories=[directory(1)])
    assert world.standing == (2, (2, 3), 6, 11)
    assert world.state.image.brokers[1].directories == (directory(7),)
    world.fenced(2, 3)
    assert world.partition.leader == -1, "the replica of broker 1 is in a directory that is lost"


def test_unregistering_takes_a_broker_out_of_everything(world: World) -> None:
    world.partition_of([1, 2, 3])
    world.do(unregister_broker(world.state, rpc.UnregisterBrokerRequest(broker_id=1)))
    assert world.standing == (2, (2, 3), 6, 11)
    assert 1 not in world.state.image.brokers
    with pytest.raises(KafkaError) as caught:
        unregister_broker(world.state, rpc.UnregisterBrokerRequest(broker_id=1))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_new_controller_gives_everybody_a_whole_session(world: World) -> None:
    world.state.sessions.remove(1)
    assert not world.state.sessions.is_alive(1, world.epoch(1), world.now_ms)
    world.state.sessions.expect(1, world.epoch(1), world.now_ms)
    assert world.state.sessions.is_alive(1, world.epoch(1), world.now_ms + 8_999)
    assert not world.state.sessions.was_heard(1)
    assert not world.state.sessions.is_alive(1, world.epoch(1), world.now_ms + 9_000)

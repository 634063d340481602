"""kraft.version, and the controllers that count when a level is raised (KIP-853, KIP-584; kraft.md 2.9)."""

from typing import Any

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.cluster import register_broker, unregister_broker
from ottla.quorum.controller.decisions.features import (
    SAFE_DOWNGRADE,
    TRANSACTION_VERSION,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    bootstrap_records,
    forget_controllers,
    register_controller,
    supported_ranges,
    update_features,
    who_cannot_read,
)
from ottla.quorum.listener import QuorumMembers
from ottla.quorum.raft.messages import VoterChangeResponse
from ottla.quorum.raft.voters import KRAFT_VERSION
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import World
from tests.unit.quorum.controller.controller_bench import Bench, kinds

OLD = [each for each in supported_ranges() if each.name != KRAFT_VERSION]


def updates(*wanted: tuple[str, int], kind: int = UPGRADE, validate_only: bool = False) -> rpc.UpdateFeaturesRequest:
    asked = [
        rpc.UpdateFeaturesRequest.Update(name=name, max_version_level=level, upgrade_type=kind)
        for name, level in wanted
    ]
    return rpc.UpdateFeaturesRequest(updates=asked, validate_only=validate_only)


def controller(node_id: int, features: list[pb.FeatureRange] | None = None) -> rpc.RegisterControllerRequest:
    ranges = supported_ranges() if features is None else features
    return rpc.RegisterControllerRequest(controller_id=node_id, incarnation_id=bytes(16), features=ranges)


def refusal(error: ErrorCode, work: Any) -> str:
    with pytest.raises(KafkaError) as caught:
        work()
    assert caught.value.code is error
    return caught.value.message


def joined(*controllers: int, kraft_version: int = 0) -> World:
    world = World()
    for node_id in controllers:
        world.do(register_controller(world.state, controller(node_id)))
    world.state.members = QuorumMembers(kraft_version, controllers, frozenset(controllers))
    return world


# --- the upgrade --------------------------------------------------------------------------------------------------------


def test_an_upgrade_is_the_quorums_to_write() -> None:
    world = joined(1, 2)
    decision = update_features(world.state, updates((KRAFT_VERSION, 1)))

    assert (decision.upgrades_quorum, decision.records) == (True, [])
    assert not update_features(joined(1, kraft_version=1).state, updates((KRAFT_VERSION, 1))).upgrades_quorum


def test_an_upgrade_that_is_not_committed_yet_is_asked_for_again() -> None:
    """Who asks is answered when it is; and meanwhile nobody is let in who does not read it."""
    world = joined(1)
    world.state.members = QuorumMembers(1, (1,), frozenset((1,)), is_committed=False)

    assert update_features(world.state, updates((KRAFT_VERSION, 1))).upgrades_quorum
    refusal(ErrorCode.UNSUPPORTED_VERSION, lambda: register_controller(world.state, controller(4, OLD)))


def test_the_first_change_of_voters_looks_at_registrations_that_are_not_committed_yet() -> None:
    bench = Bench()
    assert "not active yet" in refusal(ErrorCode.NOT_CONTROLLER, lambda: bench.controller.who_cannot_read(1, -1))
    bench.lead().commit()
    assert bench.controller.who_cannot_read(1, -1) is None
    bench.ask(register_controller=controller(9, OLD))
    assert "controller 9 does not read level 1" in (bench.controller.who_cannot_read(1, -1) or "")
    assert bench.controller.who_cannot_read(1, 9) is None


def test_there_is_no_way_back() -> None:
    world = joined(1, kraft_version=1)
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        asked = updates((KRAFT_VERSION, 0), kind=kind)
        message = refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda asked=asked: update_features(world.state, asked))
        assert "has no downgrade" in message
    beyond = updates((KRAFT_VERSION, 2))
    assert "0 to 1, not 2" in refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda: update_features(world.state, beyond))


def test_an_old_broker_keeps_the_quorum_as_it_is() -> None:
    world = joined(1)
    world.register(7, features=OLD)
    asked = updates((KRAFT_VERSION, 1))

    message = refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda: update_features(world.state, asked))
    assert "broker 7 does not read level 1 of kraft.version: upgrade it" in message


def test_a_voter_that_never_registered_holds_every_upgrade_back() -> None:  # kraft.md 2.9
    """It may be any version."""
    world = joined(1, 2)
    world.replay([pb.MetadataRecord(feature_level=pb.FeatureLevel(name="metadata.version", level=29))])
    world.state.members = QuorumMembers(0, (1, 2, 3), frozenset((1, 2)))
    for name, level in ((KRAFT_VERSION, 1), ("metadata.version", 30)):
        asked = updates((name, level))
        message = refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda asked=asked: update_features(world.state, asked))
        assert "controller 3 votes and has not registered" in message

    assert who_cannot_read(world.state.image, KRAFT_VERSION, 1, (1, 2, 3), leaving=3) is None


def test_a_node_that_does_not_read_voters_in_the_log_is_not_let_in() -> None:
    world = joined(1, kraft_version=1)
    old_controller, old_broker = controller(4, OLD), world.registration(7, features=OLD)
    expected = "the cluster uses kraft.version at level 1"
    error = ErrorCode.UNSUPPORTED_VERSION
    assert expected in refusal(error, lambda: register_controller(world.state, old_controller))
    assert expected in refusal(error, lambda: register_broker(world.state, old_broker, 1, 0))
    world.state.members = QuorumMembers(0, (1,), frozenset((1,)))
    world.do(register_controller(world.state, old_controller))


def test_the_rest_of_a_request_is_decided_when_the_quorum_is_upgraded() -> None:
    bench = Bench().lead().commit()
    lower = pb.MetadataRecord(feature_level=pb.FeatureLevel(name="metadata.version", level=29))
    bench.ask(update_features=updates(("metadata.version", 29), kind=SAFE_DOWNGRADE))
    bench.commit()
    assert bench.loader.image.features["metadata.version"] == lower.feature_level.level
    before = len(bench.quorum.log)
    answers = bench.ask(update_features=updates(("metadata.version", 30), (KRAFT_VERSION, 1)))
    assert (answers, len(bench.quorum.log)) == ([], before)

    [(done, validate_only)] = bench.quorum.upgrades
    assert not validate_only
    bench.quorum.known = QuorumMembers(kraft_version=1)
    done(VoterChangeResponse(epoch=1))
    assert kinds(bench.quorum.log[before:]) == [["feature_level"]]
    bench.commit()
    assert answers[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (VoterChangeResponse(epoch=1, error=ErrorCode.INVALID_UPDATE_VERSION, message="why"), 95),
        (VoterChangeResponse(epoch=1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_CONTROLLER),
        (VoterChangeResponse(epoch=1, error=ErrorCode.REQUEST_TIMED_OUT, try_again=True), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_what_the_quorum_refuses_is_told_and_what_passes_is_asked_again(told: VoterChangeResponse, code: int) -> None:
    """The caller's channel tries again upon NOT_CONTROLLER."""
    bench = Bench().lead().commit()
    answers = bench.ask(update_features=updates((KRAFT_VERSION, 1)))
    bench.quorum.upgrades[0][0](told)

    assert [(each.error_code, each.error_message) for each in answers] == [(code, told.message)]


def test_a_dry_run_is_one_for_the_quorum_too() -> None:
    bench = Bench().lead().commit()
    answers = bench.ask(update_features=updates((KRAFT_VERSION, 1), validate_only=True))
    [(done, validate_only)] = bench.quorum.upgrades
    done(VoterChangeResponse(epoch=1))

    assert validate_only
    assert [each.error_code for each in answers] == [0]


# --- controllers that left ----------------------------------------------------------------------------------------------


def test_a_controller_that_neither_votes_nor_follows_is_forgotten() -> None:
    world = joined(1, 2, 3, 4)
    world.state.members = QuorumMembers(1, (1, 2), frozenset((1, 3)))
    world.replay(forget_controllers(world.state))

    assert list(world.state.image.controllers) == [1, 2, 3], "2 votes, 3 follows"


def test_an_old_controller_that_left_holds_no_upgrade_back() -> None:
    world = joined(1)
    world.do(register_controller(world.state, controller(9, OLD)))
    asked = updates((KRAFT_VERSION, 1))
    assert "controller 9" in refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda: update_features(world.state, asked))
    world.replay(forget_controllers(world.state))

    assert update_features(world.state, asked).upgrades_quorum


def test_the_active_controller_forgets_who_has_left_after_everybody_had_time_to_be_heard() -> None:
    bench = Bench().lead().commit()
    for node_id in (1, 2):
        bench.ask(register_controller=controller(node_id))
    bench.commit()
    bench.quorum.known = QuorumMembers(1, (1,), frozenset((1,)))
    bench.loop.advance(10_000)
    bench.commit()
    assert list(bench.loader.image.controllers) == [1, 2]
    bench.loop.advance(10_000)
    bench.commit()

    assert list(bench.loader.image.controllers) == [1]
    assert "neither vote nor follow the log: 2" in bench.quorum.log[-1].cause


def test_a_controller_is_unregistered_by_hand_unless_it_runs() -> None:  # kafka-cluster unregister
    world = joined(1, 2, 3)
    world.state.members = QuorumMembers(1, (1,), frozenset((1, 2)))

    def unregister(node_id: int) -> Any:
        return unregister_broker(world.state, rpc.UnregisterBrokerRequest(broker_id=node_id))

    assert "votes" in refusal(ErrorCode.INVALID_REQUEST, lambda: unregister(1))
    assert "stop it first" in refusal(ErrorCode.INVALID_REQUEST, lambda: unregister(2))
    world.do(unregister(3))
    assert list(world.state.image.controllers) == [1, 2]
    refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, lambda: unregister(3))


# --- transactions -------------------------------------------------------------------------------------------------------


def test_a_new_cluster_has_the_newest_transactions_and_may_go_back_and_forth() -> None:
    assert [
        each.feature_level.level for each in bootstrap_records() if each.feature_level.name == TRANSACTION_VERSION
    ] == [2]
    world = joined(1)
    for level, kind in ((0, SAFE_DOWNGRADE), (1, UPGRADE), (2, UPGRADE), (1, SAFE_DOWNGRADE)):
        world.do(update_features(world.state, updates((TRANSACTION_VERSION, level), kind=kind)))
        assert world.state.image.features.get(TRANSACTION_VERSION, 0) == level
    beyond = updates((TRANSACTION_VERSION, 3))
    refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda: update_features(world.state, beyond))


def test_an_old_broker_keeps_transactions_as_they_are() -> None:
    world = joined(1)
    world.do(update_features(world.state, updates((TRANSACTION_VERSION, 0), kind=SAFE_DOWNGRADE)))
    world.register(7, features=[each for each in supported_ranges() if each.name != TRANSACTION_VERSION])
    asked = updates((TRANSACTION_VERSION, 2))
    message = refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda: update_features(world.state, asked))
    assert "broker 7 does not read level 2 of transaction.version" in message


# --- back ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "level"), [("metadata.version", 25), (TRANSACTION_VERSION, 0)])
def test_a_node_that_is_too_new_for_a_level_keeps_the_cluster_from_going_back_there(name: str, level: int) -> None:
    """As in Kafka. It would stop at the record: in the middle of a rolling upgrade, say, whose software reads less of the past."""
    world = joined(1)
    newer = [pb.FeatureRange(name=each.name, min_version=each.min_version, max_version=9999) for each in OLD]
    for each in newer:
        each.min_version = level + 1 if each.name == name else each.min_version
    world.register(7, features=newer)
    asked = updates((name, level), kind=SAFE_DOWNGRADE)
    message = refusal(ErrorCode.INVALID_UPDATE_VERSION, lambda: update_features(world.state, asked))
    assert f"broker 7 does not read level {level} of {name}: it is too new for it" in message


def test_a_voter_that_never_registered_holds_no_way_back() -> None:
    """It is refused when it comes and does not read that."""
    world = joined(1)
    world.state.members = QuorumMembers(0, (1, 2), frozenset((1,)))
    world.do(update_features(world.state, updates((TRANSACTION_VERSION, 1), kind=SAFE_DOWNGRADE)))
    assert world.state.image.features[TRANSACTION_VERSION] == 1

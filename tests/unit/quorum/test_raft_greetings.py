"""A leader says hello and good-bye: who is told, who minds, and who may leave (KIP-595; kraft.md 1.5)."""

import msgspec

from ottla.quorum.raft.announcements import succession_delay_ms
from ottla.quorum.raft.events import RequestReceived, ResignRequested, ShutdownRequested
from ottla.quorum.raft.instructions import Fault
from ottla.quorum.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    RemoveVoterRequest,
)
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import ADMINISTRATOR, LeadingReplica
from tests.unit.quorum.raft_core import CLUSTER, OneCore, key, voter_set
from tests.unit.quorum.raft_messages import begin, end, follower, leader


def looking_elsewhere() -> OneCore:
    """It asks for pre-votes, for leader 2 fell silent."""
    core = follower()
    core.expire(Timer.FETCH)
    assert core.role == "Prospective"
    return core


# --- hello --------------------------------------------------------------------------------------------------------------


def test_a_leader_that_greets_again_gets_its_follower_back() -> None:
    core = looking_elsewhere()
    core.ask(begin(2, 1))

    assert (core.role, core.state.role.leader_id) == ("Follower", 2)


def test_a_greeting_for_a_former_disk_brings_nobody_back() -> None:  # KIP-853
    core = looking_elsewhere()
    core.ask(begin(2, 1, receiver=key(1, disk=1)))

    assert core.told().error is ErrorCode.INVALID_VOTER_KEY
    assert core.role == "Prospective"


def test_a_greeting_of_a_second_leader_is_not_followed() -> None:  # D 3.4: election safety
    core = looking_elsewhere()
    core.ask(begin(3, 1))

    assert core.found(Fault)
    assert core.role == "Prospective"


def test_a_leader_may_have_the_number_zero_and_none_below() -> None:
    core = OneCore(0, 1, 2)
    core.ask(begin(-1, 1))
    assert core.told().error is ErrorCode.INVALID_REQUEST
    core.ask(begin(0, 1))

    assert (core.role, core.state.role.leader_id) == ("Follower", 0)


def test_a_voter_that_refused_a_greeting_is_greeted_again() -> None:
    core = leader()
    refusal = BeginQuorumEpochResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID, epoch=1, leader_id=1)
    core.answer(BeginQuorumEpochRequest, 3, refusal)
    assert not core.asked(BeginQuorumEpochRequest), "not before a pause"
    core.expire(Timer.RETRY)

    assert core.asked(BeginQuorumEpochRequest).keys() == {3}


def test_a_voter_may_answer_a_greeting_after_it_was_removed() -> None:
    core = LeadingReplica(voter_set(1, 2, 3))
    core.state.role.voters[3].knows_leader = False
    greeting = core.state.inflight[3, BeginQuorumEpochRequest.__name__]
    core.removes(key(3))
    core.late_answer(3, greeting, BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(3)))

    assert core.state.role.voters.keys() == {2}


def test_voters_are_looked_after_every_half_of_a_fetch_timeout() -> None:
    core = leader()
    for node in (2, 3):
        core.answer(BeginQuorumEpochRequest, node, BeginQuorumEpochResponse(epoch=1, leader_id=1))
        core.fetch(node)
    half_ms = core.state.settings.fetch_timeout_ms // 2
    core.now_ms = 1
    core.fetch(2)
    core.now_ms = half_ms
    core.expire(Timer.BEGIN_QUORUM)

    assert core.asked(BeginQuorumEpochRequest).keys() == {3}, "silent for exactly that long"
    assert core.state.timers[Timer.BEGIN_QUORUM] == 2 * half_ms


# --- good-bye -----------------------------------------------------------------------------------------------------------


def test_who_has_no_vote_waits_for_the_successor_as_for_any_leader() -> None:
    core = OneCore(2, 3)
    core.ask(begin(2, 1))
    core.ask(end(2, 1, 3))

    assert core.state.role.leader_suspected
    assert core.state.timers[Timer.FETCH] == core.state.settings.fetch_timeout_ms


def test_no_successor_waits_longer_than_the_longest_back_off() -> None:
    settings = RaftSettings(cluster_id=CLUSTER, election_backoff_max_ms=150)

    assert [succession_delay_ms(key(node), (key(1), key(2), key(3)), settings) for node in (1, 2, 3)] == [0, 100, 150]


def test_a_farewell_that_did_not_arrive_is_said_again_after_a_pause() -> None:
    core = leader()
    core.tell(ResignRequested(1))
    core.answer(EndQuorumEpochRequest, 2, None)
    assert not core.asked(EndQuorumEpochRequest)
    core.expire(Timer.RETRY)

    assert core.asked(EndQuorumEpochRequest).keys() == {2}, "and 3 has been asked"


def test_the_application_resigns_from_the_epoch_it_means_only() -> None:
    core = leader()
    core.tell(ResignRequested(0))

    assert core.role == "Leader"


# --- leaving ------------------------------------------------------------------------------------------------------------


def test_who_does_not_lead_has_nothing_to_hand_over() -> None:
    core = follower()
    core.tell(ShutdownRequested())

    assert core.role == "Follower"
    assert Timer.HAND_OVER not in core.state.timers


def test_a_leader_that_removed_itself_leaves_once() -> None:  # D 4.2.2: its process may end just then
    core = LeadingReplica(voter_set(1, 2, 3))
    core.tell(RequestReceived(RemoveVoterRequest(voter=key(1), **ADMINISTRATOR), "removed"))
    core.tell(ShutdownRequested())
    core.fetches(key(2))
    assert core.role == "Leader"
    core.fetches(key(3))

    assert core.role == "Resigned"
    assert core.answers["removed"].error is ErrorCode.NONE


def test_a_farewell_of_another_leader_than_the_own_is_none() -> None:
    core = looking_elsewhere()
    core.ask(msgspec.structs.replace(end(2, 1, 1), receiver=key(1)))

    assert core.role == "Prospective"
    assert core.told().error is ErrorCode.NONE

"""What a replica forgets, keeps and waits for when its role changes, and whom it follows then (kraft.md 1.2, 1.4)."""

import msgspec
import pytest

from ottla.quorum.raft import becoming
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import RequestReceived, ResignRequested, SnapshotInstalled, TimerExpired
from ottla.quorum.raft.instructions import Respond, SendRequest
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause, IllegalTransition
from ottla.quorum.raft.voters import Endpoint, VoterHistory
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import ADMINISTRATOR, LeadingReplica
from tests.unit.quorum.raft_core import OneCore, endpoint, key, voter_set
from tests.unit.quorum.raft_messages import begin, candidate, follower, leader, log_of, prospective, vote


def told_of_leader(core: OneCore, leader_id: int, epoch: int | None = None, at: Endpoint | None = None) -> None:
    """By voter 3, who refuses its vote."""
    own = core.state.epoch if epoch is None else epoch
    core.answer(VoteRequest, 3, VoteResponse(epoch=own, leader_id=leader_id, leader_endpoint=at, granted=False))


# --- what is forgotten --------------------------------------------------------------------------------------------------


def test_no_role_changes_but_as_the_table_says() -> None:
    core = follower()

    with pytest.raises(IllegalTransition):
        becoming.become(core.state, Unattached(core.state.epoch), Cause.ELECTION_TIMEOUT)
    assert core.role == "Follower"


def test_who_was_to_be_left_alone_in_one_role_is_asked_in_the_next() -> None:
    core = follower()
    core.answer(FetchRequest, 2, FetchResponse(error=ErrorCode.DUPLICATE_VOTER, epoch=1, leader_id=2))
    assert not core.asked(FetchRequest)
    core.ask(begin(2, 2))

    assert core.asked(FetchRequest).keys() == {2}


def test_who_waits_here_is_sent_away_once() -> None:  # an answer twice would be that to another question
    core = leader()
    core.fetch(3, high_watermark=1)
    core.tell(ResignRequested(core.state.epoch))
    assert core.told("fetch of 3").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    core.expire(Timer.ELECTION)

    assert core.told("fetch of 3") is None


def test_who_did_not_wait_for_a_change_is_not_answered_again_when_the_leader_goes() -> None:
    core = LeadingReplica(voter_set(1, 2, 3))
    core.fetches(key(4))
    request = AddVoterRequest(voter=key(4), endpoint=endpoint(4), ack_when_committed=False, **ADMINISTRATOR)
    core.tell(RequestReceived(request, "once"))
    assert core.answers["once"].error is ErrorCode.NONE
    core.tell(TimerExpired(Timer.CHECK_QUORUM))

    assert [each for each in core.found(Respond) if isinstance(each.response, VoterChangeResponse)] == []


# --- how long nobody is followed ----------------------------------------------------------------------------------------


def test_a_refused_pre_vote_is_not_asked_for_again_at_once() -> None:  # KIP-996: who refuses may know a leader
    core = prospective()
    core.refuse(2)
    core.refuse(3)

    assert core.role == "Unattached"
    assert core.state.timers[Timer.ELECTION] >= core.state.settings.election_timeout_ms


def test_a_leader_that_cannot_be_found_yet_is_given_time() -> None:
    core = prospective()
    told_of_leader(core, 9, epoch=7)

    assert (core.role, core.state.epoch, core.state.known_leader_id) == ("Unattached", 7, 9)
    assert core.state.timers[Timer.ELECTION] >= core.state.settings.election_timeout_ms


def test_rivals_that_meet_a_higher_epoch_stay_apart() -> None:
    core = OneCore(1, 2, 3)
    core.ask(vote(2, 5, to=3))

    assert core.state.timers[Timer.ELECTION] >= core.state.settings.early_election_min_ms


# --- who is followed ----------------------------------------------------------------------------------------------------


def test_a_leader_told_of_without_its_address_is_found_among_the_voters() -> None:
    for core, epoch in ((prospective(3), 3), (prospective(3), 4)):
        told_of_leader(core, 2, epoch)

        assert (core.role, core.state.epoch) == ("Follower", epoch)
        assert core.asked(FetchRequest).keys() == {2}


@pytest.mark.parametrize(("leader_id", "at"), [(1, endpoint(1)), (9, None)], ids=["itself", "somebody out of reach"])
def test_a_candidate_that_has_nobody_to_follow_stays_one(leader_id: int, at: Endpoint | None) -> None:
    core = candidate()
    told_of_leader(core, leader_id, at=at)

    assert core.role == "Candidate"


@pytest.mark.parametrize("leader_id", [1, 9], ids=["itself", "somebody out of reach"])
def test_lost_pre_votes_lead_back_to_no_leader_that_cannot_be_followed(leader_id: int) -> None:
    core = prospective()
    told_of_leader(core, leader_id, epoch=7)
    core.expire(Timer.ELECTION)
    assert core.role == "Prospective"
    core.refuse(2)
    core.refuse(3)

    assert (core.role, core.state.role.leader_id) == ("Unattached", leader_id)


def test_a_leader_is_followed_as_soon_as_it_is_known_where_it_listens() -> None:
    core = prospective()
    told_of_leader(core, 9, epoch=7)
    core.ask(begin(9, 7))

    assert core.role == "Follower"
    assert core.asked(FetchRequest).keys() == {9}


def test_a_leader_that_moved_within_its_epoch_is_asked_where_it_listens_now() -> None:
    core = follower()
    core.ask(msgspec.structs.replace(begin(2, 1), endpoint=Endpoint("moved", 1)))
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, high_watermark=0))

    assert [send.endpoint for send in core.found(SendRequest)] == [Endpoint("moved", 1)]


# --- who votes no more --------------------------------------------------------------------------------------------------


def removed_by_the_snapshot() -> OneCore:
    """It votes by a record in its log alone, and has not heard from leader 2 for a while."""
    history = VoterHistory(voter_set(2, 3), ((0, voter_set(1, 2, 3)),))
    core = OneCore(log=log_of(1), history=history, election=ElectionState(1))
    core.ask(begin(2, 2))
    return core


def test_who_is_a_voter_no_longer_stops_its_campaign() -> None:  # KIP-853
    core = removed_by_the_snapshot()
    core.expire(Timer.FETCH)
    assert core.role == "Prospective"
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voter_set(2, 3)))

    assert (core.role, core.state.role.leader_id) == ("Unattached", 2)
    assert not core.asked(VoteRequest)


def test_who_is_a_voter_still_goes_on_with_its_campaign() -> None:
    core = removed_by_the_snapshot()
    core.expire(Timer.FETCH)
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voter_set(1, 2)))

    assert core.role == "Prospective"


def test_who_follows_goes_on_following_without_a_vote() -> None:  # as an observer
    core = removed_by_the_snapshot()
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voter_set(2, 3)))

    assert (core.role, core.state.role.leader_id) == ("Follower", 2)

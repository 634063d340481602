"""As what a replica comes up, and what it waits for first (D 3.8; kraft.md 1.2)."""

import pytest

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import PeerDisconnected
from ottla.quorum.raft.instructions import LeaderChanged, PersistElection
from ottla.quorum.raft.messages import FetchRequest, VoteRequest
from ottla.quorum.raft.timers import Timer
from tests.unit.quorum.raft_core import OneCore, key
from tests.unit.quorum.raft_messages import follower


def test_who_comes_back_says_whom_it_knows_as_leader() -> None:
    assert OneCore(1, 2, 3, election=ElectionState(4, leader_id=2)).found(LeaderChanged) == [LeaderChanged(2, 4)]
    assert OneCore(1, 2, 3, election=ElectionState(4)).found(LeaderChanged) == [LeaderChanged(None, 4)]
    assert not OneCore(1, 2, 3, election=ElectionState(4)).found(PersistElection), "it is there already"


def test_a_candidate_that_votes_no_more_comes_back_without_its_candidacy() -> None:  # KIP-853
    core = OneCore(2, 3, election=ElectionState(4, None, key(1)))

    assert core.role == "Unattached"
    assert not core.asked(VoteRequest)


def test_a_candidate_that_comes_back_waits_for_its_votes_a_whole_election_timeout() -> None:
    core = OneCore(1, 2, 3, election=ElectionState(4, None, key(1)))

    assert core.asked(VoteRequest).keys() == {2, 3}
    assert core.state.timers[Timer.ELECTION] >= core.state.settings.election_timeout_ms


@pytest.mark.parametrize("leader_id", [None, 1], ids=["nobody led", "it led itself"])
def test_who_knows_no_leader_to_be_patient_with_campaigns_early(leader_id: int | None) -> None:  # ours
    core = OneCore(1, 2, 3, election=ElectionState(4, leader_id))

    assert core.state.timers[Timer.ELECTION] <= core.state.settings.early_election_max_ms


def test_a_follower_that_comes_back_waits_for_its_leader() -> None:
    core = OneCore(1, 2, 3, election=ElectionState(4, leader_id=2))

    assert core.state.timers == {Timer.FETCH: 2000, Timer.UPDATE_VOTER: 2000}


def test_a_plain_broker_that_comes_back_waits_for_nothing() -> None:
    """Be there a voter with its number: a controller that became a plain broker keeps its vote in the log until it is removed."""
    core = OneCore(1, 2, 3, election=ElectionState(4, leader_id=2), can_vote=False)
    assert core.asked(FetchRequest).keys() == {2}
    assert not core.state.timers

    core = OneCore(1, 2, 3, can_vote=False)
    assert Timer.ELECTION not in core.state.timers


@pytest.mark.parametrize(
    ("election", "epoch"),
    [
        (ElectionState(4), 5),
        (ElectionState(4, None, key(1)), 4),
        (ElectionState(4, 1), 6),
    ],
    ids=["as anybody", "as candidate", "as former leader"],
)
def test_the_only_voter_leads_again_at_once(election: ElectionState, epoch: int) -> None:
    """A former leader in a new epoch: it may have lost records of the one it led."""
    core = OneCore(1, election=election)

    assert (core.role, core.state.epoch) == ("Leader", epoch)


def test_who_is_not_the_only_voter_does_not_lead() -> None:
    assert OneCore(2).role == "Unattached"


def test_a_broken_stream_to_another_than_the_leader_is_no_evidence() -> None:
    core = follower()
    core.tell(PeerDisconnected(3))

    assert core.state.timers[Timer.FETCH] == core.state.settings.fetch_timeout_ms
    assert not core.state.role.leader_suspected

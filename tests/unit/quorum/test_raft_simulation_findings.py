"""What the simulator found, as the few events that matter. The rest are scenario files: lost_pre_vote, moved_only_voter."""

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.instructions import SendRequest
from ottla.quorum.raft.messages import BatchInfo, FetchRequest, FetchResponse, Records, VoteRequest, VoteResponse
from ottla.quorum.raft.observing import FIRST_BOOTSTRAP_ID
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import OneCore, endpoint


def test_a_removed_voter_learns_from_refused_pre_votes_where_a_leader_is_whose_address_it_never_knew() -> (
    None
):  # seed 724
    core = OneCore(2, 3, 4, node=4, election=ElectionState(5, leader_id=1))
    core.expire(Timer.ELECTION)
    refusal = VoteResponse(epoch=5, leader_id=1, leader_endpoint=endpoint(1), granted=False)
    core.answer(VoteRequest, 2, refusal)
    core.answer(VoteRequest, 3, refusal)

    assert core.role == "Follower"
    assert core.asked(FetchRequest).keys() == {1}


def test_a_follower_says_nothing_is_committed_of_a_log_longer_than_it_can_judge() -> (
    None
):  # seed 2926 of a formatted quorum
    """A leader that removed itself, and lost its office before that was committed, asks a follower of the next leader."""
    core = OneCore(1, 2, node=2, election=ElectionState(2, leader_id=1))
    records = Records(b"", (BatchInfo(0, 4, 1),))
    core.answer(FetchRequest, 1, FetchResponse(epoch=2, leader_id=1, high_watermark=5, records=records))
    core.sync()
    core.fetch(3, offset=9, last_epoch=1)
    assert core.told("fetch of 3") is None
    core.now_ms = core.state.timers[Timer.PARKED]
    core.expire(Timer.PARKED)

    assert core.told("fetch of 3").high_watermark == -1


def test_who_takes_itself_for_a_voter_and_cannot_reach_the_leader_asks_the_bootstrap_servers() -> None:  # seed 836
    """It was removed while it was away, its uncommitted voter set names the leader alone, and that moved."""
    core = OneCore(1, 2, node=2, election=ElectionState(5, leader_id=1), bootstrap=(endpoint(3),))
    core.answer(FetchRequest, 1, None)
    assert core.asked(FetchRequest)[FIRST_BOOTSTRAP_ID].epoch == 5
    moved = Endpoint("elsewhere", 1)
    elsewhere = FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=6, leader_id=1, leader_endpoint=moved)
    core.answer(FetchRequest, FIRST_BOOTSTRAP_ID, elsewhere)

    assert [send.endpoint for send in core.found(SendRequest)] == [moved]


def test_a_voter_that_fetched_from_its_leader_waits_for_it() -> None:  # ours
    core = OneCore(1, 2, node=2, election=ElectionState(5, leader_id=1), bootstrap=(endpoint(3),))
    core.answer(FetchRequest, 1, FetchResponse(epoch=5, leader_id=1, high_watermark=0))
    core.answer(FetchRequest, 1, None)

    assert core.asked(FetchRequest) == {}

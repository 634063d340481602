"""What the simulator found, as the few events that matter. The rest are scenario files: lost_pre_vote, moved_only_voter."""

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.messages import FetchRequest, VoteRequest, VoteResponse
from ottla.quorum.raft.timers import Timer
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

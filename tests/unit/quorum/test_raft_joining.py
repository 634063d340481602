"""How a controller gets to vote by itself, and finds the quorum (KIP-853)."""

from ottla.quorum.raft.events import (
    ResponseReceived,
    SnapshotTaken,
)
from ottla.quorum.raft.instructions import Fault
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    VoterChangeResponse,
)
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, Voter, VoterSet
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import FETCH_TIMEOUT_MS, Replica, follower, logged
from tests.unit.quorum.raft_core import endpoint, formatted, key


def test_a_controller_that_may_joins_by_itself() -> None:  # controller.quorum.auto.join.enable
    asked = [each.request for each in follower(formatted(1, 2, 3), 4, auto_join=True).sent]

    assert [type(each) for each in asked] == [AddVoterRequest]
    assert [type(each.request) for each in follower(formatted(1, 2, 3), 4).sent] == []


def test_a_controller_first_removes_its_former_disk() -> None:  # kraft.md 1.11
    voters = VoterSet.of([*formatted(1, 2).voters, Voter(key(3, disk=1), endpoint(3))])
    asked = [each.request for each in follower(voters, 3, auto_join=True).sent]

    assert [type(each) for each in asked] == [RemoveVoterRequest]
    assert asked[0].voter == key(3, disk=1)  # type: ignore[attr-defined]


def test_a_change_that_is_refused_for_what_the_node_is_does_not_end_it() -> None:
    """Its leader may remember a plain broker of the same directory."""
    core = follower(formatted(1, 2, 3), 4, auto_join=True)
    core.answer(AddVoterRequest, 2, VoterChangeResponse(error=ErrorCode.INVALID_REQUEST, epoch=core.state.epoch))

    assert not core.found(Fault)


def test_a_controller_that_downloads_a_snapshot_does_not_ask_to_join() -> None:
    core = follower(formatted(1, 2, 3), 4, auto_join=True)
    core.answer(AddVoterRequest, 2, None)
    core.answer(FetchRequest, 2, FetchResponse(epoch=core.state.epoch, leader_id=2, snapshot=OffsetAndEpoch(9, 1)))
    core.wait(FETCH_TIMEOUT_MS)
    core.expire(Timer.RETRY)
    core.expire(Timer.UPDATE_VOTER)

    assert core.waiting(FetchSnapshotRequest) == [2]
    assert core.waiting(AddVoterRequest) == []


def test_a_broker_that_became_a_controller_is_known_as_one_though_it_is_sent_to_a_snapshot() -> None:
    leader = logged(1, 2)
    leader.fetches(key(4), can_vote=False)
    high_watermark = leader.state.high_watermark
    leader.tell(SnapshotTaken(OffsetAndEpoch(high_watermark, leader.state.epoch), high_watermark))
    leader.fetches(key(4), offset=0, last_epoch=0)

    assert leader.state.role.observers[key(4)].can_vote


# --- finding the quorum -----------------------------------------------------------------------------------------------


def fetched_from(replica: Replica) -> list[Endpoint]:
    return [each.endpoint for each in replica.sent if isinstance(each.request, FetchRequest)]


def test_a_node_that_knows_no_voters_asks_the_bootstrap_servers() -> None:  # kraft.md 1.2
    replica = Replica(VoterSet(), node=4, bootstrap=(endpoint(7),))
    assert fetched_from(replica) == [endpoint(7)]

    asked = replica.sent[-1]
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    response = FetchResponse(error=error, epoch=3, leader_id=2, leader_endpoint=endpoint(2))
    replica.tell(ResponseReceived(asked.peer, asked.request, response))
    assert (replica.core.state.epoch, replica.core.state.role.leader_id) == (3, 2)
    assert fetched_from(replica) == [endpoint(7), endpoint(2)]


def test_a_voter_without_a_leader_asks_them_too() -> None:
    """All the voters it knows of may have left long ago."""
    assert fetched_from(Replica(formatted(1, 2, 3), node=3, bootstrap=(endpoint(7),))) == [endpoint(7)]
    assert fetched_from(Replica(formatted(1, 2, 3), node=3)) == []


def test_nobody_asks_itself() -> None:
    assert fetched_from(Replica(VoterSet(), node=4, bootstrap=(endpoint(4),))) == []

"""How a controller gets to vote by itself, and finds the quorum (KIP-853)."""

from ottla.quorum.raft.events import (
    ResponseReceived,
)
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
)
from ottla.quorum.raft.voters import Endpoint, Voter, VoterSet
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import Replica, follower
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

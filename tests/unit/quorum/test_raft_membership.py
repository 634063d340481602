"""Voters are added, removed and moved (KIP-853; kraft.md 1.11)."""

from ottla.quorum.raft.events import (
    RequestReceived,
    TimerExpired,
)
from ottla.quorum.raft.instructions import (
    KRaftVersion,
    Voters,
)
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    RemoveVoterRequest,
    Response,
)
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import ADMINISTRATOR, FETCH_TIMEOUT_MS, LeadingReplica, Replica, logged, refused
from tests.unit.quorum.raft_core import CLUSTER, endpoint, formatted, key, voter_set

# --- adding -----------------------------------------------------------------------------------------------------------


def test_an_observer_that_has_caught_up_becomes_a_voter_when_that_is_committed() -> None:  # KIP-853
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4))
    token = object()
    request = AddVoterRequest(voter=key(4), endpoint=endpoint(4), **ADMINISTRATOR)
    leader.tell(RequestReceived(request, token))

    assert leader.voters == (1, 2, 3, 4)
    assert token not in leader.answers
    leader.fetches(key(2))
    assert token not in leader.answers  # two of four
    leader.fetches(key(4))
    assert leader.answers[token].error is ErrorCode.NONE


def test_the_first_change_of_a_static_quorum_writes_the_directories_of_all() -> None:  # KIP-853
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4))
    leader.adds(key(4))

    assert leader.appended[-1].records == (KRaftVersion(1), Voters(formatted(1, 2, 3, 4)))
    leader.fetches(key(2))
    leader.fetches(key(3))
    leader.removes(key(4))
    assert [type(each) for each in leader.appended[-1].records] == [Voters]


def test_who_does_not_want_to_wait_is_answered_when_the_change_is_in_force() -> None:  # AckWhenCommitted=false
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4))
    request = AddVoterRequest(voter=key(4), endpoint=endpoint(4), ack_when_committed=False, **ADMINISTRATOR)
    answer = leader.response_to(request)

    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert leader.voters == (1, 2, 3, 4)


def test_a_voter_is_not_added_twice() -> None:  # kraft.md 1.11
    leader = LeadingReplica(voter_set(1, 2, 3))

    assert refused(leader.adds(key(2)), ErrorCode.DUPLICATE_VOTER, "is a voter already")
    assert refused(leader.adds(key(2, disk=1)), ErrorCode.DUPLICATE_VOTER, "remove that voter first")


def test_a_node_that_does_not_fetch_is_not_added() -> None:  # kraft.md 1.11
    leader = LeadingReplica(voter_set(1, 2, 3))

    assert refused(leader.adds(key(4)), ErrorCode.REQUEST_TIMED_OUT, "start it as controller")


def test_a_node_that_went_away_again_is_not_added() -> None:  # ours; KIP-853 takes who fetched within the hour
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(2))
    leader.fetches(key(3))

    assert refused(leader.adds(key(4)), ErrorCode.REQUEST_TIMED_OUT, "start it as controller")


def test_a_node_that_has_not_caught_up_is_not_added() -> None:  # kraft.md 1.11
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4), offset=0)

    assert refused(leader.adds(key(4)), ErrorCode.REQUEST_TIMED_OUT, "has not caught up")


def test_a_plain_broker_is_not_added() -> None:  # ours: it syncs nothing of what it would acknowledge
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4), can_vote=False)

    assert refused(leader.adds(key(4)), ErrorCode.INVALID_REQUEST, "is no controller")


def test_a_node_is_not_added_under_a_directory_it_has_not() -> None:  # KIP-853
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4))

    assert refused(leader.adds(key(4, disk=1)), ErrorCode.REQUEST_TIMED_OUT, "another directory id")


def test_changes_wait_for_the_one_before() -> None:  # D 4.1
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(4))
    leader.fetches(key(5))
    leader.adds(key(4))

    assert refused(leader.adds(key(5)), ErrorCode.REQUEST_TIMED_OUT, "another change")


def test_a_change_that_could_not_be_committed_is_refused() -> None:  # ours; etcd's strict reconfiguration check
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(2))  # node 3 is gone

    assert refused(leader.removes(key(2)), ErrorCode.REQUEST_TIMED_OUT, "1, 3 most", "start them")
    assert leader.removes(key(3)) is None
    assert leader.voters == (1, 2)


def test_who_waits_for_a_change_is_told_when_the_leader_goes() -> None:
    leader = LeadingReplica(voter_set(1, 2, 3))
    token = object()
    leader.tell(RequestReceived(RemoveVoterRequest(voter=key(3), **ADMINISTRATOR), token))
    leader.tell(TimerExpired(Timer.CHECK_QUORUM))

    assert refused(leader.answers[token], ErrorCode.NOT_LEADER_OR_FOLLOWER, "whether it was made")
    assert getattr(leader.answers[token], "undecided", False)


def test_only_the_leader_changes_voters() -> None:  # kraft.md 1.4
    follower = Replica(voter_set(1, 2, 3))
    request = BeginQuorumEpochRequest(cluster_id=CLUSTER, epoch=1, sender=key(2), receiver=key(1), endpoint=endpoint(2))
    follower.response_to(request)
    answer = follower.response_to(RemoveVoterRequest(voter=key(3), **ADMINISTRATOR))

    assert refused(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answer is not None
    assert (answer.leader_id, answer.leader_endpoint) == (2, endpoint(2))


def test_another_clusters_administrator_is_refused() -> None:  # kraft.md 1.4
    leader = LeadingReplica(voter_set(1, 2, 3))
    request = RemoveVoterRequest(voter=key(2), **{**ADMINISTRATOR, "cluster_id": "other"})

    assert refused(leader.response_to(request), ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert leader.voters == (1, 2, 3)


def adds_again(leader: LeadingReplica, voter: ReplicaKey, at: Endpoint) -> Response | None:
    return leader.response_to(AddVoterRequest(voter=voter, endpoint=at, asked_before=True, **ADMINISTRATOR))


def test_who_does_not_know_whether_it_was_added_is_told_yes() -> None:  # ours; Kafka says DUPLICATE_VOTER
    leader = LeadingReplica(formatted(1, 2, 3))

    assert refused(adds_again(leader, key(2), endpoint(2)), ErrorCode.NONE)
    assert refused(adds_again(leader, key(2, disk=1), endpoint(2)), ErrorCode.DUPLICATE_VOTER)
    assert refused(adds_again(leader, key(2), Endpoint("other", 1)), ErrorCode.DUPLICATE_VOTER)


def test_a_repetition_is_answered_when_the_change_is_committed() -> None:
    leader = LeadingReplica(formatted(1, 2, 3))
    leader.fetches(key(4))
    leader.adds(key(4))
    answer = adds_again(leader, key(4), endpoint(4))

    assert refused(answer, ErrorCode.REQUEST_TIMED_OUT, "not committed yet")
    assert getattr(answer, "try_again", False)
    leader.fetches(key(2))
    leader.fetches(key(3))
    assert refused(adds_again(leader, key(4), endpoint(4)), ErrorCode.NONE)


def test_who_does_not_know_whether_it_was_removed_is_told_yes() -> None:  # ours; Kafka says VOTER_NOT_FOUND
    leader = LeadingReplica(formatted(1, 2, 3))

    def again(voter: ReplicaKey) -> Response | None:
        return leader.response_to(RemoveVoterRequest(voter=voter, asked_before=True, **ADMINISTRATOR))

    assert refused(again(key(9)), ErrorCode.NONE)
    assert refused(again(key(2, disk=1)), ErrorCode.VOTER_NOT_FOUND)
    assert again(key(2)) is None
    assert leader.voters == (1, 3)


# --- removing ---------------------------------------------------------------------------------------------------------


def test_a_voter_is_removed_by_node_and_directory() -> None:  # kraft.md 1.11
    leader = LeadingReplica(voter_set(1, 2, 3))

    assert refused(leader.removes(key(2, disk=1)), ErrorCode.VOTER_NOT_FOUND, "another directory id")
    assert refused(leader.removes(ReplicaKey(2)), ErrorCode.VOTER_NOT_FOUND, "another directory id")
    assert refused(leader.removes(key(7)), ErrorCode.VOTER_NOT_FOUND, "the voters are 1, 2, 3")
    leader.removes(key(2))
    assert leader.voters == (1, 3)


def test_a_voter_that_never_showed_its_directory_is_removed_without() -> None:  # a static quorum with a dead member
    leader = LeadingReplica(voter_set(1, 2, 3))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.voters[3].key = ReplicaKey(3)
    leader.removes(ReplicaKey(3))

    assert leader.voters == (1, 2)


def test_the_last_voter_stays() -> None:  # kraft.md 1.11
    leader = LeadingReplica(formatted(1))

    assert refused(leader.removes(key(1)), ErrorCode.VOTER_NOT_FOUND, "last voter")


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:  # D 4.2.2
    leader = LeadingReplica(voter_set(1, 2, 3))
    token = object()
    leader.tell(RequestReceived(RemoveVoterRequest(voter=key(1), **ADMINISTRATOR), token))

    assert isinstance(leader.core.state.role, Leader)
    leader.fetches(key(2))
    assert token not in leader.answers  # one of the two that count now
    leader.fetches(key(3))
    assert leader.answers[token].error is ErrorCode.NONE
    assert isinstance(leader.core.state.role, Resigned)


def test_a_voter_says_where_it_listens_now() -> None:  # KIP-853
    leader = logged(1, 2, 3)
    leader.moves(key(2), Endpoint("elsewhere", 1))

    assert leader.core.state.voters.latest.endpoint(2) == Endpoint("elsewhere", 1)


def test_what_a_voter_said_in_an_earlier_epoch_moves_nothing() -> None:  # kraft.md 1.4
    leader = logged(1, 2, 3)

    assert refused(leader.moves(key(2), Endpoint("old", 1), epoch=0), ErrorCode.FENCED_LEADER_EPOCH)
    assert leader.core.state.voters.latest.endpoint(2) == endpoint(2)


def test_saying_the_same_again_writes_nothing() -> None:
    leader = logged(1, 2, 3)
    before = len(leader.appended)
    answer = leader.moves(key(2), endpoint(2))

    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert len(leader.appended) == before


def test_a_wiped_voter_moves_nothing() -> None:  # KIP-853
    leader = logged(1, 2, 3)
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(3))
    leader.core.state.role.voters[2].knows_leader = False  # type: ignore[union-attr]  # it leads

    assert refused(leader.moves(key(2, disk=1), Endpoint("elsewhere", 1)), ErrorCode.VOTER_NOT_FOUND)

"""When the voters are written to the log, by a new leader or by an upgrade (KIP-853)."""

from ottla.quorum.describe import quorum_members
from ottla.quorum.listener import QuorumMembers
from ottla.quorum.raft.events import (
    UpgradeRequested,
)
from ottla.quorum.raft.instructions import (
    KRaftVersion,
    Voters,
)
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.membership_bench import LeadingReplica, Replica, refused
from tests.unit.quorum.raft_core import formatted, key, voter_set

# --- a new leader and the voter set -----------------------------------------------------------------------------------


def test_the_first_leader_of_a_formatted_quorum_writes_the_voters() -> None:  # kraft.md 1.9
    leader = LeadingReplica(formatted(1, 2, 3))

    assert leader.appended[0].records[1:] == (KRaftVersion(1), Voters(formatted(1, 2, 3)))
    assert leader.core.state.voters.latest_offset == 0


def test_a_static_quorum_stays_out_of_the_log() -> None:  # kraft.md 1.11
    leader = LeadingReplica(voter_set(1, 2, 3))

    assert len(leader.appended[0].records) == 1
    assert leader.core.state.voters.latest_offset == -1


# --- kraft.version ------------------------------------------------------------------------------------------------------


def test_an_upgrade_writes_the_voters_of_a_static_quorum_as_they_are() -> None:  # KIP-853; kraft.md 1.11
    leader = LeadingReplica(voter_set(1, 2, 3))
    assert leader.core.state.voters.kraft_version == 0
    token = object()
    leader.tell(UpgradeRequested(token))

    assert leader.appended[-1].records == (KRaftVersion(1), Voters(formatted(1, 2, 3)))
    assert token not in leader.answers
    assert leader.core.state.voters.kraft_version_at(leader.core.state.high_watermark) == 0
    leader.fetches(key(3))
    assert leader.answers[token].error is ErrorCode.NONE
    assert leader.core.state.voters.kraft_version_at(leader.core.state.high_watermark) == 1


def test_the_controller_is_told_who_is_there_and_which_level_is_appended() -> None:
    leader = LeadingReplica(voter_set(1, 2, 3))
    leader.fetches(key(9), can_vote=False)
    leader.wait(100)
    leader.fetches(key(3))
    told = quorum_members(leader.core.state, leader.now_ms, 100)
    assert told == QuorumMembers(0, (1, 2, 3), frozenset((1, 3)), is_committed=True)
    leader.upgrades()
    told = quorum_members(leader.core.state, leader.now_ms, 1000)
    assert told == QuorumMembers(1, (1, 2, 3), frozenset((1, 2, 3, 9)), is_committed=False)
    leader.fetches(key(2))
    assert quorum_members(leader.core.state, leader.now_ms, 1000).is_committed


def test_an_upgrade_that_is_only_tried_writes_nothing() -> None:
    leader = LeadingReplica(voter_set(1, 2, 3))
    before = len(leader.appended)

    assert refused(leader.upgrades(validate_only=True), ErrorCode.NONE)
    assert (len(leader.appended), leader.core.state.voters.kraft_version) == (before, 0)


def test_an_upgrade_that_was_made_is_not_made_again() -> None:
    leader = LeadingReplica(formatted(1, 2, 3))
    before = len(leader.appended)

    assert refused(leader.upgrades(), ErrorCode.NONE)
    assert len(leader.appended) == before


def test_an_upgrade_needs_the_directory_of_every_voter() -> None:  # KIP-853
    leader = LeadingReplica(voter_set(1, 2, 3))
    role = leader.core.state.role
    assert isinstance(role, Leader)
    role.voters[3].key = ReplicaKey(3)

    assert refused(leader.upgrades(), ErrorCode.INVALID_UPDATE_VERSION, "voters 3 never told", "start them")


def test_only_the_leader_upgrades() -> None:
    follower = Replica(voter_set(1, 2, 3))
    follower.tell(UpgradeRequested(1))

    assert refused(follower.answers[1], ErrorCode.NOT_LEADER_OR_FOLLOWER, "does not lead")


def test_the_voters_of_the_settings_do_not_move_by_themselves() -> None:  # kraft.version 0
    leader = LeadingReplica(voter_set(1, 2, 3))

    assert refused(
        leader.moves(key(2), Endpoint("elsewhere", 1)), ErrorCode.UNSUPPORTED_VERSION, "controller.quorum.voters"
    )
    assert leader.core.state.voters.latest_offset == -1


def test_a_cut_log_takes_the_upgrade_back() -> None:
    history = VoterHistory(voter_set(1, 2, 3))
    history.append(7, formatted(1, 2, 3))
    assert (history.kraft_version, history.kraft_version_at(7), history.kraft_version_at(8)) == (1, 0, 1)
    history.truncate(7)
    assert history.kraft_version == 0
    assert VoterHistory(formatted(1)).kraft_version_at(0) == 1
    assert VoterHistory(VoterSet()).kraft_version == 0


def test_a_leader_that_moved_writes_where_it_listens() -> None:  # kraft.md 1.9
    leader = LeadingReplica(formatted(1, 2, 3), at=Endpoint("moved", 7))

    assert leader.core.state.voters.latest.endpoint(1) == Endpoint("moved", 7)
    assert leader.voters == (1, 2, 3)

import pytest

from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet

WHERE = Endpoint("host", 9093)
A, B = bytes([1]) * 16, bytes([2]) * 16


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(node), WHERE) for node in ids)


def test_a_wiped_disk_is_another_replica() -> None:
    members = VoterSet.of([Voter(ReplicaKey(1, A), WHERE)])

    assert members.contains(ReplicaKey(1, A))
    assert not members.contains(ReplicaKey(1, B))


def test_an_unknown_directory_contradicts_nothing() -> None:
    assert voters(1).contains(ReplicaKey(1, A))
    assert VoterSet.of([Voter(ReplicaKey(1, A), WHERE)]).contains(ReplicaKey(1))


def test_a_node_votes_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        VoterSet.of([Voter(ReplicaKey(1, A), WHERE), Voter(ReplicaKey(1, B), WHERE)])


def test_voters_come_in_the_order_of_their_ids() -> None:
    assert voters(3, 1, 2).ids() == (1, 2, 3)
    assert voters(1, 3).with_voter(Voter(ReplicaKey(2), WHERE)).ids() == (1, 2, 3)
    assert voters(1, 2, 3).without(2).ids() == (1, 3)


def test_the_newest_voter_set_counts_at_once_and_truncation_takes_it_back() -> None:
    history = VoterHistory(voters(1))
    history.append(4, voters(1, 2))
    history.append(9, voters(1, 2, 3))

    assert history.latest == voters(1, 2, 3)
    history.truncate(9)
    assert history.latest == voters(1, 2)
    history.truncate(0)
    assert (history.latest, history.latest_offset) == (voters(1), -1)


def test_voter_sets_that_were_over_before_the_log_begins_are_forgotten() -> None:
    history = VoterHistory(voters(1))
    for offset in range(2, 10):
        history.append(offset, voters(*range(1, offset)))
    latest = [history.at(offset) for offset in range(6, 11)]
    history.forget_below(6)

    assert [history.at(offset) for offset in range(6, 11)] == latest
    assert history.entries[0][0] == 4, "the one in force, and the one before it"


def test_a_snapshot_carries_the_voters_of_its_place() -> None:
    history = VoterHistory(voters(1))
    history.append(4, voters(1, 2))

    assert history.at(4) == voters(1)
    assert history.at(5) == voters(1, 2)

"""The rules of who votes and who may: as in test_raft_rules.py, one test a rule (D 4, KIP-853)."""

from ottla.quorum.raft import rules
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet

ONE, TWO = ReplicaKey(1, bytes([1]) * 16), ReplicaKey(2, bytes([2]) * 16)


def test_a_voter_is_a_node_and_a_directory() -> None:  # KIP-853
    voters = VoterSet.of([Voter(ONE, Endpoint("", 1))])

    assert rules.is_voter(voters, ONE)
    assert not rules.is_voter(voters, ReplicaKey(1, bytes([9]) * 16))
    assert not rules.is_voter(voters, TWO)


def test_voters_change_one_at_a_time() -> None:  # D 4.1 and its correction; KIP-853
    assert rules.may_change_voters(False, True, latest_offset=3, high_watermark=4)
    assert not rules.may_change_voters(True, True, latest_offset=3, high_watermark=4)
    assert not rules.may_change_voters(False, False, latest_offset=3, high_watermark=4)
    assert not rules.may_change_voters(False, True, latest_offset=4, high_watermark=4)


def test_a_replica_is_in_touch_for_a_fetch_timeout() -> None:  # KIP-595
    assert rules.is_in_touch(1000, 2999, 2000)
    assert not rules.is_in_touch(1000, 3000, 2000)
    assert not rules.is_in_touch(-1, 0, 2000)


def test_who_joins_can_vote_has_caught_up_and_is_there() -> None:  # KIP-853
    assert rules.may_join(can_vote=True, last_caught_up_ms=0, in_touch=True)
    assert not rules.may_join(can_vote=False, last_caught_up_ms=0, in_touch=True)
    assert not rules.may_join(can_vote=True, last_caught_up_ms=-1, in_touch=True)
    assert not rules.may_join(can_vote=True, last_caught_up_ms=0, in_touch=False)


def test_most_of_the_new_voters_have_to_be_there() -> None:  # ours; etcd's strict reconfiguration check
    assert rules.quorum_survives(2, 3)
    assert not rules.quorum_survives(1, 2)


def test_another_disk_under_the_id_of_a_living_voter_is_a_twin() -> None:  # ours, for KIP-853's directory ids
    other = ReplicaKey(1, bytes([9]) * 16)

    assert rules.is_twin(other, ONE, known_in_touch=True)
    assert not rules.is_twin(other, ONE, known_in_touch=False)
    assert not rules.is_twin(ONE, ONE, known_in_touch=True)
    assert not rules.is_twin(other, ReplicaKey(1), known_in_touch=True)


def test_a_voter_to_be_removed_is_named_by_its_directory_too() -> None:  # KIP-853
    assert rules.names_voter(ONE, ONE)
    assert not rules.names_voter(ReplicaKey(1), ONE)
    assert not rules.names_voter(ReplicaKey(1, bytes([9]) * 16), ONE)
    assert not rules.names_voter(ReplicaKey(2, ONE.directory_id), ONE)


def test_a_new_leader_writes_the_voters_that_the_log_lacks() -> None:  # kraft.md 1.9
    here, there = Endpoint("here", 1), Endpoint("there", 1)
    formatted, static = VoterSet.of([Voter(ONE, here)]), VoterSet.of([Voter(ReplicaKey(1), here)])
    logged = VoterHistory(static, ((0, formatted),))

    assert rules.must_write_voters(VoterHistory(formatted), Voter(ONE, here))
    assert not rules.must_write_voters(VoterHistory(static), Voter(ONE, here))
    assert not rules.must_write_voters(logged, Voter(ONE, here))
    assert rules.must_write_voters(logged, Voter(ONE, there))
    assert not rules.must_write_voters(logged, Voter(TWO, there))
    assert not rules.must_write_voters(VoterHistory(formatted), Voter(TWO, there))


def test_the_first_voters_of_a_log_come_with_the_level_that_they_need() -> None:  # KIP-853
    assert rules.must_write_kraft_version(-1)
    assert not rules.must_write_kraft_version(0)


def test_a_removed_voter_stands_for_election_until_its_removal_is_committed() -> None:  # D 4.2.2
    assert rules.may_campaign(is_voter=True, was_voter=True, removal_committed=True)
    assert rules.may_campaign(is_voter=False, was_voter=True, removal_committed=False)
    assert not rules.may_campaign(is_voter=False, was_voter=True, removal_committed=True)
    assert not rules.may_campaign(is_voter=False, was_voter=False, removal_committed=False)


def test_an_observer_is_forgotten_after_its_session() -> None:  # kraft.md 1.5
    assert rules.is_forgotten(1000, 301_000, 300_000)
    assert not rules.is_forgotten(1000, 300_999, 300_000)

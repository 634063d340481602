"""What the quorum's events leave behind for the metrics."""

from ottla.quorum.meters import HALF_WINDOW_MS, QuorumMeters, RecentTimes
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.tally import Tally
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.voters import Endpoint, ReplicaKey

HERE = Endpoint("here", 1)
LEADER = Leader(5, 1, HERE, 10, {}, {}, {})
FOLLOWER = Follower(5, 2, HERE)
CANDIDATE = Candidate(5, Tally((1, 2, 3), {}), ReplicaKey(1))


def test_recent_times_are_forgotten_after_a_minute() -> None:
    times = RecentTimes()
    times.add(10, 1_000)
    times.add(30, 1_000)
    assert (times.average(1_000), times.maximum(1_000)) == (20, 30)
    later = 1_000 + HALF_WINDOW_MS
    times.add(2, later)
    assert (times.average(later), times.maximum(later)) == (14, 30)
    assert (times.average(later + HALF_WINDOW_MS), times.maximum(later + HALF_WINDOW_MS)) == (2, 2)
    assert times.average(later + 2 * HALF_WINDOW_MS) is None
    assert times.maximum(later + 2 * HALF_WINDOW_MS) is None


def test_a_commit_is_timed_from_the_append_that_it_covers() -> None:
    meters = QuorumMeters()
    meters.role_is(LEADER, 0)
    meters.appended(10, 13, leads=True, now_ms=100)
    meters.appended(13, 15, leads=True, now_ms=104)
    meters.committed(14, 110)
    assert meters.commit_times.average(110) == 10
    meters.committed(15, 130)
    assert meters.commit_times.maximum(130) == 26
    assert meters.appended_records == 5


def test_what_a_lost_leadership_appended_is_not_timed() -> None:
    meters = QuorumMeters()
    meters.appended(10, 13, leads=True, now_ms=100)
    meters.role_is(FOLLOWER, 110)
    meters.committed(13, 120)
    assert meters.commit_times.average(120) is None


def test_records_of_others_are_counted_apart() -> None:
    meters = QuorumMeters()
    meters.appended(10, 14, leads=False, now_ms=100)
    assert (meters.appended_records, meters.fetched_records) == (0, 4)


def test_an_election_lasts_from_the_wish_to_lead_to_a_known_leader() -> None:
    meters = QuorumMeters()
    meters.role_is(CANDIDATE, 100)
    meters.role_is(CANDIDATE, 150)
    meters.role_is(Unattached(6), 170)
    meters.role_is(FOLLOWER, 180)
    assert meters.election_times.average(180) == 80
    assert meters.elections == 1
    meters.role_is(FOLLOWER, 500)
    assert meters.election_times.maximum(500) == 80

"""What a new voter set means for whom a leader counts, and for the timers of who votes now or votes no more (KIP-853)."""

from ottla.quorum.raft.events import PeerDisconnected, SnapshotInstalled
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import BatchInfo, BeginQuorumEpochRequest, FetchRequest, FetchResponse, Records
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import VoterSet
from tests.unit.quorum.membership_bench import FETCH_TIMEOUT_MS, LeadingReplica
from tests.unit.quorum.raft_core import OneCore, formatted, key, voter_set
from tests.unit.quorum.raft_messages import begin, vote


def install(core: OneCore, voters: VoterSet, after_ms: int = 0) -> None:
    core.now_ms += after_ms
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voters))


# --- who follows --------------------------------------------------------------------------------------------------------


def test_a_new_voter_set_does_not_put_off_what_a_voter_is_about_to_do() -> None:
    core = OneCore(1, 2, 3)
    core.ask(begin(2, 1))
    core.tell(PeerDisconnected(2))
    due = core.state.timers[Timer.FETCH]
    install(core, voter_set(1, 2), after_ms=10)
    assert core.state.timers[Timer.FETCH] == due

    core.ask(vote(2, 7, last=(9, 6)))
    assert core.role == "Unattached"
    due = core.state.timers[Timer.ELECTION]
    install(core, voter_set(1, 2, 3), after_ms=10)
    assert core.state.timers[Timer.ELECTION] == due


def test_who_does_not_vote_by_the_new_set_either_waits_for_nothing() -> None:
    core = OneCore(2, 3)
    core.ask(vote(3, 2))
    install(core, voter_set(2, 3, 4))
    assert core.role == "Unattached"
    assert Timer.ELECTION not in core.state.timers

    core.ask(begin(2, 3))
    core.expire(Timer.FETCH)
    install(core, voter_set(2, 3))
    assert core.role == "Follower"
    assert Timer.FETCH not in core.state.timers


def test_a_plain_broker_that_reads_of_voters_waits_for_nothing() -> None:
    core = OneCore(2, 3, can_vote=False)
    core.ask(begin(2, 1))
    brought = Records(b"x", (BatchInfo(0, 0, 1, voter_set(1, 2, 3)),))
    core.answer(FetchRequest, core.waiting(FetchRequest)[0], FetchResponse(epoch=1, leader_id=2, records=brought))

    assert core.state.voters.latest == voter_set(1, 2, 3)
    assert Timer.FETCH not in core.state.timers


# --- who leads ----------------------------------------------------------------------------------------------------------


def test_observers_are_not_forgotten_by_a_change_of_voters() -> None:  # kraft.md 1.5: by their session alone
    leader = LeadingReplica(formatted(1, 2, 3))
    leader.fetches(key(4))
    leader.wait(FETCH_TIMEOUT_MS)
    leader.fetches(key(2))
    leader.fetches(key(3))
    leader.removes(key(3))

    assert leader.voters == (1, 2)
    assert leader.state.role.observers.keys() == {key(3), key(4)}


def test_a_leader_that_is_alone_waits_for_nobody() -> None:
    """It would make way for a majority that it is itself."""
    assert Timer.CHECK_QUORUM not in OneCore(1).state.timers
    leader = LeadingReplica(formatted(1, 2))
    leader.removes(key(2))

    assert leader.voters == (1,)
    assert Timer.CHECK_QUORUM not in leader.state.timers


def test_a_leader_that_is_alone_no_more_minds_whether_the_other_fetches() -> None:  # D 6.2
    leader = LeadingReplica(formatted(1))
    leader.wait(100)
    leader.fetches(key(2))
    leader.adds(key(2))

    assert leader.state.timers[Timer.CHECK_QUORUM] == 100 + FETCH_TIMEOUT_MS * 3 // 2
    assert leader.state.timers[Timer.BEGIN_QUORUM] == 100 + FETCH_TIMEOUT_MS // 2
    leader.wait(FETCH_TIMEOUT_MS // 2)
    leader.expire(Timer.BEGIN_QUORUM)
    assert leader.asked(BeginQuorumEpochRequest).keys() == {2}


def test_a_change_of_voters_gives_a_leader_no_more_time() -> None:  # D 6.2
    leader = LeadingReplica(formatted(1, 2, 3))
    leader.fetches(key(4))
    before = leader.state.timers[Timer.CHECK_QUORUM], leader.state.timers[Timer.BEGIN_QUORUM]
    leader.wait(100)
    leader.adds(key(4))

    assert leader.voters == (1, 2, 3, 4)
    assert (leader.state.timers[Timer.CHECK_QUORUM], leader.state.timers[Timer.BEGIN_QUORUM]) == before

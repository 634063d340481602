"""How long who was refused, or not answered, waits before it tries again. PreVote keeps trying harmless; this keeps it rare."""

from random import Random

import pytest

from ottla.quorum.raft.events import PeerDisconnected, ResignRequested, ShutdownRequested
from ottla.quorum.raft.messages import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import OneCore
from tests.unit.quorum.raft_messages import begin, follower, vote


class Longest(Random):
    """Always draws the longest wait that it may."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start - 1


def patient(core: OneCore) -> OneCore:
    core.state.rng = Longest()
    return core


def refused_candidacy(core: OneCore) -> int:
    """For how many milliseconds it waits then."""
    if core.role != "Prospective":
        core.expire(Timer.ELECTION)
    core.grant(2)
    assert core.role == "Candidate"
    core.refuse(2)
    core.refuse(3)
    wait_ms: int = core.state.timers[Timer.ELECTION] - core.now_ms
    return wait_ms


# --- candidates ---------------------------------------------------------------------------------------------------------


def test_a_refused_candidate_waits_twice_as_long_with_each_candidacy() -> None:
    core = patient(OneCore(1, 2, 3))
    first = refused_candidacy(core)
    assert core.role == "Candidate"
    core.expire(Timer.ELECTION)

    assert [first, *(refused_candidacy(core) for _ in range(6))] == [50, 100, 200, 400, 800, 1000, 1000]


def test_who_led_or_followed_meanwhile_waits_shortly_again() -> None:
    core = patient(OneCore(1, 2, 3))
    assert [refused_candidacy(core) for _ in range(2)] == [50, 100]
    core.elect(2)
    core.tell(ResignRequested(core.state.epoch))
    core.expire(Timer.ELECTION)
    assert [refused_candidacy(core) for _ in range(2)] == [50, 100]
    core.ask(begin(2, core.state.epoch + 1))
    core.expire(Timer.FETCH)

    assert refused_candidacy(core) == 50


def test_a_candidate_that_may_still_win_waits_for_the_answer() -> None:
    core = patient(OneCore(1, 2, 3))
    core.expire(Timer.ELECTION)
    core.grant(2)
    core.refuse(2)
    assert core.state.timers[Timer.ELECTION] == 2 * core.state.settings.election_timeout_ms
    core.answer(VoteRequest, 3, None)

    assert core.state.timers[Timer.ELECTION] == 50, "nobody is left to wait for"


def test_who_was_refused_by_a_majority_asks_nobody_else() -> None:
    core = OneCore(1, 2, 3, 4, 5)
    core.expire(Timer.ELECTION)
    core.grant(2)
    core.grant(3)
    for peer in (2, 3, 4):
        core.refuse(peer)
    core.answer(VoteRequest, 5, None)
    core.expire(Timer.RETRY)

    assert core.role == "Candidate"
    assert not core.asked(VoteRequest)


def test_a_voter_that_could_not_answer_has_not_refused() -> None:
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)
    for peer in (2, 3):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        core.answer(VoteRequest, peer, VoteResponse(error=error, epoch=0, granted=False))
    assert core.role == "Prospective"
    core.expire(Timer.RETRY)

    assert core.asked(VoteRequest).keys() == {2, 3}


def test_pre_votes_that_nobody_answered_are_soon_asked_for_again() -> None:  # ours; KIP-996: another election timeout
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)
    core.expire(Timer.ELECTION)

    assert core.role == "Unattached"
    assert core.state.timers[Timer.ELECTION] <= core.state.settings.early_election_max_ms


# --- followers ----------------------------------------------------------------------------------------------------------


def broken_stream(core: OneCore) -> int:
    """For how many milliseconds it waits then; nobody votes for it after that."""
    core.tell(PeerDisconnected(2))
    wait_ms: int = core.state.timers[Timer.FETCH] - core.now_ms
    core.expire(Timer.FETCH)
    core.refuse(2)
    core.refuse(3)
    assert core.role == "Follower"
    return wait_ms


def test_who_suspects_its_leader_in_vain_waits_twice_as_long_each_time() -> None:
    core = patient(follower())

    assert [broken_stream(core) for _ in range(7)] == [50, 100, 200, 400, 800, 1000, 1000]
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, high_watermark=0))
    assert broken_stream(core) == 50, "the leader had answered"


def test_more_evidence_against_the_same_leader_changes_nothing() -> None:
    core = patient(follower())
    core.tell(PeerDisconnected(2))
    core.tell(PeerDisconnected(2))

    assert [broken_stream(core) for _ in range(2)] == [50, 100]


def test_who_leaves_and_hears_nothing_lets_others_campaign() -> None:  # KIP-996
    core = follower()
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, high_watermark=0))
    core.tell(ShutdownRequested())
    core.expire(Timer.FETCH)
    assert core.role == "Follower"
    core.ask(vote(3, 1, pre_vote=True))

    assert core.told().granted


@pytest.mark.parametrize("wait_ms", [100, 5000])
def test_a_fetch_waits_as_long_as_it_is_set_to_and_half_the_own_patience_at_most(wait_ms: int) -> None:
    core = OneCore(1, 2, 3, fetch_max_wait_ms=wait_ms)
    core.ask(begin(2, 1))

    assert core.asked(FetchRequest)[2].max_wait_ms == min(wait_ms, core.state.settings.fetch_timeout_ms // 2)

"""Who may vote for whom, who campaigns, and when (D 3.4, KIP-595, KIP-996)."""

import msgspec
import pytest

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    PeerDisconnected,
    Ticked,
)
from ottla.quorum.raft.instructions import (
    PersistElection,
)
from ottla.quorum.raft.messages import (
    FetchRequest,
    FetchResponse,
    VoteRequest,
)
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import OneCore, key
from tests.unit.quorum.raft_messages import candidate, follower, leader, prospective, resigned, vote


def test_nobody_leads_without_an_election_timeout_or_a_reason() -> None:  # D 3.4
    core = OneCore(1, 2, 3)

    assert core.role == "Unattached"
    assert not core.asked(VoteRequest)
    assert core.state.timers[Timer.ELECTION] > 0


def test_a_campaign_begins_with_pre_votes_in_the_old_epoch() -> None:  # KIP-996
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)

    assert {request.pre_vote for request in core.asked(VoteRequest).values()} == {True}
    assert core.state.epoch == 0
    assert not core.found(PersistElection)


def test_a_candidate_has_its_own_vote_on_disk_before_it_asks_for_others() -> None:  # D 3.8
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)
    core.grant(2)

    assert core.out[0] == PersistElection(ElectionState(1, None, key(1)))
    assert {request.pre_vote for request in core.asked(VoteRequest).values()} == {False}


def test_the_only_voter_leads_at_once() -> None:  # kraft.md 1.2
    core = OneCore(1)

    assert core.role == "Leader"
    assert core.state.epoch == 1


def test_a_plain_broker_never_campaigns() -> None:  # KIP-595
    core = OneCore(2, 3, can_vote=False)

    assert Timer.ELECTION not in core.state.timers


def test_a_controller_outside_the_voters_never_campaigns() -> None:  # KIP-853
    core = OneCore(2, 3, 4)

    assert Timer.ELECTION not in core.state.timers


def test_a_candidate_without_a_majority_asks_again_with_pre_votes() -> None:  # KIP-996
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)
    core.grant(2)
    core.expire(Timer.ELECTION)

    assert (core.role, core.state.epoch) == ("Prospective", 1)


def test_a_vote_is_on_disk_before_it_is_given() -> None:  # D 3.8
    core = OneCore(1, 2, 3)
    core.ask(vote(2, 1))

    assert core.out[0] == PersistElection(ElectionState(1, None, key(2)))
    assert core.told().granted  # after that


def test_who_voted_waits_a_whole_election_timeout_for_its_candidate() -> None:  # D 3.4
    core = OneCore(1, 2, 3)
    core.ask(vote(2, 1))

    assert core.state.timers[Timer.ELECTION] >= core.state.settings.election_timeout_ms


def test_a_pre_vote_binds_nobody() -> None:  # KIP-996
    core = OneCore(1, 2, 3)
    core.ask(vote(2, 0, pre_vote=True))
    assert core.told().granted
    core.ask(vote(3, 0, pre_vote=True))

    assert core.told().granted
    assert core.state.election == ElectionState()


def test_even_a_pre_vote_of_a_higher_epoch_ends_an_older_one() -> None:  # kraft.md 1.5
    core = leader()
    core.ask(vote(3, 7, pre_vote=True, last=(1, 1)))

    assert (core.role, core.state.epoch) == ("Unattached", 7)


def test_higher_epochs_do_not_put_off_an_election() -> None:  # kraft.md 1.2
    core = OneCore(1, 2, 3)
    due = core.state.timers[Timer.ELECTION]
    core.now_ms = due - 1
    core.ask(vote(2, 5, to=3))

    assert core.state.epoch == 5
    assert core.state.timers[Timer.ELECTION] <= due


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (vote(2, 1, last=(-1, 0)), "an offset below zero"),
        (vote(2, 1, last=(0, 1)), "a log of the epoch it only asks for"),
        (vote(-1, 1), "nobody asks"),
    ],
)
def test_an_impossible_vote_request_is_refused(request_: VoteRequest, why: str) -> None:  # kraft.md 1.5
    core = OneCore(1, 2, 3)
    core.ask(request_)

    assert core.told().error is ErrorCode.INVALID_REQUEST, why
    assert core.state.epoch == 0


def test_a_node_may_have_the_number_zero() -> None:  # node.id, Kafka's least
    core = OneCore(0, 1, 2)
    core.ask(vote(0, 1))

    assert core.told().granted


def test_a_vote_meant_for_a_former_disk_is_refused_but_its_epoch_is_followed() -> None:  # KIP-853
    core = OneCore(1, 2, 3)
    core.ask(msgspec.structs.replace(vote(2, 4), receiver=key(1)._replace(directory_id=bytes(16))))

    assert core.told().error is ErrorCode.INVALID_VOTER_KEY
    assert core.state.epoch == 4


def unattached() -> OneCore:
    return OneCore(1, 2, 3)


@pytest.mark.parametrize(
    ("make", "vote_given", "pre_vote_given"),
    [
        (unattached, True, True),
        (prospective, True, True),
        (candidate, False, True),
        (leader, False, False),
        (resigned, False, True),
        (follower, False, True),
    ],
)
def test_each_role_votes_as_it_must(make: object, vote_given: bool, pre_vote_given: bool) -> None:  # D 3.4, KIP-996
    core: OneCore = make()  # type: ignore[operator]  # the makers above
    last = (5, core.state.epoch)
    core.ask(vote(3, core.state.epoch, pre_vote=True, last=last))
    assert core.told().granted is pre_vote_given
    core.ask(vote(3, core.state.epoch, last=(5, max(0, core.state.epoch - 1))))
    assert core.told().granted is (vote_given and core.state.epoch > 0)


def test_a_follower_that_its_leader_answered_refuses_pre_votes() -> None:  # KIP-996
    core = follower()
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2))
    core.ask(vote(3, 1, pre_vote=True))

    assert not core.told().granted


def test_a_broken_stream_to_the_leader_is_evidence() -> None:  # ours
    core = follower()
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2))
    core.tell(PeerDisconnected(2))

    assert core.state.timers[Timer.FETCH] <= core.state.settings.disconnect_jitter_ms
    core.ask(vote(3, 1, pre_vote=True))
    assert core.told().granted


def test_a_follower_that_hears_nothing_campaigns_after_the_fetch_timeout() -> None:  # KIP-595
    core = follower()

    assert core.state.timers[Timer.FETCH] == core.state.settings.fetch_timeout_ms
    core.now_ms = core.state.settings.fetch_timeout_ms
    core.tell(Ticked())
    assert core.role == "Prospective"


def test_each_answer_of_the_leader_starts_the_fetch_timeout_anew() -> None:  # KIP-595
    core = follower()
    core.now_ms = 1500
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2))

    assert core.state.timers[Timer.FETCH] == 1500 + core.state.settings.fetch_timeout_ms


def test_refused_pre_votes_lead_back_to_the_leader() -> None:  # KIP-996
    core = follower()
    core.expire(Timer.FETCH)
    core.refuse(2)
    core.refuse(3)

    assert (core.role, core.state.role.leader_id) == ("Follower", 2)

"""What a replica has to forget, take back, or count anew when something else happens: each was a line that no test missed."""

import msgspec
import pytest

from ottla.quorum.raft import parking, serving
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.instructions import PersistElection, Respond
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import (
    BatchInfo,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    Records,
    VoteRequest,
    VoteResponse,
)
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voter_tracking import voters_changed
from ottla.quorum.raft.voters import ReplicaKey
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import CLUSTER, OneCore, endpoint, key, voter_set


def follower_of(node: int, epoch: int, *voters: int, log: LogSummary | None = None) -> OneCore:
    core = OneCore(*(voters or (1, 2, 3)), log=log)
    request = BeginQuorumEpochRequest(cluster_id=CLUSTER, epoch=epoch, sender=key(node), endpoint=endpoint(node))
    core.ask(request)
    return core


def test_voters_whose_record_is_cut_off_vote_no_more() -> None:  # KIP-853
    core = follower_of(2, 1)
    brought = Records(b"x", (BatchInfo(0, 0, 1, voter_set(1, 2, 3, 4)),))
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, records=brought))
    core.sync()
    assert core.state.voters.latest == voter_set(1, 2, 3, 4)

    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, diverging=OffsetAndEpoch(0, 0)))
    assert core.state.voters.latest == voter_set(1, 2, 3)


def test_a_majority_that_fetched_once_does_not_count_for_ever() -> None:  # kraft.md 1.7
    core = OneCore(1, 2, 3, 4, 5).elect(2, 3)
    core.now_ms = 100
    core.fetch(2)
    core.fetch(3)
    assert core.state.timers[Timer.CHECK_QUORUM] == 100 + core.state.settings.fetch_timeout_ms * 3 // 2

    core.now_ms = 1000
    core.fetch(2)
    assert core.state.timers[Timer.CHECK_QUORUM] == 100 + core.state.settings.fetch_timeout_ms * 3 // 2


def test_an_answer_to_a_pre_vote_is_no_vote() -> None:  # KIP-996
    core = OneCore(1, 2, 3, 4, 5)
    core.expire(Timer.ELECTION)
    asked = core.state.inflight[2, VoteRequest.__name__]
    core.grant(3)
    core.grant(4)
    assert core.role == "Candidate"
    core.state.inflight[2, VoteRequest.__name__] = asked  # as if it were waited for
    core.late_answer(2, asked, VoteResponse(epoch=1, granted=True))
    core.grant(3)
    assert core.role == "Candidate"


def test_who_is_told_that_it_leads_an_epoch_it_does_not_know_follows_nobody() -> None:  # kraft.md 1.4: it lost its disk
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)
    refusal = VoteResponse(epoch=7, leader_id=1, leader_endpoint=endpoint(1), granted=False)
    core.answer(VoteRequest, 2, refusal)

    assert (core.role, core.state.epoch) == ("Unattached", 7)


def test_a_leader_that_answers_is_suspected_no_more() -> None:  # KIP-996
    core = follower_of(2, 1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, high_watermark=0))
    core.state.role.leader_suspected = True
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, high_watermark=0))
    vote = VoteRequest(cluster_id=CLUSTER, epoch=1, sender=key(3), last=OffsetAndEpoch(0, 0), pre_vote=True)
    core.ask(vote)

    assert not core.told().granted


@pytest.mark.parametrize(("sender", "epoch"), [(2, 1), (3, 1)], ids=["who led an epoch before", "who never led"])
def test_the_farewell_of_another_than_the_leader_starts_no_campaign(sender: int, epoch: int) -> None:  # KIP-595
    core = follower_of(3, 2)
    request = EndQuorumEpochRequest(
        cluster_id=CLUSTER, epoch=epoch, sender=key(sender), endpoint=endpoint(sender), preferred=(key(1),)
    )
    core.ask(request)

    assert isinstance(core.told(), EndQuorumEpochResponse)
    assert core.told().error is ErrorCode.FENCED_LEADER_EPOCH
    assert not core.state.role.leader_suspected
    assert core.state.timers[Timer.FETCH] == core.state.settings.fetch_timeout_ms


def test_a_farewell_meant_for_a_former_disk_starts_no_campaign() -> None:  # KIP-853
    core = follower_of(2, 1)
    request = EndQuorumEpochRequest(
        cluster_id=CLUSTER, epoch=1, sender=key(2), endpoint=endpoint(2), preferred=(key(1),)
    )
    core.ask(msgspec.structs.replace(request, receiver=ReplicaKey(1, bytes(16))))

    assert core.told().error is ErrorCode.INVALID_VOTER_KEY
    assert not core.state.role.leader_suspected


def test_the_epoch_that_a_log_teaches_at_the_start_is_kept() -> None:  # kraft.md 1.2
    log = LogSummary()
    log.append(5, 0, 1)
    log.durable_end = 1
    core = OneCore(1, 2, 3, log=log, election=ElectionState(3, None, key(2)))

    assert core.found(PersistElection) == [PersistElection(ElectionState(5))]


def test_a_leader_remembers_so_many_observers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_OBSERVERS", 3)
    core = OneCore(1, 2, 3).elect(2)
    for node in range(10, 20):
        core.fetch(node)
    assert [observer.id for observer in core.state.role.observers] == [10, 11, 12]

    core.now_ms = core.state.settings.observer_session_ms  # they are gone
    core.fetch(19)
    assert [observer.id for observer in core.state.role.observers] == [19]


def test_so_many_fetches_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED", 2)
    core = OneCore(1, 2, 3).elect(2)
    answered = []
    for node in (10, 11, 12, 11):
        core.fetch(node, offset=0, last_epoch=0)
        answered += [instruction.token for instruction in core.found(Respond)]

    assert answered == ["fetch of 12", "fetch of 11"], "the one too many at once, the other for its successor"
    assert sorted(sender.id for sender in core.state.parked) == [10, 11]


def parked_at(now_ms: int, *nodes: int, others: int = 0) -> list[int]:
    """When a leader will answer ``nodes`` that fetch then, a millisecond apart, if there is nothing to tell."""
    core = OneCore(1, 2, 3).elect(2)
    for node in range(100, 100 + others):
        core.fetch(node, offset=0, last_epoch=0)
    for later_ms, node in enumerate(nodes):
        core.now_ms = now_ms + later_ms
        core.fetch(node, offset=0, last_epoch=0)
    return [core.state.parked[key(node)].deadline_ms for node in nodes]


def test_fetches_that_find_nothing_are_answered_in_step() -> None:
    assert parked_at(1_700, 10, 11, 12) == [2_000] * 3
    assert parked_at(2_000, 10, 11) == [2_500] * 2, (
        "who was answered in step asks again right after, and waits a whole wait"
    )
    assert parked_at(2_499, 10, 11) == [2_500, 3_000]


def test_a_crowd_is_not_answered_in_one_turn() -> None:
    assert parked_at(1_700, 10, others=parking.IN_STEP) == [2_200]


def test_a_voter_that_was_removed_counts_for_no_majority() -> None:  # kraft.md 1.7
    core = OneCore(1, 2, 3, 4, 5).elect(2, 3)
    core.now_ms = 100
    core.fetch(2)
    assert core.state.role.heard_from == {2: True}
    core.state.voters.append(5, voter_set(1, 3, 4, 5))
    voters_changed(core.state)
    assert core.state.role.heard_from == {}

"""The rules as one replica follows them, with the place that asks for each: the Raft dissertation (D), KIP-595, KIP-630, KIP-996;
kraft.md has Kafka's details. What a rule decides is in test_raft_rules; here is when, in which order, and who is told."""

from typing import Any

import msgspec
import pytest

from ottla.quorum.raft.announcements import succession_delay_ms
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    AppendRequested,
    LogSynced,
    PeerDisconnected,
    RequestReceived,
    ResignRequested,
    ShutdownRequested,
    SnapshotInstalled,
    SnapshotTaken,
    Ticked,
)
from ottla.quorum.raft.instructions import (
    AppendBatches,
    AppendControl,
    CommitAdvanced,
    Fault,
    InstallSnapshot,
    LeaderChange,
    LeaderChanged,
    PersistElection,
    ReadAndRespond,
    ReadSnapshotAndRespond,
    Respond,
    StoreSnapshotChunk,
    Sync,
    TruncateTo,
)
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import (
    BatchInfo,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Records,
    RemoveVoterRequest,
    VoteRequest,
)
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import CLUSTER, OneCore, endpoint, key, voter_set


def vote(node: int, epoch: int, *, pre_vote: bool = False, last: tuple[int, int] = (0, 0), to: int = 1) -> VoteRequest:
    return VoteRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        sender=key(node),
        receiver=key(to),
        last=OffsetAndEpoch(*last),
        pre_vote=pre_vote,
    )


def begin(node: int, epoch: int, **fields: object) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        sender=key(node),
        endpoint=endpoint(node),
        **fields,  # type: ignore[arg-type]
    )


def end(node: int, epoch: int, *successors: int) -> EndQuorumEpochRequest:
    preferred = tuple(key(successor) for successor in successors)
    return EndQuorumEpochRequest(
        cluster_id=CLUSTER, epoch=epoch, sender=key(node), endpoint=endpoint(node), preferred=preferred
    )


def log_of(*epochs: int) -> LogSummary:
    log = LogSummary()
    for offset, epoch in enumerate(epochs):
        log.append(epoch, offset, offset + 1)
    log.durable_end = log.end
    return log


def records(base: int, epoch: int, count: int = 1) -> Records:
    return Records(b"x" * count, tuple(BatchInfo(base + index, base + index, epoch) for index in range(count)))


def append(core: OneCore, epoch: int | None = None) -> None:
    own = core.state.epoch if epoch is None else epoch
    core.tell(AppendRequested(own, b"x", records(core.state.log.end, own).batches))


def follower(*epochs: int, leader: int = 2) -> OneCore:
    """Of node 2, with a record of each of these epochs; it has asked for more."""
    core = OneCore(1, 2, 3, log=log_of(*epochs), election=ElectionState(max(epochs, default=0)))
    core.ask(begin(leader, max(epochs, default=0) + 1))
    return core


def leader(*epochs: int) -> OneCore:
    """Whose first record is durable here and nowhere else."""
    core = OneCore(1, 2, 3, log=log_of(*epochs), election=ElectionState(max(epochs, default=0))).elect(2)
    core.sync()
    return core


# --- elections (D 3.4, KIP-595) -----------------------------------------------------------------------------------------


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


def test_a_vote_meant_for_a_former_disk_is_refused_but_its_epoch_is_followed() -> None:  # KIP-853
    core = OneCore(1, 2, 3)
    core.ask(msgspec.structs.replace(vote(2, 4), receiver=key(1)._replace(directory_id=bytes(16))))

    assert core.told().error is ErrorCode.INVALID_VOTER_KEY
    assert core.state.epoch == 4


def unattached() -> OneCore:
    return OneCore(1, 2, 3)


def prospective() -> OneCore:
    core = OneCore(1, 2, 3)
    core.expire(Timer.ELECTION)
    return core


def candidate() -> OneCore:
    core = prospective()
    core.grant(2)
    return core


def resigned() -> OneCore:
    """After a crash in which it lost all it had appended: a log like any other's."""
    return OneCore(1, 2, 3, election=ElectionState(4, leader_id=1))


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


# --- leading (D 3.5, 3.6, 6.2; KIP-595) ---------------------------------------------------------------------------------


def test_a_new_leader_begins_with_a_record_of_its_own() -> None:  # D 6.4, KIP-595
    core = OneCore(1, 2, 3, log=log_of(1), election=ElectionState(1)).elect(2)

    (control,) = core.found(AppendControl)
    assert (control.offset, control.epoch) == (1, 2)
    assert control.records[0] == LeaderChange(1, tuple(voter.key for voter in voter_set(1, 2, 3).voters), (1, 2))
    assert core.found(Sync) == [Sync(2)]


def test_a_new_leader_is_on_disk_as_leader_before_it_appends() -> None:  # kraft.md 1.2
    core = OneCore(1, 2, 3).elect(2)
    kinds = [type(instruction) for instruction in core.out]

    assert core.state.election == ElectionState(1, 1)
    assert kinds.index(PersistElection) < kinds.index(AppendControl)


def test_a_new_leader_says_so_to_every_voter() -> None:  # KIP-595
    assert OneCore(1, 2, 3).elect(2).asked(BeginQuorumEpochRequest).keys() == {2, 3}


def test_a_voter_that_does_not_fetch_is_told_again() -> None:  # KIP-595
    core = leader()
    for node in (2, 3):
        core.answer(BeginQuorumEpochRequest, node, BeginQuorumEpochResponse(epoch=1, leader_id=1))
    core.now_ms = core.state.settings.fetch_timeout_ms // 2
    core.fetch(2)
    core.expire(Timer.BEGIN_QUORUM)

    assert core.asked(BeginQuorumEpochRequest).keys() == {3}


def test_a_leader_is_followed_from_its_announcement_on() -> None:  # KIP-595
    core = OneCore(1, 2, 3)
    core.ask(begin(3, 4))

    assert (core.role, core.state.epoch, core.state.role.leader_id) == ("Follower", 4, 3)
    assert core.asked(FetchRequest).keys() == {3}
    assert core.state.election == ElectionState(4, 3)


def test_two_leaders_of_one_epoch_stop_the_node() -> None:  # D 3.4: election safety
    core = follower()
    core.ask(begin(3, 1))

    assert core.found(Fault)


def test_leadership_is_announced_once_the_first_record_of_the_epoch_is_committed() -> None:  # D 6.4, kraft.md 1.8
    core = OneCore(1, 2, 3, log=log_of(1), election=ElectionState(1)).elect(2)

    assert LeaderChanged(1, 2, deliver_after=2) in core.out


def test_a_leader_tells_no_high_watermark_before_its_epoch_has_committed_something() -> None:  # KIP-595
    core = leader(1)
    core.fetch(3, offset=0, last_epoch=0)
    assert core.found(ReadAndRespond)[0].response.high_watermark == -1
    core.fetch(2)

    core.fetch(3, offset=0, last_epoch=0)
    assert core.found(ReadAndRespond)[0].response.high_watermark == 2


def test_what_the_leader_has_not_synced_it_does_not_count() -> None:  # ours; D 10.2.1 would let it
    core = OneCore(1, 2, 3).elect(2)
    core.fetch(2)
    assert not core.found(CommitAdvanced)

    core.sync()
    assert core.found(CommitAdvanced) == [CommitAdvanced(1)]


def test_records_of_an_older_epoch_are_committed_only_with_one_of_the_leaders_own() -> None:  # D 3.6.2
    core = leader(1, 1)
    core.fetch(2, offset=2, last_epoch=1)
    assert core.state.high_watermark == 0

    core.fetch(2, offset=3)
    assert core.state.high_watermark == 3


def test_only_a_fetch_from_a_place_the_leaders_log_has_acknowledges() -> None:  # KIP-595
    core = leader(1)
    core.fetch(2, offset=9, last_epoch=2)

    assert core.told("fetch of 2").diverging == (2, 2)
    assert core.state.high_watermark == 0


def test_an_observers_fetch_acknowledges_nothing() -> None:  # KIP-595
    core = leader()
    core.fetch(7)
    core.fetch(8)

    assert core.state.high_watermark == 0


def test_a_fetch_from_the_end_waits_for_records() -> None:  # KIP-595: a long poll
    core = leader()
    core.fetch(2)
    core.fetch(2, high_watermark=1)
    assert not core.found(Respond)

    append(core)
    assert core.found(ReadAndRespond)[0].limit == 2


def test_records_leave_before_the_leaders_own_sync_ends() -> None:  # D 10.2.1
    core = leader()
    core.fetch(2)
    core.fetch(2, high_watermark=1)
    append(core)
    kinds = [type(instruction) for instruction in core.out]

    assert kinds.index(AppendBatches) < kinds.index(ReadAndRespond) < kinds.index(Sync)


def test_a_higher_high_watermark_ends_the_wait_too() -> None:  # KIP-595
    core = leader()
    core.fetch(7, offset=0, last_epoch=0)
    assert not core.found(ReadAndRespond)
    core.fetch(2)

    assert [(each.token, each.response.high_watermark) for each in core.found(ReadAndRespond)] == [("fetch of 7", 1)]


def test_a_wait_ends_when_its_time_is_up() -> None:  # KIP-595
    core = leader()
    core.fetch(3, high_watermark=1, max_wait_ms=70)
    core.now_ms = 70
    core.tell(Ticked())

    assert core.told("fetch of 3").error is ErrorCode.NONE


def test_who_waits_at_a_leader_that_goes_is_sent_away() -> None:  # kraft.md 1.5
    core = leader()
    core.fetch(3, high_watermark=1)
    core.tell(ResignRequested(core.state.epoch))

    assert core.told("fetch of 3").error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "error"), [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH), (2, ErrorCode.NONE)]
)
def test_a_leader_takes_fetches_of_its_own_epoch_only(epoch: int, error: ErrorCode) -> None:  # kraft.md 1.4
    core = leader(1)
    core.fetch(2, offset=0, epoch=epoch, last_epoch=0)
    told = core.told("fetch of 2")

    assert (ErrorCode.NONE if told is None else told.error) is error


def test_a_leader_that_no_majority_fetches_from_makes_way() -> None:  # D 6.2
    core = leader()
    core.now_ms = core.state.timers[Timer.CHECK_QUORUM]
    core.tell(Ticked())

    assert core.role == "Resigned"


def test_a_majority_that_fetches_keeps_its_leader() -> None:  # D 6.2
    core = leader()
    core.now_ms = 1000
    core.fetch(2)

    assert core.state.timers[Timer.CHECK_QUORUM] == 1000 + core.state.settings.fetch_timeout_ms * 3 // 2


def test_reading_a_snapshot_is_contact_too() -> None:  # kraft.md 1.7
    core = leader()
    core.now_ms = 1000
    core.ask(snapshot_request(2, core.state.epoch))

    assert core.state.timers[Timer.CHECK_QUORUM] == 1000 + core.state.settings.fetch_timeout_ms * 3 // 2


@pytest.mark.parametrize(
    "fields",
    [{"offset": -1}, {"last_epoch": -1}, {"last_epoch": 2}, {"max_wait_ms": -1}],
    ids=["before the log", "of no epoch", "of an epoch to come", "no time"],
)
def test_an_impossible_fetch_is_refused_and_acknowledges_nothing(fields: dict[str, int]) -> None:  # kraft.md 1.5
    core = leader()
    valid: dict[str, Any] = {"offset": 1, "last_epoch": 1}
    core.fetch(2, **{**valid, **fields})

    assert core.told("fetch of 2").error is ErrorCode.INVALID_REQUEST
    assert core.state.role.voters[2].last_fetch_ms == -1


def test_a_follower_is_asked_to_wait_no_longer_than_half_its_patience() -> None:
    core = OneCore(1, 2, 3, fetch_timeout_ms=600)
    core.ask(begin(2, 1))

    assert core.asked(FetchRequest)[2].max_wait_ms == 300


def test_nobody_is_read_more_than_a_fetch_may_hold() -> (
    None
):  # a reply that is too long for the wire would end the stream
    core = leader()
    core.fetch(3, offset=0, last_epoch=0)
    assert core.found(ReadAndRespond)[0].max_bytes == 1 << 20

    core = OneCore(1, 2, 3, fetch_max_bytes=1000).elect(2)
    core.fetch(3, offset=0, last_epoch=0)
    assert core.found(ReadAndRespond)[0].max_bytes == core.state.settings.fetch_max_bytes


# --- leaving (KIP-595) --------------------------------------------------------------------------------------------------


def test_a_leader_that_leaves_ranks_its_successors_by_their_logs() -> None:  # KIP-595
    core = leader(1)
    core.fetch(3)
    append(core)
    core.fetch(2, offset=1, last_epoch=1)
    core.fetch(3)
    core.tell(ShutdownRequested())
    core.sync()

    assert [successor.id for successor in core.asked(EndQuorumEpochRequest)[2].preferred] == [3, 2]


def test_a_leader_leaves_when_all_it_appended_is_committed() -> (
    None
):  # D 3.10: the successor is brought up to date first
    core = leader()
    core.tell(ShutdownRequested())
    assert (core.role, core.asked(EndQuorumEpochRequest)) == ("Leader", {})

    core.fetch(3)
    assert [type(each) for each in core.out if isinstance(each, CommitAdvanced | LeaderChanged)] == [
        CommitAdvanced,
        LeaderChanged,
    ]
    assert (core.role, core.state.election.leader_id) == ("Resigned", 1)
    assert [successor.id for successor in core.asked(EndQuorumEpochRequest)[2].preferred] == [3, 2]


def test_a_leader_that_cannot_commit_leaves_all_the_same() -> None:  # ours: nobody fetches, and the process is to end
    core = leader()
    core.tell(ShutdownRequested())
    core.expire(Timer.HAND_OVER)

    assert core.role == "Resigned"


def test_a_leader_that_leaves_changes_no_voters() -> None:
    core = leader()
    core.tell(ShutdownRequested())
    core.ask(RemoveVoterRequest(cluster_id=CLUSTER, epoch=-1, sender=key(-1), voter=key(2)))

    assert core.found(Respond)[0].response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_farewell_is_said_until_it_is_acknowledged() -> None:  # KIP-595
    core = leader()
    core.fetch(2)
    core.tell(ShutdownRequested())
    core.answer(EndQuorumEpochRequest, 2, EndQuorumEpochResponse(epoch=1))
    assert not core.asked(EndQuorumEpochRequest)
    core.answer(EndQuorumEpochRequest, 3, None)
    core.expire(Timer.RETRY)

    assert core.asked(EndQuorumEpochRequest).keys() == {3}


def test_successors_campaign_in_their_order() -> None:  # KIP-595
    first, second, third = key(1), key(2), key(3)
    ranking = (first, second, third)

    settings = RaftSettings(cluster_id=CLUSTER)
    delays = [succession_delay_ms(each, ranking, settings) for each in (first, second, third, key(9))]
    assert delays == [0, 20, 40, 1000]


def test_a_farewell_makes_the_first_successor_campaign_at_once() -> None:  # KIP-595
    core = follower()
    core.ask(end(2, 1, 1, 3))

    assert core.state.timers[Timer.FETCH] == core.now_ms


def test_who_resigned_moves_to_a_new_epoch_when_nobody_took_over() -> None:  # kraft.md 1.2
    core = resigned()
    core.expire(Timer.ELECTION)

    assert (core.role, core.state.epoch) == ("Unattached", 5)


def test_who_leaves_begins_no_campaign() -> None:  # kraft.md 1.4
    core = follower()
    core.tell(ShutdownRequested())
    core.expire(Timer.FETCH)

    assert not core.asked(VoteRequest)


# --- following (D 3.5, KIP-595) -----------------------------------------------------------------------------------------


def test_what_a_follower_appends_it_syncs_before_it_fetches_again() -> None:  # KIP-595: the offset acknowledges
    core = follower()
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, records=records(0, 1)))
    assert core.found(Sync) == [Sync(1)]
    assert not core.asked(FetchRequest)

    core.sync()
    assert core.asked(FetchRequest)[2].offset == 1


def test_a_plain_broker_fetches_on_without_a_sync() -> None:  # kraft.md 1.5
    core = OneCore(2, 3, can_vote=False)
    core.ask(begin(2, 1))
    core.answer(
        FetchRequest, next(iter(core.waiting(FetchRequest))), FetchResponse(epoch=1, leader_id=2, records=records(0, 1))
    )

    assert not core.found(Sync)
    assert next(iter(core.asked(FetchRequest).values())).offset == 1


def test_a_diverging_log_is_cut_and_fetched_again() -> None:  # D 3.5, KIP-595
    core = follower(1, 2, 2)
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, diverging=OffsetAndEpoch(1, 1)))

    assert core.found(TruncateTo) == [TruncateTo(1)]
    assert (core.asked(FetchRequest)[2].offset, core.asked(FetchRequest)[2].last_epoch) == (1, 1)


def test_committed_records_are_never_cut() -> None:  # D 3.6: state machine safety
    core = follower(1, 2)
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, high_watermark=2))
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, diverging=OffsetAndEpoch(1, 1)))

    assert core.found(Fault)
    assert not core.found(TruncateTo)


def test_records_with_a_gap_before_them_are_dropped() -> None:  # D 3.5
    core = follower(1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, records=records(5, 2)))

    assert not core.found(AppendBatches)
    core.expire(Timer.RETRY)
    assert core.asked(FetchRequest)[2].offset == 1


@pytest.mark.parametrize(
    "batches",
    [
        (BatchInfo(1, 1, 2), BatchInfo(2, 2, 1)),
        (BatchInfo(1, 1, 2), BatchInfo(2, 2, 3)),
        (BatchInfo(1, 1, 2), BatchInfo(3, 3, 2)),
        (BatchInfo(1, 0, 2),),
    ],
    ids=["an older epoch behind a newer", "an epoch yet to come", "a gap", "a batch without a record"],
)
def test_records_that_no_leader_can_have_are_dropped_whole(batches: tuple[BatchInfo, ...]) -> None:  # D 3.5
    core = follower(1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, records=Records(b"x", batches)))

    assert not core.found(AppendBatches)
    assert not core.asked(FetchRequest), "a reply that will come again is not asked for in a circle"


def test_one_fetch_is_under_way_at_a_time() -> None:  # kraft.md 1.4
    core = OneCore(2, 3, 4, can_vote=False, fetch_from_any_voter=True)
    (first,) = core.waiting(FetchRequest)
    core.tell(Ticked())
    assert not core.asked(FetchRequest)

    core.answer(FetchRequest, first, None)
    assert len(core.asked(FetchRequest)) == 1


def test_a_change_of_role_forgets_what_was_asked() -> None:  # kraft.md 1.4
    core = follower()
    asked = core.state.inflight[2, FetchRequest.__name__]
    core.ask(begin(3, 2))
    core.late_answer(2, asked, FetchResponse(epoch=1, leader_id=2, records=records(0, 1)))

    assert not core.out


def test_a_follower_knows_as_committed_what_the_leader_says_and_it_has() -> None:  # KIP-595
    core = follower(1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, high_watermark=5))

    assert core.found(CommitAdvanced) == [CommitAdvanced(1)]


def test_a_sync_that_ends_after_the_log_was_cut_vouches_for_what_is_left() -> None:  # ours
    core = follower(1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, records=records(1, 2, 3)))
    core.ask(begin(3, 3))
    core.state.log.truncate(2)
    core.tell(LogSynced(4))

    assert core.state.log.durable_end == 2


def test_another_clusters_requests_change_nothing() -> None:  # kraft.md 1.4
    core = OneCore(1, 2, 3)
    core.tell(RequestReceived(msgspec.structs.replace(vote(2, 9), cluster_id="another"), "token"))

    assert core.told().error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert core.state.epoch == 0


# --- restarts (D 3.8, kraft.md 1.2) -------------------------------------------------------------------------------------


def test_a_follower_comes_back_to_its_leader() -> None:
    core = OneCore(1, 2, 3, election=ElectionState(4, leader_id=3))

    assert core.role == "Follower"
    assert core.asked(FetchRequest).keys() == {3}


def test_a_leader_comes_back_resigned_and_appends_nothing() -> None:
    core = OneCore(1, 2, 3, election=ElectionState(4, leader_id=1))
    append(core)

    assert core.role == "Resigned"
    assert not core.found(AppendBatches)


def test_a_candidate_comes_back_with_its_vote_given_to_itself() -> None:
    core = OneCore(1, 2, 3, election=ElectionState(4, None, key(1)))
    core.ask(vote(2, 4, last=(9, 3)))

    assert core.role == "Candidate"
    assert not core.told().granted


# --- clients (D 6, kraft.md 1.8) ----------------------------------------------------------------------------------------


def test_only_the_leader_of_the_epoch_takes_appends() -> None:
    core = leader()
    append(core, epoch=0)
    assert not core.found(AppendBatches)

    append(core)
    assert core.found(AppendBatches)


def test_a_leader_that_leaves_takes_no_appends() -> None:
    core = leader()
    core.tell(ShutdownRequested())
    append(core)

    assert not core.found(AppendBatches)


def test_the_application_hears_at_once_that_it_leads_no_more() -> None:
    core = leader()
    core.tell(ResignRequested(core.state.epoch))

    assert LeaderChanged(None, 1, deliver_after=0) in core.out


# --- snapshots (D 5, KIP-630) -------------------------------------------------------------------------------------------


def snapshot_request(node: int, epoch: int, position: int = 0) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        sender=key(node),
        snapshot=OffsetAndEpoch(1, 1),
        position=position,
        max_bytes=100,
    )


def piece(position: int, data: bytes, *, checksum: int = 7, epoch: int = 1) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        epoch=epoch,
        leader_id=2,
        snapshot=OffsetAndEpoch(5, 1),
        position=position,
        size=10,
        checksum=checksum,
        voters=voter_set(1, 2),
        data=data,
    )


def downloading() -> OneCore:
    core = follower()
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, snapshot=OffsetAndEpoch(5, 1)))
    return core


def test_snapshots_hold_committed_records_only() -> None:  # D 5, KIP-630
    core = leader()

    with pytest.raises(AssertionError, match="committed"):
        core.tell(SnapshotTaken(OffsetAndEpoch(1, 1), 0))


def test_who_asks_for_what_was_cut_off_is_sent_to_the_snapshot() -> None:  # D 5, KIP-630
    core = leader()
    core.fetch(2)
    core.tell(SnapshotTaken(OffsetAndEpoch(1, 1), 1))
    core.fetch(3, offset=0, last_epoch=0)

    assert core.told("fetch of 3").snapshot == (1, 1)


def test_only_who_may_be_fetched_from_serves_snapshots() -> None:  # KIP-630
    core = follower()
    core.ask(snapshot_request(3, 1))
    assert core.told().error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    core = leader()
    core.ask(snapshot_request(3, 1))
    assert core.found(ReadSnapshotAndRespond)


def test_while_a_snapshot_comes_nothing_else_is_fetched() -> None:  # KIP-630
    core = downloading()

    assert not core.asked(FetchRequest)
    assert core.asked(FetchSnapshotRequest)[2].position == 0


def test_a_snapshot_comes_in_pieces_and_is_installed_when_it_is_whole() -> None:  # KIP-630
    core = downloading()
    core.answer(FetchSnapshotRequest, 2, piece(0, b"12345"))
    assert core.found(StoreSnapshotChunk) == [StoreSnapshotChunk(OffsetAndEpoch(5, 1), 0, b"12345")]
    assert not core.found(InstallSnapshot)
    assert core.asked(FetchSnapshotRequest)[2].position == 5

    core.answer(FetchSnapshotRequest, 2, piece(5, b"67890"))
    assert core.found(InstallSnapshot) == [InstallSnapshot(OffsetAndEpoch(5, 1), 10, 7, voter_set(1, 2))]


def test_a_piece_of_another_file_begins_the_download_anew() -> None:  # KIP-630
    core = downloading()
    core.answer(FetchSnapshotRequest, 2, piece(0, b"12345"))
    core.answer(FetchSnapshotRequest, 2, piece(5, b"67890", checksum=8))

    assert not core.found(InstallSnapshot)
    assert core.asked(FetchSnapshotRequest)[2].position == 0


def test_a_snapshot_that_is_gone_is_looked_for_by_a_fetch() -> None:  # KIP-630
    core = downloading()
    gone = FetchSnapshotResponse(error=ErrorCode.SNAPSHOT_NOT_FOUND, epoch=1, leader_id=2)
    core.answer(FetchSnapshotRequest, 2, gone)
    core.expire(Timer.RETRY)

    assert core.asked(FetchRequest)[2].offset == 0


def test_the_log_goes_on_after_an_installed_snapshot() -> None:  # D 5, KIP-630
    core = downloading()
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voter_set(1, 2)))

    assert core.found(CommitAdvanced) == [CommitAdvanced(5)]
    assert core.state.voters.latest == voter_set(1, 2)


def test_a_tail_that_ends_where_the_leaders_log_begins_gives_way_to_the_snapshot() -> None:  # kraft.md 1.5
    core = follower(1, 1, 2)
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, snapshot=OffsetAndEpoch(3, 1)))

    assert core.asked(FetchSnapshotRequest)[2].snapshot == (3, 1)


def test_a_snapshot_of_what_the_log_holds_is_not_fetched_and_not_asked_for_in_a_circle() -> None:  # KIP-630
    core = follower(1, 1, 2)
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, snapshot=OffsetAndEpoch(2, 1)))

    assert not core.asked(FetchSnapshotRequest)
    assert not core.asked(FetchRequest)


def test_no_snapshot_takes_the_place_of_committed_records() -> None:  # D 3.6: state machine safety
    core = follower(1, 2)
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, high_watermark=2))
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, snapshot=OffsetAndEpoch(1, 3)))

    assert core.found(Fault)
    assert not core.asked(FetchSnapshotRequest)


def test_a_damaged_snapshot_is_fetched_again() -> None:  # KIP-630
    core = downloading()
    core.tell(SnapshotInstalled(None))

    assert core.state.log.end == 0
    assert core.state.role.download is None


def test_a_snapshot_that_arrives_damaged_again_and_again_is_fetched_at_leisure() -> None:
    core = downloading()
    pauses = []
    for _ in range(12):
        core.answer(FetchSnapshotRequest, 2, piece(0, b"1234567890"))
        core.tell(SnapshotInstalled(None))
        assert not core.asked(FetchRequest)
        pauses.append(core.state.timers[Timer.RETRY] - core.now_ms)
        core.expire(Timer.RETRY)
        core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, snapshot=OffsetAndEpoch(5, 1)))
    assert pauses[:3] == [40, 80, 160]
    assert pauses[-1] == core.state.settings.fetch_timeout_ms // 2


def test_a_piece_of_a_snapshot_shows_that_the_leader_lives() -> None:  # KIP-630
    core = downloading()
    core.now_ms = 1500
    core.answer(FetchSnapshotRequest, 2, piece(0, b"12345"))

    assert core.state.timers[Timer.FETCH] == 1500 + core.state.settings.fetch_timeout_ms

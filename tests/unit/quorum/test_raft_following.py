"""What a follower takes and asks for, what a restart begins with, and what clients may append (D 3.5, 3.8, 6; KIP-595)."""

import msgspec
import pytest

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    LogSynced,
    RequestReceived,
    ResignRequested,
    ShutdownRequested,
    Ticked,
)
from ottla.quorum.raft.instructions import (
    AppendBatches,
    CommitAdvanced,
    Fault,
    FaultKind,
    LeaderChanged,
    Sync,
    TruncateTo,
)
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import (
    BatchInfo,
    FetchRequest,
    FetchResponse,
    Records,
)
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import OneCore, key
from tests.unit.quorum.raft_messages import append, begin, follower, leader, records, vote

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


@pytest.mark.parametrize("epochs", [(), (7, 7)])
def test_a_snapshot_that_the_leaders_log_does_not_say_ends_the_node(
    epochs: tuple[int, ...],
) -> None:  # ours: lost disks
    """The leader went on past it in an older epoch: what both have lies before this log, and to cut nothing is no way on."""
    log = LogSummary()
    log.restart_at(OffsetAndEpoch(100, 7))
    for offset, epoch in enumerate(epochs, 100):
        log.append(epoch, offset, offset + 1)
    log.durable_end = log.end
    core = OneCore(1, 2, 3, log=log, election=ElectionState(7))
    core.ask(begin(2, 8))
    core.answer(FetchRequest, 2, FetchResponse(epoch=8, leader_id=2, diverging=OffsetAndEpoch(150, 6)))

    assert not core.found(TruncateTo)
    assert [fault.kind for fault in core.found(Fault)] == [FaultKind.COMMITTED_TRUNCATION]


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


def test_records_of_nobodys_epoch_are_not_taken() -> None:
    """Somebody answers who knows no leader either."""
    core = OneCore(2, 3)
    (peer,) = core.waiting(FetchRequest)
    core.answer(FetchRequest, peer, FetchResponse(epoch=0, records=records(0, 0)))

    assert core.role == "Unattached"
    assert not core.found(AppendBatches)


def test_a_sync_that_ends_after_the_log_was_cut_vouches_for_what_is_left() -> None:  # ours
    core = follower(1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, records=records(1, 2, 3)))
    core.ask(begin(3, 3))
    core.state.log.truncate(2)
    core.tell(LogSynced(4))

    assert core.state.log.durable_end == 2


def test_a_sync_that_ends_late_takes_nothing_back_that_is_durable() -> None:  # ours: syncs may share one fdatasync
    core = follower(1)
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, records=records(1, 2, 3)))
    core.tell(LogSynced(4))
    core.tell(LogSynced(2))

    assert core.state.log.durable_end == 4


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

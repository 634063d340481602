"""Who is sent to a snapshot, and how it comes (D 5, KIP-630)."""

from collections.abc import Callable

import pytest

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    SnapshotInstalled,
    SnapshotTaken,
    Ticked,
)
from ottla.quorum.raft.instructions import (
    CommitAdvanced,
    Fault,
    InstallSnapshot,
    ReadSnapshotAndRespond,
    SendRequest,
    StoreSnapshotChunk,
)
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from ottla.quorum.raft.observing import FIRST_BOOTSTRAP_ID
from ottla.quorum.raft.rules import SNAPSHOT_TRIES
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import OneCore, endpoint, voter_set
from tests.unit.quorum.raft_messages import begin, follower, leader, snapshot_request, vote


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


@pytest.mark.parametrize(("own", "read"), [(50, 50), (1 << 20, 100)])
def test_nobody_is_read_a_longer_piece_than_either_side_takes(own: int, read: int) -> None:
    core = OneCore(1, 2, 3, snapshot_max_bytes=own).elect(2)
    core.ask(snapshot_request(3, 1))

    assert [each.max_bytes for each in core.found(ReadSnapshotAndRespond)] == [read]


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


def test_nothing_is_asked_for_while_a_snapshot_is_installed() -> None:  # the log is about to be another
    core = downloading()
    core.answer(FetchSnapshotRequest, 2, piece(0, b"1234567890"))
    assert core.found(InstallSnapshot)
    assert not core.found(SendRequest)
    core.tell(Ticked())

    assert not core.found(SendRequest)


def test_a_piece_is_asked_for_once_at_a_time() -> None:
    core = downloading()
    core.tell(Ticked())

    assert not core.found(SendRequest)


def test_a_piece_of_another_file_begins_the_download_anew() -> None:  # KIP-630
    core = downloading()
    core.answer(FetchSnapshotRequest, 2, piece(0, b"12345"))
    core.answer(FetchSnapshotRequest, 2, piece(5, b"67890", checksum=8))

    assert not core.found(InstallSnapshot)
    assert core.asked(FetchSnapshotRequest)[2].position == 0


def test_pieces_that_bring_nothing_are_failures_and_asked_for_with_pauses() -> None:
    core = downloading()
    core.answer(FetchSnapshotRequest, 2, piece(0, b"12345"))
    core.answer(FetchSnapshotRequest, 2, piece(5, b""))
    core.answer(FetchSnapshotRequest, 2, piece(5, b""))

    assert not core.asked(FetchSnapshotRequest), "not before a pause"
    core.expire(Timer.RETRY)
    core.answer(FetchSnapshotRequest, 2, piece(5, b"67890", checksum=8))
    assert core.state.role.download.failures == 3

    core.expire(Timer.RETRY)
    core.answer(FetchSnapshotRequest, 2, piece(0, b"12345"))
    assert core.state.role.download.failures == 0


def refused(core: OneCore, source: int) -> None:
    """By one that lost touch with its leader."""
    for _ in range(SNAPSHOT_TRIES):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        core.answer(FetchSnapshotRequest, source, FetchSnapshotResponse(error=error, epoch=1, leader_id=2))
        if Timer.RETRY in core.state.timers and core.waiting(FetchRequest) == []:
            core.expire(Timer.RETRY)


def unreachable(core: OneCore, source: int) -> None:
    for _ in range(SNAPSHOT_TRIES):
        core.answer(FetchSnapshotRequest, source, None)
        if core.waiting(FetchRequest) == []:
            core.expire(Timer.RETRY)


def cut_short(core: OneCore, source: int) -> None:
    core.answer(FetchSnapshotRequest, source, piece(0, b""))
    for _ in range(SNAPSHOT_TRIES - 1):
        core.answer(FetchSnapshotRequest, source, piece(0, b""))
        core.expire(Timer.RETRY)


def damaged(core: OneCore, source: int) -> None:
    core.answer(FetchSnapshotRequest, source, piece(0, b"1234567890"))
    core.tell(SnapshotInstalled(None))


@pytest.mark.parametrize("arrives", [refused, unreachable, cut_short, damaged])
@pytest.mark.parametrize("seed", range(6))
def test_an_observer_fetches_from_another_where_the_snapshot_does_not_come_whole(
    arrives: Callable[[OneCore, int], None], seed: int
) -> None:
    core = OneCore(2, 3, 4, 5, seed=seed, election=ElectionState(1, 2), can_vote=False, fetch_from_any_voter=True)
    (source,) = core.waiting(FetchRequest)
    core.answer(FetchRequest, source, FetchResponse(epoch=1, leader_id=2, snapshot=OffsetAndEpoch(5, 1)))
    arrives(core, source)

    (next_source,) = core.waiting(FetchRequest)
    assert next_source != source


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


def test_a_snapshot_of_all_that_is_committed_takes_nothing_back() -> None:  # a tail of a later epoch may follow it
    core = follower(1, 1, 2)
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, high_watermark=2))
    core.answer(FetchRequest, 2, FetchResponse(epoch=3, leader_id=2, snapshot=OffsetAndEpoch(2, 1)))

    assert not core.found(Fault)


def test_a_damaged_snapshot_is_fetched_again() -> None:  # KIP-630
    core = downloading()
    core.tell(SnapshotInstalled(None))

    assert core.state.log.end == 0
    assert core.state.role.download is None


def test_a_snapshot_that_arrives_damaged_for_an_earlier_leader_is_nobodys_fault() -> None:
    core = downloading()
    core.answer(FetchSnapshotRequest, 2, piece(0, b"1234567890"))
    core.ask(begin(3, 2))
    core.tell(SnapshotInstalled(None))

    assert core.state.role.damaged_downloads == 0
    assert Timer.RETRY not in core.state.timers


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


def test_who_is_a_voter_by_a_snapshot_minds_a_leader_that_fell_silent_meanwhile() -> None:
    core = OneCore(2, 3)
    core.ask(begin(2, 1))
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, snapshot=OffsetAndEpoch(5, 1)))
    core.expire(Timer.FETCH)
    assert core.role == "Follower", "it has no vote to campaign with"
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voter_set(1, 2, 3)))

    core.expire(Timer.FETCH)
    assert core.role == "Prospective"


def test_who_is_a_voter_by_a_snapshot_campaigns_where_nobody_leads_any_more() -> None:
    core = OneCore(2, 3)
    core.ask(begin(2, 1))
    core.answer(FetchRequest, 2, FetchResponse(epoch=1, leader_id=2, snapshot=OffsetAndEpoch(5, 1)))
    core.ask(vote(3, 2))
    assert core.role == "Unattached"
    core.tell(SnapshotInstalled(OffsetAndEpoch(5, 1), voter_set(1, 2, 3)))

    core.expire(Timer.ELECTION)
    assert core.role == "Prospective"


def test_a_snapshot_is_asked_for_where_it_was_told_of() -> None:
    """A new broker that knows a bootstrap server alone, and does not reach the leader: each node has snapshots of its own."""
    core = OneCore(node=9, bootstrap=(endpoint(7),), can_vote=False, fetch_from_any_voter=True)
    wrong_door = FetchResponse(
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=3, leader_id=2, leader_endpoint=endpoint(2)
    )
    core.answer(FetchRequest, FIRST_BOOTSTRAP_ID, wrong_door)
    core.answer(FetchRequest, 2, None)
    too_far_back = FetchResponse(epoch=3, leader_id=2, leader_endpoint=endpoint(2), snapshot=OffsetAndEpoch(5, 1))
    core.answer(FetchRequest, FIRST_BOOTSTRAP_ID, too_far_back)

    assert [(send.peer, send.endpoint) for send in core.found(SendRequest)] == [(FIRST_BOOTSTRAP_ID, endpoint(7))]


def test_a_snapshot_told_of_by_a_leader_that_moved_is_asked_for_there() -> None:
    """The bootstrap server was the leader all the time, at an address that nobody had told of."""
    core = OneCore(2, node=9, bootstrap=(endpoint(7),), can_vote=False, fetch_from_any_voter=True)
    core.ask(begin(2, 3))
    for _ in range(2):
        if 2 in core.waiting(FetchRequest):
            core.answer(FetchRequest, 2, None)
    too_far_back = FetchResponse(epoch=3, leader_id=2, leader_endpoint=endpoint(7), snapshot=OffsetAndEpoch(5, 1))
    core.answer(FetchRequest, FIRST_BOOTSTRAP_ID, too_far_back)

    assert [(send.peer, send.endpoint) for send in core.found(SendRequest)] == [(FIRST_BOOTSTRAP_ID, endpoint(7))]

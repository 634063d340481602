"""What a leader commits, who is answered when, and how it makes way (D 3.5, 3.6, 6.2; KIP-595)."""

from typing import Any

import pytest

from ottla.quorum.raft.announcements import succession_delay_ms
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    ResignRequested,
    ShutdownRequested,
    Ticked,
)
from ottla.quorum.raft.instructions import (
    AppendBatches,
    AppendControl,
    CommitAdvanced,
    Fault,
    LeaderChange,
    LeaderChanged,
    PersistElection,
    ReadAndRespond,
    Respond,
    Sync,
)
from ottla.quorum.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    RemoveVoterRequest,
    VoteRequest,
)
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import CLUSTER, OneCore, key, voter_set
from tests.unit.quorum.raft_messages import (
    append,
    begin,
    end,
    follower,
    leader,
    log_of,
    resigned,
    snapshot_request,
)

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


@pytest.mark.parametrize("node", [2, 9], ids=["a voter", "an observer"])
def test_a_leader_that_is_asked_in_a_higher_epoch_gives_way(node: int) -> None:  # D 3.3
    """Nobody else may be left who was in it."""
    for asks_for_snapshot in (False, True):
        core = leader(1)
        if asks_for_snapshot:
            core.ask(snapshot_request(node, 7))
        else:
            core.fetch(node, epoch=7)

        assert (core.role, core.state.epoch) == ("Unattached", 7)
        assert [told.response.error for told in core.found(Respond)] == [ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_a_leader_that_is_asked_what_nobody_asks_goes_on() -> None:
    core = leader(1)
    core.fetch(9, epoch=7, last_epoch=8)

    assert core.role == "Leader"


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
    assert delays == [0, 100, 200, 1000]


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

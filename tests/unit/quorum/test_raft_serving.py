"""Whose fetches are taken, by the leader and by followers, and what they are given (KIP-595; kraft.md 1.5)."""

import pytest

from ottla.quorum.raft import serving
from ottla.quorum.raft.events import Ticked
from ottla.quorum.raft.instructions import ReadAndRespond, Respond
from ottla.quorum.raft.messages import (
    BatchInfo,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    Records,
)
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import OneCore, key, voter_set
from tests.unit.quorum.raft_messages import append, begin, follower, leader


def in_touch(core: OneCore, high_watermark: int = 0) -> OneCore:
    """With its leader, which is voter 2 of the epoch."""
    answer = FetchResponse(epoch=core.state.epoch, leader_id=2, high_watermark=high_watermark)
    core.answer(FetchRequest, 2, answer)
    return core


def test_who_cannot_wait_is_answered_at_once() -> None:  # KIP-595
    core = leader()
    core.fetch(2)
    core.fetch(2, high_watermark=1, max_wait_ms=0)

    assert core.told("fetch of 2").error is ErrorCode.NONE


# --- twins --------------------------------------------------------------------------------------------------------------


def test_a_voter_that_answered_the_leader_and_has_not_fetched_yet_has_its_place() -> None:  # ours
    core = leader()
    core.answer(BeginQuorumEpochRequest, 2, BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(2)))
    core.fetch(2, sender=key(2, disk=1))

    assert core.told("fetch of 2").error is ErrorCode.DUPLICATE_VOTER


def test_a_voter_that_has_to_be_greeted_again_keeps_its_place_while_it_is_in_touch() -> None:  # ours
    core = leader()
    core.fetch(2)
    core.now_ms = core.state.settings.fetch_timeout_ms // 2
    core.expire(Timer.BEGIN_QUORUM)
    assert not core.state.role.voters[2].knows_leader
    core.fetch(2, sender=key(2, disk=1))

    assert core.told("fetch of 2").error is ErrorCode.DUPLICATE_VOTER


# --- followers that serve -----------------------------------------------------------------------------------------------


def test_a_follower_takes_observers_and_no_voters() -> None:  # KIP-595: the leader alone counts what they acknowledge
    core = in_touch(follower())
    core.fetch(3)
    assert core.told("fetch of 3").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    core.fetch(9)

    assert core.told("fetch of 9").error is ErrorCode.NONE


def test_an_observer_serves_nobody() -> None:  # ours: it may itself be served by a follower
    core = OneCore(2, 3)
    core.ask(begin(2, 1))
    in_touch(core).fetch(9)

    assert core.told("fetch of 9").error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_became_a_voter_while_it_waited_at_a_follower_is_given_what_is_committed() -> None:
    core = in_touch(follower())
    core.fetch(4, offset=0, high_watermark=0)
    assert not core.found(Respond)
    batches = (BatchInfo(0, 0, 1, voter_set(1, 2, 3, 4)), BatchInfo(1, 1, 1))
    brought = FetchResponse(epoch=1, leader_id=2, high_watermark=1, records=Records(b"x", batches))
    core.answer(FetchRequest, 2, brought)

    assert [(read.token, read.limit) for read in core.found(ReadAndRespond)] == [("fetch of 4", 1)]


# --- who waits ----------------------------------------------------------------------------------------------------------


def test_nobody_waits_longer_than_the_server_lets_it() -> None:
    core = leader()
    core.fetch(2)
    core.fetch(2, high_watermark=1, max_wait_ms=10_000)

    assert core.state.parked[key(2)].deadline_ms == core.state.settings.fetch_max_wait_ms


def test_who_cannot_wait_for_a_judgement_is_told_soon_that_there_is_none() -> None:
    core = in_touch(follower())
    core.fetch(9, offset=5, last_epoch=1, max_wait_ms=0)
    core.tell(Ticked())

    assert core.told("fetch of 9").high_watermark == -1


def test_who_is_further_than_can_be_judged_waits_until_it_can_be() -> None:  # ours
    core = in_touch(follower(1, 2))
    core.fetch(9, offset=2, last_epoch=1)
    in_touch(core, high_watermark=1)
    assert core.told("fetch of 9") is None
    in_touch(core, high_watermark=2)

    assert core.told("fetch of 9").diverging == (1, 1)


def test_what_is_not_committed_wakes_no_observer() -> None:
    core = leader()
    core.fetch(2)
    core.fetch(9, high_watermark=1)
    append(core)

    assert core.told("fetch of 9") is None
    assert key(9) in core.state.parked


def test_each_waits_for_its_own_time() -> None:
    core = leader()
    core.fetch(8, high_watermark=1, max_wait_ms=100)
    core.fetch(9, high_watermark=1, max_wait_ms=70)
    core.now_ms = 70
    core.tell(Ticked())
    assert core.told("fetch of 9") is not None
    assert core.told("fetch of 8") is None
    core.now_ms = core.state.timers[Timer.PARKED]
    core.tell(Ticked())

    assert (core.now_ms, core.told("fetch of 8") is not None) == (100, True)
    assert Timer.PARKED not in core.state.timers


# --- observers that a leader remembers ----------------------------------------------------------------------------------


def test_who_is_remembered_is_followed_also_when_no_more_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_OBSERVERS", 1)
    core = leader()
    core.fetch(10)
    core.now_ms = 70
    core.fetch(10)

    assert core.state.role.observers[key(10)].last_fetch_ms == 70

"""Who is in sync, who may join, and what the controller's answers do."""

import pytest

from ottla.broker.replication.decisions.isr import (
    Committed,
    Outcome,
    PendingExpand,
    PendingShrink,
    may_join,
    out_of_sync,
    outcome_of,
)
from ottla.broker.replication.decisions.replica import NEVER_MS, BrokerStanding, FollowerContact, ReplicaState
from ottla.runtime.errors import ErrorCode

ALIVE = BrokerStanding(epoch=7, fenced=False, shutting_down=False)


def replica(end: int, *, caught_up_ms: int = 0, broker_epoch: int = 7) -> ReplicaState:
    state = ReplicaState(last_caught_up_ms=caught_up_ms)
    state.log_end_offset = end
    state.broker_epoch = broker_epoch
    return state


def test_a_proposed_member_counts_for_the_high_watermark_only() -> None:
    state = PendingExpand((1, 2), 3)
    assert state.maximal == (1, 2, 3)
    assert state.committed == (1, 2)
    assert state.proposed == (1, 2, 3)


def test_members_proposed_to_leave_still_count() -> None:
    state = PendingShrink((1, 2, 3), (2, 3))
    assert state.maximal == (1, 2, 3)
    assert state.proposed == (1,)


def test_nothing_is_proposed_when_all_is_committed() -> None:
    assert Committed((1, 2)).proposed is None
    assert Committed((1, 2)).maximal == (1, 2)


def test_a_replica_with_all_that_is_committed_may_join() -> None:
    assert may_join(replica(50), ALIVE, high_watermark=50, leader_epoch_start_offset=40)


def test_a_replica_below_the_high_watermark_may_not_join() -> None:
    assert not may_join(replica(49), ALIVE, high_watermark=50, leader_epoch_start_offset=40)


def test_a_replica_below_the_start_of_the_leaders_epoch_may_not_join() -> None:
    assert not may_join(replica(50), ALIVE, high_watermark=50, leader_epoch_start_offset=51)


@pytest.mark.parametrize(
    "standing",
    [None, BrokerStanding(7, fenced=True, shutting_down=False), BrokerStanding(7, fenced=False, shutting_down=True)],
)
def test_an_unknown_fenced_or_leaving_broker_may_not_join(standing: BrokerStanding | None) -> None:
    assert not may_join(replica(50), standing, 50, 40)


def test_a_fetch_of_an_earlier_start_of_the_broker_does_not_let_it_join() -> None:
    assert not may_join(replica(50, broker_epoch=6), ALIVE, 50, 40)


def test_a_fetch_without_a_broker_epoch_lets_it_join() -> None:
    assert may_join(replica(50, broker_epoch=-1), ALIVE, 50, 40)


def test_a_member_behind_for_longer_than_the_lag_time_is_out_of_sync() -> None:
    replicas = {2: replica(90, caught_up_ms=1_000), 3: replica(90, caught_up_ms=1_001)}
    assert out_of_sync((1, 2, 3), 1, replicas, 100, now_ms=31_001, lag_time_max_ms=30_000) == (2,)


def test_a_member_that_has_everything_is_in_sync_however_long_ago_it_fetched() -> None:
    assert out_of_sync((1, 2), 1, {2: replica(100, caught_up_ms=0)}, 100, 10**9, 30_000) == ()


def test_a_fetch_at_the_end_is_caught_up_now() -> None:
    state = replica(0)
    state.fetched(100, leader_end_offset=100, now_ms=5_000)
    assert state.last_caught_up_ms == 5_000


def test_a_fetch_at_the_end_of_the_previous_fetch_was_caught_up_then() -> None:
    state = replica(0)
    state.fetched(50, leader_end_offset=100, now_ms=5_000)
    assert state.last_caught_up_ms == 0
    state.fetched(100, leader_end_offset=200, now_ms=6_000)
    assert state.last_caught_up_ms == 5_000


def test_a_fetch_that_fell_further_behind_was_not_caught_up() -> None:
    state = replica(0)
    state.fetched(50, leader_end_offset=100, now_ms=5_000)
    state.fetched(99, leader_end_offset=200, now_ms=6_000)
    assert state.last_caught_up_ms == 0


def test_a_follower_on_a_long_way_is_caught_up_as_of_when_it_set_out() -> None:
    """The producer is always three fetches ahead: at none of them has the follower what there was at the one before."""
    state = replica(0)
    for number in range(100):
        state.fetched(10 * number, leader_end_offset=10 * number + 30, now_ms=1_000 + 50 * number)
    assert 1_000 + 50 * 99 - state.last_caught_up_ms <= 2 * 3 * 50


def test_a_follower_that_gets_ever_further_behind_is_caught_up_ever_longer_ago() -> None:
    state = replica(0)
    for number in range(100):
        state.fetched(10 * number, leader_end_offset=20 * number + 30, now_ms=1_000 + 50 * number)
    assert 1_000 + 50 * 99 - state.last_caught_up_ms > 50 * 50


def test_the_mark_of_an_earlier_epoch_says_nothing() -> None:
    state = replica(0)
    state.fetched(50, leader_end_offset=100, now_ms=5_000)
    state.mark_offset, state.mark_ms = -1, NEVER_MS  # a new epoch began
    state.fetched(100, leader_end_offset=200, now_ms=6_000)
    assert state.last_caught_up_ms == 0


def test_an_idle_partition_is_caught_up_as_of_its_sessions_last_fetch() -> None:
    state = replica(0)
    state.fetched(100, leader_end_offset=100, now_ms=5_000)
    state.contact = FollowerContact(last_fetch_ms=90_000)
    state.leader_appended(previous_end=100)
    assert state.last_caught_up_ms == 90_000


def test_a_replica_behind_gains_nothing_from_its_sessions_fetches() -> None:
    state = replica(99, caught_up_ms=5_000)
    state.contact = FollowerContact(last_fetch_ms=90_000)
    state.leader_appended(previous_end=100)
    assert state.last_caught_up_ms == 5_000


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.NONE, Outcome.ADOPT),
        (ErrorCode.INELIGIBLE_REPLICA, Outcome.REVERT),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, Outcome.REVERT),
        (ErrorCode.FENCED_LEADER_EPOCH, Outcome.AWAIT_METADATA),
        (ErrorCode.INVALID_UPDATE_VERSION, Outcome.AWAIT_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_ID, Outcome.AWAIT_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Outcome.AWAIT_METADATA),
        (ErrorCode.INVALID_REQUEST, Outcome.AWAIT_METADATA),
        (ErrorCode.NEW_LEADER_ELECTED, Outcome.AWAIT_METADATA),
        (ErrorCode.NOT_CONTROLLER, Outcome.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Outcome.RETRY),
    ],
)
def test_each_answer_of_the_controller_has_its_outcome(error: ErrorCode, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome

"""How far records are committed: each clause of the rule, alone."""

from collections.abc import Mapping

from ottla.broker.replication.decisions.high_watermark import follower_high_watermark, leader_high_watermark
from ottla.broker.replication.decisions.replica import BrokerStanding, ReplicaState

NOW_MS = 100_000
LAG_MS = 30_000
ALIVE = BrokerStanding(epoch=7, fenced=False, shutting_down=False)
BROKERS = {2: ALIVE, 3: ALIVE, 4: ALIVE}


def replica(end: int, caught_up_ms: int = 0) -> ReplicaState:
    state = ReplicaState(last_caught_up_ms=caught_up_ms)
    state.log_end_offset = end
    return state


def committed(
    replicas: Mapping[int, ReplicaState],
    isr: tuple[int, ...],
    *,
    current: int = 0,
    end: int = 100,
    stable: int | None = None,
    committed_isr_size: int | None = None,
    required: int = 1,
    brokers: Mapping[int, BrokerStanding] = BROKERS,
) -> int:
    return leader_high_watermark(
        current,
        end,
        end if stable is None else stable,
        committed_isr_size=len(isr) if committed_isr_size is None else committed_isr_size,
        required_in_sync=required,
        maximal_isr=isr,
        replicas=replicas,
        brokers=brokers,
        now_ms=NOW_MS,
        lag_time_max_ms=LAG_MS,
    )


def test_a_leader_alone_commits_what_it_has() -> None:
    assert committed({}, (1,)) == 100


def test_the_slowest_in_sync_replica_decides() -> None:
    assert committed({2: replica(80), 3: replica(90)}, (1, 2, 3)) == 80


def test_the_leaders_own_end_is_a_bound_too() -> None:
    assert committed({2: replica(120)}, (1, 2)) == 100


def test_what_must_be_synced_first_counts_only_when_it_is() -> None:
    assert committed({2: replica(100)}, (1, 2), stable=70) == 70


def test_a_replica_out_of_the_isr_that_lags_is_not_waited_for() -> None:
    assert committed({2: replica(10)}, (1,)) == 100


def test_a_caught_up_replica_out_of_the_isr_is_waited_for() -> None:
    assert committed({2: replica(90, caught_up_ms=NOW_MS - LAG_MS)}, (1,)) == 90


def test_a_caught_up_replica_on_a_fenced_broker_is_not_waited_for() -> None:
    fenced = {2: BrokerStanding(epoch=7, fenced=True, shutting_down=False)}
    assert committed({2: replica(90, caught_up_ms=NOW_MS)}, (1,), brokers=fenced) == 100


def test_a_member_whose_end_is_unknown_holds_it_where_it_is() -> None:
    assert committed({2: replica(-1)}, (1, 2), current=42) == 42


def test_it_never_goes_back() -> None:
    assert committed({2: replica(80)}, (1, 2), current=90) == 90


def test_it_stands_still_while_too_few_are_in_sync() -> None:
    assert committed({2: replica(100)}, (1,), current=5, required=2) == 5


def test_only_committed_members_count_as_in_sync() -> None:
    assert committed({2: replica(100)}, (1, 2), current=5, committed_isr_size=1, required=2) == 5


def test_a_follower_takes_its_leaders() -> None:
    assert follower_high_watermark(10, 50, 100) == 50


def test_a_follower_goes_no_further_than_its_own_log() -> None:
    assert follower_high_watermark(10, 50, 30) == 30


def test_a_followers_never_goes_back() -> None:
    assert follower_high_watermark(60, 50, 100) == 60

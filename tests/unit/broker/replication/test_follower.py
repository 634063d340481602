"""What each answer makes a follower do, and where logs that parted are cut."""

from collections.abc import Callable

import pytest

from ottla.broker.replication.decisions.follower import (
    Append,
    BeginAt,
    Delay,
    Fail,
    FetchState,
    FindOffsets,
    Instruction,
    PartitionFollower,
    RestartAt,
    TruncateTo,
)
from ottla.broker.replication.decisions.truncation import (
    Diverging,
    divergence,
    divergence_from_deleted,
    truncation_offset,
)
from ottla.log.epochs import LeaderEpochCache
from ottla.runtime.errors import ErrorCode


def follower(offset: int = 100) -> PartitionFollower:
    return PartitionFollower(leader_epoch=5, fetch_offset=offset, last_fetched_epoch=4, backoff_max_ms=1_000)


def ends(*entries: tuple[int, int], end: int = 100) -> Callable[[int], tuple[int, int]]:
    cache = LeaderEpochCache(entries)
    return lambda epoch: cache.end_offset_for(epoch, end)


def answer(state: PartitionFollower, error: int = 0, diverging: Diverging | None = None, end: int = 100) -> Instruction:
    return state.answered(error, 60, 3, diverging, end, ends((2, 0), (4, 50), end=end))


def test_an_answer_to_another_position_is_not_expected() -> None:
    assert follower().expects(100, 5)
    assert not follower().expects(99, 5)


def test_an_answer_of_another_leader_epoch_is_not_expected() -> None:
    assert not follower().expects(100, 4)


def test_no_answer_is_expected_while_truncating() -> None:
    state = follower()
    answer(state, diverging=Diverging(2, 50))
    assert not state.expects(100, 5)


def test_records_are_appended() -> None:
    assert answer(follower()) == Append(high_watermark=60, log_start_offset=3)


def test_after_an_append_the_next_fetch_follows_it() -> None:
    state = follower()
    state.appended(110, 5)
    assert (state.fetch_offset, state.last_fetched_epoch) == (110, 5)
    assert state.expects(110, 5)


def test_a_diverging_epoch_cuts_the_log() -> None:
    state = follower()
    assert answer(state, diverging=Diverging(4, 80)) == TruncateTo(80)
    state.truncated(80, 4)
    assert state.expects(80, 5)


def test_out_of_range_asks_for_the_leaders_offsets() -> None:
    state = follower()
    assert answer(state, ErrorCode.OFFSET_OUT_OF_RANGE) == FindOffsets()
    assert state.state is FetchState.FINDING_OFFSETS


def test_a_leader_that_ends_before_us_makes_us_cut() -> None:
    assert follower().offsets_found(0, 70, log_end_offset=100, high_watermark=60) == TruncateTo(70)


def test_a_leader_that_starts_after_us_makes_us_begin_anew() -> None:
    assert follower().offsets_found(200, 300, log_end_offset=100, high_watermark=100) == RestartAt(200)


def test_a_leader_that_starts_where_we_end_has_nothing_that_we_have() -> None:
    assert follower().offsets_found(100, 300, log_end_offset=100, high_watermark=99) == RestartAt(100)


def test_what_is_committed_is_the_leaders_too_and_only_deleted() -> None:
    assert follower().offsets_found(100, 300, log_end_offset=100, high_watermark=100) == BeginAt(100)


def test_a_leader_that_reaches_past_us_lets_us_go_on() -> None:
    assert follower().offsets_found(50, 300, log_end_offset=100, high_watermark=60) == TruncateTo(100)


def test_a_fenced_epoch_waits_for_metadata() -> None:
    state = follower()
    assert isinstance(answer(state, ErrorCode.FENCED_LEADER_EPOCH), Fail)
    assert state.state is FetchState.FAILED


def test_other_errors_are_tried_again_ever_later() -> None:
    state = follower()
    delays = [answer(state, ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in range(8)]
    assert delays == [Delay(ms) for ms in (20, 40, 80, 160, 320, 640, 1_000, 1_000)]


def test_a_good_answer_forgets_earlier_errors() -> None:
    state = follower()
    answer(state, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer(state)
    state.succeeded()
    assert answer(state, ErrorCode.NOT_LEADER_OR_FOLLOWER) == Delay(20)


def test_an_answer_whose_records_are_refused_is_no_good_one() -> None:
    state, delays = follower(), []
    for _ in range(7):
        answer(state)
        delays.append(state.interrupted(100, 4))
    assert delays == [Delay(ms) for ms in (20, 40, 80, 160, 320, 640, 1_000)]


def test_what_failed_half_way_goes_on_from_where_the_log_ends() -> None:
    state = follower()
    for _ in range(3):
        state.interrupted(100, 4)
    answer(state)
    assert state.interrupted(103, 5) == Delay(20)
    assert (state.fetch_offset, state.last_fetched_epoch, state.state) == (103, 5, FetchState.FETCHING)


def test_a_truncation_that_failed_is_asked_for_again() -> None:
    state = follower()
    answer(state, diverging=Diverging(2, 50))
    assert state.interrupted(100, 4) == Delay(20)
    assert state.expects(100, 5)


def test_without_an_epoch_the_position_stays_where_logs_may_be_compared() -> None:
    state = PartitionFollower(leader_epoch=5, fetch_offset=60, last_fetched_epoch=-1, backoff_max_ms=1_000)
    state.interrupted(100, -1)
    assert state.fetch_offset == 60


def test_who_lost_all_that_it_had_taken_begins_before_that() -> None:
    """Its only batch, the first of its log, could not be made durable, and was gone when the log was read anew."""
    state = PartitionFollower(leader_epoch=5, fetch_offset=1, last_fetched_epoch=5, backoff_max_ms=1_000)
    state.interrupted(0, -1)
    assert (state.fetch_offset, state.last_fetched_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("diverging", "expected", "why"),
    [
        (Diverging(4, 80), 80, "the leader ended epoch 4 before us"),
        (Diverging(4, 120), 100, "the leader's epoch 4 is longer: no cut"),
        (Diverging(2, 40), 40, "epoch 4 is not the leader's; both had epoch 2 up to 40"),
        (Diverging(2, 70), 50, "our epoch 2 ended at 50"),
        (Diverging(3, 60), 50, "epoch 3 is unknown here: down to the end of epoch 2"),
        (Diverging(9, 60), 60, "an epoch above all of ours: the leader's end"),
    ],
)
def test_the_log_is_cut_where_both_agree(diverging: Diverging, expected: int, why: str) -> None:
    assert truncation_offset(diverging, 100, 100, ends((2, 0), (4, 50))) == expected, why


def test_a_leader_finds_no_divergence_in_a_prefix_of_its_log() -> None:
    assert divergence(60, 4, ends((2, 0), (4, 50))) is None


def test_a_leader_that_never_had_the_epoch_answers_the_one_before() -> None:
    assert divergence(60, 3, ends((2, 0), (4, 50))) == Diverging(2, 50)


def test_a_leader_that_ended_the_epoch_earlier_answers_its_end() -> None:
    assert divergence(60, 2, ends((2, 0), (4, 50))) == Diverging(2, 50)


def test_an_epoch_beyond_the_leaders_is_undefined() -> None:
    assert divergence(60, 7, ends((2, 0), (4, 50))) == Diverging(-1, -1)


def test_a_client_that_names_no_epoch_is_not_checked() -> None:
    assert divergence(60, -1, ends((2, 0), (4, 50))) is None


@pytest.mark.parametrize(
    ("fetch_offset", "follower_start", "expected", "why"),
    [
        (60, 0, Diverging(2, 50), "the leader has nothing of epoch 2 from 50 on"),
        (60, 60, Diverging(2, 50), "nor has a follower whose log is empty a place in it"),
        (50, 0, Diverging(-1, -1), "what lies before 50 may be anyone's"),
        (40, 0, Diverging(-1, -1), "the same, and the leader could not go on from there"),
        (50, 50, None, "a follower that holds nothing holds nothing wrong"),
    ],
)
def test_a_leader_that_deleted_the_epoch_has_the_follower_begin_anew(
    fetch_offset: int, follower_start: int, expected: Diverging | None, why: str
) -> None:
    assert divergence_from_deleted(fetch_offset, 2, follower_start, 50) == expected, why

"""From the decision to the end, through everything that may come between: refusals, lost answers, other coordinators."""

import pytest

from ottla.broker.coordinator.decisions.transactions.completing import LOOKED_AT_MAX, RETRY_MS, SLOW_MS
from ottla.broker.coordinator.decisions.transactions.counts import TransactionCounts
from ottla.broker.coordinator.decisions.transactions.shard import IDS_A_TURN
from ottla.broker.coordinator.decisions.transactions.transaction import State
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.transactions.transaction_bench import T0, V1, V2, Bench, code, who


def test_a_decision_that_cannot_be_written_is_none_and_the_producer_may_try_again() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.commits = False
    answers = bench.end(producer)
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code(answers) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state() is State.ONGOING
    assert (bench.sent, bench.reminders) == ([], 0)
    bench.commits = True
    assert code(bench.end(producer, commits=False)) is ErrorCode.NONE  # also in the other way


def test_who_waited_for_a_decision_that_cannot_be_written_is_asked_to_come_again() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.commits = False
    bench.end(producer, rules=V1)
    answers = bench.add(producer)
    bench.fail()
    assert code(answers) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_decision_of_which_nobody_knows_is_followed_once_it_is_committed() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.commits = False
    answers = bench.end(producer)
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code(answers) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.wait(RETRY_MS)
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not bench.sent
    bench.wait(RETRY_MS)
    bench.commit()
    assert len(bench.sent) == 1
    bench.commits = True
    bench.arrive()
    assert bench.state() is State.COMPLETE_COMMIT
    assert not bench.reminders


def test_a_completion_that_cannot_be_written_is_written_later_and_markers_are_not_sent_again() -> None:
    bench = Bench()
    bench.end(bench.begun())
    bench.commits = False
    bench.arrive()
    bench.fail()
    assert bench.state() is State.PREPARE_COMMIT
    bench.wait(RETRY_MS)
    bench.commit()
    assert bench.state() is State.COMPLETE_COMMIT
    assert (bench.sent, bench.reminders) == ([], 0)


def test_a_completion_of_which_nobody_knows_stands() -> None:
    bench = Bench()
    bench.end(bench.begun())
    bench.commits = False
    bench.arrive()
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert bench.state() is State.COMPLETE_COMMIT
    assert not bench.reminders


def test_the_next_coordinator_goes_on_with_what_was_decided_and_says_its_own_epoch() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer)
    other = bench.another()
    assert [each.marker for each in other.sent] == [(producer.id, 1, True, 8, V2)]
    assert other.sent[0].partitions == T0
    other.arrive()
    assert other.state() is State.COMPLETE_COMMIT


def test_the_next_coordinator_waits_for_what_it_loaded_to_be_committed() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer)
    bench.commits = False
    other = bench.another()
    assert not other.sent
    other.commit()
    assert len(other.sent) == 1


def test_the_next_coordinator_goes_on_with_many_over_turns_and_forgets_many_so() -> None:
    bench = Bench()
    for number in range(LOOKED_AT_MAX + 1):
        producer = bench.producer(str(number))
        bench.add(producer, name=str(number))
        bench.end(producer, name=str(number))
    other = bench.another()
    assert len(other.sent) == LOOKED_AT_MAX + 1
    assert len(list(other.shard.begin())) == 1
    assert len(list(other.shard.end(ErrorCode.NOT_COORDINATOR))) == 1
    assert len(list(bench.another().shard.begin())) == 1
    for number in range(IDS_A_TURN):
        bench.producer(f"more {number}")
    assert len(list(bench.shard.end(ErrorCode.NOT_COORDINATOR))) == 2
    assert not bench.shard.contents()


def test_a_coordinator_that_ends_sends_nothing_and_completes_nothing_any_more() -> None:
    bench = Bench()
    bench.end(bench.begun())
    list(bench.shard.end(ErrorCode.NOT_COORDINATOR))
    before = len(bench.log)
    bench.arrive()
    assert len(bench.log) == before


def test_each_transaction_of_a_shard_ends_for_itself() -> None:
    bench = Bench()
    first = bench.begun()
    other = bench.producer("y")
    bench.add(other, name="y")
    bench.end(first)
    bench.end(other, name="y", commits=False)
    bench.sent.pop().arrive()
    found = bench.shard.find("y")
    assert found is not None
    assert found.state is State.COMPLETE_ABORT
    assert bench.state() is State.PREPARE_COMMIT


# --- the coordinator moves between every two steps --------------------------------------------------------------------


@pytest.mark.parametrize("rules", [V1, V2])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("moves", range(16))
def test_a_coordinator_that_moves_between_any_two_steps_changes_nothing(rules: int, commits: bool, moves: int) -> None:
    """``moves``: a bit for each place."""
    bench = Bench()

    def maybe_move(place: int, bench: Bench) -> Bench:
        return bench.another() if moves >> place & 1 else bench

    producer = who(bench.init())
    bench = maybe_move(0, bench)
    assert code(bench.add(producer)) is ErrorCode.NONE
    bench = maybe_move(1, bench)
    following = who(bench.end(producer, commits=commits, rules=rules))
    bench = maybe_move(2, bench)
    again = bench.end(producer, commits=commits, rules=rules)
    bench.arrive()
    assert who(again) == following
    bench = maybe_move(3, bench)
    assert who(bench.end(producer, commits=commits, rules=rules)) == following
    assert code(bench.add(following)) is ErrorCode.NONE
    assert bench.shard.contents() == bench.another().shard.contents()


# --- what is counted --------------------------------------------------------------------------------------------------


def test_a_transaction_counts_once_when_its_completion_is_committed() -> None:
    bench = Bench()
    bench.end(bench.begun())
    bench.commits = False
    bench.arrive()
    assert (bench.shard.counts(), bench.shard.unwritten_count) == (TransactionCounts(), 0)
    bench.fail()
    assert (bench.shard.counts(), bench.shard.unwritten_count) == (TransactionCounts(), 1)
    bench.wait(RETRY_MS)
    bench.commit()
    assert (bench.shard.counts(), bench.shard.unwritten_count) == (TransactionCounts(commits=1), 0)
    assert bench.another().shard.counts() == TransactionCounts()  # what it counted it says by itself


def test_who_decided_counts_nothing_and_who_completes_counts() -> None:
    bench = Bench()
    bench.end(bench.begun(), commits=False)
    other = bench.another()
    other.arrive()
    assert (bench.shard.counts(), other.shard.counts()) == (TransactionCounts(), TransactionCounts(aborts=1))


def test_what_was_decided_long_ago_is_told_with_whom_it_waits_for() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer)
    bench.wait(SLOW_MS - 1)
    bench.shard.abort_late()
    assert bench.notes == []
    bench.wait(1)
    bench.shard.abort_late()
    (sent,) = bench.sent
    who = f"transaction of x (producer {producer.id}, epoch 1): decided to commit 10 s ago, waits for"
    assert bench.notes == [f"{who} t-0 (broker 1)"]
    sent.left = {("t", 0): -1, ("t", 1): 2}
    bench.shard.abort_late()
    assert bench.notes[1:] == [f"{who} t-0 (nobody leads it, or its leader refuses) and 1 more"]


def test_an_end_that_cannot_be_written_for_long_is_told() -> None:
    bench = Bench()
    bench.end(bench.begun())
    bench.commits = False
    bench.arrive()
    bench.wait(SLOW_MS)
    bench.fail()
    bench.shard.abort_late()
    (told,) = bench.notes
    assert told.endswith("waits for this partition, to write that it is over")

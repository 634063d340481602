"""What the coordinator does by itself: transactions that take too long are aborted, ids that nobody uses are forgotten."""

import pytest

from ottla.broker.coordinator.decisions.transactions.asking import Producer
from ottla.broker.coordinator.decisions.transactions.sweeps import LOOKED_AT_MAX, PIECE_BYTES
from ottla.broker.coordinator.decisions.transactions.transaction import State
from ottla.broker.coordinator.decisions.transactions.transaction_records import record, tombstone
from ottla.broker.coordinator.shard_replay import ShardReplay
from ottla.log.records import Record as LogRecord
from ottla.log.records import encode_batch
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.transactions.transaction_bench import TIMEOUT_MS, V1, V2, Bench, code, who

WEEK_MS = 604_800_000


# --- timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    bench = Bench(version=version)
    producer = bench.begun()
    bench.wait(TIMEOUT_MS)
    bench.shard.abort_late()
    assert bench.state() is State.ONGOING
    bench.wait(1)
    bench.shard.abort_late()
    assert bench.state() is State.PREPARE_ABORT
    (sent,) = bench.sent
    assert sent.marker == (producer.id, 1, False, 7, 2 if version == 2 else 0)
    bench.arrive()
    assert bench.state() is State.COMPLETE_ABORT
    assert bench.shard.counts() == (0, 1, 1)
    assert bench.notes == [
        f"transaction of x (producer {producer.id}, epoch 0) is aborted: "
        "it took longer than its 60000 ms (transaction.timeout.ms)"
    ]
    assert code(bench.add(producer)) is ErrorCode.PRODUCER_FENCED
    assert code(bench.end(producer, rules=V1)) is ErrorCode.PRODUCER_FENCED


def test_of_version_2_a_producer_that_was_too_slow_may_abort_and_go_on() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.wait(TIMEOUT_MS + 1)
    bench.shard.abort_late()
    bench.arrive()
    assert code(bench.end(producer)) is ErrorCode.INVALID_TXN_STATE
    following = who(bench.end(producer, commits=False))
    assert following == (producer.id, 1)
    assert code(bench.add(following)) is ErrorCode.NONE


@pytest.mark.parametrize("rules", [V1, V2])
def test_who_commits_while_the_timeout_comes_is_either_first_or_told(rules: int) -> None:
    bench = Bench()
    producer = bench.begun()
    bench.wait(TIMEOUT_MS + 1)
    bench.commits = False
    committed = bench.end(producer, rules=rules)
    bench.shard.abort_late()
    bench.commit()
    assert code(committed) is ErrorCode.NONE
    assert [each.marker.is_commit for each in bench.sent] == [True]

    bench = Bench()
    producer = bench.begun()
    bench.wait(TIMEOUT_MS + 1)
    bench.commits = False
    bench.shard.abort_late()
    late = bench.end(producer, rules=rules)
    bench.commit()
    bench.wait(1_000)
    bench.commit()
    assert code(late) is not ErrorCode.NONE
    assert [each.marker.is_commit for each in bench.sent] == [False]


def test_a_timeout_that_cannot_be_written_comes_again() -> None:
    bench = Bench()
    bench.begun()
    bench.wait(TIMEOUT_MS + 1)
    bench.commits = False
    bench.shard.abort_late()
    bench.fail()
    assert bench.state() is State.ONGOING
    assert bench.transaction.epoch == 0
    assert bench.shard.counts().timeouts == 0
    bench.wait(0)
    bench.shard.abort_late()
    bench.commit()
    assert len(bench.sent) == 1
    assert bench.shard.counts().timeouts == 1


def test_a_transaction_in_two_phases_has_no_timeout() -> None:
    bench = Bench(two_phases=True)
    producer = bench.producer(two_phases=True)
    bench.add(producer)
    bench.wait(2**31)
    bench.shard.abort_late()
    assert bench.state() is State.ONGOING


def test_another_coordinator_counts_from_when_the_transaction_began() -> None:
    bench = Bench()
    bench.begun()
    bench.wait(TIMEOUT_MS - 10)
    other = bench.another()
    other.wait(11)
    other.shard.abort_late()
    assert other.state() is State.PREPARE_ABORT


HOUR_MS = 3_600_000


def test_another_coordinator_does_not_count_from_the_transaction_before() -> None:
    """Of an id only the last record is replayed; but where one that was forgotten comes again, all that stands before it is first."""
    bench = Bench()
    producer = bench.begun()
    forgotten = record("y", bench.transaction, 2)
    bench.log += [tombstone("y"), forgotten]
    producer = who(bench.end(producer))
    bench.arrive()
    bench.wait(TIMEOUT_MS)
    bench.add(producer)

    other = Bench()
    other.time_ms = bench.time_ms
    replay = ShardReplay("a partition", other.shard, lambda: 0)
    batch = encode_batch([LogRecord(at, 1, each.key, each.value) for at, each in enumerate(bench.log)])
    assert not list(replay.take(bytes(batch), 0, len(bench.log)))
    assert not list(replay.finish())
    assert not list(other.shard.begin())
    other.wait(TIMEOUT_MS)
    other.shard.abort_late()
    assert other.state() is State.ONGOING
    other.wait(1)
    other.shard.abort_late()
    assert other.state() is State.PREPARE_ABORT


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, HOUR_MS])
def test_a_calendar_that_jumps_makes_no_transaction_longer_or_shorter(jump_ms: int) -> None:
    bench = Bench()
    bench.begun()
    bench.time_ms += jump_ms
    bench.wait(TIMEOUT_MS)
    bench.shard.abort_late()
    assert bench.state() is State.ONGOING
    bench.wait(1)
    bench.shard.abort_late()
    assert bench.state() is State.PREPARE_ABORT


def test_a_transaction_of_the_future_is_given_no_more_than_its_time() -> None:
    bench = Bench()
    bench.time_ms += HOUR_MS
    bench.begun()
    bench.time_ms -= HOUR_MS
    other = bench.another()
    other.wait(TIMEOUT_MS + 1)
    other.shard.abort_late()
    assert other.state() is State.PREPARE_ABORT


def test_many_are_aborted_over_turns() -> None:
    bench = Bench()
    for number in range(LOOKED_AT_MAX + 5):
        bench.add(bench.producer(str(number)), name=str(number))
    bench.wait(TIMEOUT_MS + 1)
    bench.shard.abort_late()
    bench.shard.abort_late()  # one round is under way
    assert len(bench.sent) == LOOKED_AT_MAX
    bench.wait(0)
    assert len(bench.sent) == LOOKED_AT_MAX + 5
    bench.wait(0)
    assert not bench.reminders


# --- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [True, False])
def test_an_id_that_nobody_has_used_for_a_week_is_forgotten(ended: bool) -> None:
    bench = Bench()
    producer = bench.producer()
    if ended:
        bench.add(producer)
        bench.end(producer)
        bench.arrive()
    bench.wait(WEEK_MS - 1)
    bench.shard.expire()
    bench.wait(0)
    assert bench.shard.find("x") is not None
    bench.wait(1)
    bench.shard.expire()
    assert bench.shard.find("x") is None
    assert bench.log[-1].value is None
    assert code(bench.add(producer)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.producer() == (1_002, 0)
    assert not bench.another().shard.contents().keys() - {"x"}


def test_an_id_with_a_transaction_is_not_forgotten() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.wait(WEEK_MS)
    bench.shard.expire()
    assert bench.state() is State.ONGOING
    bench.end(producer)
    bench.wait(WEEK_MS)
    bench.shard.expire()
    assert bench.state() is State.PREPARE_COMMIT


def test_an_expiry_that_cannot_be_written_leaves_the_id_to_whoever_comes() -> None:
    bench = Bench()
    producer = bench.producer()
    bench.wait(WEEK_MS)
    bench.commits = False
    bench.shard.expire()
    answers = bench.add(producer)
    bench.fail()
    assert code(answers) is ErrorCode.KAFKA_STORAGE_ERROR
    bench.commits = True
    assert code(bench.add(producer)) is ErrorCode.NONE


def test_many_are_forgotten_over_turns_and_in_pieces() -> None:
    bench = Bench()
    for number in range(LOOKED_AT_MAX + 5):
        bench.producer(f"{number:01000}")
    bench.wait(WEEK_MS)
    bench.shard.expire()
    assert len(bench.shard.contents()) == 5
    bench.wait(0)
    bench.wait(0)
    assert not bench.shard.contents()
    assert not bench.reminders
    assert max(each for each in bench.written if each > 1) * 1_000 < PIECE_BYTES + 1_000


def test_who_begins_again_before_its_week_is_over_is_kept() -> None:
    bench = Bench()
    first = bench.producer()
    bench.wait(WEEK_MS - 1)
    second = bench.producer()
    assert second == Producer(first.id, 1)
    bench.wait(1)
    bench.shard.expire()
    assert bench.transaction.epoch == 1

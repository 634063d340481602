"""Partitions in transactions: who adds them, and what leaders of partitions are told (kraft.md 5.4, KIP-890)."""

from time import process_time

import pytest

from ottla.broker.coordinator.decisions.transactions.answers import partitions_of
from ottla.broker.coordinator.decisions.transactions.asking import Producer
from ottla.broker.coordinator.decisions.transactions.shard import BROKER_PATIENCE_MS, CLIENT_PATIENCE_MS
from ottla.broker.coordinator.decisions.transactions.transaction import LAST_EPOCH, State
from ottla.broker.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.shard_bench import TIME_MS
from tests.unit.broker.coordinator.transactions.transaction_bench import T0, V1, V2, Bench, code

MORE = {"t": frozenset((1,)), "u": frozenset((0,))}


def test_the_first_partition_begins_the_transaction_and_others_join_it() -> None:
    bench = Bench()
    producer = bench.producer()
    bench.wait(5)
    assert code(bench.add(producer)) is ErrorCode.NONE
    bench.wait(5)
    assert code(bench.add(producer, MORE)) is ErrorCode.NONE
    found = bench.transaction
    assert (found.state, found.started_ms) == (State.ONGOING, TIME_MS + 5)
    assert found.partitions == {"t": {0, 1}, "u": {0}}


def test_partitions_that_are_in_it_are_not_written_again_and_told_once_they_are_committed() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.commits = False
    before = len(bench.log)
    answers = bench.add(producer)
    assert (answers, len(bench.log)) == ([], before)
    bench.commit()
    assert code(answers) is ErrorCode.NONE


def test_who_adds_to_a_transactional_id_that_nobody_has_or_another_has_is_told_so() -> None:
    bench = Bench()
    assert code(bench.add(Producer(5, 0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    mine = bench.producer()
    assert code(bench.add(Producer(mine.id + 1, 0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (-1, 1):
        assert code(bench.add(Producer(mine.id, epoch))) is ErrorCode.PRODUCER_FENCED


def test_an_addition_that_cannot_be_written_is_undone() -> None:
    bench = Bench()
    producer = bench.producer()
    bench.commits = False
    answers = bench.add(producer)
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code(answers) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state() is State.EMPTY
    assert not bench.shard.open


def test_no_transaction_has_so_many_partitions_that_its_end_could_not_be_written() -> None:
    bench = Bench()
    bench.room = 1_000
    producer = bench.producer()
    bench.set(epoch=LAST_EPOCH)
    last = Producer(producer.id, LAST_EPOCH)
    count = 0
    while code(answers := bench.add(last, {"t": frozenset((count,))})) is ErrorCode.NONE:
        count += 1
    assert code(answers) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert count > 200
    assert code(bench.end(last)) is ErrorCode.NONE  # with all that a record can say


@pytest.mark.parametrize("rules", [V1, V2])
def test_the_next_transaction_waits_until_the_one_before_is_complete(rules: int) -> None:
    bench = Bench()
    producer = bench.begun()
    (told,) = bench.end(producer, rules=rules)
    following = Producer(told.producer_id, told.epoch)
    answers = bench.add(following, MORE)
    assert not answers
    bench.arrive()
    assert code(answers) is ErrorCode.NONE
    assert bench.transaction.partitions == MORE
    assert not bench.reminders


def test_the_next_transaction_is_told_only_when_the_one_before_is_committed_as_complete() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer, rules=V1)
    answers = bench.add(producer)
    bench.commits = False
    bench.arrive()
    assert bench.state() is State.ONGOING
    assert not answers
    bench.fail()
    assert code(answers) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.state() is State.PREPARE_COMMIT  # the markers are written: it is completed again
    bench.wait(1_000)
    bench.commit()
    assert bench.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("patience_ms", [CLIENT_PATIENCE_MS, BROKER_PATIENCE_MS])
def test_who_waits_too_long_is_asked_to_come_again(patience_ms: int) -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer, rules=V1)
    first = bench.add(producer, patience_ms=patience_ms)
    bench.wait(patience_ms // 2)
    second = bench.add(producer, patience_ms=patience_ms)
    bench.wait(patience_ms - patience_ms // 2)
    assert code(first) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not second
    bench.wait(patience_ms)
    assert code(second) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not bench.reminders


def test_a_broker_that_waits_behind_a_client_waits_no_longer_than_it_said() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer, rules=V1)
    of_client = bench.add(producer)
    of_broker = bench.verify(producer)
    bench.wait(BROKER_PATIENCE_MS)
    assert code(of_broker) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not of_client
    bench.arrive()
    assert code(of_client) is ErrorCode.NONE
    assert not bench.reminders


def test_who_waits_at_a_coordinator_that_ends_is_sent_away() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer, rules=V1)
    answers = bench.add(producer)
    list(bench.shard.end(ErrorCode.NOT_COORDINATOR))
    assert code(answers) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.sent[0].is_cancelled


def test_the_producer_id_that_follows_an_exhausted_one_waits_too() -> None:
    bench = Bench()
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    (told,) = bench.end(Producer(1_001, LAST_EPOCH))
    answers = bench.add(Producer(told.producer_id, told.epoch))
    assert not answers
    assert code(bench.add(Producer(1_001, LAST_EPOCH))) is ErrorCode.PRODUCER_FENCED
    bench.arrive()
    assert code(answers) is ErrorCode.NONE


def test_a_request_that_names_its_topic_thousands_of_times_holds_nobody_up() -> None:
    topics = [AddPartitionsToTxnTopic("t", [index]) for index in range(30_000)]
    begun = process_time()
    assert partitions_of(topics) == {"t": frozenset(range(30_000))}
    assert process_time() - begun < 3.0


# --- verification -----------------------------------------------------------------------------------------------------


def test_a_leader_hears_what_is_part_of_the_transaction() -> None:
    bench = Bench()
    producer = bench.begun()
    assert bench.verify(producer) == [(ErrorCode.NONE, T0)]


def test_a_leader_hears_of_nothing_that_may_yet_be_lost() -> None:
    bench = Bench()
    producer = bench.producer()
    bench.commits = False
    bench.add(producer)
    lost, known = bench.verify(producer), bench.verify(producer)
    assert not lost
    bench.commit(ErrorCode.NOT_COORDINATOR)
    assert code(lost) is code(known) is ErrorCode.NOT_COORDINATOR


def test_a_leader_that_asks_for_a_producer_that_is_fenced_or_of_nobody_is_told_so() -> None:
    bench = Bench()
    assert code(bench.verify(Producer(5, 0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = bench.begun()
    assert code(bench.verify(Producer(producer.id, 7))) is ErrorCode.PRODUCER_FENCED


def test_a_leader_that_asks_while_the_transaction_ends_waits_and_finds_nothing() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer, rules=V1)
    answers = bench.verify(producer)
    assert not answers
    bench.arrive()
    assert answers == [(ErrorCode.NONE, {})]

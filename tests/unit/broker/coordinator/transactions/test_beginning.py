"""InitProducerId: who begins, who goes on after an error, who is fenced (kraft.md 5.4, KIP-360, KIP-939)."""

import pytest

from ottla.broker.coordinator.decisions.transactions.asking import Producer
from ottla.broker.coordinator.decisions.transactions.shard import CLIENT_PATIENCE_MS
from ottla.broker.coordinator.decisions.transactions.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    TWO_PHASES_TIMEOUT_MS,
    State,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.transactions.transaction_bench import V1, V2, Bench, code, who


def test_a_new_transactional_id_gets_a_producer_id_of_its_own_and_epoch_0() -> None:
    bench = Bench()
    assert bench.producer("x") == (1_001, 0)
    assert bench.producer("y") == (1_002, 0)
    assert bench.state() is State.EMPTY


def test_who_begins_again_has_the_next_epoch_and_who_was_before_is_fenced() -> None:
    bench = Bench()
    first = bench.producer()
    second = bench.producer()
    assert second == (first.id, 1)
    assert code(bench.add(first)) is ErrorCode.PRODUCER_FENCED
    assert code(bench.end(first)) is ErrorCode.PRODUCER_FENCED
    assert code(bench.init(first)) is ErrorCode.PRODUCER_FENCED
    assert code(bench.add(second)) is ErrorCode.NONE


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_is_positive_and_at_most_what_the_node_allows(timeout_ms: int) -> None:
    assert code(Bench().init(timeout_ms=timeout_ms)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    for each in (1, 900_000):
        assert code(Bench().init(timeout_ms=each)) is ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "n" * 32_768])
def test_a_name_that_no_record_holds_is_refused(name: str) -> None:
    assert code(Bench().init(name=name)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("producer", [Producer(5, -1), Producer(-1, 5)])
def test_who_goes_on_says_id_and_epoch(producer: Producer) -> None:
    assert code(Bench().init(producer)) is ErrorCode.INVALID_REQUEST


def test_two_phases_are_refused_where_they_are_not_enabled() -> None:
    assert code(Bench().init(two_phases=True)) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    bench = Bench(two_phases=True)
    assert code(bench.init(two_phases=True, timeout_ms=-1)) is ErrorCode.NONE
    assert bench.transaction.timeout_ms == TWO_PHASES_TIMEOUT_MS


def test_a_prepared_transaction_is_kept_by_nobody_and_its_producer_hears_of_it() -> None:
    assert code(Bench(two_phases=True).init(keeps_prepared=True)) is ErrorCode.UNSUPPORTED_VERSION


# --- after an error ---------------------------------------------------------------------------------------------------


def test_a_producer_that_goes_on_has_the_next_epoch_also_if_its_answer_was_lost() -> None:
    bench = Bench()
    first = bench.producer()
    assert who(bench.init(first)) == (first.id, 1)
    assert who(bench.init(first)) == (first.id, 1)  # the same request again
    assert who(bench.init(Producer(first.id, 1))) == (first.id, 2)


def test_who_goes_on_when_another_has_begun_is_fenced() -> None:
    bench = Bench()
    first = bench.producer()
    bench.init(first)
    bench.producer()
    for epoch in (0, 1):
        assert code(bench.init(Producer(first.id, epoch))) is ErrorCode.PRODUCER_FENCED


def test_who_goes_on_with_an_id_that_is_not_known_any_more_begins() -> None:
    assert who(Bench().init(Producer(5, 3))) == (1_001, 0)


def test_somebody_else_s_producer_id_is_fenced() -> None:
    bench = Bench()
    bench.producer()
    assert code(bench.init(Producer(5, 0))) is ErrorCode.PRODUCER_FENCED
    bench.init(Producer(1_001, 0))
    assert code(bench.init(Producer(5, 0))) is ErrorCode.PRODUCER_FENCED  # the epoch that may come again
    bench.add(Producer(1_001, 1))
    bench.end(Producer(1_001, 1))
    assert code(bench.init(Producer(5, 1))) is ErrorCode.PRODUCER_FENCED  # and need not wait to hear of it


# --- with a transaction open ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_begins_waits_until_the_open_transaction_is_aborted(version: int) -> None:
    bench = Bench(version=version)
    first = bench.begun()
    answers = bench.init()
    (sent,) = bench.sent
    assert (sent.marker.epoch, sent.marker.is_commit) == (first.epoch + 1, False)
    assert not answers
    bench.arrive()
    assert who(answers) == (first.id, 2)
    assert bench.state() is State.EMPTY
    assert not bench.reminders


def test_who_begins_while_markers_are_long_under_way_is_asked_to_come_again() -> None:
    bench = Bench()
    bench.begun()
    answers = bench.init()
    bench.wait(CLIENT_PATIENCE_MS)
    assert code(answers) is ErrorCode.CONCURRENT_TRANSACTIONS
    again = bench.init()  # does not fence a second time
    assert len(bench.sent) == 1
    bench.arrive()
    assert who(again).epoch == 2


def test_who_goes_on_after_an_error_aborts_its_own_transaction_only() -> None:
    bench = Bench()
    zombie = bench.producer()
    live = bench.producer()
    bench.add(live)
    assert code(bench.init(zombie)) is ErrorCode.PRODUCER_FENCED
    assert bench.state() is State.ONGOING
    answers = bench.init(live)
    bench.arrive()
    assert who(answers).id == live.id


def test_a_fence_that_cannot_be_written_leaves_the_transaction_as_it_was() -> None:
    bench = Bench(commits=False)
    answers = bench.init()
    bench.commit()
    producer = who(answers)
    bench.add(producer)
    bench.commit()
    before = bench.transaction
    answers = bench.init()
    bench.fail()
    assert code(answers) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.transaction is before
    assert not bench.sent


# --- exhausted epochs -------------------------------------------------------------------------------------------------


def test_who_begins_when_all_epochs_are_used_has_another_id() -> None:
    bench = Bench()
    bench.producer()
    bench.set(epoch=LAST_EPOCH - 1)
    assert bench.producer() == (1_001, LAST_EPOCH)
    assert bench.producer() == (1_002, 0)


def test_who_goes_on_when_all_epochs_are_used_has_another_id_and_its_repetition_the_same() -> None:
    bench = Bench()
    bench.producer()
    bench.set(epoch=LAST_EPOCH)
    last = Producer(1_001, LAST_EPOCH)
    assert who(bench.init(last)) == (1_002, 0)
    assert who(bench.init(last)) == (1_002, 0)
    assert who(bench.init(Producer(1_002, 0))) == (1_002, 1)
    assert code(bench.init(last)) is ErrorCode.PRODUCER_FENCED


def test_who_was_just_given_another_id_is_asked_to_come_again_while_its_transaction_ends() -> None:
    """Kafka fences it, though it is the one that goes on."""
    bench = Bench(version=2)
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    given = who(bench.end(Producer(1_001, LAST_EPOCH)))
    assert given == (1_002, 0)
    answers = bench.init(given)
    bench.wait(CLIENT_PATIENCE_MS)
    assert code(answers) is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.arrive()
    assert who(bench.init(given)) == (1_002, 1)


@pytest.mark.parametrize("epoch", [LAST_EPOCH, EPOCH_MAX])
def test_who_is_fenced_gets_no_other_id_where_all_epochs_are_used(epoch: int) -> None:
    bench = Bench()
    bench.producer()
    bench.set(epoch=epoch, last_epoch=epoch - 1)
    assert code(bench.init(Producer(1_001, 5))) is ErrorCode.PRODUCER_FENCED
    assert code(bench.init(Producer(9, epoch - 1))) is ErrorCode.PRODUCER_FENCED
    bench.set(epoch=LAST_EPOCH)
    bench.init(Producer(1_001, LAST_EPOCH))
    assert code(bench.init(Producer(9, LAST_EPOCH))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_no_producer_is_ever_given_the_epoch_that_fences_the_last_one(version: int) -> None:
    bench = Bench(version=version)
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    bench.wait(0)
    last = Producer(1_001, LAST_EPOCH)
    bench.init(last)
    assert bench.sent[0].marker.epoch == EPOCH_MAX
    bench.arrive()
    found = bench.transaction
    assert (found.producer_id, found.epoch) == (1_002, 0) if version else (1_001, EPOCH_MAX)
    assert bench.producer().id > 1_001


def test_who_ends_what_was_fenced_with_the_last_epoch_is_fenced() -> None:
    bench = Bench()
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    bench.shard.abort("x", lambda _: None)
    bench.arrive()
    last = Producer(1_001, LAST_EPOCH)
    assert code(bench.end(last, commits=False, rules=V2)) is ErrorCode.PRODUCER_FENCED
    assert code(bench.end(last, commits=False, rules=V1)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("commits", [True, False])
def test_who_claims_the_epoch_that_fences_the_last_one_is_fenced_for_what_it_began_could_not_be_ended(
    commits: bool,
) -> None:
    """A marker of version 2 has a later epoch than what it ends: of that there is none, and partitions would stay as they are."""
    bench = Bench()
    bench.producer()
    bench.set(epoch=EPOCH_MAX)
    claimed = Producer(1_001, EPOCH_MAX)
    assert code(bench.add(claimed)) is ErrorCode.PRODUCER_FENCED
    assert code(bench.verify(claimed)) is ErrorCode.PRODUCER_FENCED
    for rules in (V1, V2):
        assert code(bench.end(claimed, commits=commits, rules=rules)) is ErrorCode.PRODUCER_FENCED
    assert bench.state() is State.EMPTY
    assert who(bench.init()) == (1_002, 0)


# --- producer ids -----------------------------------------------------------------------------------------------------


def test_who_begins_waits_for_a_producer_id_and_decides_then() -> None:
    bench = Bench()
    bench.has_ids = False
    first, second = bench.init(), bench.init()
    assert not first + second
    for number, asked in enumerate(bench.asked_for_ids):
        asked(50 + number, ErrorCode.NONE)
    assert who(first) == (50, 0)
    assert who(second) == (50, 1)  # meanwhile there was one


def test_who_begins_while_there_are_no_producer_ids_is_told_so() -> None:
    bench = Bench()
    bench.has_ids = False
    answers = bench.init()
    bench.asked_for_ids[0](-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert code(answers) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.shard.find("x") is None

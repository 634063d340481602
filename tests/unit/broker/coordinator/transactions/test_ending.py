"""EndTxn: who ends a transaction, how a repetition is known, and what the producer goes on with (kraft.md 5.4, KIP-890)."""

import pytest

from ottla.broker.coordinator.decisions.transactions.asking import Producer
from ottla.broker.coordinator.decisions.transactions.transaction import LAST_EPOCH, State
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.transactions.transaction_bench import T0, V1, V2, Bench, code, who

BOTH_ENDS = pytest.mark.parametrize("commits", [True, False])
BOTH_RULES = pytest.mark.parametrize("rules", [V1, V2])
INVALID, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED


@BOTH_ENDS
@BOTH_RULES
def test_a_transaction_is_decided_then_told_then_complete(commits: bool, rules: int) -> None:
    bench = Bench()
    producer = bench.begun()
    assert code(bench.end(producer, commits=commits, rules=rules)) is ErrorCode.NONE
    assert bench.state() is (State.PREPARE_COMMIT if commits else State.PREPARE_ABORT)
    (sent,) = bench.sent
    assert sent.partitions == T0
    bumped = 1 if rules == V2 else 0
    assert sent.marker == (producer.id, bumped, commits, 7, rules)
    bench.arrive()
    found = bench.transaction
    assert found.state is (State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT)
    assert (found.partitions, found.epoch) == ({}, bumped)


def test_of_version_2_the_producer_goes_on_with_the_next_epoch_and_what_it_sent_before_is_fenced() -> None:
    bench = Bench()
    producer = bench.begun()
    following = who(bench.end(producer))
    assert following == (producer.id, 1)
    bench.arrive()
    assert code(bench.add(producer)) is FENCED
    assert code(bench.add(following)) is ErrorCode.NONE


def test_nobody_is_told_before_the_decision_is_committed_neither_producer_nor_partitions() -> None:
    bench = Bench()
    producer = bench.begun()
    bench.commits = False
    answers = bench.end(producer)
    assert (answers, bench.sent) == ([], [])
    bench.commit()
    assert code(answers) is ErrorCode.NONE
    assert len(bench.sent) == 1


@BOTH_RULES
def test_who_ends_what_is_not_known_or_another_s_is_told_so(rules: int) -> None:
    bench = Bench()
    assert code(bench.end(Producer(5, 0), rules=rules)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = bench.begun()
    other = Producer(producer.id + 1, 0)
    assert code(bench.end(other, rules=rules)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (-1, 1, 5):
        assert code(bench.end(Producer(producer.id, epoch), rules=rules)) is FENCED
    assert bench.state() is State.ONGOING


# --- without a transaction --------------------------------------------------------------------------------------------


@BOTH_ENDS
def test_of_version_1_there_is_nothing_to_end_without_a_transaction(commits: bool) -> None:
    bench = Bench()
    assert code(bench.end(bench.producer(), commits=commits, rules=V1)) is INVALID


def test_of_version_2_nothing_can_be_aborted_but_not_committed() -> None:
    """A producer that does not know whether a partition was added aborts, to be sure."""
    bench = Bench()
    producer = bench.producer()
    assert code(bench.end(producer)) is INVALID
    following = who(bench.end(producer, commits=False))
    assert following == (producer.id, 1)
    assert bench.sent[0].partitions == {}
    bench.arrive()
    assert bench.state() is State.COMPLETE_ABORT
    assert code(bench.end(following)) is INVALID
    assert who(bench.end(following, commits=False)).epoch == 2


def test_of_version_2_nothing_can_be_aborted_after_a_commit() -> None:
    bench = Bench()
    producer = bench.begun()
    following = who(bench.end(producer))
    bench.arrive()
    assert code(bench.end(following)) is INVALID
    assert who(bench.end(following, commits=False)).epoch == 2


def test_who_aborts_nothing_while_the_transaction_before_is_ended_waits_for_that() -> None:
    bench = Bench()
    following = who(bench.end(bench.begun()))
    answers = bench.end(following, commits=False)
    assert not answers
    bench.arrive()
    assert who(answers).epoch == 2


# --- again ------------------------------------------------------------------------------------------------------------


@BOTH_ENDS
@BOTH_RULES
def test_who_ends_it_again_is_told_the_same_once_it_is_complete(commits: bool, rules: int) -> None:
    bench = Bench()
    producer = bench.begun()
    first = who(bench.end(producer, commits=commits, rules=rules))
    early = bench.end(producer, commits=commits, rules=rules)
    assert not early
    bench.arrive()
    assert who(early) == first
    assert who(bench.end(producer, commits=commits, rules=rules)) == first
    assert not bench.sent


@BOTH_ENDS
@BOTH_RULES
def test_who_ends_it_otherwise_is_refused(commits: bool, rules: int) -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer, commits=commits, rules=rules)
    assert code(bench.end(producer, commits=not commits, rules=rules)) is INVALID
    bench.arrive()
    assert code(bench.end(producer, commits=not commits, rules=rules)) is INVALID


@BOTH_ENDS
def test_who_ends_it_again_at_another_coordinator_is_told_the_same(commits: bool) -> None:
    bench = Bench()
    producer = bench.begun()
    first = who(bench.end(producer, commits=commits))
    other = bench.another()
    again = other.end(producer, commits=commits)
    other.arrive()
    assert who(again) == first
    assert who(other.another().end(producer, commits=commits)) == first


def test_who_is_two_epochs_behind_repeats_nothing() -> None:
    bench = Bench()
    producer = bench.begun()
    following = who(bench.end(producer))
    bench.arrive()
    bench.add(following)
    bench.end(following)
    assert code(bench.end(producer)) is FENCED
    bench.arrive()
    assert code(bench.end(producer)) is FENCED


def test_who_is_an_epoch_behind_a_transaction_that_is_open_ends_nothing() -> None:
    """It is where the producer was that ended the transaction before: but there is one since, and that is another's."""
    bench = Bench()
    zombie = bench.begun()
    following = who(bench.end(zombie))
    bench.arrive()
    assert code(bench.add(following, client_version=V2)) is ErrorCode.NONE
    for commits in (True, False):
        assert code(bench.end(zombie, commits=commits)) is FENCED
    assert bench.state() is State.ONGOING


@BOTH_ENDS
def test_of_version_1_a_zombie_does_not_take_the_abort_that_fenced_it_for_its_own(commits: bool) -> None:
    bench = Bench(version=1)
    zombie = bench.begun()
    bench.init()
    assert bench.state() is State.PREPARE_ABORT
    assert code(bench.end(zombie, commits=commits, rules=V1)) is FENCED
    bench.arrive()
    assert code(bench.end(zombie, commits=commits, rules=V1)) is FENCED


# --- exhausted epochs -------------------------------------------------------------------------------------------------


@BOTH_ENDS
def test_the_last_epoch_is_ended_with_the_one_above_and_the_producer_goes_on_with_another_id(commits: bool) -> None:
    bench = Bench()
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    last = Producer(1_001, LAST_EPOCH)
    following = who(bench.end(last, commits=commits))
    assert following == (1_002, 0)
    assert bench.sent[0].marker[:2] == (1_001, LAST_EPOCH + 1)
    early = bench.end(last, commits=commits)
    bench.arrive()
    assert who(early) == following
    for again in (bench, bench.another()):
        assert who(again.end(last, commits=commits)) == following
        assert code(again.end(last, commits=not commits)) is INVALID
        for other in (Producer(5, LAST_EPOCH), Producer(1_001, LAST_EPOCH - 1)):
            assert code(again.end(other, commits=commits)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code(bench.add(following)) is ErrorCode.NONE
    assert code(bench.end(last, commits=commits)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_of_version_1_the_last_epoch_stays() -> None:
    bench = Bench()
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    last = Producer(1_001, LAST_EPOCH)
    assert who(bench.end(last, rules=V1)) == last


def test_who_ends_the_last_epoch_waits_for_a_producer_id_and_decides_then() -> None:
    bench = Bench()
    bench.begun()
    bench.set(epoch=LAST_EPOCH)
    bench.has_ids = False
    last = Producer(1_001, LAST_EPOCH)
    refused, answers = bench.end(last), bench.end(last)
    bench.asked_for_ids[0](-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert code(refused) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.state() is State.ONGOING
    bench.asked_for_ids[1](77, ErrorCode.NONE)
    assert who(answers) == (77, 0)


# --- a producer goes on after an error --------------------------------------------------------------------------------


@pytest.mark.parametrize("arrives", [True, False])
def test_who_did_not_hear_of_the_end_and_begins_anew_has_the_epoch_of_the_end(arrives: bool) -> None:
    bench = Bench()
    producer = bench.begun()
    bench.end(producer)
    if arrives:
        bench.arrive()
    answers = bench.init(producer)
    bench.arrive()
    assert who(answers) == (producer.id, 1)
    assert who(bench.another().init(Producer(producer.id, 1))) == (producer.id, 2)


@BOTH_ENDS
def test_who_goes_by_version_2_does_not_take_an_older_client_s_end_for_its_own(commits: bool) -> None:
    """That client is one epoch on, as the fenced one would be by its own end."""
    bench = Bench()
    zombie = bench.begun()
    assert code(bench.end(zombie, rules=V1)) is ErrorCode.NONE
    bench.arrive()
    producer = bench.producer()
    assert producer.epoch == zombie.epoch + 1
    assert code(bench.add(producer)) is ErrorCode.NONE
    assert code(bench.end(producer, commits=commits, rules=V1)) is ErrorCode.NONE
    assert code(bench.end(zombie, commits=commits)) is FENCED
    bench.arrive()
    assert code(bench.end(zombie, commits=commits)) is FENCED

"""Guards of partitions: whoever never comes back is forgotten, and so is a partition that is gone."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.coordinator.decisions.effects import ProducerBatch
from ottla.broker.replication.decisions.verification import Client
from ottla.broker.replication.verifications import Place, Transaction, Verifications
from ottla.broker.replication.verified_appends import NOBODY_ASKED, guards_of
from ottla.log.producers.state import ProducerStateManager
from ottla.runtime.errors import ErrorCode

BATCH = ProducerBatch(7, 0)


class Coordinators:
    def __init__(self) -> None:
        self.asked: list[tuple[Transaction, Place]] = []
        self.answers: list[Callable[[ErrorCode], None]] = []

    def ask(self, transaction: Transaction, place: Place, told: Callable[[ErrorCode], None]) -> None:
        self.asked.append((transaction, place))
        self.answers.append(told)


class FakePartition:
    topic, index, usable, verification = "t", 3, True, None

    def __init__(self) -> None:
        self.log = SimpleNamespace(producers=ProducerStateManager())


class Bench:
    def __init__(self, *, is_enabled: bool = True) -> None:
        self.now_ms = 0
        self.coordinators = Coordinators()
        timers: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.verifications = Verifications(self.coordinators, timers, is_enabled=is_enabled)
        self.partition = cast(Any, FakePartition())
        self.told: list[tuple[int, ErrorCode]] = []
        self.order: list[int] = []

    def begin(
        self, client: Client = Client.OLD, transactional_id: str | None = "x", batch: ProducerBatch = BATCH
    ) -> None:
        def then(guard: int, error: ErrorCode) -> None:
            self.told.append((guard, error))
            self.order.append(batch.base_sequence)

        self.verifications.begin(self.partition, batch, transactional_id, client, then)


def test_what_nobody_comes_back_with_is_forgotten() -> None:
    bench = Bench()
    bench.begin()
    guard = guards_of(bench.partition).begin(BATCH, 0)
    bench.now_ms = 1_000
    bench.verifications.expire(1_000)
    assert guards_of(bench.partition).begin(BATCH, 0) > guard


def test_a_partition_that_is_gone_is_not_looked_at_any_more() -> None:
    bench = Bench()
    bench.begin()
    bench.partition.usable = False
    bench.verifications.expire(1_000)
    assert not bench.verifications._guarded


def test_old_clients_are_asked_about_and_new_ones_have_their_partitions_added() -> None:
    bench = Bench()
    bench.begin()
    bench.begin(Client.ADDS_NOTHING)
    assert [(transaction.adds, place) for transaction, place in bench.coordinators.asked] == [
        (False, Place("t", 3)),
        (True, Place("t", 3)),
    ]


def test_where_leaders_do_not_ask_new_clients_partitions_are_added_all_the_same() -> None:
    bench = Bench(is_enabled=False)
    bench.begin()
    assert bench.told == [(NOBODY_ASKED, ErrorCode.NONE)]
    bench.begin(Client.ADDS_NOTHING)
    assert len(bench.coordinators.asked) == 1


def test_nobody_vouches_for_a_batch_without_a_transactional_id() -> None:
    bench = Bench(is_enabled=False)
    bench.begin(transactional_id=None)
    assert [error for _, error in bench.told] == [ErrorCode.INVALID_TXN_STATE]


@pytest.mark.parametrize("client", [Client.OLD, Client.ADDS_NOTHING])
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS])
def test_batches_that_a_client_sends_one_behind_the_other_have_one_answer_in_their_order(
    client: Client, error: ErrorCode
) -> None:
    """A later one that is asked about by itself may be answered first, refused for its sequence, and then the first one written."""
    bench = Bench()
    for sequence in (0, 1_031, 1_049):
        bench.begin(client, batch=ProducerBatch(7, 0, sequence))
    (answer,) = bench.coordinators.answers
    assert not bench.told
    answer(error)
    assert bench.order == [0, 1_031, 1_049]
    assert len(set(bench.told)) == 1
    bench.begin(client)
    assert len(bench.coordinators.answers) == 2, "what was answered before says nothing of now"


def test_a_batch_that_fails_at_its_answer_keeps_none_behind_it_from_theirs() -> None:
    def fails(guard: int, error: ErrorCode) -> None:
        raise AssertionError("a mistake of ours")

    bench = Bench()
    bench.verifications.begin(bench.partition, BATCH, "x", Client.OLD, fails)
    bench.begin(batch=ProducerBatch(7, 0, 1))
    bench.coordinators.answers[0](ErrorCode.NONE)
    assert bench.order == [1]


def test_another_epoch_of_the_producer_is_asked_about_by_itself() -> None:
    bench = Bench()
    for epoch in (1, 0, 1):
        bench.begin(batch=ProducerBatch(7, epoch))
    assert [transaction.producer_epoch for transaction, _ in bench.coordinators.asked] == [1, 0]

"""What is asked of transactions' coordinators: together, in order, and each question answered once."""

import asyncio
from collections.abc import Callable, Coroutine
from time import process_time
from typing import Any

import msgspec
import pytest

from ottla.broker.links.verifier import TIMEOUT_MS, VERSIONS, Verifier
from ottla.broker.replication.verifications import Place, Transaction
from ottla.broker.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.broker.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.shard_host_bench import Timers


class Bench:
    """Brokers that answer when the test says so. Transactional ids are coordinated by the broker that their last letter says."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, AddPartitionsToTxnRequest, Callable[[Any], None]]] = []
        self.told: list[tuple[str, ErrorCode]] = []
        self.timers = Timers()
        self.here: list[tuple[Transaction, Place, Callable[[ErrorCode], None]]] = []
        """What the node that is number 0 was asked: this one."""
        timers: Any = self.timers
        self.verifier = Verifier(
            self, self._coordinator_of, timers, retry_ms=20, retry_ms_max=100, verify_here=self.verify_here
        )

    def _coordinator_of(self, transactional_id: str) -> int | None:
        return int(transactional_id[-1]) if transactional_id[-1].isdecimal() else None

    def ask(
        self,
        broker_id: int,
        request: msgspec.Struct,
        response: type[msgspec.Struct],
        versions: tuple[int, int],
        timeout_ms: int,
        told: Callable[[Any], None],
    ) -> None:
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert (response, versions, timeout_ms) == (AddPartitionsToTxnResponse, VERSIONS, TIMEOUT_MS)
        self.asked.append((broker_id, request, told))

    def verify_here(
        self, broker_id: int, transaction: Transaction, place: Place, told: Callable[[ErrorCode], None]
    ) -> bool:
        if broker_id == 0:
            self.here.append((transaction, place, told))
        return broker_id == 0

    def put(self, transactional_id: str, partition: int = 0, *, epoch: int = 0, adds: bool = False) -> None:
        name = f"{transactional_id}-{partition}"
        told = self.told

        def note(error: ErrorCode) -> None:
            told.append((name, error))
            if name == "mistake1-0":
                raise ValueError("a mistake of ours")

        self.verifier.ask(Transaction(transactional_id, 7, epoch, adds), Place("t", partition), note)

    def answer(self, number: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """The same for all partitions of a request."""
        _, request, told = self.asked[number]
        results = [
            AddPartitionsToTxnResult(
                each.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name, [AddPartitionsToTxnPartitionResult(index, error) for index in topic.partitions]
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
        told(AddPartitionsToTxnResponse(results_by_transaction=results))


def on_a_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await scenario(Bench())

        asyncio.run(run())

    return test


async def turn() -> None:
    await asyncio.sleep(0)


@on_a_bench
async def test_a_turns_questions_to_a_coordinator_share_a_request(bench: Bench) -> None:
    for name, partition in (("a1", 0), ("a1", 3), ("b1", 0), ("c2", 0), ("a1", 0)):
        bench.put(name, partition)
    assert bench.asked == []
    await turn()
    (first, one, _), (second, two, _) = bench.asked
    assert (first, second) == (1, 2)
    assert [(each.transactional_id, each.topics[0].partitions) for each in one.transactions] == [
        ("a1", [0, 3]),
        ("b1", [0]),
    ]
    assert [each.transactional_id for each in two.transactions] == ["c2"]
    bench.answer(0)
    assert bench.told == [(name, ErrorCode.NONE) for name in ("a1-0", "a1-3", "b1-0", "a1-0")]


@on_a_bench
async def test_two_epochs_of_a_transactional_id_do_not_share_one_for_answers_name_no_epoch(bench: Bench) -> None:
    bench.put("a1", epoch=0)
    bench.put("a1", epoch=1)
    bench.put("b1")
    await turn()
    asked = [
        [(each.transactional_id, each.producer_epoch) for each in request.transactions] for _, request, _ in bench.asked
    ]
    assert asked == [[("a1", 0), ("b1", 0)], [("a1", 1)]]
    bench.answer(1)
    bench.answer(0, ErrorCode.PRODUCER_FENCED)
    assert bench.told == [
        ("a1-0", ErrorCode.NONE),
        ("a1-0", ErrorCode.PRODUCER_FENCED),
        ("b1-0", ErrorCode.PRODUCER_FENCED),
    ]


@on_a_bench
async def test_thousands_that_claim_one_transactional_id_hold_nobody_up(bench: Bench) -> None:
    for epoch in range(12_000):
        bench.put("a1", epoch=epoch)
    begun = process_time()
    await turn()
    assert len(bench.asked) == 12_000
    assert process_time() - begun < 3.0


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (None, ErrorCode.NETWORK_EXCEPTION),
        (AddPartitionsToTxnResponse(), ErrorCode.INVALID_TXN_STATE),
        (AddPartitionsToTxnResponse(error_code=31), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (AddPartitionsToTxnResponse(error_code=9_999), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_answer_that_names_no_partition_is_no_proof(
    response: AddPartitionsToTxnResponse | None, error: ErrorCode
) -> None:
    @on_a_bench
    async def scenario(bench: Bench) -> None:
        bench.put("a1")
        await turn()
        bench.asked[0][2](response)
        assert bench.told == [("a1-0", error)]

    scenario()


@on_a_bench
async def test_without_a_coordinator_nobody_is_asked(bench: Bench) -> None:
    bench.put("x")
    await turn()
    assert (bench.asked, bench.told) == ([], [("x-0", ErrorCode.COORDINATOR_NOT_AVAILABLE)])


@on_a_bench
async def test_who_fails_at_an_answer_keeps_it_from_nobody_else(bench: Bench) -> None:
    bench.put("mistake1")
    bench.put("a1")
    await turn()
    bench.answer(0)
    assert [name for name, _ in bench.told] == ["mistake1-0", "a1-0"]


@on_a_bench
async def test_adding_is_tried_again_for_a_moment_and_verifying_is_not(bench: Bench) -> None:
    bench.put("a1", adds=True)
    bench.put("b1")
    await turn()
    bench.answer(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert bench.told == [("b1-0", ErrorCode.CONCURRENT_TRANSACTIONS)]
    for number in range(1, 6):
        bench.timers.pass_ms(20)
        await turn()
        assert len(bench.asked) == number + 1
        assert [each.transactional_id for each in bench.asked[-1][1].transactions] == ["a1"]
        bench.answer(number, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert bench.told[1:] == [("a1-0", ErrorCode.CONCURRENT_TRANSACTIONS)]


@on_a_bench
async def test_this_node_verifies_without_a_request_and_adds_with_one(bench: Bench) -> None:
    bench.put("a0", 0)
    bench.put("a0", 1, adds=True)
    bench.put("a0", 2, adds=True)
    assert not bench.here  # not before it returns
    await asyncio.sleep(0)
    ((transaction, place, told),) = bench.here
    assert (transaction.transactional_id, place) == ("a0", Place("t", 0))
    ((broker_id, request, _),) = bench.asked
    assert broker_id == 0
    assert [topic.partitions for each in request.transactions for topic in each.topics] == [[1, 2]]
    told(ErrorCode.TRANSACTION_ABORTABLE)
    assert bench.told == [("a0-0", ErrorCode.TRANSACTION_ABORTABLE)]

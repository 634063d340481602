"""A transaction, as its coordinator sees it. Version 1 of the protocol: whoever has one producer a transaction (a task has)
has one epoch a transaction with it, and every cluster knows it."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.errors import DeadlineError
from ottla.pipeline.wire.offsets import by_topic
from ottla.pipeline.wire.producer_errors import FencedError, ProducerError, RefusedError, TransactionTooLongError
from ottla.pipeline.wire.producer_lanes import Identity
from ottla.pipeline.wire.producer_settings import TRANSACTION_TIMEOUT_MS, ProducerSettings
from ottla.runtime.errors import ErrorCode

_OVER = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a topic that was just made
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # because of another partition, which says why
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT,
)
_VERSIONS = {"InitProducerId": 4, "AddPartitionsToTxn": 3, "AddOffsetsToTxn": 3, "TxnOffsetCommit": 3, "EndTxn": 3}
"""The last of version 1 of transactions that every cluster has."""
_CAUTIOUS_TIMEOUT_MS = 60_000
"""What brokers that allow less than fifteen minutes surely allow."""


class Offset(NamedTuple):
    """What a transaction commits beside its records."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str


class Transaction:
    """Of one transactional id, one after the other."""

    def __init__(self, cluster: Cluster, name: str, settings: ProducerSettings) -> None:
        self.name = name
        self.is_open = False
        self._cluster = cluster
        self._timeout_ms = settings.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
        self._may_yield = settings.transaction_timeout_ms is None
        self._identity = Identity(-1, -1, True)
        self._partitions: set[tuple[str, int]] = set()
        self._began_s = 0.0

    def claim(self) -> Identity:
        """Ends what another producer of this id left open, and keeps it from ending anything itself."""
        answer = self._ask("InitProducerId", self._claim_body, lambda told: [told.error_code])
        self._identity = Identity(answer.producer_id, answer.producer_epoch, True)
        self.is_open = False
        return self._identity

    def begin(self) -> None:
        self.is_open = True
        self._partitions.clear()
        self._began_s = time.monotonic()

    def add(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Before anything is written to them."""
        new = sorted(set(partitions) - self._partitions)
        if not new:
            return
        topics = [{"name": topic, "partitions": indexes} for topic, indexes in by_topic(new).items()]
        self._ask(
            "AddPartitionsToTxn",
            lambda: self._body("v3_and_below_", v3_and_below_topics=topics),
            lambda told: [
                part.partition_error_code
                for topic in told.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ],
        )
        self._partitions.update(new)

    def commit_offset(self, place: Offset) -> None:
        """It counts if, and when, the transaction is committed."""
        self._ask("AddOffsetsToTxn", lambda: self._body(group_id=place.group), lambda told: [told.error_code])
        part = {
            "partition_index": place.partition,
            "committed_offset": place.offset,
            "committed_metadata": place.metadata,
        }
        body = self._body(group_id=place.group, topics=[{"name": place.topic, "partitions": [part]}])
        self._ask(
            "TxnOffsetCommit",
            lambda: body,
            lambda told: [part.error_code for topic in told.topics for part in topic.partitions],
            group=place.group,
        )
        self._partitions.add(("", -1))  # there is something to end

    def end(self, committed: bool) -> None:
        """Nothing was added: there is nothing to end."""
        if self._partitions:
            self._ask("EndTxn", lambda: self._body(committed=committed), lambda told: [told.error_code])
        self.is_open = False

    def refused(self, what: str, code: ErrorCode) -> ProducerError:
        """The error that says what a code means to this transaction."""
        if code not in _OVER:
            return RefusedError(f"{what} of transaction {self.name}: {code.name}")
        open_s = time.monotonic() - self._began_s
        if self.is_open and open_s * 1000 >= self._timeout_ms:
            return TransactionTooLongError(
                f"Transaction {self.name} was open for {open_s:.0f} s and kafka.transaction.timeout.ms is {self._timeout_ms}: "
                "write fewer rows a batch (maxOffsetsPerTrigger) or a task (more partitions)"
            )
        self.is_open = False
        return FencedError(
            f"Another attempt has taken over transaction {self.name} ({what}: {code.name}); this one wrote nothing that is seen"
        )

    def _claim_body(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "transaction_timeout_ms": self._timeout_ms}

    def _body(self, prefix: str = "", **more: Any) -> dict[str, Any]:
        who = {
            "transactional_id": self.name,
            "producer_id": self._identity.producer_id,
            "producer_epoch": self._identity.epoch,
        }
        return {prefix + name: value for name, value in who.items()} | more

    def _ask(
        self,
        api: str,
        body: Callable[[], dict[str, Any]],
        codes: Callable[[Any], Iterable[int]],
        group: str = "",
    ) -> Any:
        """Asked again while an error passes. Each of these may come twice and do no more than once."""
        kind, key = ("group", group) if group else ("transaction", self.name)
        last = ""
        for _ in self._cluster.attempts():
            answer = self._cluster.ask_coordinator(kind, key, api, body(), _VERSIONS[api])
            found = {ErrorCode(code) for code in codes(answer)} - {ErrorCode.NONE}
            if not found:
                return answer
            if (
                ErrorCode.INVALID_TRANSACTION_TIMEOUT in found
                and self._may_yield
                and self._timeout_ms > _CAUTIOUS_TIMEOUT_MS
            ):
                self._timeout_ms = _CAUTIOUS_TIMEOUT_MS
                continue
            for code in found.difference(_AGAIN):
                raise self.refused(api, code)
            last = ", ".join(sorted(code.name for code in found))
        raise DeadlineError(f"{api} of transaction {self.name}", self._cluster.settings.api_timeout_s, last)

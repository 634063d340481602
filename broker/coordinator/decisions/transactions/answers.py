"""Answers to producers, in the words that the version of their request has."""

from collections.abc import Callable, Iterable, Mapping

from ottla.broker.coordinator.decisions.transactions.transaction import Partitions
from ottla.broker.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from ottla.broker.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.runtime.errors import ErrorCode

INIT_FENCED_FROM, OTHERS_FENCED_FROM = 4, 2
"""The first versions of InitProducerId, and of the other requests, that know PRODUCER_FENCED."""

EPOCH_BUMPS_FROM = 5
"""Version of EndTxn: the client goes by the rules of transaction.version 2."""
BROKERS_FROM = 4
"""Version of AddPartitionsToTxn: only brokers send it, for such a client or to verify."""


def told(error: ErrorCode, version: int, fenced_from: int = OTHERS_FENCED_FROM) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def client_version_of_end(version: int) -> int:
    """The transaction.version by whose rules an EndTxn is meant."""
    return 2 if version >= EPOCH_BUMPS_FROM else 0


def client_version_of_add(version: int) -> int:
    """The same, of an AddPartitionsToTxn."""
    return 2 if version >= BROKERS_FROM else 0


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> Partitions:
    found: dict[str, set[int]] = {}
    for each in topics:
        found.setdefault(each.name, set()).update(each.partitions)  # a topic may come a hundred thousand times
    return {topic: frozenset(indexes) for topic, indexes in found.items()}


def same_for_all(partitions: Partitions, error: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return by_partition(partitions, lambda _topic, _index: error)


def unattempted(
    partitions: Partitions, has: Callable[[str, int], bool], forbidden: Iterable[str] = ()
) -> list[AddPartitionsToTxnTopicResult] | None:
    """Where one partition is not there, or is of a topic that whoever asks may not write to, none is added: then this is the
    answer."""

    def error_of(topic: str, index: int) -> ErrorCode:
        if topic in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.OPERATION_NOT_ATTEMPTED if has(topic, index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    if all(topic not in forbidden and has(topic, index) for topic, indexes in partitions.items() for index in indexes):
        return None
    return by_partition(partitions, error_of)


def verified(asked: Partitions, found: Mapping[str, frozenset[int]]) -> list[AddPartitionsToTxnTopicResult]:
    """What is not part of the transaction must not be written to in it: its client is to abort."""
    return by_partition(asked, lambda topic, index: verified_one(found, topic, index))


def verified_one(found: Mapping[str, frozenset[int]], topic: str, index: int) -> ErrorCode:
    return ErrorCode.NONE if index in found.get(topic, ()) else ErrorCode.TRANSACTION_ABORTABLE


def by_partition(
    partitions: Partitions, error_of: Callable[[str, int], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic, [AddPartitionsToTxnPartitionResult(index, error_of(topic, index)) for index in sorted(indexes)]
        )
        for topic, indexes in partitions.items()
    ]

"""What clients are told when a transaction's coordinator does not vouch for a partition (KIP-890): older ones know fewer errors.

Source: Kafka's AddPartitionsToTxnManager, ReplicaManager.appendRecords and GroupCoordinatorService.
"""

from enum import IntEnum

from ottla.runtime.errors import ErrorCode


class Client(IntEnum):
    """What a client can do, as its request's version tells."""

    OLD = 0
    KNOWS_ABORTABLE = 1  # TRANSACTION_ABORTABLE, which it answers by an abort
    ADDS_NOTHING = 2  # its leaders add partitions to its transactions; its epoch grows with each of them


_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator does not know another partition yet that was asked about with this one.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)

_FIRST_PRODUCE = (11, 12)
_FIRST_OFFSET_COMMIT = (4, 5)


def producer_of(version: int) -> Client:
    """By the version of its Produce."""
    return _client(version, _FIRST_PRODUCE)


def committer_of(version: int) -> Client:
    """By the version of its TxnOffsetCommit."""
    return _client(version, _FIRST_OFFSET_COMMIT)


def _client(version: int, first: tuple[int, int]) -> Client:
    knows, adds_nothing = first
    return Client((version >= knows) + (version >= adds_nothing))


def vouched(error: ErrorCode, client: Client) -> ErrorCode:
    """The coordinator's word, as a partition's leader understands it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and client is Client.OLD:
        return ErrorCode.INVALID_TXN_STATE
    return error


def produce_error(error: ErrorCode, client: Client) -> ErrorCode:
    """What the producer is told: where it should try again, an error after which clients of any age do, without looking for
    another leader."""
    is_busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and client is not Client.ADDS_NOTHING
    return ErrorCode.NOT_ENOUGH_REPLICAS if is_busy or error in _RETRIABLE else error


def offset_commit_error(error: ErrorCode, client: Client) -> ErrorCode:
    """What a client that commits offsets is told: where it should try again, an error after which it asks this coordinator again."""
    is_busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and client is not Client.ADDS_NOTHING
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_busy or error in _RETRIABLE else error

"""Which errors pass, and what to look up anew before the next try. Values only."""

from ottla.runtime.errors import ErrorCode

MOVES_LEADER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the broker has not heard of it yet, or no longer
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
"""The leader may be another: look at the metadata again."""

PASSES = frozenset(
    {
        ErrorCode.OFFSET_NOT_AVAILABLE,  # a new leader that does not know its high watermark yet
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The same broker may answer otherwise a moment later."""

MOVES_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""The coordinator may be another: find it again."""

COORDINATOR_PASSES = MOVES_COORDINATOR | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def is_retriable(code: int) -> bool:
    return code in MOVES_LEADER or code in PASSES or code in MOVES_COORDINATOR


def moves_leader(code: int) -> bool:
    return code in MOVES_LEADER


def moves_coordinator(code: int) -> bool:
    return code in MOVES_COORDINATOR


def backoff_s(attempt: int, first_ms: int, most_ms: int) -> float:
    """How long to wait before the try behind ``attempt`` (0 is the first): doubled each time, up to a most."""
    return min(first_ms << min(attempt, 20), max(most_ms, first_ms)) / 1000


def codes_in(answer: object) -> set[ErrorCode]:
    """Every error that an answer names, at any depth."""
    if isinstance(answer, list):
        return set().union(*map(codes_in, answer)) if answer and hasattr(answer[0], "__slots__") else set()
    found = set()
    for name in getattr(type(answer), "__slots__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code") and value:  # AddPartitionsToTxn's is a partition_error_code
            found.add(ErrorCode(value))
        elif not isinstance(value, int | str | bytes):
            found |= codes_in(value)
    return found

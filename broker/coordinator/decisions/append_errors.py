"""What clients of a coordinator are told instead of what its partition says: they know an error by what it makes them do.

Source: Kafka's CoordinatorOperationExceptionHelper.
"""

from ottla.runtime.errors import ErrorCode

_TOLD = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def told(error: ErrorCode) -> ErrorCode:
    """NONE stays NONE, and so does an error that means the same to them."""
    return _TOLD.get(error, error)


def told_to_readers(error: ErrorCode) -> ErrorCode:
    """Of what is told: who fetches offsets may know nothing of a coordinator that is not available, and gives up then (Java's consumers
    before 3.9, aiokafka's). As in Kafka it is to look for another one."""
    return ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error

"""AlterReplicaLogDirs (34): moves replicas of this broker to other directories of its own (KIP-113).

The answer says that a move began; DescribeLogDirs tells how far it is.
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from ottla.broker.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.log.names import TopicPartition
from ottla.runtime.errors import ErrorCode

WORK = 1_000
"""In one turn of the loop: partitions that do not move take some microseconds each."""
WORK_OF_A_MOVE = 50
"""It begins with a directory, and files."""


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, body: AlterReplicaLogDirsRequest) -> None:
        long_answers.give(request, _moved(broker, request, body))

    return [route("AlterReplicaLogDirs", AlterReplicaLogDirsRequest, answer)]


def _moved(broker: BrokerContext, request: RequestContext, body: AlterReplicaLogDirsRequest) -> Pieces:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    work = 0
    for directory in body.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name, []))
            for index in topic.partitions:
                error = _move(broker, topic.name, index, directory.path)
                result.partitions.append(AlterReplicaLogDirPartitionResult(index, error))
                work += 1 if error else WORK_OF_A_MOVE
                if work >= WORK:
                    work = 0
                    yield
    request.respond_message(AlterReplicaLogDirsResponse(results=list(results.values())))
    return None


def _move(broker: BrokerContext, topic: str, index: int, path: str) -> ErrorCode:
    error = broker.moves.request(TopicPartition(topic, index), path)
    return _missing(broker, topic, index) if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error


def _missing(broker: BrokerContext, topic: str, index: int) -> ErrorCode:
    """Why there is no log to move. A replica may be about to come: kafka-reassign-partitions asks for its directory right after it
    began the reassignment, and goes on asking as long as this is the answer."""
    error = broker.replicas.missing_error(topic, index)
    return ErrorCode.REPLICA_NOT_AVAILABLE if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error

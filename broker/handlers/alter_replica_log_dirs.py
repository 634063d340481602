"""AlterReplicaLogDirs (34): moves replicas of this broker to other directories of its own (KIP-113).

The answer says that a move began; DescribeLogDirs tells how far it is.
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
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


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: AlterReplicaLogDirsRequest) -> None:
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for directory in body.dirs:
            for topic in directory.topics:
                result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name, []))
                for index in topic.partitions:
                    error = broker.moves.request(TopicPartition(topic.name, index), directory.path)
                    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        error = _missing(broker, topic.name, index)
                    result.partitions.append(AlterReplicaLogDirPartitionResult(index, error))
        request.respond_message(AlterReplicaLogDirsResponse(results=list(results.values())))

    return [route("AlterReplicaLogDirs", AlterReplicaLogDirsRequest, answer)]


def _missing(broker: BrokerContext, topic: str, index: int) -> ErrorCode:
    """Why there is no log to move. A replica may be about to come: kafka-reassign-partitions asks for its directory right after it
    began the reassignment, and goes on asking as long as this is the answer."""
    error = broker.replicas.missing_error(topic, index)
    return ErrorCode.REPLICA_NOT_AVAILABLE if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error

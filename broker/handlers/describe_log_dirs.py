"""DescribeLogDirs (35): what lies in which of this broker's log directories, and how full their disks are.

A directory that failed is named with its error. Source: KIP-113, KIP-827 and ReplicaManager.describeLogDirs.
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.broker.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.log.directories.directory import DirectoryState
from ottla.log.log import Log
from ottla.runtime.errors import ErrorCode

_Wanted = dict[tuple[str, int], None]


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: DescribeLogDirsRequest) -> None:
        wanted = None
        if body.topics is not None:
            wanted = {(topic.topic, index): None for topic in body.topics for index in topic.partitions}
        request.respond_message(DescribeLogDirsResponse(results=_describe(broker, wanted)))

    return [route("DescribeLogDirs", DescribeLogDirsRequest, answer)]


def _describe(broker: BrokerContext, wanted: _Wanted | None) -> list[DescribeLogDirsResult]:
    """The answer by directory. One look at each log, whatever the number of directories; ``wanted`` None: all of them."""
    manager = broker.logs
    found: dict[DirectoryState, dict[str, list[DescribeLogDirsPartition]]] = {root: {} for root in manager.roots}
    logs = manager.logs.values() if wanted is None else (manager.logs.get(name) for name in wanted)  # type: ignore[call-overload]  # a TopicPartition is such a tuple
    for log in logs:
        if log is not None:
            found[log.root].setdefault(log.partition.topic, []).append(_partition(log))
    for name, move in broker.moves.under_way.items():
        if wanted is None or (name.topic, name.partition) in wanted:
            future = DescribeLogDirsPartition(name.partition, move.copy.size_bytes, move.lag, is_future_key=True)
            found[move.copy.root].setdefault(name.topic, []).append(future)
    return [_result(broker, root, topics) for root, topics in found.items()]


def _partition(log: Log) -> DescribeLogDirsPartition:
    lag = max(log.high_watermark - log.log_end_offset, 0)
    return DescribeLogDirsPartition(log.partition.partition, log.size_bytes, lag)


def _result(
    broker: BrokerContext, root: DirectoryState, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    disk = broker.logs.disk
    try:
        if root.failure is not None:
            raise root.failure
        total, usable = disk.total_bytes(root.path), disk.free_bytes(root.path)
    except OSError:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, root.path)
    listed = [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
    return DescribeLogDirsResult(ErrorCode.NONE, root.path, listed, total, usable)

"""DescribeLogDirs (35): what lies in which of this broker's log directories, and how full their disks are.

A directory that failed is named with its error. Source: KIP-113, KIP-827 and ReplicaManager.describeLogDirs.
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import prepared_route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
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

PIECE = 1_000
"""Logs that are looked at in one turn of the loop: some two milliseconds."""

_Wanted = dict[tuple[str, int], None]
_Found = dict[DirectoryState, dict[str, list[DescribeLogDirsPartition]]]


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, wanted: _Wanted | None) -> None:
        long_answers.give(request, _described(broker, request, wanted))

    return [prepared_route("DescribeLogDirs", DescribeLogDirsRequest, _wanted, answer)]


def _wanted(body: DescribeLogDirsRequest) -> _Wanted | None:
    """None: all of them."""
    if body.topics is None:
        return None
    return {(topic.topic, index): None for topic in body.topics for index in topic.partitions}


def _described(broker: BrokerContext, request: RequestContext, wanted: _Wanted | None) -> Pieces:
    """The answer by directory. One look at each log, whatever the number of directories, of some a turn: of those that are there yet."""
    logs = broker.logs.logs
    found: _Found = {root: {} for root in broker.logs.roots}
    for number, name in enumerate(list(logs) if wanted is None else wanted, 1):
        log = logs.get(name)  # type: ignore[call-overload]  # a TopicPartition is such a tuple
        if log is not None:
            found[log.root].setdefault(log.partition.topic, []).append(_partition(log))
        if not number % PIECE:
            yield
    _add_moves(broker, wanted, found)
    results = [_result(broker, root, topics) for root, topics in found.items()]
    request.respond_message(DescribeLogDirsResponse(results=results))
    return None


def _add_moves(broker: BrokerContext, wanted: _Wanted | None, found: _Found) -> None:
    for name, move in broker.moves.under_way.items():
        if wanted is None or (name.topic, name.partition) in wanted:
            future = DescribeLogDirsPartition(name.partition, move.copy.size_bytes, move.lag, is_future_key=True)
            found[move.copy.root].setdefault(name.topic, []).append(future)


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

"""ListOffsets (key 2), versions 1 to 11: the first and last offset, and the offset at a time.

Source: ReplicaManager.fetchOffset and Partition.fetchOffsetForTimestamp; kraft.md 3.3 and 4.10. A topic kept only locally
answers the tiered timestamps with "none".
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.handlers.fetching.fetch_read import READ_COMMITTED
from ottla.broker.handlers.time_searches import TimeSearches
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from ottla.broker.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.log.results import ColdReadError, TimestampAndOffset
from ottla.log.times import Look, Search
from ottla.runtime.errors import ErrorCode, KafkaError

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
NOTHING = (-1, -1, -1)

Found = tuple[int, int, int]
"""(offset, timestamp, leader epoch); -1 for what there is not."""

EPOCHS_FROM = 4
PIECE = 4_000
"""Partitions of a request that are looked at in one turn of the loop: some three milliseconds."""
NO_EPOCH = -1

logger = logging.getLogger(__name__)


def routes(broker: BrokerContext) -> list[Route]:
    replicas = broker.replicas

    def answer(request: RequestContext, body: ListOffsetsRequest) -> None:
        answering = ListOffsets(replicas, broker.time_searches, body, request.version)
        pieces = answering.look()
        is_through = next(pieces, None) is None
        if is_through and not answering.slow:
            request.respond_message(answering.response)
            return
        task = asyncio.get_running_loop().create_task(_answer_later(request, answering, pieces), name="list offsets")
        request.on_close(lambda: _cancel(task))

    return [route("ListOffsets", ListOffsetsRequest, answer)]


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()


async def _answer_later(request: RequestContext, answering: "ListOffsets", pieces: Iterator[int]) -> None:
    try:
        for _ in pieces:
            await asyncio.sleep(0)
        await answering.finish()
    except Exception:
        logger.exception("ListOffsets could not be answered, which is our mistake")
        request.fail_connection("a search for an offset failed")
    else:
        request.respond_message(answering.response)


class _Slow(NamedTuple):
    """A search that goes on on a thread, and where its result belongs."""

    entry: ListOffsetsPartitionResponse
    partition: Partition
    leader_epoch: int
    search: Search
    step: Look | ColdReadError


class ListOffsets:
    """The answer to one request. In the ``response`` is what `look` has found, and what is ``slow`` after `finish`."""

    def __init__(
        self, replicas: ReplicaManager, searches: TimeSearches, body: ListOffsetsRequest, version: int
    ) -> None:
        self._replicas = replicas
        self._searches = searches
        self._version = version
        self._isolation = body.isolation_level
        self._is_follower = body.replica_id >= 0
        self._topics = body.topics
        self.slow: list[_Slow] = []
        self.response = ListOffsetsResponse(0, [])

    def look(self) -> Iterator[int]:
        """Piece by piece, a turn of the loop each: yields how many partitions there were so far, where there are more than one piece holds."""
        seen: dict[tuple[str, int], int] = {}
        count = 0
        for topic in self._topics:
            for asked in topic.partitions:
                key = (topic.name, asked.partition_index)
                seen[key] = seen.get(key, 0) + 1
                count += 1
                if not count % PIECE:
                    yield count
        for topic in self._topics:
            entries = list[ListOffsetsPartitionResponse]()
            self.response.topics.append(ListOffsetsTopicResponse(topic.name, entries))
            for asked in topic.partitions:
                entry = ListOffsetsPartitionResponse(asked.partition_index)
                entries.append(entry)
                key = (topic.name, asked.partition_index)
                if seen[key] == 1:
                    self._answer(key, asked, entry)
                else:
                    entry.error_code = ErrorCode.INVALID_REQUEST
                count += 1
                if not count % PIECE:
                    yield count

    async def finish(self) -> None:
        """Goes on with what is slow, one after another."""
        for entry, partition, leader_epoch, search, step in self.slow:
            try:
                found = await self._searches.finish(search, step)
                # It changed hands meanwhile, and the log with it; also where it came back.
                if partition.leader is None or partition.leader_epoch != leader_epoch:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {partition.leader_id}")
                self._tell(entry, partition, _found(found))
            except KafkaError as error:
                self._refuse(entry, partition, error)

    def _answer(self, key: tuple[str, int], asked: ListOffsetsPartition, entry: ListOffsetsPartitionResponse) -> None:
        if not is_known(asked.timestamp, self._version):
            entry.error_code = ErrorCode.UNSUPPORTED_VERSION
            return
        partition = self._replicas.partitions.get(key)
        if partition is None:
            entry.error_code = self._replicas.missing_error(*key)
            return
        try:
            partition.require_leader(asked.current_leader_epoch)
            if asked.timestamp == LATEST:
                self._tell(
                    entry, partition, (self._limit(partition), -1, partition.log.epochs.latest_epoch), latest=True
                )
            elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
                start = partition.log.log_start_offset
                self._write(entry, (start, -1, partition.log.epochs.epoch_for_offset(start)))
            elif asked.timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
                self._search(entry, partition, asked.timestamp)
        except KafkaError as error:
            self._refuse(entry, partition, error)

    def _search(self, entry: ListOffsetsPartitionResponse, partition: Partition, timestamp: int) -> None:
        log = partition.log
        if timestamp == MAX_TIMESTAMP:
            timestamp = log.largest_timestamp()
            if timestamp < 0:
                return
        search = log.search(timestamp)
        try:
            self.slow.append(_Slow(entry, partition, partition.leader_epoch, search, next(search)))
        except StopIteration as end:
            self._tell(entry, partition, _found(end.value))

    def _limit(self, partition: Partition) -> int:
        log = partition.log
        if self._is_follower:
            return log.log_end_offset
        return log.last_stable_offset if self._isolation == READ_COMMITTED else log.high_watermark

    def _tell(
        self, entry: ListOffsetsPartitionResponse, partition: Partition, found: Found, *, latest: bool = False
    ) -> None:
        """What a client may know: offsets up to what is committed, once that is certain.

        Raises KafkaError(OFFSET_NOT_AVAILABLE) right after an election, when the last offset could still seem to go back.
        """
        limit = self._limit(partition)
        if not self._is_follower and found[0] >= limit:
            leader = partition.leader
            if leader is None or not leader.has_committed_own_epoch():
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} was elected a moment ago")
            if not latest:
                return
        self._write(entry, found)

    def _write(self, entry: ListOffsetsPartitionResponse, found: Found) -> None:
        entry.offset, entry.timestamp, epoch = found
        entry.leader_epoch = epoch if self._version >= EPOCHS_FROM else NO_EPOCH  # a version that lacks it refuses it

    def _refuse(self, entry: ListOffsetsPartitionResponse, partition: Partition, error: KafkaError) -> None:
        self._replicas.note_damage(partition, error)
        code = error.code
        if code == ErrorCode.OFFSET_NOT_AVAILABLE and self._version < FIRST_WITH_OFFSET_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        entry.error_code = code


def is_known(timestamp: int, version: int) -> bool:
    """Whether it is a time, or a word for one that this version has."""
    return timestamp >= 0 or (timestamp in FIRST_VERSION and version >= FIRST_VERSION[timestamp])


def _found(found: TimestampAndOffset | None) -> Found:
    return NOTHING if found is None else (found.offset, found.timestamp, found.leader_epoch)

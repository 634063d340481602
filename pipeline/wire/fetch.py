"""Reads ranges of partitions from the brokers that have them: all brokers at once, each range in its order.

One request waits at each broker while the last answer is worked on: what comes meanwhile waits in the socket, so that no
more than two answers of a broker are in memory, whatever the size of a partition. The ranges come in the order in which
they were given, and so the same rows in the same order each time they are read.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.connection import Connection
from ottla.pipeline.wire.errors import (
    BrokerError,
    DataLossError,
    PartitionError,
    TopicChangedError,
    UnknownTopicError,
)
from ottla.pipeline.wire.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipeline.wire.reading import Fetched, Next, OldFormatError, Range, Reading
from ottla.pipeline.wire.retries import backoff_s, moves_leader
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID, id_to_text

BY_NAME_MOST = 12
"""The last version of Fetch that names topics."""

PARTITIONS_MOST = 100
"""Of one request."""

WAIT_MAX_MS = 200
"""What is read is there already, so that waiting is only for a follower that is behind, or a leader that is new."""

TRIES_WITHOUT_TOPIC = 5


class _Asked(NamedTuple):
    """A request that waits for its answer: from which offset each range was asked for, and the names of topic ids."""

    readings: list[Reading]
    offsets: list[int]
    names: dict[bytes, str]


class Fetcher:
    """One reading of some ranges. Iterate once; close it where the iteration is given up."""

    def __init__(self, cluster: Cluster, ranges: Sequence[Range], *, skips_loss: bool = False) -> None:
        """``skips_loss``: go on behind records that are gone, and note them in ``lost``; else DataLossError."""
        self.lost: list[DataLossError | TopicChangedError] = []
        self._cluster = cluster
        self._settings = cluster.settings
        self._readings = [Reading(index, each) for index, each in enumerate(ranges)]
        self._pending = [reading for reading in self._readings if not reading.is_done]
        self._skips_loss = skips_loss
        self._connections: dict[int, Connection] = {}
        self._asked: dict[int, _Asked] = {}
        self._tries = 0
        self._without_topic = 0
        self._stuck_since_s: float | None = None

    def __iter__(self) -> Iterator[Fetched]:
        try:
            while self._pending:
                head = self._pending[0]
                if head.inbox:
                    yield head.inbox.pop(0)
                elif head.is_done:
                    self._pending.pop(0)
                else:
                    self._go_on(head)
        finally:
            self.close()

    def node_of(self, index: int) -> int:
        """Who is asked about a range: a replica that is nearer, or the leader."""
        return self._asked_node(self._readings[index])

    def close(self) -> None:
        """Ends what waits for answers; connections without any are kept for the next."""
        for connection in self._connections.values():
            if connection.outstanding:
                connection.close()
            elif connection.is_open:
                self._cluster.keep_connection(connection)
        self._connections.clear()
        self._asked.clear()

    # -- one step -------------------------------------------------------------------------------------------------

    def _go_on(self, head: Reading) -> None:
        """Brings the head further, or raises why it cannot be."""
        try:
            node = self._node_of(head)
            for other in self._nodes(node):
                if not self._asked.get(other):
                    self._ask(other)
            if node in self._asked:
                # Where the head was not asked for, it moved to that node just now: others' answer comes first.
                self._take(node, next_request=head in self._asked[node].readings)
        except BrokerError as error:
            self._cluster.forget()
            self._failed(head, str(error))
        except TopicChangedError as error:
            if not self._skips_loss:
                raise
            self.lost.append(error)
            head.next_offset = head.range.end

    def _nodes(self, first: int) -> list[int]:
        """Who has something to be read, the head's first; without those whose leader nobody knows now."""
        nodes = [first]
        for reading in self._pending[1:]:
            node = -1
            if reading.is_done or reading.inbox:
                continue
            with suppress(UnknownTopicError, PartitionError):  # said when its turn comes
                node = self._asked_node(reading)
            if node >= 0 and node not in nodes:
                nodes.append(node)
        return nodes

    def _node_of(self, reading: Reading) -> int:
        """Whom to ask. Raises BrokerError while nobody leads, TopicChangedError."""
        self._check_topic(reading)
        try:
            node = self._asked_node(reading)
        except (
            PartitionError
        ) as error:  # it came since somebody in this process looked, or a broker has not heard of it
            raise BrokerError("every", "Metadata", str(error)) from None
        if node < 0:
            raise BrokerError("every", "Fetch", f"{_name(reading)} has no leader")
        return node

    def _asked_node(self, reading: Reading) -> int:
        return reading.node if reading.node >= 0 else self._cluster.leader(*reading.range.which)

    def _check_topic(self, reading: Reading) -> None:
        """Raises TopicChangedError when the topic is gone, or is not the one that was planned."""
        planned = reading.range.topic_id
        if _is_same(planned, self._topic_id(reading)):
            return
        self._cluster.forget(reading.range.topic)  # a worker may have known the old one since an earlier task
        found = self._topic_id(reading)
        if planned != found:
            raise TopicChangedError(*reading.range.which, id_to_text(planned), id_to_text(found))

    def _topic_id(self, reading: Reading) -> bytes:
        """Raises TopicChangedError for a topic that was deleted, once brokers agree on it."""
        try:
            found = self._cluster.topic(reading.range.topic).id
        except UnknownTopicError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._without_topic += 1
            if self._without_topic < TRIES_WITHOUT_TOPIC:
                raise BrokerError("every", "Metadata", str(error)) from None
            raise TopicChangedError(*reading.range.which, id_to_text(reading.range.topic_id), "") from None
        self._without_topic = 0
        return found

    def _ask(self, node: int) -> None:
        """Sends a request for what is to be read there, in the order of the ranges."""
        readings = self._to_ask(node)
        if not readings:
            return
        connection = self._connection(node)
        names = {self._topic_id(reading): reading.range.topic for reading in readings}
        version = connection.version("Fetch", BY_NAME_MOST if ZERO_ID in names else 1 << 15, least=4)
        connection.send("Fetch", self._body(readings), version)
        self._asked[node] = _Asked(readings, [reading.next_offset for reading in readings], names)

    def _to_ask(self, node: int) -> list[Reading]:
        """Each partition once; of those that wait for their turn, the ones that have nothing in the inbox yet."""
        found: dict[tuple[str, int], Reading] = {}
        for reading in self._pending:
            which = reading.range.which
            if reading.is_done or which in found or (reading.inbox and reading is not self._pending[0]):
                continue
            with suppress(UnknownTopicError, PartitionError):
                if self._asked_node(reading) == node and self._is_of_the_plan(reading):
                    found[which] = reading
            if len(found) == PARTITIONS_MOST:
                break
        return list(found.values())

    def _is_of_the_plan(self, reading: Reading) -> bool:
        """Another topic of that name is asked for nothing: it is said when its turn comes."""
        return _is_same(reading.range.topic_id, self._cluster.topic(reading.range.topic).id)

    def _connection(self, node: int) -> Connection:
        found = self._connections.get(node)
        if found is None or not found.is_open:
            found = self._connections[node] = self._cluster.take_connection(node)
        return found

    def _body(self, readings: list[Reading]) -> dict[str, Any]:
        topics: dict[str, dict[str, Any]] = {}
        for reading in readings:
            each = reading.range
            asked = topics.setdefault(
                each.topic, {"topic": each.topic, "topic_id": self._topic_id(reading), "partitions": []}
            )
            asked["partitions"].append(
                {
                    "partition": each.partition,
                    "fetch_offset": reading.next_offset,
                    "partition_max_bytes": self._settings.max_partition_fetch_bytes,
                }
            )
        return {
            "replica_id": -1,
            "max_wait_ms": min(WAIT_MAX_MS, self._settings.fetch_max_wait_ms),
            "min_bytes": 1,
            "max_bytes": self._settings.fetch_max_bytes,
            "isolation_level": self._settings.isolation_level,
            "rack_id": self._settings.client_rack,
            "topics": list(topics.values()),
        }

    # -- answers --------------------------------------------------------------------------------------------------

    def _take(self, node: int, *, next_request: bool = True) -> None:
        connection = self._connections[node]
        asked = self._asked[node]
        answer = connection.receive()
        del self._asked[node]
        if answer.error_code:
            raise BrokerError(connection.name, "Fetch", ErrorCode(answer.error_code).name)
        moved = self._absorb(connection, asked, answer)
        if moved:
            self._tries, self._stuck_since_s = 0, None
            if next_request:
                self._ask(node)

    def _absorb(self, connection: Connection, asked: _Asked, answer: Any) -> bool:
        """Gives each range its part; whether any of it brought a range further, or to another node."""
        parts = {
            (topic.topic or asked.names.get(topic.topic_id, ""), part.partition_index): part
            for topic in answer.responses
            for part in topic.partitions
        }
        alone = not any(part.records for part in parts.values())
        moved, waits = False, ""
        for reading, offset in zip(asked.readings, asked.offsets, strict=True):
            if reading.next_offset != offset:
                continue  # another node was asked meanwhile, and was first
            part = parts.get(reading.range.which)
            if part is None:
                raise BrokerError(connection.name, "Fetch", f"it says nothing of {_name(reading)}")
            step = self._step(connection, reading, part, alone)
            moved = moved or step in (Next.READ_ON, Next.ELSEWHERE, Next.TO_THE_LEADER)
            waits = waits or (reading.reason if step is Next.WAIT else "")
        if not moved:
            self._failed(self._pending[0], waits)
        return moved

    def _step(self, connection: Connection, reading: Reading, part: Any, alone: bool) -> Next:
        from_leader = reading.node < 0
        try:
            step = reading.take(
                part, reads_committed=self._settings.reads_committed, alone=alone, from_leader=from_leader
            )
        except OldFormatError as error:
            raise self._error(connection, reading, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error)) from None
        if step is Next.TO_THE_LEADER:
            reading.node = -1
        elif step is Next.OUT_OF_RANGE:
            step = self._out_of_range(connection, reading)
        elif step is Next.REFUSED:
            raise self._error(connection, reading, reading.code)
        if moves_leader(reading.code):
            self._cluster.forget(reading.range.topic)
        return step

    def _out_of_range(self, connection: Connection, reading: Reading) -> Next:
        """The offsets are gone: retention was faster, or the log was cut."""
        which = reading.range.which
        begins = list_offsets(self._cluster, {which: EARLIEST})[which].offset
        ends = list_offsets(self._cluster, {which: LATEST}, isolation=0)[which].offset
        if begins <= reading.next_offset <= ends:
            return Next.WAIT  # it was an old leader's word, or the new one does not know yet
        loss = DataLossError(*which, reading.next_offset, begins, ends, connection.name)
        if not self._skips_loss:
            raise loss
        self.lost.append(loss)
        reading.next_offset = min(begins, reading.range.end) if reading.next_offset < begins else reading.range.end
        return Next.READ_ON

    def _failed(self, reading: Reading, reason: str) -> None:
        """Nothing came: waits for the next try, or gives up. Who was asked is asked anew."""
        for node, connection in list(self._connections.items()):
            if not connection.is_open:
                for each in self._asked.pop(node, _NOTHING).readings:
                    each.node = -1
                del self._connections[node]
        reading.node = -1
        now_s = time.monotonic()
        self._stuck_since_s = now_s if self._stuck_since_s is None else self._stuck_since_s
        if now_s - self._stuck_since_s >= self._settings.api_timeout_s:
            said = f"no progress for {self._settings.api_timeout_s:g} s; last: {reason}"
            code = reading.code or ErrorCode.REQUEST_TIMED_OUT
            raise PartitionError(*reading.range.which, code, reading.next_offset, said=said)
        time.sleep(backoff_s(self._tries, self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms))
        self._tries += 1

    def _error(self, connection: Connection, reading: Reading, code: ErrorCode, said: str = "") -> PartitionError:
        return PartitionError(*reading.range.which, code, reading.next_offset, connection.name, said)


_NOTHING = _Asked([], [], {})


def _is_same(planned: bytes, found: bytes) -> bool:
    """As far as anybody knows: not every cluster has ids."""
    return ZERO_ID in (planned, found) or planned == found


def _name(reading: Reading) -> str:
    return f"{reading.range.topic}-{reading.range.partition}"

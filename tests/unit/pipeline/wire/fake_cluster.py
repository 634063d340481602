"""A cluster without sockets: brokers that keep what is produced, know sequences and transactions, and fail as they are told."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from types import SimpleNamespace
from typing import Any

from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.wire.errors import ConnectionLostError, PartitionError, UnknownTopicError
from ottla.pipeline.wire.metadata import Partition, Topic
from ottla.pipeline.wire.settings import ClientSettings
from ottla.runtime.errors import ErrorCode

Place = tuple[str, int]
_PRODUCER = Struct(">qhii")
_PRODUCER_AT = 43
_ATTRIBUTES_AT = 21


class FakeCluster:
    """Stands in for wire.cluster.Cluster. ``codes`` and ``losses`` of a partition are used up, one a batch."""

    def __init__(self, **topics: int) -> None:
        self.settings = ClientSettings((("fake", 9092),), retry_backoff_ms=0, retry_backoff_max_ms=0)
        self.leaders: dict[Place, int] = {
            (topic, index): index % 2 for topic, count in topics.items() for index in range(count)
        }
        self.log: dict[Place, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
        self.open: dict[tuple[int, Place], list[tuple[bytes | None, bytes | None]]] = {}
        self.sequences: dict[tuple[int, int, Place], tuple[int, int]] = {}
        self.codes: dict[Place, deque[ErrorCode]] = defaultdict(deque)
        self.losses: dict[Place, deque[str]] = defaultdict(deque)
        self.batches: list[tuple[Place, int, int]] = []
        """Place, first sequence and records of each batch that came, also of those that were refused."""
        self.largest = 1 << 30
        self.epochs: dict[str, int] = {}
        self.ids: dict[str, int] = {}
        self.added: set[Place] = set()
        self.offsets: dict[str, dict[Place, tuple[int, str]]] = defaultdict(dict)
        self.pending: dict[str, dict[tuple[str, Place], tuple[int, str]]] = defaultdict(dict)
        self.coordinator_codes: dict[str, deque[ErrorCode]] = defaultdict(deque)
        self.asked: list[str] = []
        self.forgotten = self.anonymous = 0
        self.before: Callable[[str], None] = lambda _: None

    # -- what a Cluster has ---------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        found = {index: leader for (topic, index), leader in self.leaders.items() if topic == name}
        if not found:
            raise UnknownTopicError(name)
        return Topic(name, b"", False, {index: Partition(index, leader, 0, (0,)) for index, leader in found.items()})

    def leader(self, topic: str, partition: int) -> int:
        if (topic, partition) not in self.leaders:
            raise PartitionError(topic, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.leaders[topic, partition]

    def forget(self, topic: str | None = None) -> None:
        self.forgotten += 1

    def attempts(self, seconds: float | None = None) -> Iterator[int]:
        yield from range(5)

    def dedicated(self, node_id: int) -> "FakeConnection":
        return FakeConnection(self, node_id)

    def ask_any(self, api: str, body: Mapping[str, Any], version: int | None = None) -> Any:
        code = self.coordinator_codes[api].popleft() if self.coordinator_codes[api] else ErrorCode.NONE
        self.anonymous += not code
        return SimpleNamespace(error_code=code, producer_id=self.anonymous, producer_epoch=0)

    def ask_coordinator(
        self, kind: str, key: str, api: str, body: Mapping[str, Any], version: int | None = None
    ) -> Any:
        self.asked.append(api)
        self.before(api)
        code = self.coordinator_codes[api].popleft() if self.coordinator_codes[api] else ErrorCode.NONE
        return getattr(self, f"_{api.lower()}")(key, body, code)

    # -- the transaction's coordinator ----------------------------------------------------------------------------

    def _initproducerid(self, key: str, body: Mapping[str, Any], code: ErrorCode) -> Any:
        if not code:
            self.epochs[key] = self.epochs.get(key, -1) + 1
            self._end(key, False)
        return SimpleNamespace(error_code=code, producer_id=self._id(key), producer_epoch=self.epochs.get(key, -1))

    def _addpartitionstotxn(self, key: str, body: Mapping[str, Any], code: ErrorCode) -> Any:
        code = code or self._stale(key, body["v3_and_below_producer_epoch"])
        parts = [(each["name"], index) for each in body["v3_and_below_topics"] for index in each["partitions"]]
        self.added.update(parts if not code else ())
        told = [
            SimpleNamespace(
                name=topic,
                results_by_partition=[SimpleNamespace(partition_index=index, partition_error_code=code)],
            )
            for topic, index in parts
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=told)

    def _addoffsetstotxn(self, key: str, body: Mapping[str, Any], code: ErrorCode) -> Any:
        return SimpleNamespace(error_code=code or self._stale(key, body["producer_epoch"]))

    def _txnoffsetcommit(self, key: str, body: Mapping[str, Any], code: ErrorCode) -> Any:
        (topic,) = body["topics"]
        (part,) = topic["partitions"]
        code = code or self._stale(body["transactional_id"], body["producer_epoch"])
        if not code:
            where = topic["name"], part["partition_index"]
            self.pending[body["transactional_id"]][key, where] = part["committed_offset"], part["committed_metadata"]
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=code)])])

    def _endtxn(self, key: str, body: Mapping[str, Any], code: ErrorCode) -> Any:
        code = code or self._stale(key, body["producer_epoch"])
        if not code:
            self._end(key, body["committed"])
        return SimpleNamespace(error_code=code)

    def _offsetfetch(self, key: str, body: Mapping[str, Any], code: ErrorCode) -> Any:
        topics = [
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        metadata=metadata,
                        error_code=0,
                    )
                ],
            )
            for (topic, index), (offset, metadata) in self.offsets[key].items()
        ]
        return SimpleNamespace(error_code=code, topics=topics)

    def _id(self, key: str) -> int:
        return self.ids.setdefault(key, 1000 + len(self.ids))

    def _stale(self, key: str, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if epoch == self.epochs[key] else ErrorCode.PRODUCER_FENCED

    def _end(self, key: str, committed: bool) -> None:
        for producer, place in list(self.open):
            if producer == self._id(key):
                rows = self.open.pop((producer, place))
                if committed:
                    self.log[place] += rows
        moved = self.pending.pop(key, {})
        for (group, place), told in moved.items() if committed else ():
            self.offsets[group][place] = told
        self.added.clear()

    # -- a partition's leader -------------------------------------------------------------------------------------

    def append(self, node: int, place: Place, data: bytes) -> ErrorCode:
        producer, epoch, sequence, count = _PRODUCER.unpack_from(data, _PRODUCER_AT)
        self.batches.append((place, sequence, count))
        if self.leaders[place] != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.codes[place]:
            return self.codes[place].popleft()
        if len(data) > self.largest:
            return ErrorCode.MESSAGE_TOO_LARGE
        known = self.sequences.get((producer, epoch, place))
        if known is not None and known == (sequence, count):
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if sequence != (0 if known is None else sum(known)):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        transactional = bool(data[_ATTRIBUTES_AT + 1] & 0x10)
        if transactional and place not in self.added:
            return ErrorCode.INVALID_TXN_STATE
        self.sequences[producer, epoch, place] = sequence, count
        rows = records(data)
        (self.open.setdefault((producer, place), []) if transactional else self.log[place]).extend(rows)
        return ErrorCode.NONE

    def values(self, topic: str, partition: int) -> list[bytes | None]:
        return [value for _, value in self.log[topic, partition]]


class FakeConnection:
    """Only Produce comes here."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster, self.node, self.is_open = cluster, node, True
        self.answers: deque[Any] = deque()

    def version(self, api: str, most: int) -> int:
        return most

    def close(self) -> None:
        self.is_open = False

    def send(self, api: str, body: Mapping[str, Any], version: int) -> None:
        self.cluster.before(api)
        topics = []
        lost = ""
        for topic in body["topic_data"]:
            parts = []
            for part in topic["partition_data"]:
                place = topic["name"], part["index"]
                lost = self.cluster.losses[place].popleft() if self.cluster.losses[place] else lost
                if lost == "request":
                    self.close()
                    raise ConnectionLostError("fake", api, "it closed the connection")
                code = self.cluster.append(self.node, place, part["records"])
                parts.append(SimpleNamespace(index=part["index"], error_code=code, error_message=None))
            topics.append(SimpleNamespace(name=topic["name"], partition_responses=parts))
        self.answers.append(None if lost == "answer" else SimpleNamespace(responses=topics))

    def receive(self) -> Any:
        answer = self.answers.popleft()
        if answer is None:
            self.close()
            raise ConnectionLostError("fake", "Produce", "it closed the connection")
        return answer


def records(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    rows = []
    for batch in Decoder("t", 0, ("key", "value")).feed(data):
        rows += list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return rows

"""What the simulated users do: produce numbered records with acks=all and idempotence, and read everything back."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.broker.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.batch import CorruptBatchError, headers
from ottla.log.records import Record, RecordError, decode_records, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable

RETRY_S = 0.05
PRODUCE_VERSION = 12  # the last one that names topics
FETCH_VERSION = 12
FETCH_BYTES = 4 << 20
LIST_OFFSETS_VERSION = 7
EARLIEST = -2
FOREVER = 2**63 - 1
TOMBSTONE_EVERY = 9  # of a keyed producer's records
ONCE_EVERY = 7
NUMBERS_MAX = 1_000_000  # of one producer
# A segment holds few batches: its indexes, of an entry a batch, are full soon. The records are of 1970: age is no reason.
SMALL_SEGMENTS = {"segment_index_bytes": "96", "index_interval_bytes": "0", "retention_ms": "-1"}

RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # of a fenced leader that does not know yet, and lacks the latest records
)


class BrokenPromise(AssertionError):
    """An answer no correct cluster gives."""


@dataclass
class History:
    """What one producer was promised: (number, offset) of each acknowledged record of its partition.

    With ``keys`` its records have that many keys in turn, and some are tombstones; ``oldest_go``: retention may take the first.
    What was ``given_up`` may stand anywhere, or nowhere.
    ``writer`` tells several producers of a partition apart; ``padding`` bytes make records larger.
    """

    topic: str
    partition: int
    keys: int = 0
    oldest_go: bool = False
    writer: int = 0
    padding: int = 0
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    sent: int = 0

    def key_of(self, number: int) -> bytes:
        """The key of the record of that number; some keys never come again."""
        if not self.keys:
            return b""
        return f"once {number}".encode() if number % ONCE_EVERY == 0 else str(number * number % self.keys).encode()

    def record(self, number: int, offset: int) -> Record:
        """That record, at an offset. Its time rises with its number."""
        text = str(number).encode()
        gone = self.keys > 0 and number % TOMBSTONE_EVERY == 0
        value = None if gone else text.ljust(self.padding, b".")
        name = str(self.writer * NUMBERS_MAX + number).encode()
        return Record(offset, number + 1, self.key_of(number), value, (("number", name),))

    def own(self, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Of the (number, offset) of all records of the partition, those of this producer."""
        first = self.writer * NUMBERS_MAX
        return [(number - first, offset) for number, offset in found if first <= number < first + NUMBERS_MAX]


class Creation(NamedTuple):
    """After several ``tries`` one may still be on its way. ``made``: an answer said so; or else that the name is taken, by an earlier
    try, or in the eyes of a controller that was cut off and has not heard yet that the topic of that name is deleted."""

    tries: int
    made: bool


async def create_topic(client: Client, name: str, partitions: int, replicas: int, **config: str) -> Creation:
    """Until one of that name exists, whatever happens meanwhile. Where names are used again, see whether it was `made`."""
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
    for tries in itertools.count(1):
        try:
            answer = await client.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse)
            told = answer.topics[0].error_code
            if told in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return Creation(tries, told == ErrorCode.NONE)
        except Unreachable:
            pass
        await asyncio.sleep(RETRY_S)
    raise AssertionError("unreachable")


class SimulatedProducer:
    """``batch`` records a batch, one batch in flight, retried with its sequence until it is acknowledged."""

    def __init__(self, client: Client, history: History, interval_s: float, batch: int = 1) -> None:
        self.history = history
        self._batch = batch
        self.on_acknowledged: Callable[[str, int, int], None] = lambda topic, partition, offset: None
        self._client = client
        self._interval_s = interval_s
        self._producer_id = -1
        self._first = 0
        """The number of the record whose sequence is 0."""
        self._leader: tuple[str, int] | None = None
        self._told = 0  # the last error

    async def run(self) -> None:
        """Until cancelled."""
        await self._take_producer_id()
        while True:
            number = self.history.sent
            self.history.sent += self._batch
            self._note(number, await self._send(number))
            await asyncio.sleep(self._interval_s)

    def _note(self, number: int, offset: int) -> None:
        """The batch that begins with that record was acknowledged."""
        for each in range(self._batch):
            self.history.acknowledged.append((number + each, offset + each))
            self.on_acknowledged(self.history.topic, self.history.partition, offset + each)

    async def _take_producer_id(self) -> None:
        while self._producer_id < 0:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
                answer = await self._client.ask_any(request, InitProducerIdResponse)
                if answer.error_code == ErrorCode.NONE:
                    self._producer_id = answer.producer_id
                    return
            except Unreachable:
                pass
            await asyncio.sleep(RETRY_S)

    async def _send(self, number: int) -> int:
        records = [self.history.record(number + each, each) for each in range(self._batch)]
        while True:
            try:
                leader = await self._find_leader()
                batch = encode_batch(
                    records, producer_id=self._producer_id, producer_epoch=0, base_sequence=number - self._first
                )
                found = await self._produce(leader, bytes(batch))
                if found is not None:
                    return found
            except Unreachable:
                pass
            self._leader = None
            await asyncio.sleep(RETRY_S)
            await self._recover(number)

    async def _recover(self, number: int) -> None:
        """The batch that begins with that record was not taken, and is to be tried again."""

    async def _produce(self, leader: tuple[str, int], batch: bytes) -> int | None:
        """The offset, or None when it is to be tried again."""
        data = PartitionProduceData(index=self.history.partition, records=batch)
        topic = TopicProduceData(name=self.history.topic, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])
        answer = await self._client.call(leader, request, ProduceResponse, PRODUCE_VERSION)
        partition = answer.responses[0].partition_responses[0]
        if partition.error_code == ErrorCode.NONE:
            return partition.base_offset
        if partition.error_code in RETRIABLE:
            self._told = partition.error_code
            return None
        raise BrokenPromise(
            f"produce to {self.history.topic}-{self.history.partition}: {ErrorCode(partition.error_code).name}"
        )

    async def _find_leader(self) -> tuple[str, int]:
        while self._leader is None:
            topic, brokers = await self._client.topic(self.history.topic)
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            self._leader = brokers.get(leaders.get(self.history.partition, -1))
            if self._leader is None:
                await asyncio.sleep(RETRY_S)
        return self._leader


async def read_partition(client: Client, topic: str, partition: int) -> list[tuple[int, int]]:
    """(number, offset) of all records up to the high watermark, from the leader, as a consumer sees them.

    It goes on behind each batch it gets, also where compaction has left no record in one, as Kafka's consumers do.
    """
    found: list[tuple[int, int]] = []
    offset = 0
    while True:
        try:
            described, brokers = await client.topic(topic)
            leaders = {each.partition_index: each.leader_id for each in described.partitions}
            where = brokers.get(leaders.get(partition, -1))
            answer = await _fetch(client, where, topic, partition, offset) if where else None
        except Unreachable:
            answer = None
        if answer is None:
            await asyncio.sleep(RETRY_S)
            continue
        high_watermark, records, following = answer
        if high_watermark == FOREVER:
            found.clear()  # it may have forgotten what was read
        found.extend(record for record in records if record[1] >= offset)
        offset = max(offset, following)
        if offset >= high_watermark:
            return found


async def _fetch(
    client: Client, where: tuple[str, int], topic: str, partition: int, offset: int
) -> tuple[int, list[tuple[int, int]], int] | None:
    """(high watermark, records, where to go on), or None when it is to be tried again."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(max_wait_ms=0, max_bytes=FETCH_BYTES, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    answer = await client.call(where, request, FetchResponse, FETCH_VERSION)
    data = answer.responses[0].partitions[0]
    if data.error_code in RETRIABLE:
        return None
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return await _read_on(client, where, topic, partition, offset)
    if data.error_code != ErrorCode.NONE:
        raise BrokenPromise(f"fetch of {topic}-{partition} from {offset}: {ErrorCode(data.error_code).name}")
    view = memoryview(data.records or b"")
    records, following = [], offset
    try:
        for position, header in headers(view):
            for record in decode_records(view, header, position=position):
                records.append((int(record.headers[0][1] or b"-1"), record.offset))
            following = header.next_offset
    except (CorruptBatchError, RecordError) as error:
        raise BrokenPromise(f"fetch of {topic}-{partition} from {offset}: no records: {error}") from error
    return data.high_watermark, records, following


async def _read_on(
    client: Client, where: tuple[str, int], topic: str, partition: int, offset: int
) -> tuple[int, list[tuple[int, int]], int] | None:
    """The log's beginning went away under the reader: it goes on at the new one."""
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)])
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted])
    answer = await client.call(where, request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
    found = answer.topics[0].partitions[0]
    if found.error_code != ErrorCode.NONE:
        return None
    if found.offset <= offset:
        raise BrokenPromise(f"fetch of {topic}-{partition} from {offset}: out of range, it begins at {found.offset}")
    return FOREVER, [], found.offset


def check_history(history: History, found: list[tuple[int, int]], may_lack: Callable[[int], int] = lambda _: 0) -> int:
    """Raises BrokenPromise: every acknowledged record stands at its offset, and each number once, in order.

    Of a compacted topic the last one of each key has to; of one that forgets its oldest, those from the first one found on.
    ``may_lack``: how many of those that were acknowledged at an offset an election was allowed to lose. Returns how many are lost.
    """
    found, given_up = history.own(found), frozenset(history.given_up)
    at_offset = {offset: number for number, offset in found}
    start = found[0][1] if history.oldest_go and found else 0
    latest = {history.key_of(number): offset for number, offset in found}
    lost = Counter[int]()
    for number, offset in history.acknowledged:
        hidden = history.keys > 0 and offset not in at_offset and latest.get(history.key_of(number), -1) > offset
        if at_offset.get(offset) != number and not hidden and offset >= start:
            lost[offset] += 1
            if lost[offset] <= may_lack(offset):
                continue
            raise BrokenPromise(
                f"{history.topic}-{history.partition}: record {number} was acknowledged at offset {offset}; "
                f"there is {at_offset.get(offset, 'nothing')}"
            )
    numbers = [number for number, _ in found if number not in given_up]
    if numbers != sorted(numbers) or len(numbers) != len(dict.fromkeys(numbers)):
        raise BrokenPromise(f"{history.topic}-{history.partition}: records stand twice or out of order")
    return lost.total()
